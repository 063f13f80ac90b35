"""The delta nets' gated norm in one kernel equals transformers' own, forward and backward."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.qwen3_5 import modeling_qwen3_5

from hopper_compiler import RunProgram
from vcsd.models.patch import replace_method
from vcsd.models.qwen import fused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuse on the CPU too, where Triton is interpreted."""
    pytest.importorskip("triton")
    monkeypatch.setattr(fused, "_suits", lambda x: x.dtype in fused._DTYPES)


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def norm_of(width: int, dtype: torch.dtype = torch.float32, eps: float = 1e-5) -> nn.Module:
    norm = modeling_qwen3_5.Qwen3_5RMSNormGated(width, eps=eps)
    with torch.no_grad():
        norm.weight.add_(0.3 * draw(width, seed=5).cpu())
    norm = norm.to(DEVICE, dtype)
    replace_method(norm, "forward", fused.gated_forward)
    return norm


def scored(norm: nn.Module, x: Tensor, gate: Tensor) -> Tensor:
    before = fused._scoring.set(True)
    try:
        out: Tensor = norm(x, gate)
        return out
    finally:
        fused._scoring.reset(before)


def stock(norm: nn.Module, x: Tensor, gate: Tensor) -> Tensor:
    out: Tensor = type(norm).forward(norm, x, gate)
    return out


def run(way: Any, norm: nn.Module, x: Tensor, gate: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_(), gate.detach().requires_grad_()]
    out = way(norm, *leaves)
    asked = [*leaves, *(parameter for parameter in norm.parameters() if parameter.requires_grad)]
    grad = draw(*out.shape, seed=4, dtype=torch.bfloat16).to(out.dtype)  # the same in every type
    return [out.detach(), *torch.autograd.grad(out, asked, grad)]


@pytest.mark.parametrize(
    ("shape", "heads_per_sum"),
    [((5, 16), 256), ((2, 3, 37), 256), ((1, 1), 256), ((300, 128), 64), ((7, 2100), 2), ((300, 4), 256)],
)
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_a_gated_norm_and_its_gradients_equal_transformers(
    anywhere: None, shape: tuple[int, ...], heads_per_sum: int, eps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vcsd.kernels import gated_norm

    monkeypatch.setattr(gated_norm, "HEADS_PER_SUM", heads_per_sum)
    norm, x, gate = norm_of(shape[-1], eps=eps), 3 * draw(*shape, seed=1), 2 * draw(*shape, seed=2)
    found, expected = (run(way, norm, x, gate) for way in (scored, stock))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=2e-5)


def test_any_strides_are_taken(anywhere: None) -> None:
    norm = norm_of(6)
    x, gate = draw(6, 9, seed=1).T, draw(9, 20, seed=2)[:, 3:9]
    torch.testing.assert_close(scored(norm, x, gate), stock(norm, x, gate), rtol=1e-5, atol=1e-5)
    leaf = x.detach().requires_grad_()
    grad = draw(1, 1, seed=3).expand(9, 6)
    mine, theirs = (torch.autograd.grad(way(norm, leaf, gate), leaf, grad) for way in (scored, stock))
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_two_runs_give_the_same_bits(anywhere: None) -> None:
    norm, x, gate = norm_of(37), draw(600, 37, seed=1), draw(600, 37, seed=2)
    assert all(map(torch.equal, *(run(scored, norm, x, gate) for _ in range(2))))


def test_a_frozen_weight_has_no_gradient_and_the_others_stay(anywhere: None) -> None:
    norm, x, gate = norm_of(16), draw(5, 16, seed=1), draw(5, 16, seed=2)
    everything = run(scored, norm, x, gate)
    norm.weight.requires_grad_(False)
    assert all(map(torch.equal, run(scored, norm, x, gate), everything[:3]))


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_in_bfloat16_it_is_at_least_as_close_to_the_truth(anywhere: None, weight_dtype: torch.dtype) -> None:
    norm = norm_of(64, weight_dtype)
    x, gate = draw(50, 64, seed=1, dtype=torch.bfloat16), draw(50, 64, seed=2, dtype=torch.bfloat16)
    mine, theirs = (run(way, norm, x, gate) for way in (scored, stock))
    assert [grad.dtype for grad in mine] == [torch.bfloat16, torch.bfloat16, torch.bfloat16, weight_dtype]
    true = run(by_hand, deepcopy(norm).double(), x.double(), gate.double())
    if DEVICE == "cpu":  # Triton's interpreter cuts off where a GPU rounds to the nearest
        wide = run(scored, deepcopy(norm).float(), x.float(), gate.float())
        assert all(((cut - exact).abs() <= 2.0**-7 * exact.abs()).all() for cut, exact in zip(mine, wide, strict=True))
        mine = [exact.to(cut.dtype) for cut, exact in zip(mine, wide, strict=True)]
    for found, other, exact in zip(mine, theirs, true, strict=True):
        assert (found - exact).norm() <= 1.001 * (other - exact).norm() + 1e-6 * exact.norm()


def by_hand(norm: Any, x: Tensor, gate: Tensor) -> Tensor:
    normed = x * (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()
    return normed * norm.weight * gate * gate.sigmoid()


@pytest.mark.parametrize("unknown", ["float64", "activation", "broadcast gate", "too wide", "not scoring"])
def test_what_the_kernel_does_not_know_is_left_to_transformers(
    anywhere: None, unknown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vcsd.kernels import gated_norm

    launched: list[bool] = []
    kernel = gated_norm.gated_norm
    monkeypatch.setattr(gated_norm, "gated_norm", lambda *given: launched.append(True) or kernel(*given))
    norm, x, gate = norm_of(16), draw(5, 16, seed=1), draw(5, 16, seed=2)
    scored(norm, x, gate)
    assert launched == [True]
    if unknown == "float64":
        norm, x, gate = norm.double(), x.double(), gate.double()
    elif unknown == "activation":
        norm.activation = "gelu"
    elif unknown == "broadcast gate":
        gate = gate[:1]
    elif unknown == "too wide":
        monkeypatch.setattr(fused, "_WIDEST_HEAD", 8)
    way = stock if unknown == "not scoring" else scored
    assert torch.equal(norm(x, gate) if way is stock else way(norm, x, gate), stock(norm, x, gate))
    assert launched == [True]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "left_out"), [("bf16", ""), ("fp32", "partial_ptr")])
def test_the_kernels_compile_for_hopper(dtype: str, left_out: str, compile_for_hopper: RunProgram) -> None:
    program = f"""
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels import gated_norm as home

for kernel in (home._forward_kernel, home._backward_kernel):
    given = dict(BLOCK_R=16, BLOCK_E=128, HEADS=256) | dict.fromkeys({left_out.split()})
    given = {{name: value for name, value in given.items() if name in kernel.arg_names}}
    types = dict(weight_ptr="*fp32", partial_ptr="*fp32", R="i32", E="i32", eps="fp32")
    kinds = {{name: "constexpr" if name in given else types.get(name, "*{dtype}") for name in kernel.arg_names}}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=given)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={{"num_warps": 4}})
"""
    compile_for_hopper(program)
