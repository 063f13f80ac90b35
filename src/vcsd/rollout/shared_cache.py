"""A cache in which the rollouts of a prompt share its keys and values.

A cache forked n ways repeats the prompt's keys and values n times, and every decoding step reads them all. Here they
are stored and read once per prompt; each row keeps only its own tokens. A row attends to both with one softmax over the
scores of the prompt and of its own tokens. The result is exactly that of the forked cache. On CUDA, in steps that are
replayed as a graph, two kernels compute it (`vcsd.kernels.shared_attention`); tests compare them with the torch code
below.

    256 rollouts of 32 prompts with 1,030 tokens each, Qwen3-VL-2B: 3.6 GiB of prompt instead of 28.8 GiB

Delta-net layers have no keys: their states, of a fixed size per row, are forked.

Shape legend: B prompts, P tokens of the longest prompt, R rows, M rows of a prompt at most, S own tokens so far,
H query heads, K key heads, G query heads per key head, E head width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from vcsd.kernels.device import WIDTHS, compute_dtype
from vcsd.models.qwen.fused import kernels_take

if TYPE_CHECKING:
    from torch import nn
    from transformers import DynamicCache

_FIRST_ROOM = 64


class OwnTokens(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values of the rows' own tokens, in a buffer with room for more."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.clock = clock

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write one token per row; return all of them (R, K, S, E), or the whole buffer if shapes must not change."""
        keys, values = self.keys, self.values
        if keys is None or values is None or keys.shape[2] < self.clock.room:
            keys, values = self._grown(keys, key_states), self._grown(values, value_states)
            self.keys, self.values, self.is_initialized = keys, values, True
        keys.index_copy_(2, self.clock.now_1, key_states.to(keys.dtype))
        values.index_copy_(2, self.clock.now_1, value_states.to(values.dtype))
        if self.clock.is_static:
            return keys, values
        return keys[:, :, : self.clock.num_tokens], values[:, :, : self.clock.num_tokens]

    def _grown(self, buffer: Tensor | None, like: Tensor) -> Tensor:
        rows, heads, _, width = like.shape
        # Under autocast, keys come out of their norm in float32: twice the memory, and a slow product.
        # Zeros, since unused places get weight 0, and 0 times NaN is NaN.
        grown = like.new_zeros(rows, heads, self.clock.room, width, dtype=compute_dtype(like))
        if buffer is not None:
            grown[:, :, : buffer.shape[2]] = buffer
        return grown

    def get_seq_length(self) -> int:
        """How many own tokens each row has."""
        return self.clock.num_tokens


class Clock:
    """The number of own tokens of the rows, and the room for them, which doubles when it is full, up to a limit.

    In static mode only the contents of tensors change between two steps, as a CUDA graph requires: attention runs over
    the whole room, and unused places are masked.
    """

    def __init__(self, device: torch.device, limit: int, *, is_static: bool) -> None:
        self.is_static, self.num_tokens, self.limit = is_static, 0, limit
        self.room = min(_FIRST_ROOM, limit)
        self.now_1 = torch.zeros(1, dtype=torch.long, device=device)
        self.is_later_S = torch.arange(self.room, device=device) > 0

    def tick(self) -> bool:
        """Make room for the next token; return whether the buffers must grow."""
        has_grown = self.num_tokens == self.room
        if has_grown:
            assert self.room < self.limit, f"more than {self.limit} tokens"
            self.room = min(2 * self.room, self.limit)
            self.is_later_S = torch.empty(self.room, dtype=torch.bool, device=self.now_1.device)
        self.now_1.fill_(self.num_tokens)
        self.num_tokens += 1
        self.is_later_S.copy_(torch.arange(self.room, device=self.now_1.device) > self.now_1)
        return has_grown


