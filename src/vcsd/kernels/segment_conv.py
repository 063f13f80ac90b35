"""The short causal convolution of a packed row in one kernel: gather, multiply, add, activate, round once.

Derivation
----------
With source[t, k] the token that tap k of token t reads (`vcsd.kernels.sources`; a missing token counts as zero),

    z[t, c] = bias[c] + Σ_k weight[c, k] x[source[t, k], c]
    y[t, c] = silu(z) = z σ(z), or z

and, with g the gradient on y and σ short for σ(z),

    dz      = g σ (1 + z (1 - σ)), or g
    dx[s]   = Σ weight[k] dz[t]  over all (t, k) with source[t, k] = s
    dweight = Σ_t dz[t] x[source[t, k]]        dbias = Σ_t dz[t]

Order
-----
There are no atomics, so results are bitwise repeatable. dx first adds the taps of a plain convolution in order, then
the other readers in rising order: each response reads the last tokens of its prompt. dweight and dbias are summed in
groups of TOKENS_PER_SUM tokens, tile by tile, then over the groups.

Traffic
-------
All tensors are (T, C) with contiguous channels, the format of the projections before and after the layer: nothing is
transposed or copied. The forward reads x once (the other taps come from the cache) and writes y. Only x is saved for
the backward, which computes z again and holds dz in float32 while it runs.

Arithmetic is in float32 for all input types, and rounded once, to the type of x.

Shape legend: T tokens, C channels, K taps, P partial sums.
"""

# Kernels only look like Python: their arguments are pointers and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcsd.kernels.context import AutogradContext
from vcsd.kernels.device import on_device_of
from vcsd.kernels.sources import MAX_TAPS
from vcsd.kernels.tiles import load_rows, store_rows

if TYPE_CHECKING:
    from vcsd.kernels.sources import Sources

BLOCK_T, BLOCK_C = 32, 128
"""Tokens and channels that a program holds at a time."""

SUM_BLOCK_T = 8
"""Tokens at a time in the kernel that keeps an accumulator per tap."""

TOKENS_PER_SUM = 256
NUM_WARPS = 4


def segment_conv(x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, sources: Sources, *, is_silu: bool) -> Tensor:
    """Each token's activated convolution (T, C) over the last K tokens of its path, in the type of x."""
    assert x_TC.shape == (sources.num_tokens, weight_CK.shape[0]), "the row does not fit the sources or the weight"
    assert weight_CK.shape[1] == sources.num_taps <= MAX_TAPS, "the sources are for another number of taps"
    out: Tensor = _SegmentConv.apply(x_TC, weight_CK, bias_C, sources, is_silu)
    return out


class _Context(AutogradContext, Protocol):
    sources: Sources
    is_silu: bool


class _SegmentConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context, x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, sources: Sources, is_silu: bool
    ) -> Tensor:
        x_TC = _with_channels_together(x_TC)
        ctx.save_for_backward(x_TC, weight_CK, bias_C)
        ctx.sources, ctx.is_silu = sources, is_silu
        out_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format)
        T, C = x_TC.shape
        with on_device_of(x_TC):
            _forward_kernel[(triton.cdiv(T, BLOCK_T) * triton.cdiv(C, BLOCK_C),)](
                *(x_TC, _by_tap(weight_CK), bias_C, sources.source_TK, out_TC),
                *(T, C, x_TC.stride(0)),
                **{"K": sources.num_taps, "SILU": is_silu, "BLOCK_T": BLOCK_T, "BLOCK_C": BLOCK_C},
                num_warps=NUM_WARPS,
            )
        return out_TC

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_TC: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        x_TC, weight_CK, bias_C = ctx.saved_tensors
        grad_TC = _with_channels_together(grad_TC)
        needs_x, *needs_sums = ctx.needs_input_grad[:3]
        weight_KC = _by_tap(weight_CK)
        sums = dz_TC = None
        with on_device_of(x_TC):
            if ctx.is_silu or any(needs_sums):
                dz_TC, sums = _through_activation(ctx, (x_TC, weight_KC, bias_C, grad_TC), any(needs_sums), needs_x)
            dx_TC = _to_sources(ctx.sources, grad_TC if dz_TC is None else dz_TC, weight_KC, x_TC) if needs_x else None
        if sums is None:
            return dx_TC, None, None, None, None
        K = ctx.sources.num_taps
        dweight_CK = sums[:K].T.to(weight_CK.dtype).contiguous() if needs_sums[0] else None
        dbias_C = sums[K].to(bias_C.dtype) if needs_sums[1] else None
        return dx_TC, dweight_CK, dbias_C, None, None


