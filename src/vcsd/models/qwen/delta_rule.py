"""The gated delta rule over whole sequences: the recurrence of a delta-net layer.

Token t updates a matrix state S, which maps keys to values, and reads it:

    S_t = exp(g_t) S_(t-1) + k_t beta_t (v_t - exp(g_t) S_(t-1)^T k_t)^T        out_t = S_t^T q_t

Within a chunk of tokens, one triangular solve finds all updates at once; the state is carried from chunk to chunk. This
computes the same function as transformers' `torch_chunk_gated_delta_rule` with a cheaper backward: the sequence is
split into chunks and joined once. There, every chunk is a slice, whose backward writes the whole tensor.

While a row is scored, or prompts are prefilled on CUDA (`fused.py`), two kernels compute the same:
`vcsd.kernels.delta.chunks` within chunks and `vcsd.kernels.delta.scan` from chunk to chunk. Tests compare them with the
plain torch below.

Shape legend: N sequences, L tokens, H heads, C tokens of a chunk, K width of a key, V width of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from vcsd.kernels.device import CHUNK_SIZES, WIDTHS
from vcsd.models.qwen import fused

if TYPE_CHECKING:
    from torch import Tensor

_EPSILON = 1e-6
"""Added to a key's squared norm, as in the models' own code."""

_DTYPES = (torch.bfloat16, torch.float16)
"""In float32 the kernels are exact but slow: their tiles do not fit into registers without tensor cores."""


def gated_delta_rule(  # noqa: PLR0913  the arguments of transformers' function
    query_NLHK: Tensor,
    key_NLHK: Tensor,
    value_NLHV: Tensor,
    *,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    chunk_size: int = 64,
    **settings: object,
) -> tuple[Tensor, Tensor | None]:
    """The output of every token (N, L, H, V), and on request the state after the last one (N, H, K, V).

    There may be fewer heads of queries and keys than of values. g, the logarithm of the decay, and beta are (N, L, H).
    Decays, sums and the triangular solve are in float32; under autocast, matrix products round their inputs as in
    transformers' function.
    """
    query_NLHK, key_NLHK = for_value_heads(value_NLHV.shape[2], query_NLHK, key_NLHK)
    vectors = (query_NLHK, key_NLHK, value_NLHV)
    chunk = max(CHUNK_SIZES[0], chunk_size)  # shorter chunks are padded
    if _can_fuse(*vectors, g, beta) and chunk in CHUNK_SIZES:
        is_normalised = use_qk_l2norm_in_kernel
        out, state = by_kernels(vectors, g, beta, initial_state, chunk_size=chunk, is_normalised=is_normalised)
        return out, state if output_final_state else None
    length = query_NLHK.shape[1]
    query, key, value, decay, beta = (
        x.transpose(1, 2).to(torch.float32) for x in (query_NLHK, key_NLHK, value_NLHV, g, beta)
    )
    if use_qk_l2norm_in_kernel:
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + _EPSILON) for x in (query, key))
    query = query * query.shape[-1] ** -0.5
    query, key, value = (_in_chunks(x, chunk_size) for x in (query, key, value))
    decay, beta = (_in_chunks(x[..., None], chunk_size)[..., 0] for x in (decay, beta))

    future = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=key.device).triu(1)
    # A cumulative sum. Deterministic mode refuses cumsum on CUDA, and autocast would round a matrix product.
    total = decay[..., None, :].masked_fill(future, 0).sum(-1)
    between = (total[..., :, None] - total[..., None, :]).masked_fill(future, float("-inf")).exp()
    since_start = total.exp()[..., None]
    changes = torch.cat([value, key * since_start], -1) * beta[..., None]
    overlap = ((key * beta[..., None]) @ key.transpose(-1, -2)) * between
    solved = torch.linalg.solve_triangular(overlap, changes, upper=False, unitriangular=True)
    written, expected = solved.split([value.shape[-1], key.shape[-1]], -1)

    reads, new, state = _scan(
        torch.cat([expected, query * since_start], -2),
        written,
        (key * (total[..., -1:] - total).exp()[..., None]).transpose(-1, -2),
        total[..., -1, None, None].exp(),
        initial_state,
    )
    out = reads + ((query @ key.transpose(-1, -2)) * between) @ new
    out = out.flatten(2, 3)[:, :, :length].transpose(1, 2).to(query_NLHK.dtype)
    return out.contiguous(), state if output_final_state else None


def for_value_heads(num_heads: int, query_NLHK: Tensor, key_NLHK: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat queries and keys so that each value head has its own. Up to transformers 5.22, the layer does this."""
    times = num_heads // key_NLHK.shape[2]
    if times == 1:
        return query_NLHK, key_NLHK
    return query_NLHK.repeat_interleave(times, 2), key_NLHK.repeat_interleave(times, 2)


def _in_chunks(x_NHLE: Tensor, chunk: int) -> Tensor:
    """(N, H, L, E) -> (N, H, chunks, C, E), padded with zeros, which do not change the state."""
    padded = functional.pad(x_NHLE, (0, 0, 0, -x_NHLE.shape[2] % chunk))
    return padded.reshape(*padded.shape[:2], -1, chunk, padded.shape[3])


def _scan(
    readers: Tensor, written: Tensor, writers: Tensor, decay: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Carry the state from chunk to chunk; return what queries read, the new values and the last state."""
    chunk, width = written.shape[-2], readers.shape[-1]
    if state is None:
        state = written.new_zeros(*written.shape[:2], width, written.shape[-1])
    state = state.to(written.dtype)
    reads, new = [], []
    for read, write, writer, shrink in zip(*(x.unbind(2) for x in (readers, written, writers, decay)), strict=True):
        known, seen = (read @ state).split(chunk, -2)
        new.append(write - known)
        reads.append(seen)
        state = state * shrink + writer @ new[-1]
    return torch.stack(reads, 2), torch.stack(new, 2), state


def _can_fuse(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor) -> bool:
    fits = query.shape[-1] in WIDTHS and value.shape[-1] in WIDTHS and query.dtype in _DTYPES
    return fits and query.dtype == key.dtype == value.dtype and fused.has_kernels_for(query, key, value, g, beta)


def by_kernels(
    vectors: tuple[Tensor, Tensor, Tensor],
    g: Tensor,
    beta: Tensor,
    state: Tensor | None,
    *,
    chunk_size: int,
    is_normalised: bool,
) -> tuple[Tensor, Tensor]:
    """The same function, by kernels. Products take inputs in the type of the query, with or without autocast."""
    from vcsd.kernels.delta.chunks import delta_chunks  # here, since it imports Triton
    from vcsd.kernels.delta.scan import delta_scan

    num, length, heads, _ = vectors[0].shape
    chunks = delta_chunks(*vectors, g, beta, chunk_size=chunk_size, is_normalised=is_normalised)
    start = None if state is None else state.float().flatten(0, 1)
    out, last = delta_scan(*chunks, start, num_sequences=num, length=length, out_dtype=vectors[0].dtype)
    return out, last.view(num, heads, *last.shape[1:])
