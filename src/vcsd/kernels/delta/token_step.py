"""One token of the gated delta rule in one kernel: each element of the state is read once and written once.

Derivation
----------
With q and k optionally normalised (x -> x / sqrt(Σ x² + 1e-6)) and q scaled by K^-1/2, a token updates the state S of
its head and reads it:

    S <- exp(g) S        change = beta (v - S^T k)        S <- S + k change^T        out = S^T q

Columns of S are independent: a program holds BLOCK of them, with all K rows, in registers. Plain torch reads and writes
the state about fifteen times, and the state is the largest tensor of a decoding step (256 rollouts of Qwen3.5-2B:
256 MiB in each of 18 layers).

Arithmetic is in float32 for all input types. The state is updated in place and rounded to its type; out is computed
before that rounding, and rounded to the type of the query.

Shape legend: R rollouts, H heads, K width of a key, V width of a value.
"""

# Kernels only look like Python: their arguments are pointers and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from vcsd.kernels.device import WIDTHS, on_device_of

BLOCK = 32
"""Columns of the state per program."""

NUM_WARPS = 4

_EPSILON = tl.constexpr(1e-6)
"""Added to a key's squared norm, as in the models' own code."""


def delta_step(
    query_RHK: Tensor,
    key_RHK: Tensor,
    value_RHV: Tensor,
    g_RH: Tensor,
    beta_RH: Tensor,
    state_RHKV: Tensor,
    *,
    is_normalised: bool,
) -> Tensor:
    """Update the state in place; return the token's output (R, H, V) in the type of the query. No gradients."""
    (R, H, K), V = query_RHK.shape, value_RHV.shape[-1]
    assert key_RHK.shape == (R, H, K), "queries and keys have different shapes"
    assert value_RHV.shape[:2] == g_RH.shape == beta_RH.shape == (R, H), "different numbers of heads"
    assert state_RHKV.shape == (R, H, K, V), f"the state is {tuple(state_RHKV.shape)}, not {(R, H, K, V)}"
    assert state_RHKV.is_contiguous(), "the state is updated in place"
    assert {K, V} <= set(WIDTHS), f"the kernel supports head widths {WIDTHS}"
    assert not (torch.is_grad_enabled() and any(x.requires_grad for x in (query_RHK, key_RHK, value_RHV)))
    query, key, value = (x if x.stride(2) == 1 else x.contiguous() for x in (query_RHK, key_RHK, value_RHV))
    out = query.new_empty(R, H, V)
    if R * H > 0:
        with on_device_of(query):
            _kernel[(R * H, V // min(BLOCK, V))](
                *(query, key, value, g_RH.contiguous(), beta_RH.contiguous(), state_RHKV, out, H),
                *(*query.stride()[:2], *key.stride()[:2], *value.stride()[:2]),
                **{"K": K, "V": V, "BLOCK": min(BLOCK, V), "NORMALISED": is_normalised, "num_warps": NUM_WARPS},
            )
    return out


@triton.jit
def _head(ptr, row_stride, head_stride, H, i):
    """Elements i of this program's head in float32, from a tensor (R, H, width) with any strides."""
    row, head = tl.program_id(0) // H, tl.program_id(0) % H
    return tl.load(ptr + row.to(tl.int64) * row_stride + head * head_stride + i).to(tl.float32)


@triton.jit
def _unit(x, NORMALISED: tl.constexpr):
    return x * tl.rsqrt(tl.sum(x * x) + _EPSILON) if NORMALISED else x


@triton.jit
def _kernel(
    query_ptr, key_ptr, value_ptr, g_ptr, beta_ptr, state_ptr, out_ptr, H,
    q_row, q_head, k_row, k_head, v_row, v_head,
    K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr, NORMALISED: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of the state of one head of one rollout."""
    head = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, K), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    query = _unit(_head(query_ptr, q_row, q_head, H, i), NORMALISED) * K**-0.5
    key = _unit(_head(key_ptr, k_row, k_head, H, i), NORMALISED)
    value = _head(value_ptr, v_row, v_head, H, j)
    beta = tl.load(beta_ptr + head).to(tl.float32)
    places = state_ptr + head * K * V + i[:, None] * V + j[None, :]
    state = tl.load(places).to(tl.float32) * tl.exp(tl.load(g_ptr + head).to(tl.float32))
    change = beta * (value - tl.sum(state * key[:, None], 0))
    state += key[:, None] * change[None, :]
    tl.store(places, state)
    tl.store(out_ptr + head * V + j, tl.sum(state * query[:, None], 0))
