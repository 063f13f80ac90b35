"""The Triton kernels compile for Hopper on a machine without a GPU, with all of their parts and without."""

from __future__ import annotations

import pytest

PROGRAM = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.loss import row_kernel as kernels

kernel, divergence, left_out = kernels._row_kernel, int(sys.argv[1]), sys.argv[2].split()
constants = dict(DIVERGENCE=divergence, NUM_ENDS=0 if "ends_ptr" in left_out else 2, KEEP_ANCHOR=True)
constants |= dict(RAGGED=True, RUNS=16, RUN=256, MAX_RUNS=1024, WARPS=8, WIDE=8) | dict.fromkeys(left_out)
types = dict(student_ptr="*bf16", original_ptr="*bf16", control_ptr="*bf16", ends_ptr="*i32", run_ids_ptr="*i32")
types |= dict(support_ptr="*i32", realised_ptr="*i64", changed_ptr="*i8")
types |= dict.fromkeys(("stride", "V", "V_LOAD", "num_blocks"), "i32")

def kind(name):
    return "constexpr" if name in constants else types.get(name, "*fp32" if name.endswith("_ptr") else "fp32")

source = ASTSource(fn=kernel, signature={name: kind(name) for name in kernel.arg_names}, constexprs=constants)
triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
"""

PLAIN = "control_ptr realised_ptr contrast_ptr weights_ptr ends_ptr"
BARE_HEAD = "student_bias_ptr teacher_bias_ptr student_inner teacher_inner"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("divergence", "left_out"),
    [(0, ""), (1, PLAIN), (2, BARE_HEAD)],
    ids=["forward-kl-everything", "reverse-kl-plain-target", "jensen-shannon-bare-head"],
)
def test_the_row_kernel_compiles_for_hopper(divergence, left_out, compile_for_hopper):
    compile_for_hopper(PROGRAM, str(divergence), left_out)
