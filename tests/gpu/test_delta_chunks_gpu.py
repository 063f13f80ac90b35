"""On a GPU: the chunks of the gated delta rule in one kernel, at full width, against their definition in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vcsd.models.qwen.delta_rule import gated_delta_rule

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
NAMES = ("read", "expected", "written", "writer", "inner", "shrink", "dq", "dk", "dv", "dg", "dbeta")
CHUNK = 64


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)


def inputs(
    num: int = 2, length: int = 300, num_heads: int = 3, width: int = 128, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    q, k, v = (draw(num, length, num_heads, width, seed=seed, dtype=dtype) for seed in (1, 2, 3))
    return [q, k, v, -0.1 * draw(num, length, num_heads, seed=4).abs(), draw(num, length, num_heads, seed=5).sigmoid()]


def by_kernel(*given: Tensor, chunk_size: int = CHUNK, is_normalised: bool = True) -> Any:
    from vcsd.kernels.delta.chunks import delta_chunks

    return delta_chunks(*given, chunk_size=chunk_size, is_normalised=is_normalised)


def by_definition(*given: Tensor, chunk_size: int = CHUNK, is_normalised: bool = True) -> tuple[Tensor, ...]:
    def chunks(x: Tensor) -> Tensor:
        x = x.flatten(3) if x.dim() > 3 else x[..., None]
        x = functional.pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % chunk_size))
        return x.reshape(x.shape[0] * x.shape[1], -1, chunk_size, x.shape[3])

    q, k, v, g, beta = (chunks(x) for x in given)
    if is_normalised:
        q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    total = g.cumsum(2)
    future = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device="cuda").triu(1)
    between = (total - total.mT).masked_fill(future, float("-inf")).exp()
    inverse = torch.linalg.inv(torch.eye(chunk_size).to(q) + (beta * (k @ k.mT) * between).tril(-1))
    last = total[:, :, -1:]
    solved = inverse @ (beta * k * total.exp()), inverse @ (beta * v)
    return q * total.exp(), *solved, k * (last - total).exp(), (q @ k.mT) * between, last[:, :, 0, 0].exp()


def run(way: Any, given: list[Tensor], **settings: Any) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in given]
    out = way(*leaves, **settings)
    grads = [draw(*x.shape, seed=10 + i, dtype=torch.bfloat16).to(x.dtype) for i, x in enumerate(out)]
    return [*(x.detach() for x in out), *torch.autograd.grad(out, leaves, grads)]


def distances(found: list[Tensor], true: list[Tensor]) -> dict[str, float]:
    pairs = zip(NAMES, found, true, strict=True)
    # a decay over many steps may be too small for float32
    return {name: ((mine.double() - exact).norm() / (exact.norm() + 1e-30)).item() for name, mine, exact in pairs}


def assert_close(given: list[Tensor], within: float, within_sums: float, **settings: Any) -> None:
    far = distances(run(by_kernel, given, **settings), run(by_definition, [x.double() for x in given], **settings))
    assert max(far.values()) < within, far
    assert max(far[name] for name in ("written", "shrink", "dg", "dbeta")) < within_sums, far


@pytest.mark.parametrize(
    ("dtype", "is_normalised"),
    [
        *((torch.float32, True), (torch.float32, False)),
        *((torch.bfloat16, True), (torch.bfloat16, False), (torch.float16, True)),
    ],
)
def test_chunks_of_full_width_and_their_gradients_equal_the_definition(dtype: torch.dtype, is_normalised: bool) -> None:
    given = inputs(dtype=dtype)
    if not is_normalised:
        given[1] = given[1] / 12  # overlaps of long keys grow without bound
    within = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (5e-3, 4e-3), torch.float16: (4e-3, 4e-3)}[dtype]
    assert_close(given, *within, is_normalised=is_normalised)


@pytest.mark.parametrize(
    ("chunk_size", "width", "dtype"),
    [
        *((16, 16, torch.float32), (32, 64, torch.float32)),
        *((16, 128, torch.bfloat16), (32, 64, torch.bfloat16), (64, 16, torch.bfloat16), (64, 256, torch.bfloat16)),
    ],
)
def test_other_chunks_and_widths_work(chunk_size: int, width: int, dtype: torch.dtype) -> None:
    within = (1e-5, 1e-5) if dtype == torch.float32 else (5e-3, 4e-3)
    assert_close(inputs(1, 77, 2, width, dtype), *within, chunk_size=chunk_size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_that_are_dropped_at_once_or_never_stay_finite(dtype: torch.dtype) -> None:
    given = inputs(dtype=dtype)
    decays = torch.tensor([0.0, -50.0, -1 / 64], device="cuda")  # their sums are exact
    given[3] = decays[(draw(*given[3].shape, seed=7) * 2).long() % 3]
    assert_close(given, *((1e-5, 1e-5) if dtype == torch.float32 else (5e-3, 4e-3)))
    given[3] = torch.full_like(given[3], -50.0)
    assert all(x.isfinite().all() for x in run(by_kernel, given))


def test_almost_equal_keys_are_solved_as_well_as_by_torch() -> None:
    """Overlaps near one: what powers of them would cancel to nothing."""
    given = inputs()
    given[1] = draw(1, 1, 3, 128, seed=8) + 0.1 * given[1]
    given[3], given[4] = 0 * given[3], given[4] ** 0
    true = by_definition(*(x.double() for x in given))
    far = [((x.double() - y).norm() / y.norm()).item() for x, y in zip(by_kernel(*given), true, strict=True)]
    assert max(far) < 1e-4, far
    narrow = [*(x.bfloat16() for x in given[:3]), *given[3:]]
    true = by_definition(*(x.double() for x in narrow))
    far = [((x.double() - y).norm() / y.norm()).item() for x, y in zip(by_kernel(*narrow), true, strict=True)]
    assert max(far) < 1e-2, far


def test_slices_of_one_row_are_taken_as_they_are() -> None:
    given = inputs(dtype=torch.bfloat16)
    row = torch.cat(given[:3], -1)
    slices = [*row.split(128, -1), *given[3:]]
    assert not slices[0].is_contiguous()
    assert all(map(torch.equal, run(by_kernel, slices), run(by_kernel, given)))


def test_chunks_carried_one_after_the_other_are_the_delta_rule() -> None:
    given = inputs()
    state, outs = draw(6, 128, 128, seed=6), []
    first = state.reshape(2, 3, 128, 128)
    for read, expected, written, writer, inner, shrink in zip(*(x.unbind(1) for x in by_kernel(*given)), strict=True):
        new = written - expected @ state
        outs.append(read @ state + inner @ new)
        state = shrink[:, None, None] * state + writer.mT @ new
    out = torch.cat(outs, 1)[:, :300].reshape(2, 3, 300, 128).transpose(1, 2)
    q, k, v, g, beta = (x.double() for x in given)
    true, _ = gated_delta_rule(q, k, v, g=g, beta=beta, initial_state=first, use_qk_l2norm_in_kernel=True)
    assert (out - true).norm() < 1e-5 * true.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_runs_give_the_same_bits(dtype: torch.dtype) -> None:
    given = inputs(dtype=dtype)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert all(map(torch.equal, *(run(by_kernel, given) for _ in range(2))))
    finally:
        torch.use_deterministic_algorithms(before)


def test_nothing_waits_for_the_device() -> None:
    given = inputs(dtype=torch.bfloat16)
    expected = run(by_kernel, given)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = run(by_kernel, given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(map(torch.equal, found, expected))


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory < 120 * 2**30, reason="needs 120 GiB"
)
def test_offsets_beyond_32_bits_work() -> None:
    num = 265_000
    assert num * CHUNK * 128 > 2**31
    given = [x.requires_grad_() for x in inputs(num, 2, 1, dtype=torch.bfloat16)]
    ends = [x[-3:].detach().requires_grad_() for x in given]
    out, expected = by_kernel(*given), by_kernel(*ends)
    assert all(torch.equal(x[-3:], y) for x, y in zip(out, expected, strict=True))
    grads, few = ([torch.ones((), dtype=y.dtype, device="cuda").expand_as(y) for y in x] for x in (out, expected))
    found, true = torch.autograd.grad(out, given, grads), torch.autograd.grad(expected, ends, few)
    assert all(torch.equal(x[-3:], y) for x, y in zip(found, true, strict=True))
