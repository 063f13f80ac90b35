"""A gated linear unit's product in one kernel equals torch's own, forward and backward."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hopper_compiler import RunProgram

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(DEVICE, dtype)


def by_kernel(gate: Tensor, value: Tensor) -> Tensor:
    pytest.importorskip("triton")
    from vcsd.kernels.gated_silu import gated_silu

    return gated_silu(gate, value)


def by_torch(gate: Tensor, value: Tensor) -> Tensor:
    return functional.silu(gate) * value


def run(way, gate: Tensor, value: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in (gate, value)]
    out = way(*leaves)
    grad = draw(*out.shape, seed=3, dtype=torch.bfloat16).to(out.dtype)  # the same in every type
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 1, 37), (5, 2048), (2049,), (0, 4)])
def test_a_product_and_its_gradients_equal_torchs(shape: tuple[int, ...]) -> None:
    gate, value = draw(*shape, seed=1), draw(*shape, seed=2)
    for mine, theirs in zip(run(by_kernel, gate, value), run(by_torch, gate, value), strict=True):
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_large_gates_do_not_overflow() -> None:
    gate = torch.tensor([-1e4, -90.0, 0.0, 90.0, 1e4], device=DEVICE)
    for mine, theirs in zip(run(by_kernel, gate, gate), run(by_torch, gate, gate), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_any_strides_are_taken() -> None:
    gate, value = draw(6, 9, seed=1).T, draw(9, 20, seed=2)[:, 3:9]
    torch.testing.assert_close(by_kernel(gate, value), by_torch(gate, value), rtol=1e-5, atol=1e-6)


def test_in_bfloat16_it_is_at_least_as_close_to_the_truth() -> None:
    gate, value = (draw(50, 64, seed=seed, dtype=torch.bfloat16) for seed in (1, 2))
    mine, theirs, true = (
        run(by_kernel, gate, value),
        run(by_torch, gate, value),
        run(by_torch, gate.double(), value.double()),
    )
    assert all(found.dtype == torch.bfloat16 for found in mine)
    if DEVICE == "cpu":  # Triton's interpreter cuts off where a GPU rounds to the nearest
        wide = run(by_kernel, gate.float(), value.float())
        pairs = zip(mine, wide, strict=True)
        assert all(((cut - exact).abs() <= 2.0**-7 * exact.abs()).all() for cut, exact in pairs)
        mine = [exact.to(torch.bfloat16) for exact in wide]
    for found, other, exact in zip(mine, theirs, true, strict=True):
        assert (found - exact).norm() <= 1.001 * (other - exact).norm()


def test_gates_and_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(AssertionError, match="different shapes"):
        by_kernel(draw(3, 4, seed=1), draw(1, 4, seed=2))
    with pytest.raises(AssertionError, match="different dtypes"):
        by_kernel(draw(3, 4, seed=1), draw(3, 4, seed=2, dtype=torch.bfloat16))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_kernels_compile_for_hopper(dtype: str, compile_for_hopper: RunProgram) -> None:
    program = f"""
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels import gated_silu as home

for kernel in (home._forward_kernel, home._backward_kernel):
    kinds = {{name: dict(num="i32", BLOCK="constexpr").get(name, "*{dtype}") for name in kernel.arg_names}}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=dict(BLOCK=home.BLOCK))
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={{"num_warps": home.NUM_WARPS}})
"""
    compile_for_hopper(program)
