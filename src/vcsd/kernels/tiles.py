"""Tiles inside kernels: loaded and stored as rows of a matrix, and multiplied at a given precision."""

# Kernels only look like Python: their arguments are tiles and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_rows(ptr, stride, row, column, is_there, width):
    """Rows of a matrix in float32; zero for missing rows and beyond the last column."""
    mask = is_there[:, None] & (column < width)[None, :]
    return tl.load(ptr + row.to(tl.int64)[:, None] * stride + column[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_rows(ptr, row, column, x, num_rows, width):
    """Store rows of a matrix without gaps, rounded to its type."""
    mask = (row < num_rows)[:, None] & (column < width)[None, :]
    tl.store(ptr + row.to(tl.int64)[:, None] * width + column[None, :], x, mask=mask)


@triton.jit
def product(left, right, total, PRECISION: tl.constexpr, CAST: tl.constexpr):
    """left right + total. The precision applies to float32 only; CAST is for Triton's interpreter, which multiplies
    bfloat16 values as if they were integers."""
    if CAST:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, total, input_precision=PRECISION)
