"""Decoding n rollouts of each prompt after one pass over it: prefill, fork, step, drop.

    decoder = prefill(model, prompts)       # every prompt once; decoder.logits predict the first new token
    decoder.fork(prompt_of_row, 512)        # one row per rollout, with room for 512 tokens
    logits = decoder.step(tokens)           # one token per row
    decoder.keep(rows)                      # finished rows are dropped

Families that share prefixes keep a prompt's keys and values once for all its rollouts (`shared_cache.py`); the fallback
repeats them. Positions are explicit: no state is read from the model or left on it.

Shape legend: B prompts, P tokens of the longest prompt, R rows (live rollouts), V vocabulary.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import DynamicCache

from vcsd.models.agreement import check_decoding
from vcsd.models.family import Family, base_model, family_of, pad_token_id
from vcsd.models.qwen.fused import fused_batches
from vcsd.rollout.graph import GraphedStep
from vcsd.rollout.shared_cache import SharedPrompts, share_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.models.packed.packing import Prompt

PREFILL_TOKENS = 32768
"""Prompt tokens per prefill forward: enough to keep a device busy, few enough for its activations."""

_PADDING_OF_CHECK = 2
"""Padding before the prompt while the fallback is checked: it must not change the result."""


class Decoding(Protocol):
    """The interface of a decoder for the engine: the logits of the first new token, then step by step."""

    logits: Tensor

    def fork(self, prompt_R: Tensor, max_new_tokens: int, *, use_graph: bool = False) -> None:
        """Begin one row for every entry."""

    def step(self, token_R: Tensor) -> Tensor:
        """Append one token to every row; return the logits of the next."""

    def keep(self, rows: Tensor) -> None:
        """Keep some rows only."""


class Decoder:
    """The cache of prompts, from which their rollouts are decoded. Made by `prefill`."""

    def __init__(self, model: nn.Module, cache: Any, logits_BV: Tensor, mask_BP: Tensor, next_B: Tensor) -> None:
        self.model, self.cache = model, cache
        self.logits, self.mask, self.next = logits_BV, mask_BP, next_B
        self.family = family_of(model)
        self.shared: SharedPrompts | None = None
        self.graphed: GraphedStep | None = None
        self.num_steps = 0

    def fork(self, prompt_R: Tensor, max_new_tokens: int, *, use_graph: bool = False) -> None:
        """Begin one row for every entry, the index of its prompt. Rows of a prompt must be adjacent."""
        self.logits, self.next = self.logits[prompt_R], self.next[prompt_R]
        if self.family.shares_prefix:
            self.shared = share_prompts(self.cache, self.mask, prompt_R, max_new_tokens, is_static=use_graph)
            self.graphed = GraphedStep() if use_graph else None
        else:
            self.cache.reorder_cache(prompt_R)
            self.mask = self.mask[prompt_R]

    def step(self, token_R: Tensor) -> Tensor:
        """Append one token to every row; return the logits (R, V) of the next."""
        position_R1 = (self.next + self.num_steps)[:, None]
        self.num_steps += 1
        if self.shared is None:
            self.mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], 1)
        elif self.shared.clock.tick() and self.graphed is not None:
            self.graphed.forget()
        if self.graphed is None:
            return self._forward(token_R, position_R1)
        return self.graphed(self._forward, token_R, position_R1)

    def _forward(self, token_R: Tensor, position_R1: Tensor) -> Tensor:
        inputs: dict[str, object] = {"input_ids": token_R[:, None], "past_key_values": self.cache, "use_cache": True}
        inputs["position_ids"] = self.family.on_axes(self.model, position_R1[None])
        inputs |= {"attention_mask": self.mask} if self.shared is None else {"mixer": self.shared}
        # Launched one by one, the fused kernels take longer than the operations that they replace.
        with nullcontext() if self.graphed is None else _fused_layers(token_R.device):
            logits_R1V: Tensor = self.model(**inputs).logits
        return logits_R1V[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Keep some rows only, by index."""
        self.next = self.next[rows]
        if self.graphed is not None:
            self.graphed.forget()
        if self.shared is not None:
            self.shared.keep(rows)
        else:
            self.mask = self.mask[rows]
        self.cache.reorder_cache(rows)


def prefill(model: nn.Module, prompts: Sequence[Prompt]) -> Decoder:
    """Compute each prompt once, left padded, with at most `PREFILL_TOKENS` tokens per forward."""
    family, longest = family_of(model), max(len(prompt.input_ids) for prompt in prompts)
    if not family.shares_prefix:
        check_decoding(model, family, prompts, partial(_decoded, model, family))
    per_forward = max(1, PREFILL_TOKENS // longest)
    parts = [
        _prefill(model, family, prompts[start : start + per_forward], longest)
        for start in range(0, len(prompts), per_forward)
    ]
    caches, logits, masks, nexts = zip(*parts, strict=True)
    return Decoder(model, _join(caches), torch.cat(logits), torch.cat(masks), torch.cat(nexts))


def _prefill(
    model: nn.Module, family: Family, prompts: Sequence[Prompt], longest: int
) -> tuple[DynamicCache, Tensor, Tensor, Tensor]:
    base = base_model(model)
    ids_BP = torch.full((len(prompts), longest), pad_token_id(base))
    mask_BP = torch.zeros_like(ids_BP)
    for row, mask, prompt in zip(ids_BP, mask_BP, prompts, strict=True):
        row[longest - len(prompt.input_ids) :] = prompt.input_ids
        mask[longest - len(prompt.input_ids) :] = 1
    inputs, next_B = family.prompt_inputs(model, prompts, mask_BP)
    cache = DynamicCache(config=base.config.get_text_config())
    device = base.device
    with _fused_layers(device):
        out = model(
            input_ids=ids_BP.to(device),
            attention_mask=mask_BP.to(device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **{name: tensor.to(device) for name, tensor in inputs.items()},
        )
    return cache, out.logits[:, -1], mask_BP.to(device), next_B.to(device)


def _fused_layers(device: torch.device) -> AbstractContextManager[None]:
    """Fuse operations on CUDA; the CPU runs transformers' own code."""
    return fused_batches() if device.type == "cuda" else nullcontext()


def _decoded(model: nn.Module, family: Family, prompt: Prompt, response: list[int]) -> Tensor:
    """The logits (N, V) of a response, decoded step by step after a prompt with a little padding."""
    decoder = Decoder(model, *_prefill(model, family, [prompt], len(prompt.input_ids) + _PADDING_OF_CHECK))
    tokens = torch.tensor(response, device=decoder.logits.device)
    decoder.fork(torch.zeros_like(tokens[:1]), len(response))
    return torch.cat([decoder.logits, *(decoder.step(token[None]) for token in tokens[:-1])])


def _join(caches: Sequence[DynamicCache]) -> DynamicCache:
    """Join caches of equal length. They are emptied layer by layer, so that memory holds them only once."""
    first = caches[0]
    for index, layer in enumerate(first.layers if len(caches) > 1 else ()):
        parts = [cache.layers[index] for cache in caches]
        for name in ("keys", "values"):
            if isinstance(getattr(layer, name, None), torch.Tensor):
                joined = torch.cat([getattr(part, name) for part in parts])
                for part in parts:
                    setattr(part, name, None)
                setattr(layer, name, joined)
        for name in ("conv_states", "recurrent_states"):
            states: list[Tensor] = getattr(layer, name, None) or []
            for state in range(len(states)):
                joined = torch.cat([getattr(part, name)[state] for part in parts])
                for part in parts:
                    getattr(part, name)[state] = None
                states[state] = joined
    return first
