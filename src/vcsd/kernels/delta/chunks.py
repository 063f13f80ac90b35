"""The part of the gated delta rule within chunks of tokens, in one kernel: the triangular solve and its inputs.

Derivation
----------
With q and k optionally normalised (x -> x / sqrt(Σ x² + 1e-6)), q scaled by K^-1/2, and within one chunk

    total_i    = Σ_(j<=i) g_j        between_ij = exp(total_i - total_j) for j <= i, else 0
    overlap_ij = beta_i (k_i . k_j) between_ij for j < i, else 0        inverse = (I + overlap)^-1

the state S at the chunk's start is read and changed through

    read     = q exp(total)                         inner  = (q_i . k_j) between_ij
    expected = inverse X,  X = beta k exp(total)    writer = k exp(total_last - total)
    written  = inverse Y,  Y = beta v               shrink = exp(total_last)

Tokens beyond the last one are zero: they read nothing and change nothing.

Backward, with dx the gradient on x and P = dexpected X^T + dwritten Y^T,

    dX = inverse^T dexpected        dY = inverse^T dwritten        doverlap = -(inverse^T P inverse^T) for j < i, else 0

The gradients of a token's scalars (g, beta, the norms of q and k) are sums over rows and columns of C x C tiles, since
everything is linear or exponential in them:

    Σ_k dX_ik X_ik = Σ_j inverse_ji (dexpected X^T)_ji,  the same for Y
    Σ_k dq_ik q_ik = Σ_k dread_ik read_ik + Σ_j dinner_ij inner_ij

and Σ_k dk_ik k_ik is such a sum over every term that contains k_i. The first loops over blocks of columns compute the
tiles, the next write dq, dk and dv. dg_i is the sum of dtotal from token i on.

Precision
---------
Sums, decays and the solve are in float32. Two 16-bit tiles are multiplied directly and accumulated in float32. If one
tile is in float32, the product is in TF32, or in float32 for float32 inputs. The inverse comes from `triangular.py`, in
float32 or in three TF32 products.

One program per chunk and no atomics, so results are bitwise repeatable. Only the inputs and the inverse are saved.

Shape legend: N sequences, L tokens, H heads, M sequences times heads, J chunks, C tokens of a chunk, K width of a key,
V width of a value.
"""

# Kernels only look like Python: their arguments are pointers and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcsd.kernels.context import AutogradContext
from vcsd.kernels.delta.triangular import SOLVED, triangular_inverse
from vcsd.kernels.device import CHUNK_SIZES, WIDTHS, on_device_of
from vcsd.kernels.tiles import product

DTYPES = (torch.bfloat16, torch.float16, torch.float32)

BLOCK = 32
"""Columns of keys and values that a program holds at a time."""

NUM_WARPS, NUM_WARPS_FLOAT32 = 4, 8
NUM_STAGES = 1
"""Blocks of columns read ahead: more would leave too few registers."""


_EPSILON = tl.constexpr(1e-6)
"""Added to a key's squared norm, as in the models' own code."""


class Chunks(NamedTuple):
    """How each chunk reads and changes the state at its start."""

    read_MJCK: Tensor
    expected_MJCK: Tensor
    written_MJCV: Tensor
    writer_MJCK: Tensor
    inner_MJCC: Tensor
    shrink_MJ: Tensor


def delta_chunks(
    query_NLHK: Tensor,
    key_NLHK: Tensor,
    value_NLHV: Tensor,
    g_NLH: Tensor,
    beta_NLH: Tensor,
    *,
    chunk_size: int,
    is_normalised: bool,
) -> Chunks:
    """All chunks of all sequences. `written` and `shrink` are in float32, the others in the type of the query."""
    assert query_NLHK.shape == key_NLHK.shape, "queries and keys have different shapes"
    assert query_NLHK.shape[:3] == value_NLHV.shape[:3] == g_NLH.shape == beta_NLH.shape, "different numbers of tokens"
    assert query_NLHK.dtype == key_NLHK.dtype == value_NLHV.dtype, "queries, keys and values have different dtypes"
    assert query_NLHK.dtype in DTYPES, f"the kernel supports the dtypes {DTYPES}"
    assert chunk_size in CHUNK_SIZES, f"the kernel supports chunks of {CHUNK_SIZES} tokens"
    assert {query_NLHK.shape[3], value_NLHV.shape[3]} <= set(WIDTHS), f"the kernel supports head widths {WIDTHS}"
    inputs = (query_NLHK, key_NLHK, value_NLHV, g_NLH, beta_NLH)
    has_backward = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return Chunks(*_DeltaChunks.apply(*inputs, chunk_size, is_normalised, has_backward))


