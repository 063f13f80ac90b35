"""A gated linear unit's product in one kernel: gate and value are read once, the result is written once.

Derivation
----------
With gate a, value b and σ short for σ(a),

    y = silu(a) b,  silu(a) = a σ

and, with g the gradient on y,

    da = g b σ (1 + a (1 - σ))
    db = g a σ

Only a and b are saved for the backward. Arithmetic is in float32, and rounded once, to the type of a.
"""

# Kernels only look like Python: their arguments are pointers and compile-time constants.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,import-untyped"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcsd.kernels.device import on_device_of

if TYPE_CHECKING:
    from vcsd.kernels.context import AutogradContext

BLOCK = 2048
"""Elements per program."""

NUM_WARPS = 4


def gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    """`silu(gate) * value`, element by element. Any strides."""
    assert gate.shape == value.shape, "gates and values have different shapes"
    assert gate.dtype == value.dtype, "gates and values have different dtypes"
    out: Tensor = _GatedSilu.apply(gate, value)
    return out


class _GatedSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: AutogradContext, gate: Tensor, value: Tensor) -> Tensor:
        gate, value = gate.contiguous(), value.contiguous()
        ctx.save_for_backward(gate, value)
        out = torch.empty_like(gate)
        _launch(_forward_kernel, gate, value, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, value = ctx.saved_tensors
        dgate, dvalue = torch.empty_like(gate), torch.empty_like(value)
        _launch(_backward_kernel, gate, value, grad.contiguous(), dgate, dvalue)
        return dgate, dvalue


def _launch(kernel: triton.JITFunction, *tensors: Tensor) -> None:
    num = tensors[0].numel()
    if num == 0:
        return
    with on_device_of(tensors[0]):
        kernel[(triton.cdiv(num, BLOCK),)](*tensors, num, BLOCK=BLOCK, num_warps=NUM_WARPS)


@triton.jit(do_not_specialize=["num"])
def _forward_kernel(gate_ptr, value_ptr, out_ptr, num, BLOCK: tl.constexpr):
    """y of BLOCK elements."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + i, mask=i < num, other=0.0).to(tl.float32)
    value = tl.load(value_ptr + i, mask=i < num, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, gate * tl.sigmoid(gate) * value, mask=i < num)


@triton.jit(do_not_specialize=["num"])
def _backward_kernel(gate_ptr, value_ptr, grad_ptr, dgate_ptr, dvalue_ptr, num, BLOCK: tl.constexpr):
    """da and db of BLOCK elements."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + i, mask=i < num, other=0.0).to(tl.float32)
    value = tl.load(value_ptr + i, mask=i < num, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + i, mask=i < num, other=0.0).to(tl.float32)
    sigma = tl.sigmoid(gate)
    tl.store(dgate_ptr + i, grad * value * sigma * (1.0 + gate * (1.0 - sigma)), mask=i < num)
    tl.store(dvalue_ptr + i, grad * gate * sigma, mask=i < num)
