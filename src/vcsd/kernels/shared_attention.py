"""Attention of a decoding step in two kernels: all rollouts of a prompt read its keys and values once, together.

Derivation
----------
A row attends to its prompt and to its own tokens in one softmax. For any subset of the tokens, with scores
x_t = scale q . k_t,

    top = max x_t        total = Σ exp(x_t - top)        mixed = Σ exp(x_t - top) v_t

Two subsets are joined by rescaling both to the larger top and adding. The result is mixed / total over all tokens.

    prompts   one program for a prompt, a key head, some of the rows' queries of that head, and a piece of the prompt:
              the queries of all rows of a prompt are one matrix
    own       one program for a row and a key head: its own tokens, then joined with the pieces of its prompt

In plain torch this takes about twenty kernels, most of which move scores around.

Scores, sums and results are in float32 for all input types; weights are rounded to the type of the values before the
product. Exponentials use base 2 internally. The number of own tokens is read on the device, so that a recorded step can
be replayed as it grows.

Shape legend: B prompts, P tokens of the longest prompt, M rows of a prompt at most, R rows, S own tokens at most,
H query heads, K key heads, G query heads per key head, E head width, C pieces of a prompt.
"""

# Kernels only look like Python: their arguments are pointers and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from vcsd.kernels.device import WIDTHS, on_device_of
from vcsd.kernels.tiles import product

if TYPE_CHECKING:
    KeysAndValues = tuple[Tensor, Tensor]

FEWEST_QUERIES, MOST_QUERIES = 16, 32
"""Queries per program: the minimum suits a matrix product, the maximum fits into registers."""

ENOUGH_PROGRAMS, MOST_PIECES = 512, 16
"""Prompts are split into at most MOST_PIECES pieces until there are ENOUGH_PROGRAMS programs."""

KEY_BYTES = 16 * 1024
"""Size of the keys that a program reads at a time (16 to 64 keys). With as many values, and two such stages read ahead,
this also fits into the shared memory of smaller devices."""

NUM_WARPS, NUM_STAGES = 4, 2


@dataclass(frozen=True, eq=False)
class Places:
    """Which rows continue which prompt.

    row_at_BM: the row at each of a prompt's M places, flattened to (B * M,); any row at an unused place.
    place_R: the index of each row in `row_at_BM`.
    first_B: the first token of each prompt that is not padding.
    """

    row_at_BM: Tensor
    place_R: Tensor
    first_B: Tensor


