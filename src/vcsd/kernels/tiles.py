"""The matrix product of two tiles at a given precision."""

# Kernels only look like Python: their arguments are tiles and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(left, right, total, PRECISION: tl.constexpr, CAST: tl.constexpr):
    """left right + total. The precision applies to float32 only; CAST is for Triton's interpreter, which multiplies
    bfloat16 values as if they were integers."""
    if CAST:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, total, input_precision=PRECISION)
