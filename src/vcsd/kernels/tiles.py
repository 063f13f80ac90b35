"""What kernels do to tiles: a product whose precision is chosen."""

# Kernels are Python only in form: their arguments are tiles and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(left, right, total, PRECISION: tl.constexpr, CAST: tl.constexpr):
    """left right + total. The precision concerns float32 alone; CAST is for Triton's interpreter, which multiplies
    bfloat16 as if it were integers."""
    if CAST:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, total, input_precision=PRECISION)
