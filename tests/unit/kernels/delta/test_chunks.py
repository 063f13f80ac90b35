"""The chunks of the gated delta rule in one kernel equal their definition in float64, forward and backward."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hopper_compiler import RunProgram
from vcsd.models.qwen.delta_rule import gated_delta_rule

pytest.importorskip("triton")
from vcsd.kernels.delta import chunks as home
from vcsd.kernels.delta.chunks import Chunks, delta_chunks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = (*Chunks._fields, "dq", "dk", "dv", "dg", "dbeta")


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def by_definition(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, *, chunk_size: int, is_normalised: bool
) -> Chunks:
    """Line by line, in the type that is given, with torch's own inverse."""

    def chunks(x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        x = functional.pad(x, (0, 0, 0, -x.shape[2] % chunk_size))
        return x.reshape(x.shape[0] * x.shape[1], -1, chunk_size, x.shape[3])

    q, k, v, g, beta = (chunks(x) for x in (query, key, value, g[..., None], beta[..., None]))
    if is_normalised:
        q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    total = g.cumsum(2)
    past = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=q.device).tril()
    between = (total - total.mT).masked_fill(~past, float("-inf")).exp()
    overlap = (beta * (k @ k.mT) * between).tril(-1)
    inverse = torch.linalg.inv(torch.eye(chunk_size, dtype=q.dtype, device=q.device) + overlap)
    last = total[:, :, -1:]
    return Chunks(
        read_MJCK=q * total.exp(),
        expected_MJCK=inverse @ (beta * k * total.exp()),
        written_MJCV=inverse @ (beta * v),
        writer_MJCK=k * (last - total).exp(),
        inner_MJCC=(q @ k.mT) * between,
        shrink_MJ=last[:, :, 0, 0].exp(),
    )


def inputs(
    length: int, key_width: int = 16, value_width: int = 16, dtype: torch.dtype = torch.float32, num: int = 2
) -> list[Tensor]:
    """Keys are not of length one, and shorter than that on average: they may be used as they are."""
    q, k = (0.2 * draw(num, length, 2, key_width, seed=seed, dtype=dtype) for seed in (1, 2))
    v = draw(num, length, 2, value_width, seed=3, dtype=dtype)
    return [q, k, v, -0.3 * draw(num, length, 2, seed=4).abs(), draw(num, length, 2, seed=5).sigmoid()]


def run(way: Any, given: list[Tensor], chunk_size: int = 16, is_normalised: bool = True) -> list[Tensor]:
    """The outputs, then the gradients of what asks for one."""
    leaves = [x.detach().requires_grad_() for x in given]
    out = way(*leaves, chunk_size=chunk_size, is_normalised=is_normalised)
    grads = [draw(*x.shape, seed=10 + i, dtype=torch.bfloat16).to(x.dtype) for i, x in enumerate(out)]
    return [*(x.detach() for x in out), *torch.autograd.grad(out, leaves, grads)]


def assert_equal(found: list[Tensor], true: list[Tensor], within: float) -> None:
    """No element is further off than this part of the largest one."""
    for name, mine, exact in zip(NAMES, found, true, strict=True):
        assert mine.shape == exact.shape, name
        assert mine.isfinite().all(), name
        assert (mine - exact).abs().max() <= within * exact.abs().max() + 1e-30, name


@pytest.mark.parametrize("is_normalised", [True, False])
@pytest.mark.parametrize(
    ("length", "chunk_size", "key_width", "value_width"),
    [(1, 16, 16, 16), (37, 16, 32, 16), (32, 32, 16, 64), (50, 32, 64, 32), (64, 64, 16, 16), (70, 64, 32, 128)],
)
def test_chunks_and_their_gradients_equal_the_definition(
    length: int, chunk_size: int, key_width: int, value_width: int, is_normalised: bool
) -> None:
    given = inputs(length, key_width, value_width)
    found = run(delta_chunks, given, chunk_size, is_normalised)
    true = run(by_definition, [x.double() for x in given], chunk_size, is_normalised)
    assert all(x.dtype == torch.float32 for x in found)
    assert_equal(found, true, 1e-5)


