"""The gated delta rule from chunk to chunk in one kernel: the state stays in registers.

Derivation
----------
A chunk of C tokens starts from a state S, a matrix from keys to values. The inputs depend on the chunk alone: `read`
(queries), `expected` (reads the old values of its keys), `written` (new values), `writer` (keys to write with), `inner`
(how its tokens read each other), `shrink` (the decay of S over the chunk). Then

    new  = written - expected S
    out  = read S + inner new
    S'   = shrink S + writer^T new        the state at the start of the next chunk

and backward, from the last chunk to the first, with dS' the gradient on the state after the chunk,

    dnew = inner^T dout + writer dS'
    dS   = shrink dS' + read^T dout - expected^T dnew
    dwritten = dnew      dexpected = -dnew S^T      dread  = dout S^T
    dinner = dout new^T  dwriter   = new dS'^T      dshrink = Σ dS' S

Only dnew and dS depend on the next chunk and need a loop; dshrink is computed there too, since both its factors are at
hand. The other four are batched products over all chunks afterwards.

Precision
---------
Products take both factors in the type of `read` and accumulate in float32; they are exact if that type is float32. The
state and its gradient are carried in float32 and rounded for products and for saving.

Order
-----
One program per BLOCK_V columns of the values of one head. Columns of S are independent except in dshrink, whose partial
sums are added in a fixed order. There are no atomics, so results are bitwise repeatable.

Memory
------
`out` is written as the layer needs it, (N, L, H, V), without the padding of the last chunk. For the backward, `new` and
the states at the start of each chunk are saved in the type of `read`; the states take K / C times the memory of `new`.
Transposed factors are loaded transposed: Triton 3.4 to 3.7.0 on Hopper multiplies by the transpose of a computed tile
incorrectly (flash-linear-attention issue 640).

Shape legend: N sequences, L tokens, H heads, M = N H, J chunks, C tokens of a chunk, K width of a key, V width of a
value, P blocks of V.
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
from vcsd.kernels.device import CHUNK_SIZES, WIDTHS, on_device_of
from vcsd.kernels.tiles import product

BLOCK_V, NUM_WARPS = 64, 4
"""Columns of the state per program: two programs for a head of 128, so that 64 heads fill 132 multiprocessors once.
With more warps, Triton computes each product of 64 rows twice."""

EXACT_BLOCK_V, EXACT_NUM_WARPS = 16, 8
"""The same in float32, whose products read their factors from registers instead of shared memory."""

STAGED_K = 128
"""Up to this width, keys of the next chunk are loaded while this chunk is computed; wider ones do not fit into shared
memory. Never in float32, where products need the registers."""


def delta_scan(
    read_MJCK: Tensor,
    expected_MJCK: Tensor,
    written_MJCV: Tensor,
    writer_MJCK: Tensor,
    inner_MJCC: Tensor,
    shrink_MJ: Tensor,
    state_MKV: Tensor | None,
    *,
    num_sequences: int,
    length: int,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The output of every token (N, L, H, V) in `out_dtype`, and the state after the last chunk (M, K, V) in float32.

    Head h of sequence n is at m = n H + h. `written`, `shrink` and `state`, the state before the first chunk (None:
    zeros), are float32; the others share one type.
    """
    M, J, C, K = read_MJCK.shape
    V = written_MJCV.shape[-1]
    assert C in CHUNK_SIZES, f"chunks of {C} tokens; known are {CHUNK_SIZES}"
    assert K in WIDTHS, f"keys of width {K}; known are {WIDTHS}"
    assert V in WIDTHS, f"values of width {V}; known are {WIDTHS}"
    assert M % num_sequences == 0, "sequences with different numbers of heads"
    assert (J - 1) * C < length <= J * C or J == length == 0, f"{J} chunks of {C} tokens do not fit {length} tokens"
    assert expected_MJCK.shape == writer_MJCK.shape == read_MJCK.shape
    assert written_MJCV.shape == (M, J, C, V)
    assert inner_MJCC.shape == (M, J, C, C)
    assert shrink_MJ.shape == (M, J)
    assert read_MJCK.dtype == expected_MJCK.dtype == writer_MJCK.dtype == inner_MJCC.dtype
    assert written_MJCV.dtype == shrink_MJ.dtype == torch.float32
    assert state_MKV is None or (state_MKV.shape == (M, K, V) and state_MKV.dtype == torch.float32)
    given = (read_MJCK, expected_MJCK, written_MJCV, writer_MJCK, inner_MJCC, shrink_MJ, state_MKV)
    has_backward = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)
    shape_NLHV = (num_sequences, length, M // num_sequences, V)
    out_NLHV, last_MKV = _DeltaScan.apply(*given, shape_NLHV, out_dtype, has_backward)
    return out_NLHV, last_MKV


class _Context(AutogradContext, Protocol):
    shape_NLHV: tuple[int, int, int, int]
    out_dtype: torch.dtype


class _DeltaScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context,
        read: Tensor,
        expected: Tensor,
        written: Tensor,
        writer: Tensor,
        inner: Tensor,
        shrink: Tensor,
        state: Tensor | None,
        shape_NLHV: tuple[int, int, int, int],
        out_dtype: torch.dtype,
        has_backward: bool,
    ) -> tuple[Tensor, Tensor]:
        read, expected, written, writer, inner, shrink = (
            x.contiguous() for x in (read, expected, written, writer, inner, shrink)
        )
        (M, J, C, K), V = read.shape, written.shape[-1]
        out_NLHV = read.new_empty(shape_NLHV, dtype=out_dtype)
        last_MKV = read.new_empty(M, K, V, dtype=torch.float32)
        new_MJCV = read.new_empty(M, J, C, V) if has_backward else None
        states_MJKV = read.new_empty(M, J, K, V) if has_backward else None
        grid, settings = _launch(read, V)
        if M > 0:
            with on_device_of(read):
                _forward_kernel[grid](
                    *(read, expected, written, writer, inner, shrink, None if state is None else state.contiguous()),
                    *(out_NLHV, last_MKV, new_MJCV, states_MJKV),
                    *(J, *shape_NLHV[1:3]),
                    **settings,
                )
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(read, expected, writer, inner, shrink, new_MJCV, states_MJKV)
        ctx.shape_NLHV, ctx.out_dtype = shape_NLHV, out_dtype
        return out_NLHV, last_MKV

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, dout: Tensor | None, dlast: Tensor | None) -> tuple[Tensor | None, ...]:
        read, expected, writer, inner, shrink, new, states = ctx.saved_tensors
        (M, J, _, K), (_, L, H, V) = read.shape, ctx.shape_NLHV
        if dout is None:
            dout = read.new_zeros(ctx.shape_NLHV, dtype=ctx.out_dtype)
        needs = ctx.needs_input_grad
        dout_MJCV, minus_dnew_MJCV, dstates_MJKV = (torch.empty_like(x) for x in (new, new, states))
        dwritten_MJCV = torch.empty_like(new, dtype=torch.float32)
        grid, settings = _launch(read, V)
        dshrink_MJP = shrink.new_empty(M, J, V // settings["BLOCK_V"])
        dstate_MKV = read.new_empty(M, K, V, dtype=torch.float32) if needs[6] else None
        if M > 0:
            with on_device_of(read):
                _backward_kernel[grid](
                    *(read, expected, writer, inner, shrink, states, dout.contiguous()),
                    None if dlast is None else dlast.contiguous(),
                    *(dout_MJCV, dwritten_MJCV, minus_dnew_MJCV, dstates_MJKV, dshrink_MJP, dstate_MKV),
                    *(J, L, H),
                    **settings,
                )
        return (
            _by_transpose(dout_MJCV, states) if needs[0] else None,
            _by_transpose(minus_dnew_MJCV, states) if needs[1] else None,
            dwritten_MJCV if needs[2] else None,
            _by_transpose(new, dstates_MJKV) if needs[3] else None,
            _by_transpose(dout_MJCV, new) if needs[4] else None,
            dshrink_MJP.sum(-1) if needs[5] else None,
            dstate_MKV,
            *(None, None, None),
        )


def _by_transpose(left_MJCV: Tensor, right_MJEV: Tensor) -> Tensor:
    """left right^T of every chunk, in their own type."""
    with torch.autocast(left_MJCV.device.type, enabled=False):
        return left_MJCV @ right_MJEV.transpose(-1, -2)


def _launch(read_MJCK: Tensor, V: int) -> tuple[tuple[int], dict[str, int]]:
    """The grid, and what the kernels are compiled for."""
    M, _, C, K = read_MJCK.shape
    is_exact = read_MJCK.dtype == torch.float32
    columns = min(V, EXACT_BLOCK_V if is_exact else BLOCK_V)
    return (M * (V // columns),), {
        **{"C": C, "K": K, "V": V, "BLOCK_V": columns},
        "CAST": not read_MJCK.is_cuda,
        "num_warps": EXACT_NUM_WARPS if is_exact else NUM_WARPS,
        "num_stages": 1 if is_exact or K > STAGED_K else 2,
    }


@triton.jit(do_not_specialize=["J", "L"])
def _forward_kernel(
    read_ptr, expected_ptr, written_ptr, writer_ptr, inner_ptr, shrink_ptr, state_ptr,
    out_ptr, last_ptr, new_ptr, states_ptr,
    J, L, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """BLOCK_V columns of one head through all chunks; states and new are None without a backward."""
    NUM_V: tl.constexpr = V // BLOCK_V
    m = tl.program_id(0) // NUM_V
    c, k = tl.arange(0, C), tl.arange(0, K)
    v = tl.program_id(0) % NUM_V * BLOCK_V + tl.arange(0, BLOCK_V)
    in_CK, in_KC = c[:, None] * K + k[None, :], k[:, None] + c[None, :] * K
    in_CC = c[:, None] * C + c[None, :]
    in_CV, in_KV = c[:, None] * V + v[None, :], k[:, None] * V + v[None, :]
    # the first token of the sequence, in rows of V
    first = (m // H).to(tl.int64) * L * H + m % H
    head = m.to(tl.int64)
    state = tl.zeros([K, BLOCK_V], tl.float32)
    if state_ptr is not None:
        state = tl.load(state_ptr + head * (K * V) + in_KV)
    for j in range(J):
        chunk = head * J + j
        expected = tl.load(expected_ptr + chunk * (C * K) + in_CK)
        known = state.to(expected.dtype)
        if states_ptr is not None:
            tl.store(states_ptr + chunk * (K * V) + in_KV, known)
        zeros = tl.zeros([C, BLOCK_V], tl.float32)
        looked_up = product(expected, known, zeros, "ieee", CAST)
        new = (tl.load(written_ptr + chunk * (C * V) + in_CV) - looked_up).to(expected.dtype)
        if new_ptr is not None:
            tl.store(new_ptr + chunk * (C * V) + in_CV, new)
        read = tl.load(read_ptr + chunk * (C * K) + in_CK)
        inner = tl.load(inner_ptr + chunk * (C * C) + in_CC)
        out = product(inner, new, product(read, known, zeros, "ieee", CAST), "ieee", CAST)
        t = j * C + c
        token = first + t.to(tl.int64) * H
        tl.store(out_ptr + token[:, None] * V + v[None, :], out, mask=(t < L)[:, None])
        writer_KC = tl.load(writer_ptr + chunk * (C * K) + in_KC)
        shrink = tl.load(shrink_ptr + chunk)
        state = product(writer_KC, new, state * shrink, "ieee", CAST)
    tl.store(last_ptr + head * (K * V) + in_KV, state)


@triton.jit(do_not_specialize=["J", "L"])
def _backward_kernel(
    read_ptr, expected_ptr, writer_ptr, inner_ptr, shrink_ptr, states_ptr, grad_ptr, dlast_ptr,
    dout_ptr, dwritten_ptr, minus_dnew_ptr, dstates_ptr, dshrink_ptr, dstate_ptr,
    J, L, H,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK_V: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """The same columns, last chunk first: gradients that depend on the next chunk, and factors of the others.

    dout is `grad` by chunks, zero for the padding of the last one; dstates is the gradient on the state after each
    chunk. dlast is None for zeros; dstate is None if it is not needed.
    """
    NUM_V: tl.constexpr = V // BLOCK_V
    m, block = tl.program_id(0) // NUM_V, tl.program_id(0) % NUM_V
    c, k = tl.arange(0, C), tl.arange(0, K)
    v = block * BLOCK_V + tl.arange(0, BLOCK_V)
    in_CK, in_KC = c[:, None] * K + k[None, :], k[:, None] + c[None, :] * K
    in_CC_transposed = c[:, None] + c[None, :] * C
    in_CV, in_KV = c[:, None] * V + v[None, :], k[:, None] * V + v[None, :]
    first = (m // H).to(tl.int64) * L * H + m % H
    head = m.to(tl.int64)
    dstate = tl.zeros([K, BLOCK_V], tl.float32)
    if dlast_ptr is not None:
        dstate = tl.load(dlast_ptr + head * (K * V) + in_KV)
    for back in range(J):
        j = J - 1 - back
        chunk = head * J + j
        writer = tl.load(writer_ptr + chunk * (C * K) + in_CK)
        rounded = dstate.to(writer.dtype)
        tl.store(dstates_ptr + chunk * (K * V) + in_KV, rounded)
        state = tl.load(states_ptr + chunk * (K * V) + in_KV).to(tl.float32)
        tl.store(dshrink_ptr + chunk * NUM_V + block, tl.sum(tl.sum(dstate * state, 1), 0))
        t = j * C + c
        token = first + t.to(tl.int64) * H
        grad = tl.load(grad_ptr + token[:, None] * V + v[None, :], mask=(t < L)[:, None], other=0.0)
        dout = grad.to(writer.dtype)
        tl.store(dout_ptr + chunk * (C * V) + in_CV, dout)
        zeros = tl.zeros([C, BLOCK_V], tl.float32)
        inner_transposed = tl.load(inner_ptr + chunk * (C * C) + in_CC_transposed)
        dnew = product(inner_transposed, dout, product(writer, rounded, zeros, "ieee", CAST), "ieee", CAST)
        tl.store(dwritten_ptr + chunk * (C * V) + in_CV, dnew)
        minus_dnew = (-dnew).to(writer.dtype)
        tl.store(minus_dnew_ptr + chunk * (C * V) + in_CV, minus_dnew)
        read_KC = tl.load(read_ptr + chunk * (C * K) + in_KC)
        shrink = tl.load(shrink_ptr + chunk)
        dstate = product(read_KC, dout, dstate * shrink, "ieee", CAST)
        expected_KC = tl.load(expected_ptr + chunk * (C * K) + in_KC)
        dstate = product(expected_KC, minus_dnew, dstate, "ieee", CAST)
    if dstate_ptr is not None:
        tl.store(dstate_ptr + head * (K * V) + in_KV, dstate)
