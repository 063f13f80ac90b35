"""The inverse of a unit triangular tile, inside a kernel.

Diagonal blocks of SOLVED rows are inverted row by row, all blocks at once:

    row_r of (I + A)^-1  =  e_r - Σ_(j<r) A_rj row_j

Then pairs of blocks, P above and Q below with B to the left of Q, are joined by two products until one block is left:

    (P  0)^-1     (  P^-1         0  )
    (B  Q)     =  (-Q^-1 B P^-1  Q^-1)

Powers of the tile would be simpler, but they lose precision by cancellation.
"""

# Kernels only look like Python: their arguments are tiles and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"

from __future__ import annotations

import triton
import triton.language as tl

SOLVED = 16
"""Rows that are solved one by one; at most the size of the smallest tile."""


@triton.jit
def triangular_inverse(overlap, i, C: tl.constexpr, SOLVED: tl.constexpr, PRECISION: tl.constexpr):
    """(I + overlap)^-1 of one tile (C, C) whose rows are i; overlap is 0 on and above the diagonal."""
    tl.static_assert(C <= 4 * SOLVED)
    rows, cols = i[:, None], i[None, :]
    is_near = rows // SOLVED == cols // SOLVED
    # each row has columns in one block only: the sum packs them
    near = tl.sum(tl.reshape(tl.where(is_near, overlap, 0.0), [C, C // SOLVED, SOLVED]), 1)
    near = tl.reshape(near, [C // SOLVED, SOLVED, SOLVED])
    row = tl.arange(0, SOLVED)[None, :, None]
    solved = -near
    for r in range(1, SOLVED):
        of_row = tl.sum(tl.where(row == r, near, 0.0), 1)
        of_row = -of_row - tl.sum(of_row[:, :, None] * solved, 1)
        solved = tl.where(row == r, of_row[:, None, :], solved)
    solved = tl.broadcast_to(tl.reshape(solved, [C, 1, SOLVED]), [C, C // SOLVED, SOLVED])
    inverse = tl.where(is_near, tl.reshape(solved, [C, C]), 0.0) + tl.where(rows == cols, 1.0, 0.0)
    if C >= 2 * SOLVED:
        inverse = _of_pairs(inverse, overlap, rows, cols, SOLVED, PRECISION)
    if C >= 4 * SOLVED:
        inverse = _of_pairs(inverse, overlap, rows, cols, 2 * SOLVED, PRECISION)
    return inverse


@triton.jit
def _of_pairs(inverse, overlap, rows, cols, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """Join the inverses of diagonal blocks of SIZE into those of twice the size."""
    is_between = (rows // (2 * SIZE) == cols // (2 * SIZE)) & (rows // SIZE != cols // SIZE)
    step = tl.dot(tl.where(is_between, overlap, 0.0), inverse, input_precision=PRECISION)
    return inverse - tl.dot(inverse, step, input_precision=PRECISION)