def test_chunks_carried_one_after_the_other_are_the_delta_rule() -> None:
    q, k, v, g, beta = given = inputs(75, 16, 32)
    chunks = delta_chunks(*given, chunk_size=32, is_normalised=True)
    state, outs = draw(4, 16, 32, seed=6), []
    first = state.clone()
    for read, expected, written, writer, inner, shrink in zip(*(x.unbind(1) for x in chunks), strict=True):
        new = written - expected @ state
        outs.append(read @ state + inner @ new)
        state = shrink[:, None, None] * state + writer.mT @ new
    out = torch.cat(outs, 1)[:, :75].reshape(2, 2, 75, 32).transpose(1, 2)
    settings = {"g": g, "beta": beta, "initial_state": first.reshape(2, 2, 16, 32), "use_qk_l2norm_in_kernel": True}
    true, last = gated_delta_rule(q, k, v, **settings, output_final_state=True)
    assert last is not None
    torch.testing.assert_close(out, true, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, last.flatten(0, 1), rtol=1e-5, atol=1e-6)


def test_the_same_key_again_and_again_is_solved_exactly() -> None:
    """Without decay each value replaces the one before: inverse has ones on the diagonal, then minus ones, then 0."""
    q, k, v, g, beta = inputs(64)
    k = functional.one_hot(torch.zeros_like(g, dtype=torch.long), 16).to(k.dtype)
    chunks = delta_chunks(q, k, v, 0 * g, beta**0, chunk_size=64, is_normalised=False)
    v_MJCV = v.transpose(1, 2).reshape(4, 1, 64, 16)
    assert torch.equal(chunks.written_MJCV, v_MJCV - functional.pad(v_MJCV, (0, 0, 1, 0))[:, :, :-1])
    expected = torch.zeros_like(chunks.expected_MJCK)
    expected[:, :, 0, 0] = 1
    assert torch.equal(chunks.expected_MJCK, expected)


@pytest.mark.parametrize("is_normalised", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_they_are_close(dtype: torch.dtype, is_normalised: bool) -> None:
    given = inputs(70, 32, 64, dtype)
    given[4] = given[4].to(dtype)
    found = run(delta_chunks, given, 32, is_normalised)
    wide = {"written_MJCV", "shrink_MJ", "dg"}
    assert [x.dtype for x in found] == [torch.float32 if name in wide else dtype for name in NAMES]
    assert_equal(found, run(by_definition, [x.double() for x in given], 32, is_normalised), 2e-2)


@pytest.mark.parametrize("chunk_size", [32, 64])
def test_states_that_are_dropped_at_once_or_never_stay_finite(chunk_size: int) -> None:
    given = inputs(70)
    decays = torch.tensor([0.0, -50.0, -1 / 64], device=DEVICE)  # their sums are exact
    for g in (decays[(draw(2, 70, 2, seed=7) * 2).long() % 3], torch.full_like(given[3], -50.0), 0 * given[3]):
        given[3] = g
        true = run(by_definition, [x.double() for x in given], chunk_size)
        assert_equal(run(delta_chunks, given, chunk_size), true, 1e-5)


@pytest.mark.parametrize("view", ["slices of one row", "transposed", "expanded"])
def test_any_strides_are_taken(view: str) -> None:
    given = inputs(20)
    if view == "slices of one row":
        row = draw(2, 20, 2, 60, seed=1)
        given[:3] = row[..., 4:20], row[..., 20:36], row[..., 40:56]
    elif view == "transposed":
        given = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in given]
    else:
        given = [x[:1].expand_as(x) for x in given]
    assert not any(x.is_contiguous() for x in given[:3])
    assert_equal(run(delta_chunks, given), run(by_definition, [x.double() for x in given]), 1e-5)


def test_gradients_of_any_strides_are_taken_and_one_left_out_counts_as_zero() -> None:
    given = [x.requires_grad_() for x in inputs(20)]
    mine, true = (way(*given, chunk_size=16, is_normalised=True) for way in (delta_chunks, by_definition))
    grads = [draw(*x.shape[:2], *x.shape[2:][::-1], seed=8).mT for x in mine[:5]]
    found, expected = (torch.autograd.grad(out[:5], given, grads) for out in (mine, true))
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_two_runs_give_the_same_bits() -> None:
    given = inputs(37)
    assert all(map(torch.equal, *(run(delta_chunks, given) for _ in range(2))))