def _through_activation(
    ctx: _Context, tensors: tuple[Tensor, Tensor, Tensor | None, Tensor], sums: bool, needs_dz: bool
) -> tuple[Tensor | None, Tensor | None]:
    """dz (T, C) in float32, if there is an activation; the sums over tokens (K + 1, C): dweight and dbias."""
    x_TC, _, bias_C, grad_TC = tensors
    (T, C), K = x_TC.shape, ctx.sources.num_taps
    num_sums = triton.cdiv(T, TOKENS_PER_SUM)
    dz_TC = x_TC.new_empty(T, C, dtype=torch.float32) if needs_dz and ctx.is_silu else None
    partial = x_TC.new_empty(num_sums, K + 1, C, dtype=torch.float32) if sums else None
    if partial is not None and bias_C is None:
        partial[:, K] = 0.0
    _activation_kernel[(num_sums * triton.cdiv(C, BLOCK_C),)](
        *(*tensors, ctx.sources.source_TK, dz_TC, partial),
        *(T, C, x_TC.stride(0), grad_TC.stride(0)),
        **{"K": K, "SILU": ctx.is_silu, "BLOCK_T": SUM_BLOCK_T, "BLOCK_C": BLOCK_C, "TOKENS": TOKENS_PER_SUM},
        num_warps=NUM_WARPS,
    )
    return dz_TC, None if partial is None else partial.sum(0)


def _to_sources(sources: Sources, dz_TC: Tensor, weight_KC: Tensor, x_TC: Tensor) -> Tensor:
    T, C = x_TC.shape
    dx_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format)
    _sources_kernel[(triton.cdiv(T, BLOCK_T) * triton.cdiv(C, BLOCK_C),)](
        *(dz_TC, weight_KC, sources.source_TK, *sources.elsewhere, dx_TC),
        *(T, C, dz_TC.stride(0)),
        **{"K": sources.num_taps, "BLOCK_T": BLOCK_T, "BLOCK_C": BLOCK_C},
        num_warps=NUM_WARPS,
    )
    return dx_TC


def _with_channels_together(x_TC: Tensor) -> Tensor:
    return x_TC if x_TC.stride(1) == 1 else x_TC.contiguous()


def _by_tap(weight_CK: Tensor) -> Tensor:
    """The weight (K, C) in float32, with contiguous channels like the rows that it multiplies."""
    return weight_CK.detach().T.float().contiguous()


@triton.jit
def _tap(x_ptr, source_ptr, x_row, t, c, T, C, k: tl.constexpr, K: tl.constexpr):
    """The rows of x that tap k of the tokens t reads."""
    source = tl.load(source_ptr + t * K + k, mask=t < T, other=-1)
    return load_rows(x_ptr, x_row, source, c, source >= 0, C)


@triton.jit
def _of_tap(weight_ptr, c, C, k: tl.constexpr):
    """The weight of tap k for each channel."""
    return tl.load(weight_ptr + k * C + c, mask=c < C, other=0.0)[None, :]


