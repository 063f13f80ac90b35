"""Attention over a packed row, where every segment sees its ancestors and, causally, itself. Three implementations:

    varlen       one fused call for the whole row: CUDA in half precision
    by_level     one padded call per level of the tree: many short segments, where calls cost more than padding
    by_segment   one call per segment: few long segments

Shape legend: T tokens in the row, M keys gathered for all segments, H heads, E head width; in a level, N segments,
L tokens of the longest, S keys of the longest path.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from vcsd.models.packed.layout import Layout

CALL_IN_PAIRS = 2048
"""The cost of one attention call on a CPU (about 0.1 ms), in (query, key) pairs of a small model."""


def attend(query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, layout: Layout, scaling: float | None) -> Tensor:
    """Attention by a layout (T, H, E), with the implementation that suits device, type and segments."""
    if query_THE.is_cuda and query_THE.dtype in (torch.float16, torch.bfloat16):
        return varlen(query_THE, key_THE, value_THE, layout, scaling)
    padding = layout.num_padded_pairs - layout.num_pairs
    implementation = by_level if padding <= CALL_IN_PAIRS * len(layout.segments) else by_segment
    return implementation(query_THE, key_THE, value_THE, layout, scaling)


def by_segment(query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, layout: Layout, scaling: float | None) -> Tensor:
    """One call per segment, with the keys that the fused kernel would get."""
    out = []
    pieces = zip(
        torch.split(query_THE, layout.lengths_q),  # not slices: the backward of a slice allocates a whole row
        torch.split(layout.keys(key_THE), layout.lengths_k),
        torch.split(layout.keys(value_THE), layout.lengths_k),
        strict=True,
    )
    for piece in pieces:
        query, key, value = (x.transpose(0, 1)[None] for x in piece)
        num_q, num_k = query.shape[2], key.shape[2]
        sees_all_before = torch.ones(num_q, num_k, dtype=torch.bool, device=query.device).tril(num_k - num_q)
        mixed = _dense(query, key, value, None if num_q == num_k else sees_all_before, scaling)
        out.append(mixed[0].transpose(0, 1))
    return torch.cat(out)


def by_level(query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, layout: Layout, scaling: float | None) -> Tensor:
    """One call per level: its keys are the forked keys of the level above, then its own."""
    out = []
    key_NSHE = value_NSHE = None
    for level in layout.levels:
        rows = (query_THE, key_THE, value_THE)
        query, key, value = (level.batch(x).view(*level.shape_NL, *x.shape[1:]) for x in rows)
        if level.fork is not None and key_NSHE is not None and value_NSHE is not None:
            key, value = torch.cat([level.fork(key_NSHE), key], 1), torch.cat([level.fork(value_NSHE), value], 1)
        key_NSHE, value_NSHE = key, value
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        mixed = _dense(query, key, value, level.sees_NLS[:, None], scaling)
        out.append(mixed.transpose(1, 2).flatten(0, 1))
    return layout.unpad(torch.cat(out))


def varlen(query_THE: Tensor, key_THE: Tensor, value_THE: Tensor, layout: Layout, scaling: float | None) -> Tensor:
    """One fused call for the whole row; window (-1, 0) is causal, aligned at the end where keys outnumber queries."""
    sizes = (layout.cu_q, layout.cu_k, max(layout.lengths_q), max(layout.lengths_k))
    key_MHE, value_MHE = layout.keys(key_THE), layout.keys(value_THE)
    out: Tensor = varlen_attention()(
        query_THE.contiguous(), key_MHE, value_MHE, *sizes, scale=scaling, window_size=(-1, 0)
    )
    return out


@functools.cache
def varlen_attention() -> Callable[..., Any]:
    """torch's variable-length attention: flash kernels without the flash-attn package."""
    from torch.nn.attention.varlen import varlen_attn

    # torch 2.11 does not have the argument, and does not need it
    takes_gqa = "enable_gqa" in inspect.signature(varlen_attn).parameters
    return functools.partial(varlen_attn, enable_gqa=True) if takes_gqa else varlen_attn


def _dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """(N, H, L, E) against (N, H, S, E); without a mask, causal."""
    has_groups = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=has_groups
    )