@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (3, 4), (0, 2, 4)])
def test_gradients_are_the_same_whichever_are_asked_for(asked: tuple[int, ...]) -> None:
    given = inputs(20)
    everything = run(delta_chunks, given)
    leaves = [x.detach().requires_grad_(i in asked) for i, x in enumerate(given)]
    out = delta_chunks(*leaves, chunk_size=16, is_normalised=True)
    grads = [draw(*x.shape, seed=10 + i, dtype=torch.bfloat16).to(x.dtype) for i, x in enumerate(out)]
    found = torch.autograd.grad(out, [leaves[i] for i in asked], grads)
    assert all(map(torch.equal, found, [everything[6 + i] for i in asked]))


def test_the_inverse_is_kept_only_if_a_gradient_may_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    given = inputs(20)

    def apply(*values: Any) -> Any:
        context = SimpleNamespace(save_for_backward=lambda *saved: kept.append(saved[-1] is not None))
        return home._DeltaChunks.forward(context, *values)

    expected = delta_chunks(*given, chunk_size=16, is_normalised=True)
    monkeypatch.setattr(home._DeltaChunks, "apply", apply)
    delta_chunks(*given, chunk_size=16, is_normalised=True)
    given[3].requires_grad_()
    with torch.no_grad():
        found = delta_chunks(*given, chunk_size=16, is_normalised=True)
    assert kept == [False, False]
    assert all(map(torch.equal, found, expected))
    delta_chunks(*given, chunk_size=16, is_normalised=True)
    assert kept == [False, False, True]


def test_no_tokens_have_no_chunks() -> None:
    found = run(delta_chunks, inputs(0, 16, 32))
    assert found[0].shape == (4, 0, 16, 16)
    assert found[-1].shape == (2, 0, 2)


@pytest.mark.parametrize("wrong", ["chunk", "width", "dtype", "tokens"])
def test_what_the_kernel_does_not_know_is_refused(wrong: str) -> None:
    given = inputs(8, 24 if wrong == "width" else 16)
    if wrong == "dtype":
        given[2] = given[2].double()
    if wrong == "tokens":
        given[3] = given[3][:, :-1]
    with pytest.raises(AssertionError, match=r"the kernel supports|different"):
        delta_chunks(*given, chunk_size=48 if wrong == "chunk" else 16, is_normalised=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "sizes", "left_out"),
    [
        ("bf16", "C=64, K=128, V=128", ""),
        ("fp16", "C=16, K=16, V=256", "inverse_ptr dq_ptr dbeta_ptr"),
        ("fp32", "C=32, K=64, V=16", "dk_ptr dv_ptr dg_ptr"),
    ],
)
def test_the_kernels_compile_for_hopper(dtype: str, sizes: str, left_out: str, compile_for_hopper: RunProgram) -> None:
    program = f"""
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels.delta import chunks as home

options = home._options(torch.empty(0, dtype=torch.{"float32" if dtype == "fp32" else "bfloat16"}))
num = {{name: options.pop(name) for name in ("num_warps", "num_stages")}}
constants = options | dict({sizes}, NORMALISED=True, SOLVED=home.SOLVED, CAST=False)
constants["SOLVE_PRECISION"] = "ieee" if "{dtype}" == "fp32" else "tf32x3"
float32 = "g_ptr dg_ptr beta_ptr dbeta_ptr written_ptr dwritten_ptr shrink_ptr dshrink_ptr inverse_ptr".split()
types = dict.fromkeys(float32, "*fp32")
for kernel in (home._forward_kernel, home._backward_kernel):
    is_left_out = [name for name in {left_out.split()} if name != "inverse_ptr" or kernel is home._forward_kernel]
    given = constants | dict.fromkeys(is_left_out)
    given = {{name: value for name, value in given.items() if name in kernel.arg_names}}
    kinds = {{name: "*{dtype}" if name.endswith("_ptr") else "i32" for name in kernel.arg_names}} | types
    kinds = {{name: "constexpr" if name in given else kinds[name] for name in kernel.arg_names}}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=given)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=num)
    assert built.metadata.shared <= 227 * 1024, built.metadata.shared
"""
    compile_for_hopper(program)