class _Context(AutogradContext, Protocol):
    options: dict[str, object]


class _DeltaChunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        chunk_size: int,
        is_normalised: bool,
        has_backward: bool,
    ) -> tuple[Tensor, ...]:
        query, key, value = (x if x.stride(3) == 1 else x.contiguous() for x in (query, key, value))
        g, beta = g.contiguous(), beta.contiguous()
        (N, L, H, K), V, C = query.shape, value.shape[3], chunk_size
        grid = (N * H, triton.cdiv(L, C))
        read, expected, writer = (query.new_empty(*grid, C, K) for _ in range(3))
        written = query.new_empty(*grid, C, V, dtype=torch.float32)
        inner, shrink = query.new_empty(*grid, C, C), query.new_empty(*grid, dtype=torch.float32)
        inverse = query.new_empty(*grid, C, C, dtype=torch.float32) if has_backward else None
        ctx.save_for_backward(query, key, value, g, beta, inverse)
        ctx.options = {"C": C, "K": K, "V": V, "NORMALISED": is_normalised, **_options(query)}
        out = (read, expected, written, writer, inner, shrink)
        if grid[0] * grid[1] > 0:
            with on_device_of(query):
                _forward_kernel[(grid[0] * grid[1],)](
                    *(query, key, value, g, beta, *out, inverse, grid[1], L, H),
                    *(*query.stride()[:3], *key.stride()[:3], *value.stride()[:3]),
                    **ctx.options,
                    SOLVED=SOLVED,
                    SOLVE_PRECISION="ieee" if query.dtype == torch.float32 else "tf32x3",
                )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, g, beta, inverse = ctx.saved_tensors
        N, L, H = g.shape
        num_chunks = triton.cdiv(L, ctx.options["C"])
        input_grads = [
            torch.empty_like(x, memory_format=torch.contiguous_format) if needed else None
            for x, needed in zip((query, key, value, g, beta), ctx.needs_input_grad, strict=False)
        ]
        if N * H * num_chunks > 0:
            with on_device_of(query):
                _backward_kernel[(N * H * num_chunks,)](
                    *(query, key, value, g, beta, inverse),
                    *(*(grad.contiguous() for grad in grads), *input_grads, num_chunks, L, H),
                    *(*query.stride()[:3], *key.stride()[:3], *value.stride()[:3]),
                    **ctx.options,
                )
        return *input_grads, None, None, None


def _options(query: Tensor) -> dict[str, object]:
    is_wide = query.dtype == torch.float32
    return {
        "BLOCK": BLOCK,
        "PRECISION": "ieee" if is_wide else "tf32",
        "CAST": not query.is_cuda,
        "num_warps": NUM_WARPS_FLOAT32 if is_wide else NUM_WARPS,
        "num_stages": NUM_STAGES,
    }


