"""On a GPU: the convolution of a packed row in one kernel, at full width, against gathers and torch's convolution."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5

from vcsd.models.packed.layout import Layout, Segment
from vcsd.models.qwen import delta_net

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
PLAIN = delta_net.convolution(inspect.unwrap(modeling_qwen3_5.causal_conv1d_fn))
CHANNELS = 6144


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)


def row_of_4096(num_taps: int = 4) -> Layout:
    """Two prompts with forks of uneven lengths, some shorter than the convolution."""
    one = [Segment(1000, None), Segment(1, 0), Segment(2, 0), Segment(45, 0), *10 * [Segment(100, 0)]]
    two = [Segment(1023, None), Segment(1, 14), Segment(512, 14), Segment(500, 14), Segment(12, 16)]
    return Layout([*one, *two], torch.device("cuda"), num_taps)


def by_kernel(x_TC: Tensor, weight: Tensor, layout: Layout) -> Tensor:
    from vcsd.kernels.segment_conv import segment_conv

    return segment_conv(x_TC, weight, None, layout.sources, is_silu=True)


def by_gathers(x_TC: Tensor, weight: Tensor, layout: Layout) -> Tensor:
    return PLAIN(x_TC.T[None], weight, None, activation="silu", mixer=SimpleNamespace(layout=layout))[0].T


def run(way: Any, x_TC: Tensor, weight: Tensor, layout: Layout) -> list[Tensor]:
    leaves = [x_TC.detach().requires_grad_(), weight.detach().requires_grad_()]
    out = way(*leaves, layout)
    grad = draw(*out.shape, dtype=torch.bfloat16, seed=2).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def distance(found: Tensor, true: Tensor) -> float:
    return ((found.double() - true.double()).norm() / true.double().norm()).item()


@pytest.mark.parametrize(("dtype", "autocast"), [(torch.float32, False), (torch.bfloat16, True)])
def test_a_row_of_full_width_is_at_least_as_close_to_the_truth(dtype: torch.dtype, autocast: bool) -> None:
    layout = row_of_4096()
    assert layout.num_tokens == 4096
    x_TC, weight = draw(4096, CHANNELS, dtype=dtype), draw(CHANNELS, 4, seed=1)
    true = run(by_gathers, x_TC.double(), weight.double(), layout)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        mine, theirs = (run(way, x_TC, weight, layout) for way in (by_kernel, by_gathers))
    assert [x.dtype for x in mine] == [dtype, dtype, torch.float32]
    for found, other, exact in zip(mine, theirs, true, strict=True):
        assert distance(found, exact) <= max(1.01 * distance(other, exact), 2e-6)
        assert distance(found, exact) < (0.0025 if dtype == torch.bfloat16 else 2e-6)


@pytest.mark.parametrize("num_taps", [2, 3, 4])
@pytest.mark.parametrize("num_channels", [6144, 200, 131])
def test_other_widths_and_numbers_of_taps_work(num_channels: int, num_taps: int) -> None:
    layout = row_of_4096(num_taps)
    x_TC, weight = draw(4096, num_channels), draw(num_channels, num_taps, seed=1)
    true = run(by_gathers, x_TC.double(), weight.double(), layout)
    for found, exact in zip(run(by_kernel, x_TC, weight, layout), true, strict=True):
        assert distance(found, exact) < 2e-6


def test_a_row_without_forks_has_no_readers_elsewhere() -> None:
    layout = Layout([Segment(300, None)], torch.device("cuda"))
    assert len(layout.sources.elsewhere[1]) == 0
    x_TC, weight = draw(300, CHANNELS), draw(CHANNELS, 4, seed=1)
    true = run(by_gathers, x_TC.double(), weight.double(), layout)
    for found, exact in zip(run(by_kernel, x_TC, weight, layout), true, strict=True):
        assert distance(found, exact) < 2e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("deterministic", [False, True])
def test_two_runs_give_the_same_bits(dtype: torch.dtype, deterministic: bool) -> None:
    x_TC, weight = draw(4096, CHANNELS, dtype=dtype), draw(CHANNELS, 4, seed=1)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        assert all(map(torch.equal, *(run(by_kernel, x_TC, weight, row_of_4096()) for _ in range(2))))
    finally:
        torch.use_deterministic_algorithms(before)


def test_nothing_waits_for_the_device() -> None:
    x_TC, weight = draw(4096, CHANNELS, dtype=torch.bfloat16), draw(CHANNELS, 4, seed=1)
    expected = run(by_kernel, x_TC, weight, row_of_4096())
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = run(by_kernel, x_TC, weight, row_of_4096())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(map(torch.equal, found, expected))


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory < 60 * 2**30, reason="needs 60 GiB"
)
def test_offsets_beyond_32_bits_work() -> None:
    T, tail = 360_000, 64
    assert T * CHANNELS > 2**31
    layout = Layout([Segment(T - tail, None), Segment(tail - 5, 0), Segment(5, 0)], torch.device("cuda"))
    x_TC, weight = draw(T, CHANNELS, dtype=torch.bfloat16), draw(CHANNELS, 4, seed=1)
    leaf = x_TC.detach().requires_grad_()
    out = by_kernel(leaf, weight, layout)
    grad = torch.ones(1, 1, dtype=torch.bfloat16, device="cuda").expand_as(out)
    (dx,) = torch.autograd.grad(out, leaf, grad)
    # the same ends with a prompt of few tokens
    short = Layout([Segment(40, None), Segment(tail - 5, 0), Segment(5, 0)], torch.device("cuda"))
    near = x_TC[-tail - 40 :].detach().requires_grad_()
    expected = by_kernel(near, weight, short)
    (dx_near,) = torch.autograd.grad(expected, near, grad[: len(near)])
    assert torch.equal(out[-tail - 30 :], expected[-tail - 30 :])
    assert torch.equal(dx[-tail - 30 :], dx_near[-tail - 30 :])