@triton.jit(do_not_specialize=["T"])
def _forward_kernel(
    x_ptr, weight_ptr, bias_ptr, source_ptr, out_ptr,
    T, C, x_row,
    K: tl.constexpr, SILU: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y of BLOCK_T tokens and BLOCK_C channels. Neighbouring programs take the other channels of the same tokens."""
    num_c = tl.cdiv(C, BLOCK_C)
    t = tl.program_id(0) // num_c * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(0) % num_c * BLOCK_C + tl.arange(0, BLOCK_C)
    z = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    if bias_ptr is not None:
        z += tl.load(bias_ptr + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    for k in tl.static_range(K):
        z += _of_tap(weight_ptr, c, C, k) * _tap(x_ptr, source_ptr, x_row, t, c, T, C, k, K)
    if SILU:
        z *= tl.sigmoid(z)
    store_rows(out_ptr, t, c, z, T, C)


@triton.jit(do_not_specialize=["T"])
def _activation_kernel(  # noqa: C901, PLR0912, PLR0915  branches are compile-time
    x_ptr, weight_ptr, bias_ptr, grad_ptr, source_ptr, dz_ptr, partial_ptr,
    T, C, x_row, grad_row,
    K: tl.constexpr, SILU: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """dz of TOKENS tokens, tile by tile, and their part of the gradients of weight and bias. None means not needed."""
    num_c = tl.cdiv(C, BLOCK_C)
    part = tl.program_id(0) // num_c
    c = tl.program_id(0) % num_c * BLOCK_C + tl.arange(0, BLOCK_C)
    w_0 = _of_tap(weight_ptr, c, C, 0)
    w_1 = _of_tap(weight_ptr, c, C, 1) if K > 1 else 0.0
    w_2 = _of_tap(weight_ptr, c, C, 2) if K > 2 else 0.0
    w_3 = _of_tap(weight_ptr, c, C, 3) if K > 3 else 0.0
    bias = 0.0
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    sum_0 = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    sum_1 = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    sum_2 = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    sum_3 = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    sum_bias = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for start in range(part * TOKENS, tl.minimum(part * TOKENS + TOKENS, T), BLOCK_T):
        t = start + tl.arange(0, BLOCK_T)
        dz = load_rows(grad_ptr, grad_row, t, c, t < T, C)
        x_0 = _tap(x_ptr, source_ptr, x_row, t, c, T, C, 0, K)
        x_1 = _tap(x_ptr, source_ptr, x_row, t, c, T, C, 1, K) if K > 1 else 0.0
        x_2 = _tap(x_ptr, source_ptr, x_row, t, c, T, C, 2, K) if K > 2 else 0.0
        x_3 = _tap(x_ptr, source_ptr, x_row, t, c, T, C, 3, K) if K > 3 else 0.0
        if SILU:
            z = bias + w_0 * x_0 + w_1 * x_1 + w_2 * x_2 + w_3 * x_3
            sigma = tl.sigmoid(z)
            dz *= sigma * (1.0 + z * (1.0 - sigma))
        if dz_ptr is not None:
            store_rows(dz_ptr, t, c, dz, T, C)
        if partial_ptr is not None:
            sum_0 += dz * x_0
            sum_1 += dz * x_1
            sum_2 += dz * x_2
            sum_3 += dz * x_3
            if bias_ptr is not None:
                sum_bias += dz
    if partial_ptr is not None:
        partial_ptr += part.to(tl.int64) * (K + 1) * C + c
        tl.store(partial_ptr, tl.sum(sum_0, 0), mask=c < C)
        if K > 1:
            tl.store(partial_ptr + C, tl.sum(sum_1, 0), mask=c < C)
        if K > 2:
            tl.store(partial_ptr + 2 * C, tl.sum(sum_2, 0), mask=c < C)
        if K > 3:
            tl.store(partial_ptr + 3 * C, tl.sum(sum_3, 0), mask=c < C)
        if bias_ptr is not None:
            tl.store(partial_ptr + K * C, tl.sum(sum_bias, 0), mask=c < C)


@triton.jit(do_not_specialize=["T"])
def _sources_kernel(
    dz_ptr, weight_ptr, source_ptr, starts_ptr, elsewhere_ptr, dx_ptr,
    T, C, dz_row,
    K: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dx of BLOCK_T tokens and BLOCK_C channels: from the readers of a plain convolution, then from the listed ones."""
    num_c = tl.cdiv(C, BLOCK_C)
    s = tl.program_id(0) // num_c * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(0) % num_c * BLOCK_C + tl.arange(0, BLOCK_C)
    dx = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for k in tl.static_range(K):
        t = s + (K - 1 - k)
        is_reader = tl.load(source_ptr + t * K + k, mask=t < T, other=-1) == s
        dx += _of_tap(weight_ptr, c, C, k) * load_rows(dz_ptr, dz_row, t, c, is_reader, C)
    start = tl.load(starts_ptr + s, mask=s < T, other=0)
    count = tl.load(starts_ptr + s + 1, mask=s < T, other=0) - start
    for i in range(tl.max(count, 0)):
        place = tl.load(elsewhere_ptr + start + i, mask=i < count, other=0)
        weight = load_rows(weight_ptr, C, place % K, c, i < count, C)
        dx += weight * load_rows(dz_ptr, dz_row, place // K, c, i < count, C)
    store_rows(dx_ptr, s, c, dx, T, C)
