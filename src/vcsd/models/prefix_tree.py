"""Shared-prefix attention: a prompt and its image go through the model once, for all responses to it.

Only the layers that mix tokens need to know. Their functions are replaced where transformers lets one do so:

  attention     one entry of transformers' AttentionInterface, with sdpa's mask function under the same name;
  delta net     two functions of the modelling module (see `delta_net.py`).

What to do travels as the keyword `mixer=` through the model's forward, so that recomputation under gradient
checkpointing sees it too; a global would already be gone by then. Without the keyword the model is bit for bit what it
is with attn_implementation="sdpa": rollouts, evaluation and padded batches run through the same model.

Shape legend: T tokens in the row, M keys gathered for all segments, H heads, E head width.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from vcsd.errors import ConfigError
from vcsd.models.delta_net import mix_delta_net

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vcsd.models.layout import Layout
    from vcsd.models.vision import RowFeatures

ATTENTION = "vcsd_prefix_tree"
"""Our name in the AttentionInterface. It must not contain "flash": the vision tower would take another branch."""


class Mixer(Protocol):
    """What replaces a layer's attention while `mixer=` is given."""

    def attention(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """(1 or batch, H, tokens, E) each -> (1 or batch, tokens, H, E)."""
        ...


class PrefixTree:
    """Mixes the tokens of one packed row by its layout, and counts the layers that did.

    The row's vision features ride along: the tower gets the same keywords. A plain class on purpose: FSDP2 rebuilds
    dataclasses among a layer's arguments, and the count would be lost.
    """

    def __init__(self, layout: Layout, features: RowFeatures | None = None) -> None:
        self.layout, self.features = layout, features

    def attention(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Every segment attends to its ancestors and, causally, to itself."""
        layout = self.layout
        layout.seen["attention"] += 1
        # q and k leave their norms in float32 under autocast, v does not
        dtype = compute_dtype(value)
        query_THE, key_THE, value_THE = (x[0].transpose(0, 1).to(dtype) for x in (query, key, value))
        key_MHE, value_MHE = layout.keys(key_THE), layout.keys(value_THE)
        attend = _varlen if query_THE.is_cuda and dtype in (torch.float16, torch.bfloat16) else _segment_by_segment
        return attend(query_THE, key_MHE, value_MHE, layout, scaling)[None]


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast would multiply x, or its own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _segment_by_segment(
    query_THE: Tensor, key_MHE: Tensor, value_MHE: Tensor, layout: Layout, scaling: float | None
) -> Tensor:
    """One call per segment, for the CPU and for float32. The keys are those of the fused kernel."""
    out = []
    pieces = zip(
        torch.split(query_THE, layout.lengths_q),  # split, not slices: a slice's backward allocates a whole row
        torch.split(key_MHE, layout.lengths_k),
        torch.split(value_MHE, layout.lengths_k),
        strict=True,
    )
    for piece in pieces:
        query, key, value = (x.transpose(0, 1)[None] for x in piece)
        num_q, num_k = query.shape[2], key.shape[2]
        see_all_before = torch.ones(num_q, num_k, dtype=torch.bool, device=query.device).tril(num_k - num_q)
        mask = None if num_q == num_k else see_all_before
        many = query.shape[1] != key.shape[1]
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=many
        )
        out.append(mixed[0].transpose(0, 1))
    return torch.cat(out)


def _varlen(query_THE: Tensor, key_MHE: Tensor, value_MHE: Tensor, layout: Layout, scaling: float | None) -> Tensor:
    """One fused call for the whole row; window (-1, 0) is causal, aligned at the end where keys outnumber queries."""
    sizes = (layout.cu_q, layout.cu_k, max(layout.lengths_q), max(layout.lengths_k))
    out: Tensor = varlen_attention()(
        query_THE.contiguous(), key_MHE, value_MHE, *sizes, scale=scaling, window_size=(-1, 0)
    )
    return out


@functools.cache
def varlen_attention() -> Callable[..., Any]:
    """torch's variable-length attention: flash kernels without the flash-attn package."""
    from torch.nn.attention.varlen import varlen_attn

    # torch 2.11 has neither the argument nor the check that asks for it
    takes_gqa = "enable_gqa" in inspect.signature(varlen_attn).parameters
    return functools.partial(varlen_attn, enable_gqa=True) if takes_gqa else varlen_attn


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    mixer: Mixer | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor | None]:
    """The entry in the AttentionInterface."""
    if mixer is None:
        plain: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
        return plain
    assert not settings.get("dropout"), "attention dropout under a mixer"
    return mixer.attention(module, query, key, value, settings.get("scaling")), None


def install(model: PreTrainedModel) -> None:
    """Let `model` understand `mixer=`. Without the keyword nothing changes; calling twice does no harm."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation({"text_config": ATTENTION})
    mix_delta_net(model)


def refuse_dropout(model: nn.Module) -> None:
    """Raise if any dropout is set: a shared prompt would be dropped once where n prompts are dropped n times."""
    config = getattr(model, "config", None)
    text = config.get_text_config() if config is not None else None
    problems = [
        f"{name} has dropout {module.p}, but shared-prefix scoring has none. Set it to 0."
        for name, module in model.named_modules()
        if isinstance(module, nn.Dropout) and module.p > 0
    ]
    if getattr(text, "attention_dropout", 0.0):
        problems.append(
            f"attention_dropout = {text.attention_dropout} in the text config, "  # type: ignore[union-attr]
            "but shared-prefix scoring has none. Set it to 0."
        )
    if problems:
        raise ConfigError(problems)


@contextmanager
def every_layer_mixes(model: PreTrainedModel, layout: Layout) -> Iterator[None]:
    """Put one forward inside: raises if a mixing layer did not see the layout, as after a change in transformers."""
    layout.seen.clear()  # recomputation in an earlier backward counted too
    yield
    expected = count_mixing_layers(model)
    seen = {kind: layout.seen[kind] for kind in expected}
    if seen != expected:
        raise RuntimeError(
            f"shared-prefix scoring reached {seen} mixing layers of {expected}: responses would see each other. "
            f"{type(model).__name__} of this transformers release does not pass `mixer=` on; use the padded batch."
        )


def count_mixing_layers(model: PreTrainedModel) -> dict[str, int]:
    """How many calls of each kind one forward makes."""
    text = model.config.get_text_config()
    types = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    linear = types.count("linear_attention")
    counts = {"attention": len(types) - linear, "convolution": linear, "delta": linear}
    return {kind: count for kind, count in counts.items() if count}
