"""Rotary embedding in one kernel: each element of a query or key is read once and written once.

Derivation
----------
The first R of the E elements of a head are rotated; the others are copied. Writing 1 and 2 for the two halves of R,
`x * cos + rotate_half(x) * sin` is

    y1 = x1 c1 - x2 s1
    y2 = x2 c2 + x1 s2

This map is linear; its transpose takes the gradient g on y to the gradient on x:

    d1 = g1 c1 + g2 s2
    d2 = g2 c2 - g1 s1

That is the same map with s1 and s2 replaced by -s2 and -s1. In every known model the halves of sin are equal, so it is
the inverse rotation, but the kernel does not rely on that. Only cos and sin are saved, which all layers share.

Arithmetic is in float32 for all input types, and rounded once, to the type of the output. The output is
stored as (B, T, H, E), as attention over packed rows needs it, and returned as (B, H, T, E), as in transformers.

Shape legend: B batch, H heads, T tokens, E head width, R rotated elements of a head.
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

TILE = 2048
"""Elements of each half that a program holds at a time."""


def rotate(x_BHTE: Tensor, cos_BTR: Tensor, sin_BTR: Tensor, dtype: torch.dtype) -> Tensor:
    """`x * cos + rotate_half(x) * sin` (B, H, T, E) in `dtype`; elements from R on are copied. Any strides."""
    shape = (x_BHTE.shape[0], x_BHTE.shape[2], cos_BTR.shape[2])
    out: Tensor = _Rotate.apply(x_BHTE, cos_BTR.expand(shape), sin_BTR.expand(shape), dtype)
    return out


class _Context(AutogradContext, Protocol):
    dtype: torch.dtype


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x_BHTE: Tensor, cos_BTR: Tensor, sin_BTR: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(cos_BTR, sin_BTR)
        ctx.dtype = x_BHTE.dtype
        return _launch(x_BHTE, cos_BTR, sin_BTR, dtype, backward=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_BHTE: Tensor) -> tuple[Tensor, None, None, None]:
        cos_BTR, sin_BTR = ctx.saved_tensors
        return _launch(grad_BHTE, cos_BTR, sin_BTR, ctx.dtype, backward=True), None, None, None


def _launch(x_BHTE: Tensor, cos_BTR: Tensor, sin_BTR: Tensor, dtype: torch.dtype, *, backward: bool) -> Tensor:
    B, H, T, E = x_BHTE.shape
    R = cos_BTR.shape[2]
    out_BHTE = x_BHTE.new_empty((B, T, H, E), dtype=dtype).transpose(1, 2)
    if out_BHTE.numel() == 0:
        return out_BHTE
    half = triton.next_power_of_2(R // 2)
    heads = min(triton.next_power_of_2(H), max(1, TILE // half))
    with on_device_of(x_BHTE):
        _kernel[B * T, triton.cdiv(H, heads)](
            *(x_BHTE, out_BHTE, cos_BTR, sin_BTR),
            *(H, T, R // 2, E),
            *(*x_BHTE.stride(), *out_BHTE.stride()[:3], *cos_BTR.stride(), *sin_BTR.stride()),
            BACKWARD=backward,
            BLOCK_H=heads,
            BLOCK_HALF=half,
            BLOCK_PASS=triton.next_power_of_2(E - R) if E > R else 0,
        )
    return out_BHTE


@triton.jit
def _kernel(
    x_ptr,
    out_ptr,
    cos_ptr,
    sin_ptr,
    H,
    T,
    HALF,
    E,
    x_b,
    x_h,
    x_t,
    x_e,
    out_b,
    out_h,
    out_t,
    cos_b,
    cos_t,
    cos_e,
    sin_b,
    sin_t,
    sin_e,
    BACKWARD: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_PASS: tl.constexpr,
):
    """One token and BLOCK_H of its heads. `name_b`, `_h`, `_t`, `_e` are strides; the output's last one is 1."""
    row = tl.program_id(0).to(tl.int64)
    b, t = row // T, row % T
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
    x_ptr += b * x_b + t * x_t + head * x_h
    out_ptr += b * out_b + t * out_t + head * out_h
    cos_ptr += b * cos_b + t * cos_t
    sin_ptr += b * sin_b + t * sin_t

    e = tl.arange(0, BLOCK_HALF)[None, :]
    in_half = e < HALF
    cos_1 = tl.load(cos_ptr + e * cos_e, mask=in_half, other=0.0).to(tl.float32)
    cos_2 = tl.load(cos_ptr + (e + HALF) * cos_e, mask=in_half, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin_ptr + e * sin_e, mask=in_half, other=0.0).to(tl.float32)
    sin_2 = tl.load(sin_ptr + (e + HALF) * sin_e, mask=in_half, other=0.0).to(tl.float32)
    if BACKWARD:
        sin_1, sin_2 = -sin_2, -sin_1
    mask = in_half & (head < H)
    x_1 = tl.load(x_ptr + e * x_e, mask=mask, other=0.0).to(tl.float32)
    x_2 = tl.load(x_ptr + (e + HALF) * x_e, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + e, x_1 * cos_1 - x_2 * sin_1, mask=mask)
    tl.store(out_ptr + e + HALF, x_2 * cos_2 + x_1 * sin_2, mask=mask)
    if BLOCK_PASS > 0:
        e = 2 * HALF + tl.arange(0, BLOCK_PASS)[None, :]
        mask = (e < E) & (head < H)
        tl.store(out_ptr + e, tl.load(x_ptr + e * x_e, mask=mask), mask=mask)