def shared_attention(
    query_RHE: Tensor, prompt: KeysAndValues, own: KeysAndValues, places: Places, last_1: Tensor, scale: float
) -> Tensor:
    """Attention (R, H, E) of every row over its prompt (B, K, P, E) and its own tokens (R, K, S, E) up to `last_1`."""
    (R, H, E), (B, K, P, _) = query_RHE.shape, prompt[0].shape
    M, G = len(places.row_at_BM) // B, H // K
    assert E in WIDTHS, f"the kernel supports head widths {WIDTHS}"
    assert H == G * K, f"{H} query heads are not a multiple of {K} key heads"
    assert {x.dtype for x in (*prompt, *own)} == {query_RHE.dtype}, "queries, keys and values have different dtypes"
    query = query_RHE.contiguous()
    prompt_key, prompt_value, own_key, own_value = map(_elements_together, (*prompt, *own))
    block_q = min(MOST_QUERIES, max(FEWEST_QUERIES, triton.next_power_of_2(M * G)))
    num_blocks = triton.cdiv(M * G, block_q)
    C = max(1, min(MOST_PIECES, ENOUGH_PROGRAMS // (B * K * num_blocks), triton.cdiv(P, 128)))
    top, total = (query.new_empty(C, B * M, H, dtype=torch.float32) for _ in range(2))
    mixed = query.new_empty(C, B * M, H, E, dtype=torch.float32)
    out, parts = torch.empty_like(query), (top, total, mixed)
    gain, options = scale * math.log2(math.e), _options(query, E)
    with on_device_of(query):
        _prompt_kernel[(B * K, num_blocks, C)](
            *(query, prompt_key, prompt_value, places.row_at_BM, places.first_B, *parts),
            *(gain, K, P, M, *prompt_key.stride()[:3], *prompt_value.stride()[:3]),
            **{"G": G, "E": E, "BLOCK_Q": block_q, **options},
        )
        _own_kernel[(R * K,)](
            *(query, own_key, own_value, places.place_R, last_1, *parts, out),
            *(gain, K, C, B * M, *own_key.stride()[:3], *own_value.stride()[:3]),
            **{"G": G, "E": E, "BLOCK_Q": max(FEWEST_QUERIES, triton.next_power_of_2(G)), **options},
        )
    return out


def _elements_together(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 else x.contiguous()


def _options(query: Tensor, width: int) -> dict[str, object]:
    return {
        "BLOCK": max(16, min(64, KEY_BYTES // (width * query.element_size()))),
        "PRECISION": "ieee" if query.dtype == torch.float32 else "tf32",
        "CAST": not query.is_cuda,
        "num_warps": NUM_WARPS,
        "num_stages": NUM_STAGES,
    }


@triton.jit
def _queries(query_ptr, row, head, e, is_there, H, E: tl.constexpr):
    """One query for each pair of a row and a head; zero where there is none."""
    places = (row.to(tl.int64) * H + head)[:, None] * E + e[None, :]
    return tl.load(query_ptr + places, mask=is_there[:, None], other=0.0)


@triton.jit
def _nothing(num: tl.constexpr, E: tl.constexpr):
    """top, total and mixed of no tokens."""
    return (
        tl.full([num], float("-inf"), tl.float32),
        tl.zeros([num], tl.float32),
        tl.zeros([num, E], tl.float32),
    )


@triton.jit
def _attended(
    query, key_ptr, value_ptr, key_stride, value_stride, begin, end, gain, e,
    NUM: tl.constexpr, E: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """top, total and mixed of the tokens from begin to end."""
    top, total, mixed = _nothing(NUM, E)
    for start in range(begin, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        is_there = t < end
        key = tl.load(key_ptr + t[:, None] * key_stride + e[None, :], mask=is_there[:, None], other=0.0)
        score = product(query, tl.trans(key), tl.zeros([NUM, BLOCK], tl.float32), PRECISION, CAST) * gain
        score = tl.where(is_there[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        weight, shrink = tl.exp2(score - higher[:, None]), tl.exp2(top - higher)
        value = tl.load(value_ptr + t[:, None] * value_stride + e[None, :], mask=is_there[:, None], other=0.0)
        total = total * shrink + tl.sum(weight, 1)
        mixed = product(weight.to(value.dtype), value, mixed * shrink[:, None], PRECISION, CAST)
        top = higher
    return top, total, mixed


@triton.jit
def _prompt_kernel(
    query_ptr, key_ptr, value_ptr, row_at_ptr, first_ptr, top_ptr, total_ptr, mixed_ptr,
    gain, K, P, M, k_b, k_h, k_t, v_b, v_h, v_t,
    G: tl.constexpr, E: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """A piece of a prompt, for BLOCK_Q of the queries of its rows for one key head."""
    b, k = tl.program_id(0) // K, tl.program_id(0) % K
    i, e = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q), tl.arange(0, E)
    m, head = i // G, k * G + i % G
    is_there = m < M
    row = tl.load(row_at_ptr + b * M + m, mask=is_there, other=0)
    query = _queries(query_ptr, row, head, e, is_there, K * G, E)
    first = tl.load(first_ptr + b).to(tl.int32)
    length = tl.cdiv(tl.cdiv(P - first, tl.num_programs(2)), BLOCK) * BLOCK
    begin = first + tl.program_id(2) * length
    key_ptr += b.to(tl.int64) * k_b + k.to(tl.int64) * k_h
    value_ptr += b.to(tl.int64) * v_b + k.to(tl.int64) * v_h
    top, total, mixed = _attended(
        query, key_ptr, value_ptr, k_t, v_t, begin, tl.minimum(begin + length, P), gain, e,
        BLOCK_Q, E, BLOCK, PRECISION, CAST,
    )  # fmt: skip
    num_places = tl.num_programs(0) // K * M
    place = (tl.program_id(2) * num_places + b * M + m).to(tl.int64) * (K * G) + head
    tl.store(top_ptr + place, top, mask=is_there)
    tl.store(total_ptr + place, total, mask=is_there)
    tl.store(mixed_ptr + place[:, None] * E + e[None, :], mixed, mask=is_there[:, None])


@triton.jit
def _own_kernel(
    query_ptr, key_ptr, value_ptr, place_ptr, last_ptr, top_ptr, total_ptr, mixed_ptr, out_ptr,
    gain, K, C, num_places, k_r, k_h, k_t, v_r, v_h, v_t,
    G: tl.constexpr, E: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    """The own tokens of a row for one key head, joined with the pieces of its prompt."""
    row, k = tl.program_id(0) // K, tl.program_id(0) % K
    i, e = tl.arange(0, BLOCK_Q), tl.arange(0, E)
    head, is_there = k * G + i, i < G
    query = _queries(query_ptr, row + tl.zeros_like(i), head, e, is_there, K * G, E)
    key_ptr += row.to(tl.int64) * k_r + k.to(tl.int64) * k_h
    value_ptr += row.to(tl.int64) * v_r + k.to(tl.int64) * v_h
    end = tl.load(last_ptr).to(tl.int32) + 1
    top, total, mixed = _attended(
        query, key_ptr, value_ptr, k_t, v_t, 0, end, gain, e, BLOCK_Q, E, BLOCK, PRECISION, CAST
    )
    place = tl.load(place_ptr + row).to(tl.int64)
    for piece in range(C):
        at = (piece * num_places + place) * (K * G) + head
        other = tl.load(top_ptr + at, mask=is_there, other=float("-inf"))
        higher = tl.maximum(top, other)
        mine, theirs = tl.exp2(top - higher), tl.exp2(other - higher)
        total = total * mine + tl.load(total_ptr + at, mask=is_there, other=0.0) * theirs
        others = tl.load(mixed_ptr + at[:, None] * E + e[None, :], mask=is_there[:, None], other=0.0)
        mixed = mixed * mine[:, None] + others * theirs[:, None]
        top = higher
    at = (row.to(tl.int64) * (K * G) + head)[:, None] * E + e[None, :]
    tl.store(out_ptr + at, mixed / total[:, None], mask=is_there[:, None])
