"""The gated norm of delta nets in one kernel: each element of a head and its gate is read once and written once.

Derivation
----------
For one head x of E elements with gate a, with r = 1 / sqrt(mean(x²) + eps), n = x r and σ short for σ(a),

    y = n weight silu(a),  silu(a) = a σ

and, with g the gradient on y and h = g weight silu(a) the one on n,

    dx      = r (h - n mean(h n))
    da      = g n weight σ (1 + a (1 - σ))
    dweight = Σ g n silu(a)  over all heads of all tokens

Only x and a are saved for the backward, which computes r again. Heads are summed in groups of HEADS_PER_SUM, tile by
tile, then over the groups: a fixed order, without atomics.

Arithmetic is in float32 for all input types, and rounded once, to the type of x.

Shape legend: R heads of all tokens, E head width, P partial sums.
"""

# Kernels only look like Python: their arguments are pointers and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcsd.kernels.context import AutogradContext
from vcsd.kernels.device import on_device_of
from vcsd.kernels.tiles import load_rows, store_rows

TILE = 2048
"""Elements that a program holds at a time, or one head if that is more. At most the heads of one sum."""

HEADS_PER_SUM = 256
NUM_WARPS = 4


def gated_norm(x: Tensor, gate: Tensor, weight_E: Tensor, eps: float) -> Tensor:
    """`rms_norm(x) * weight * silu(gate)` over the last dimension, in the type of x. Any strides."""
    assert x.shape == gate.shape, "heads and gates have different shapes"
    out: Tensor = _GatedNorm.apply(x, gate, weight_E, eps)
    return out


class _Context(AutogradContext, Protocol):
    eps: float


class _GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, gate: Tensor, weight_E: Tensor, eps: float) -> Tensor:
        x, gate = x.contiguous(), gate.contiguous()
        ctx.save_for_backward(x, gate, weight_E)
        ctx.eps = eps
        out = torch.empty_like(x)
        R, E, blocks = _sizes(x)
        if R > 0:
            with on_device_of(x):
                _forward_kernel[(triton.cdiv(R, blocks["BLOCK_R"]),)](
                    x, gate, weight_E, out, R, E, eps, **blocks, num_warps=NUM_WARPS
                )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        x, gate, weight_E = ctx.saved_tensors
        grad = grad.contiguous()
        dx, dgate = torch.empty_like(x), torch.empty_like(gate)
        R, E, blocks = _sizes(x)
        num_sums = triton.cdiv(R, HEADS_PER_SUM)
        partial_PE = x.new_empty(num_sums, E, dtype=torch.float32) if ctx.needs_input_grad[2] else None
        if R > 0:
            with on_device_of(x):
                _backward_kernel[(num_sums,)](
                    *(x, gate, weight_E, grad, dx, dgate, partial_PE, R, E, ctx.eps),
                    **blocks,
                    HEADS=HEADS_PER_SUM,
                    num_warps=NUM_WARPS,
                )
        return dx, dgate, None if partial_PE is None else partial_PE.sum(0).to(weight_E.dtype), None


def _sizes(x: Tensor) -> tuple[int, int, dict[str, int]]:
    E = x.shape[-1]
    width = triton.next_power_of_2(E)
    return x.numel() // E, E, {"BLOCK_R": max(1, min(HEADS_PER_SUM, TILE // width)), "BLOCK_E": width}


@triton.jit(do_not_specialize=["R"])
def _forward_kernel(
    x_ptr, gate_ptr, weight_ptr, out_ptr, R, E, eps, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr
):  # fmt: skip
    """y of BLOCK_R heads."""
    row, e = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_E)
    weight = tl.load(weight_ptr + e, mask=e < E, other=0.0).to(tl.float32)[None, :]
    x = load_rows(x_ptr, E, row, e, row < R, E)
    gate = load_rows(gate_ptr, E, row, e, row < R, E)
    r = tl.rsqrt(tl.sum(x * x, 1) / E + eps)
    store_rows(out_ptr, row, e, x * r[:, None] * weight * gate * tl.sigmoid(gate), R, E)


@triton.jit(do_not_specialize=["R"])
def _backward_kernel(
    x_ptr, gate_ptr, weight_ptr, grad_ptr, dx_ptr, dgate_ptr, partial_ptr, R, E, eps,
    BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """dx and da of HEADS heads, tile by tile, and their part of the gradient of weight. None means not needed."""
    part, e = tl.program_id(0), tl.arange(0, BLOCK_E)
    weight = tl.load(weight_ptr + e, mask=e < E, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros([BLOCK_R, BLOCK_E], tl.float32)
    for start in range(part * HEADS, tl.minimum(part * HEADS + HEADS, R), BLOCK_R):
        row = start + tl.arange(0, BLOCK_R)
        x = load_rows(x_ptr, E, row, e, row < R, E)
        gate = load_rows(gate_ptr, E, row, e, row < R, E)
        grad = load_rows(grad_ptr, E, row, e, row < R, E)
        r = tl.rsqrt(tl.sum(x * x, 1) / E + eps)[:, None]
        sigma = tl.sigmoid(gate)
        n = x * r
        h = grad * weight * gate * sigma
        mean = (tl.sum(h * n, 1) / E)[:, None]
        store_rows(dx_ptr, row, e, r * (h - n * mean), R, E)
        store_rows(dgate_ptr, row, e, grad * n * weight * sigma * (1.0 + gate * (1.0 - sigma)), R, E)
        if partial_ptr is not None:
            total += grad * n * gate * sigma
    if partial_ptr is not None:
        tl.store(partial_ptr + part.to(tl.int64) * E + e, tl.sum(total, 0), mask=e < E)