class SharedPrompts:
    """The prompts' keys and values of every layer, and which rows continue which prompt. A `Mixer` for decoding."""

    def __init__(
        self, layers: dict[int, tuple[Tensor, Tensor]], mask_BP: Tensor, prompt_R: Tensor, clock: Clock
    ) -> None:
        self.layers, self.clock = layers, clock
        self.hidden_BP = None if bool(mask_BP.all()) else mask_BP == 0
        self.num_prompts = len(mask_BP)
        self._arrange(prompt_R)

    def keep(self, rows: Tensor) -> None:
        """Keep some rows, and the prompts that still have one."""
        alive_B, prompt_R = torch.unique(self.prompt_R[rows], return_inverse=True)
        if len(alive_B) < self.num_prompts:
            self.layers = {i: (key[alive_B], value[alive_B]) for i, (key, value) in self.layers.items()}
            self.hidden_BP = None if self.hidden_BP is None else self.hidden_BP[alive_B]
            self.num_prompts = len(alive_B)
        self._arrange(prompt_R)

    def _arrange(self, prompt_R: Tensor) -> None:
        """Assign every row a place (prompt, m) in a table of prompts x M rows."""
        self.prompt_R = prompt_R
        self.hidden_R11P = None if self.hidden_BP is None else self.hidden_BP[prompt_R][:, None, None]
        counts_B = torch.bincount(prompt_R, minlength=self.num_prompts)
        self.most = int(counts_B.max())
        first_B = counts_B.cumsum(0) - counts_B
        self.place_R = prompt_R * self.most + torch.arange(len(prompt_R), device=prompt_R.device) - first_B[prompt_R]
        # Rows fill the table in order: no gather is needed.
        self.is_full = len(prompt_R) == self.num_prompts * self.most
        self.row_at = torch.zeros(self.num_prompts * self.most, dtype=torch.long, device=prompt_R.device)
        self.row_at[self.place_R] = torch.arange(len(prompt_R), device=prompt_R.device)
        self.first_B = torch.zeros_like(counts_B) if self.hidden_BP is None else self.hidden_BP.sum(-1)  # left padding

    def attention(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """One query per row over its prompt and its own tokens: (R, H, 1, E), (R, K, S, E) twice -> (R, 1, H, E)."""
        prompt = self.layers[module.layer_idx]  # type: ignore[index]
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        query = query.to(prompt[0].dtype)
        if self.clock.is_static and query.shape[-1] in WIDTHS and kernels_take(query, key, value, *prompt):
            from vcsd.kernels.shared_attention import Places, shared_attention  # here, since it imports Triton

            places = Places(self.row_at, self.place_R, self.first_B)
            return shared_attention(query[:, :, 0], prompt, (key, value), places, self.clock.now_1, scale)[:, None]
        return self.attention_of_torch(query, prompt, (key, value), scale)

    def attention_of_torch(
        self, query: Tensor, prompt: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], scale: float
    ) -> Tensor:
        """The same in plain torch."""
        (prompt_key, prompt_value), (key, value) = prompt, own
        rows, heads, _, width = query.shape
        key_heads, dtype = key.shape[1], query.dtype
        query_RKGE = query.view(rows, key_heads, heads // key_heads, width)
        to_prompt = self._to_rows(_scores(self._to_prompts(query_RKGE), prompt_key))
        if self.hidden_R11P is not None:
            to_prompt = to_prompt.masked_fill(self.hidden_R11P, -torch.inf)
        to_own = _scores(query_RKGE, key)
        if self.clock.is_static:
            to_own = to_own.masked_fill(self.clock.is_later_S, -torch.inf)
        weight = (torch.cat([to_prompt, to_own], -1) * scale).softmax(-1).to(dtype)
        on_prompt, on_own = torch.split(weight, [to_prompt.shape[-1], to_own.shape[-1]], -1)
        mixed_RKGE = self._to_rows(self._to_prompts(on_prompt) @ prompt_value) + on_own @ value
        return mixed_RKGE.reshape(rows, 1, heads, width)

    def _to_prompts(self, x_RKGX: Tensor) -> Tensor:
        """Stack the rows of a prompt as queries: (R, K, G, x) -> (B, K, M * G, x)."""
        _, heads, group, width = x_RKGX.shape
        table = x_RKGX if self.is_full else x_RKGX.index_select(0, self.row_at)
        return table.view(-1, self.most, heads, group, width).transpose(1, 2).flatten(2, 3)

    def _to_rows(self, x_BKMX: Tensor) -> Tensor:
        """The inverse: (B, K, M * G, x) -> (R, K, G, x)."""
        prompts, heads, _, width = x_BKMX.shape
        table = x_BKMX.view(prompts, heads, self.most, -1, width).transpose(1, 2).flatten(0, 1)
        return table if self.is_full else table.index_select(0, self.place_R)


def _scores(query: Tensor, key: Tensor) -> Tensor:
    """Dot products in at least float32: rounding a score to bfloat16 would change its weight by percents."""
    if query.dtype in (torch.float16, torch.bfloat16):
        if not query.is_cuda:
            return query.float() @ key.float().transpose(-1, -2)
        flat = torch.bmm(query.flatten(0, 1), key.flatten(0, 1).transpose(-1, -2), out_dtype=torch.float32)
        return flat.view(*query.shape[:-1], -1)
    return query @ key.transpose(-1, -2)


def share_prompts(
    cache: DynamicCache, mask_BP: Tensor, prompt_R: Tensor, max_new_tokens: int, *, is_static: bool = False
) -> SharedPrompts:
    """Take the prompts out of a prefilled cache, which then holds the rows' own tokens and forked states."""
    assert bool((prompt_R[1:] >= prompt_R[:-1]).all()), "the rows of a prompt must be adjacent"
    layers: dict[int, tuple[Tensor, Tensor]] = {}
    clock = Clock(prompt_R.device, max_new_tokens, is_static=is_static)
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, DynamicLayer):
            assert layer.keys is not None
            assert layer.values is not None
            dtype = compute_dtype(layer.values)
            layers[index] = (layer.keys.to(dtype), layer.values.to(dtype))
            cache.layers[index] = OwnTokens(clock)
        else:
            layer.reorder_cache(prompt_R)  # type: ignore[arg-type]
    return SharedPrompts(layers, mask_BP, prompt_R, clock)
