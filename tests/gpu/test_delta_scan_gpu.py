"""On a GPU: the gated delta rule's state carried through all chunks in one kernel, at full width, against the loop."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tiny_scan import NAMES, ROUNDED, by_loop, drawn_chunks

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LIMITS = {torch.float32: 5e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


def inputs(
    length: int, dtype: torch.dtype, *, heads: int = 32, C: int = 64, K: int = 128, V: int = 128
) -> dict[str, Any]:
    return drawn_chunks(draw, heads, length, (C, K, V), dtype)


def by_kernel(given: dict[str, Any], length: int) -> tuple[Tensor, Tensor]:
    from vcsd.kernels.delta.scan import delta_scan

    tensors = [given[name] for name in NAMES]
    return delta_scan(*tensors, num_sequences=2, length=length, out_dtype=given["read"].dtype)


def run(way: Any, given: dict[str, Any], length: int, *, wide: bool = False, on: str = "out last") -> dict[str, Tensor]:
    """Both results, and every gradient of a weighted sum of those in `on`; wide: in float64."""
    leaves = {name: x.detach().requires_grad_() for name, x in given.items() if x is not None}
    out, last = way(given | {name: x.double() if wide else x for name, x in leaves.items()}, length)
    # the same weights in every type
    weights = {"out": draw(*out.shape, seed=8).bfloat16(), "last": draw(*last.shape, seed=9)}
    results = {"out": out, "last": last}
    of = [results[name] for name in on.split()]
    grads = [weights[name].to(results[name].dtype) for name in on.split()]
    found = torch.autograd.grad(of, list(leaves.values()), grads, allow_unused=True, materialize_grads=True)
    return {"out": out.detach(), "last": last.detach()} | {f"d{name}": x for name, x in zip(leaves, found, strict=True)}


def assert_close(found: dict[str, Tensor], true: dict[str, Tensor], limit: float) -> None:
    assert found.keys() == true.keys()
    for name, x in found.items():
        away = (x.double() - true[name].double()).norm() / true[name].double().norm().clamp_min(1e-30)
        assert away.item() < limit, (name, away.item())


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("on", ["out last", "out", "last"])
@pytest.mark.parametrize("length", [300, 320])
def test_at_full_width_results_and_gradients_are_those_of_the_loop(length: int, on: str, dtype: torch.dtype) -> None:
    given = inputs(length, dtype)
    found = run(by_kernel, given, length, on=on)
    for name, x in found.items():
        assert x.dtype == (dtype if name.removeprefix("d") in (*ROUNDED, "out") else torch.float32), name
    assert_close(found, run(by_loop, given, length, wide=True, on=on), LIMITS[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("C", "K", "V"),
    [
        (16, 16, 16),
        (32, 16, 16),
        (64, 16, 16),
        (16, 128, 128),
        (32, 128, 128),
        (64, 64, 32),
        (64, 128, 256),
        (64, 256, 64),
    ],
)
def test_other_sizes_work(C: int, K: int, V: int, dtype: torch.dtype) -> None:
    given = inputs(3 * C - 5, dtype, heads=6, C=C, K=K, V=V)
    found, true = run(by_kernel, given, 3 * C - 5), run(by_loop, given, 3 * C - 5, wide=True)
    assert_close(found, true, 2 * LIMITS[dtype])  # little is added up where little is wide


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [2, 64])
def test_one_chunk_or_one_head_and_no_state(heads: int, dtype: torch.dtype) -> None:
    for length in (1, 64, 65):
        given = inputs(length, dtype, heads=heads) | {"state": None}
        true = run(by_loop, given, length, wide=True)
        found = run(by_kernel, given, length)
        if length <= 64:  # from zeros, one chunk expects and reads nothing
            assert not found["dexpected"].any()
            assert not found["dshrink"].any()
        assert_close(found, true, LIMITS[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_runs_give_the_same_bits(dtype: torch.dtype) -> None:
    given = inputs(1000, dtype, heads=64)
    first, second = (run(by_kernel, given, 1000) for _ in range(2))
    assert all(torch.equal(x, second[name]) for name, x in first.items())


def test_nothing_waits_for_the_device_and_autocast_changes_nothing() -> None:
    given = inputs(300, torch.float32)
    expected = run(by_kernel, given, 300)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", torch.bfloat16):
            found = run(by_kernel, given, 300)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(torch.equal(x, expected[name]) for name, x in found.items())


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory < 80 * 2**30, reason="needs 80 GiB"
)
def test_offsets_beyond_32_bits_work() -> None:
    few, repeats, length = 70, 500, 4 * 64 - 1
    given = inputs(length, torch.bfloat16, heads=few)
    many = {name: x.repeat(repeats, *[1] * (x.ndim - 1)) for name, x in given.items()}
    assert len(many["state"]) * 4 * 128 * 128 > 2**31
    with_grad = {"read", "expected", "written", "writer", "inner", "shrink"}
    leaves, small = (
        {name: x.requires_grad_(name in with_grad) for name, x in tensors.items()} for tensors in (many, given)
    )
    asked, near = ([tensors[name] for name in NAMES if name in with_grad] for tensors in (leaves, small))
    weight = draw(1, length, 1, 128, seed=8).bfloat16()
    out, last = by_kernel(leaves, length)
    expected, end = by_kernel(small, length)
    assert torch.equal(last[-few:], end)
    # heads of the second sequence follow those of the first, and both sequences hold whole repeats
    assert torch.equal(out[1, :, -few // 2 :], expected[1])
    grads = torch.autograd.grad(out, asked, weight.expand_as(out))
    exact = torch.autograd.grad(expected, near, weight.expand_as(expected))
    for name, found, true in zip([name for name in NAMES if name in with_grad], grads, exact, strict=True):
        for part in (found[:few], found[-few:]):
            # a product of torch may be computed otherwise where there are more of them
            assert torch.equal(part, true) or name in ROUNDED, name
            assert_close({name: part}, {name: true}, 2e-3)