@triton.jit
def _chunk_of(ptr, n_stride, l_stride, h_stride, J, H, C: tl.constexpr):
    """The offset of the first token of this program's chunk in a tensor (N, L, H, K) with any strides."""
    m, j = tl.program_id(0) // J, tl.program_id(0) % J
    return ptr + (m // H).to(tl.int64) * n_stride + (j * C).to(tl.int64) * l_stride + (m % H).to(tl.int64) * h_stride


@triton.jit
def _first_token(J, L, H, C: tl.constexpr):
    """The same offset in a contiguous tensor (N, L, H)."""
    m, j = tl.program_id(0) // J, tl.program_id(0) % J
    return ((m // H).to(tl.int64) * L + j * C) * H + m % H


@triton.jit
def _own(ptr, size):
    """The offset of this program's part in a tensor (M, J, ...) with `size` elements per chunk."""
    return ptr + tl.program_id(0).to(tl.int64) * size


@triton.jit
def _tokens(ptr, i, c, l_stride, is_token):
    return tl.load(ptr + i[:, None] * l_stride + c[None, :], mask=is_token[:, None], other=0.0)


@triton.jit
def _store_tokens(ptr, i, c, l_stride, is_token, x):
    """Store, rounded to the type of the destination."""
    tl.store(ptr + i[:, None] * l_stride + c[None, :], x, mask=is_token[:, None])


@triton.jit
def _tile(ptr, i, c, width):
    return tl.load(ptr + i[:, None] * width + c[None, :])


@triton.jit
def _store_tile(ptr, i, c, width, x):
    """Store, rounded to the type of the destination."""
    tl.store(ptr + i[:, None] * width + c[None, :], x)


@triton.jit
def _squares(x):
    return tl.sum(x.to(tl.float32) * x.to(tl.float32), 1)


@triton.jit
def _per_length(squares, NORMALISED: tl.constexpr):
    """The factor that normalises a vector, or 1 if vectors are not normalised."""
    return tl.rsqrt(squares + _EPSILON) if NORMALISED else tl.full(squares.shape, 1.0, tl.float32)


@triton.jit
def _totals(g_ptr, i, H, is_token, C: tl.constexpr):
    """total (C,), and its last element."""
    g = tl.load(g_ptr + i * H, mask=is_token, other=0.0).to(tl.float32)
    total = tl.sum(tl.where(i[None, :] <= i[:, None], g[None, :], 0.0), 1)
    return total, tl.sum(tl.where(i == C - 1, total, 0.0), 0)


@triton.jit
def _between(total, i):
    # masked before exp: differences to later tokens may overflow it
    return tl.exp(tl.where(i[None, :] <= i[:, None], total[:, None] - total[None, :], float("-inf")))


@triton.jit(do_not_specialize=["J", "L"])
def _forward_kernel(  # noqa: PLR0915  splitting it would pass tiles between functions
    query_ptr, key_ptr, value_ptr, g_ptr, beta_ptr,
    read_ptr, expected_ptr, written_ptr, writer_ptr, inner_ptr, shrink_ptr, inverse_ptr,
    J, L, H, q_n, q_l, q_h, k_n, k_l, k_h, v_n, v_l, v_h,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, NORMALISED: tl.constexpr, SOLVED: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, SOLVE_PRECISION: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """One chunk of one head. The inverse is None if it is not saved."""
    BK: tl.constexpr = min(BLOCK, K)
    BV: tl.constexpr = min(BLOCK, V)
    i = tl.arange(0, C)
    is_token = tl.program_id(0) % J * C + i < L
    query_ptr = _chunk_of(query_ptr, q_n, q_l, q_h, J, H, C)
    key_ptr = _chunk_of(key_ptr, k_n, k_l, k_h, J, H, C)
    value_ptr = _chunk_of(value_ptr, v_n, v_l, v_h, J, H, C)

    overlap = tl.zeros([C, C], tl.float32)
    inner = tl.zeros([C, C], tl.float32)
    of_query = tl.zeros([C], tl.float32)
    of_key = tl.zeros([C], tl.float32)
    for start in range(0, K, BK):
        c = start + tl.arange(0, BK)
        q = _tokens(query_ptr, i, c, q_l, is_token)
        k = _tokens(key_ptr, i, c, k_l, is_token)
        overlap = product(k, tl.trans(k), overlap, PRECISION, CAST)
        inner = product(q, tl.trans(k), inner, PRECISION, CAST)
        of_query += _squares(q)
        of_key += _squares(k)
    of_query = _per_length(of_query, NORMALISED) * K**-0.5
    of_key = _per_length(of_key, NORMALISED)

    first = _first_token(J, L, H, C)
    beta = tl.load(beta_ptr + first + i * H, mask=is_token, other=0.0).to(tl.float32)
    total, last = _totals(g_ptr + first, i, H, is_token, C)
    since_start = tl.exp(total)
    between = _between(total, i)
    _store_tile(_own(inner_ptr, C * C), i, i, C, inner * between * of_query[:, None] * of_key[None, :])
    tl.store(_own(shrink_ptr, 1), tl.exp(last))
    overlap = overlap * between * (beta * of_key)[:, None] * of_key[None, :]
    overlap = tl.where(i[None, :] < i[:, None], overlap, 0.0)
    inverse = triangular_inverse(overlap, i, C, SOLVED, SOLVE_PRECISION)
    if inverse_ptr is not None:
        _store_tile(_own(inverse_ptr, C * C), i, i, C, inverse)

    to_expected = inverse * (beta * of_key * since_start)[None, :]
    for start in range(0, K, BK):
        c = start + tl.arange(0, BK)
        q = _tokens(query_ptr, i, c, q_l, is_token).to(tl.float32)
        k = _tokens(key_ptr, i, c, k_l, is_token).to(tl.float32)
        _store_tile(_own(read_ptr, C * K), i, c, K, q * (of_query * since_start)[:, None])
        _store_tile(_own(writer_ptr, C * K), i, c, K, k * (of_key * tl.exp(last - total))[:, None])
        _store_tile(_own(expected_ptr, C * K), i, c, K, tl.dot(to_expected, k, input_precision=PRECISION))
    to_written = inverse * beta[None, :]
    for start in range(0, V, BV):
        c = start + tl.arange(0, BV)
        v = _tokens(value_ptr, i, c, v_l, is_token).to(tl.float32)
        _store_tile(_own(written_ptr, C * V), i, c, V, tl.dot(to_written, v, input_precision=PRECISION))


@triton.jit(do_not_specialize=["J", "L"])
def _backward_kernel(  # noqa: C901, PLR0912, PLR0915  branches are compile-time; splitting it would pass tiles around
    query_ptr, key_ptr, value_ptr, g_ptr, beta_ptr, inverse_ptr,
    dread_ptr, dexpected_ptr, dwritten_ptr, dwriter_ptr, dinner_ptr, dshrink_ptr,
    dq_ptr, dk_ptr, dv_ptr, dg_ptr, dbeta_ptr,
    J, L, H, q_n, q_l, q_h, k_n, k_l, k_h, v_n, v_l, v_h,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, NORMALISED: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """One chunk of one head. None means not needed. Several loops over K keep the number of live tiles small."""
    BK: tl.constexpr = min(BLOCK, K)
    BV: tl.constexpr = min(BLOCK, V)
    SCALE: tl.constexpr = K**-0.5
    i = tl.arange(0, C)
    is_token = tl.program_id(0) % J * C + i < L
    query_ptr = _chunk_of(query_ptr, q_n, q_l, q_h, J, H, C)
    key_ptr = _chunk_of(key_ptr, k_n, k_l, k_h, J, H, C)
    value_ptr = _chunk_of(value_ptr, v_n, v_l, v_h, J, H, C)
    dread_ptr, dwriter_ptr = _own(dread_ptr, C * K), _own(dwriter_ptr, C * K)
    dexpected_ptr, dwritten_ptr = _own(dexpected_ptr, C * K), _own(dwritten_ptr, C * V)
    first = _first_token(J, L, H, C)
    beta = tl.load(beta_ptr + first + i * H, mask=is_token, other=0.0).to(tl.float32)
    total, last = _totals(g_ptr + first, i, H, is_token, C)
    since_start = tl.exp(total)
    until_end = tl.exp(last - total)

    # through the solve
    dsolved = tl.zeros([C, C], tl.float32)
    of_key = tl.zeros([C], tl.float32)
    from_writer = tl.zeros([C], tl.float32)
    for start in range(0, K, BK):
        c = start + tl.arange(0, BK)
        k = _tokens(key_ptr, i, c, k_l, is_token)
        dsolved = product(_tile(dexpected_ptr, i, c, K), tl.trans(k), dsolved, PRECISION, CAST)
        from_writer += tl.sum(_tile(dwriter_ptr, i, c, K).to(tl.float32) * k.to(tl.float32), 1)
        of_key += _squares(k)
    of_key = _per_length(of_key, NORMALISED)
    from_writer *= of_key * until_end
    dsolved *= (of_key * since_start)[None, :]
    inverse = _tile(_own(inverse_ptr, C * C), i, i, C)
    from_start = beta * tl.sum(inverse * dsolved, 0)
    for start in range(0, V, BV):
        c = start + tl.arange(0, BV)
        v = _tokens(value_ptr, i, c, v_l, is_token).to(tl.float32)
        dsolved = tl.dot(_tile(dwritten_ptr, i, c, V), tl.trans(v), dsolved, input_precision=PRECISION)
    dbeta = tl.sum(inverse * dsolved, 0)
    dsolved = tl.dot(tl.trans(inverse), dsolved * beta[None, :], input_precision=PRECISION)
    dsolved = tl.dot(dsolved, tl.trans(inverse), input_precision=PRECISION)

    # through the products of keys, and of queries with keys
    of_query = tl.zeros([C], tl.float32)
    from_read = tl.zeros([C], tl.float32)
    by_key = tl.zeros([C, C], tl.float32)
    by_query = tl.zeros([C, C], tl.float32)
    for start in range(0, K, BK):
        c = start + tl.arange(0, BK)
        q = _tokens(query_ptr, i, c, q_l, is_token)
        k = _tokens(key_ptr, i, c, k_l, is_token)
        by_key = product(k, tl.trans(k), by_key, PRECISION, CAST)
        by_query = product(q, tl.trans(k), by_query, PRECISION, CAST)
        from_read += tl.sum(_tile(dread_ptr, i, c, K).to(tl.float32) * q.to(tl.float32), 1)
        of_query += _squares(q)
    of_query = _per_length(of_query, NORMALISED)
    from_read *= of_query * SCALE * since_start
    between = _between(total, i)
    doverlap = tl.where(i[None, :] < i[:, None], -dsolved, 0.0) * between
    by_key = doverlap * by_key * of_key[:, None] * of_key[None, :]
    dbeta += tl.sum(by_key, 1)
    by_key *= beta[:, None]
    doverlap *= beta[:, None]
    later_key, earlier_key = tl.sum(by_key, 1), tl.sum(by_key, 0)
    dinner = _tile(_own(dinner_ptr, C * C), i, i, C).to(tl.float32) * between
    by_query = dinner * by_query * (of_query * SCALE)[:, None] * of_key[None, :]
    later_query, earlier_query = tl.sum(by_query, 1), tl.sum(by_query, 0)

    if dbeta_ptr is not None:
        tl.store(dbeta_ptr + first + i * H, dbeta, mask=is_token)
    if dg_ptr is not None:
        dtotal = from_read + from_start - from_writer + (later_query - earlier_query) + (later_key - earlier_key)
        dlast = tl.sum(from_writer, 0) + tl.load(_own(dshrink_ptr, 1)) * tl.exp(last)
        dg = tl.sum(tl.where(i[:, None] >= i[None, :], dtotal[:, None], 0.0), 0) + dlast
        tl.store(dg_ptr + first + i * H, dg, mask=is_token)
    if dv_ptr is not None:
        for start in range(0, V, BV):
            c = start + tl.arange(0, BV)
            dv = tl.dot(tl.trans(inverse), _tile(dwritten_ptr, i, c, V), input_precision=PRECISION) * beta[:, None]
            _store_tokens(dv_ptr + first * V, i, c, H * V, is_token, dv)
    if dq_ptr is not None:
        along = from_read + later_query
        for start in range(0, K, BK):
            c = start + tl.arange(0, BK)
            k = _tokens(key_ptr, i, c, k_l, is_token).to(tl.float32) * of_key[:, None]
            dq = _tile(dread_ptr, i, c, K).to(tl.float32) * since_start[:, None]
            dq = tl.dot(dinner, k, dq, input_precision=PRECISION) * (of_query * SCALE)[:, None]
            if NORMALISED:
                q = _tokens(query_ptr, i, c, q_l, is_token).to(tl.float32)
                dq -= q * (along * of_query * of_query)[:, None]
            _store_tokens(dq_ptr + first * K, i, c, H * K, is_token, dq)
    if dk_ptr is not None:
        along = from_start + from_writer + earlier_query + later_key + earlier_key
        doverlap += tl.trans(doverlap)
        for start in range(0, K, BK):
            c = start + tl.arange(0, BK)
            q = _tokens(query_ptr, i, c, q_l, is_token).to(tl.float32) * (of_query * SCALE)[:, None]
            k = _tokens(key_ptr, i, c, k_l, is_token).to(tl.float32) * of_key[:, None]
            dk = tl.dot(tl.trans(inverse), _tile(dexpected_ptr, i, c, K).to(tl.float32), input_precision=PRECISION)
            dk = dk * (beta * since_start)[:, None]
            dk += _tile(dwriter_ptr, i, c, K).to(tl.float32) * until_end[:, None]
            dk = tl.dot(tl.trans(dinner), q, dk, input_precision=PRECISION)
            dk = tl.dot(doverlap, k, dk, input_precision=PRECISION)
            if NORMALISED:
                dk -= k * along[:, None]
            _store_tokens(dk_ptr + first * K, i, c, H * K, is_token, dk * of_key[:, None])
