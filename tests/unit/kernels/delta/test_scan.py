"""The state of the gated delta rule carried through all chunks in one kernel equals the loop, forward and backward."""

from typing import Any

import pytest
import torch
from torch import Tensor

from hopper_compiler import RunProgram
from tiny_scan import NAMES, ROUNDED, by_loop, drawn_chunks
from vcsd.models.qwen.delta_rule import gated_delta_rule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(1, 16, 16, 16), (16, 16, 32, 64), (17, 16, 16, 16), (70, 16, 32, 16), (70, 32, 16, 64), (70, 64, 16, 32)]
"""Length, C, K, V."""


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def inputs(length: int, C: int, K: int, V: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Four heads."""
    return drawn_chunks(draw, 4, length, (C, K, V), dtype)


def by_kernel(given: dict[str, Any], length: int, num_sequences: int = 2) -> tuple[Tensor, Tensor]:
    pytest.importorskip("triton")
    from vcsd.kernels.delta.scan import delta_scan

    tensors = [given[name] for name in NAMES]
    return delta_scan(*tensors, num_sequences=num_sequences, length=length, out_dtype=given["read"].dtype)


def run(
    way: Any, given: dict[str, Any], length: int, *, wide: bool = False, on: str = "out last", of: Any = NAMES
) -> dict[str, Tensor]:
    """Both results, and the gradients `of` those inputs, of a weighted sum of the results in `on`; wide: in float64."""
    leaves = {name: None if x is None else x.detach().requires_grad_(name in of) for name, x in given.items()}
    out, last = way({name: x.double() if wide and x is not None else x for name, x in leaves.items()}, length)
    # the same weights in every type
    weighted = {"out": (out, draw(*out.shape, seed=8).bfloat16()), "last": (last, draw(*last.shape, seed=9))}
    total = sum((x.double() * weight).sum() for x, weight in (weighted[name] for name in on.split()))
    asked = {f"d{name}": leaf for name, leaf in leaves.items() if leaf is not None and leaf.requires_grad}
    grads = torch.autograd.grad(total, list(asked.values()), allow_unused=True, materialize_grads=True)
    return {"out": out.detach(), "last": last.detach(), **dict(zip(asked, grads, strict=True))}


def distance(found: Tensor, true: Tensor) -> float:
    return ((found.double() - true.double()).norm() / true.double().norm().clamp_min(1e-30)).item()


def assert_close(found: dict[str, Tensor], true: dict[str, Tensor], limit: float = 2e-6) -> None:
    assert found.keys() == true.keys()
    for name, x in found.items():
        assert x.shape == true[name].shape, name
        assert distance(x, true[name]) < limit, (name, distance(x, true[name]))
        torch.testing.assert_close(x.double(), true[name].double(), rtol=10 * limit, atol=10 * limit)


@pytest.mark.parametrize("on", ["out last", "out", "last"])
@pytest.mark.parametrize(("length", "C", "K", "V"), SHAPES)
def test_results_and_gradients_equal_those_of_the_loop(length: int, C: int, K: int, V: int, on: str) -> None:
    given = inputs(length, C, K, V)
    found = run(by_kernel, given, length, on=on)
    assert len(found) == 2 + len(NAMES)
    assert all(x.dtype == torch.float32 for x in found.values())
    assert_close(found, run(by_loop, given, length, wide=True, on=on))


@pytest.mark.parametrize("on", ["out last", "out", "last"])
def test_without_a_state_it_starts_from_zeros(on: str) -> None:
    given = inputs(40, 16, 16, 32)
    zeros = given | {"state": torch.zeros_like(given["state"])}
    found = run(by_kernel, given | {"state": None}, 40, on=on)
    expected = run(by_kernel, zeros, 40, on=on)
    assert found.keys() == expected.keys() - {"dstate"}
    assert all(torch.equal(x, expected[name]) for name, x in found.items())
    assert_close(found, run(by_loop, given | {"state": None}, 40, wide=True, on=on))


def test_a_state_that_no_token_changes_fades_and_is_read_by_its_own_head() -> None:
    given = inputs(20, 16, 16, 16)
    given |= {name: torch.zeros_like(given[name]) for name in ("expected", "written", "inner")}
    given["shrink"] = torch.tensor([[0.5, 0.25]], device=DEVICE).expand(4, 2)
    given["state"] = torch.arange(1.0, 5.0, device=DEVICE)[:, None, None].expand(4, 16, 16)  # head m holds m + 1
    given["read"] = torch.full_like(given["read"], 0.125)
    out_NLHV, last_MKV = by_kernel(given, 20)
    assert out_NLHV.shape == (2, 20, 2, 16)
    # sixteen keys of 1/8 read twice what the state holds; the second chunk meets half of it, the end an eighth
    for n, h in ((0, 0), (0, 1), (1, 0), (1, 1)):
        holds = 2.0 * n + h + 1
        assert (out_NLHV[n, :16, h] == 2 * holds).all()
        assert (out_NLHV[n, 16:, h] == holds).all()
        assert (last_MKV[2 * n + h] == holds / 8).all()


@pytest.mark.parametrize("length", [64, 65, 100])
@pytest.mark.parametrize("g", [-50.0, 0.0, None])
def test_with_its_chunks_it_is_the_gated_delta_rule(length: int, g: float | None) -> None:
    N, H, K, V, C = 2, 3, 32, 16, 32
    query, key, value = (draw(N, length, H, width, seed=i) for i, width in ((1, K), (2, K), (3, V)))
    key = torch.nn.functional.normalize(key, dim=-1)
    beta = torch.sigmoid(draw(N, length, H, seed=4))
    decay = -draw(N, length, H, seed=5).abs() if g is None else torch.full_like(beta, g)
    start = draw(N, H, K, V, seed=6)
    given = chunks(query, key, value, decay, beta, C) | {"state": start.flatten(0, 1)}
    out, last = by_kernel(given, length, N)
    expected, state = gated_delta_rule(
        *(query, key, value), g=decay, beta=beta, initial_state=start, output_final_state=True, chunk_size=C
    )
    assert state is not None
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(last, state.flatten(0, 1), rtol=1e-5, atol=1e-5)


def chunks(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, C: int) -> dict[str, Tensor]:
    """What a chunk's tokens are to the state, by the formulas."""

    def split(x_NLHE: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(x_NLHE, (0, 0, 0, 0, 0, -x_NLHE.shape[1] % C))
        return padded.transpose(1, 2).flatten(0, 1).unflatten(1, (-1, C)).double()

    q, k, v, g, b = (split(x) for x in (query * query.shape[-1] ** -0.5, key, value, g[..., None], beta[..., None]))
    total = g.cumsum(-2)
    past = torch.ones(C, C, dtype=torch.bool, device=DEVICE).tril()
    between = (total - total.mT).masked_fill(~past, float("-inf")).exp()
    inverse = torch.linalg.inv((b * k @ k.mT * between).tril(-1) + torch.eye(C, device=DEVICE))
    made = {
        "read": q * total.exp(),
        "expected": inverse @ (b * k * total.exp()),
        "written": inverse @ (b * v),
        "writer": k * (total[..., -1:, :] - total).exp(),
        "inner": q @ k.mT * between,
        "shrink": total[..., -1, 0].exp(),
    }
    return {name: x.float() for name, x in made.items()}


@pytest.mark.parametrize(
    "shrinks", [(0.0, 1.0, 0.0, 1.0, 1.0), (1.0,) * 5, (0.0,) * 5, (1e-30, 1.0, 1e-20, 0.5, 1e-38)]
)
def test_states_that_all_or_nothing_is_kept_of(shrinks: tuple[float, ...]) -> None:
    given = inputs(70, 16, 16, 16)
    given["shrink"] = torch.tensor([shrinks], device=DEVICE).expand(4, 5).contiguous()
    assert_close(run(by_kernel, given, 70), run(by_loop, given, 70, wide=True))


def test_what_lies_beyond_the_length_is_neither_read_nor_taught() -> None:
    given = inputs(20, 16, 16, 16)
    out, _ = by_kernel(given, 20)
    full, _ = by_kernel(given, 32)
    assert torch.equal(out, full[:, :20])
    found = run(by_kernel, given, 20, on="out")
    assert not found["dread"][:, 1, 4:].any()
    assert not found["dinner"][:, 1, 4:].any()
    assert found["dread"][:, 1, :4].all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("length", "C", "K", "V"), [(70, 16, 32, 16), (70, 32, 16, 128), (130, 64, 32, 64)])
def test_in_half_precision_it_stays_close(length: int, C: int, K: int, V: int, dtype: torch.dtype) -> None:
    given = inputs(length, C, K, V, dtype)
    found, true = run(by_kernel, given, length), run(by_loop, given, length, wide=True)
    for name, x in found.items():
        assert x.dtype == (dtype if name.removeprefix("d") in (*ROUNDED, "out") else torch.float32), name
        assert distance(x, true[name]) < 2e-2, (name, distance(x, true[name]))


def test_the_results_may_have_another_type() -> None:
    from vcsd.kernels.delta.scan import delta_scan

    given = inputs(20, 16, 16, 16, torch.bfloat16)
    tensors = [given[name] for name in NAMES]
    out, last = delta_scan(*tensors, num_sequences=2, length=20, out_dtype=torch.float32)
    rounded, same = delta_scan(*tensors, num_sequences=2, length=20, out_dtype=torch.bfloat16)
    assert out.dtype == last.dtype == torch.float32
    assert torch.equal(last, same)
    assert ((out - rounded).abs() <= 2.0**-7 * out.abs()).all()
    assert not torch.equal(out, rounded.float())


@pytest.mark.parametrize("columns", [16, 32, 64])
def test_in_blocks_of_any_width_the_results_are_the_same(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from vcsd.kernels.delta import scan

    given = inputs(40, 16, 16, 64)
    expected = run(by_kernel, given, 40)
    monkeypatch.setattr(scan, "EXACT_BLOCK_V", columns)
    assert_close(run(by_kernel, given, 40), expected)


def test_any_strides_are_taken() -> None:
    given = inputs(40, 16, 16, 32)
    strided = {name: torch.stack([x, -x], -1).movedim(1, -1)[..., 0, :].movedim(-1, 1) for name, x in given.items()}
    assert not any(x.is_contiguous() for x in strided.values())
    expected = run(by_kernel, given, 40)
    found = run(by_kernel, strided, 40)
    assert all(torch.equal(x, expected[name]) for name, x in found.items())
    leaf = given["written"].detach().requires_grad_()
    out, last = by_kernel(given | {"written": leaf}, 40)
    twin, twin_last = by_loop(given | {"written": leaf}, 40)
    grads = draw(1, 1, 1, 1, seed=5).expand_as(out), draw(4, 32, 16, seed=6).mT
    mine = torch.autograd.grad([out, last], leaf, grads)
    torch.testing.assert_close(mine, torch.autograd.grad([twin, twin_last], leaf, grads), rtol=1e-5, atol=1e-5)


def test_two_runs_give_the_same_bits() -> None:
    given = inputs(70, 16, 32, 64)
    first, second = (run(by_kernel, given, 70) for _ in range(2))
    assert all(torch.equal(x, second[name]) for name, x in first.items())


@pytest.mark.parametrize("of", NAMES)
def test_a_gradient_does_not_depend_on_which_others_are_asked_for(of: str) -> None:
    given = inputs(40, 16, 16, 32)
    expected = run(by_kernel, given, 40)
    found = run(by_kernel, given, 40, of=[of])
    assert found.keys() == {"out", "last", f"d{of}"}
    assert all(torch.equal(x, expected[name]) for name, x in found.items())


@pytest.mark.parametrize("asked", ["gradient", "no gradient", "no_grad"])
def test_states_are_kept_for_a_gradient_only(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from vcsd.kernels.delta import scan

    given = inputs(40, 16, 16, 32)
    expected = run(by_kernel, given, 40)
    kernel, kept = scan._forward_kernel, []

    class Spy:
        def __getitem__(self, grid: Any) -> Any:
            def launch(*tensors: Any, **settings: Any) -> None:
                kept.append([x is not None for x in tensors[9:11]])
                kernel[grid](*tensors, **settings)

            return launch

    monkeypatch.setattr(scan, "_forward_kernel", Spy())
    leaves = {name: x.detach().requires_grad_(asked != "no gradient") for name, x in given.items()}
    with torch.set_grad_enabled(asked != "no_grad"):
        out, last = by_kernel(leaves, 40)
    assert kept == [[asked == "gradient"] * 2]
    assert out.requires_grad == last.requires_grad == (asked == "gradient")
    assert torch.equal(out, expected["out"])
    assert torch.equal(last, expected["last"])


def test_under_autocast_products_keep_their_type() -> None:
    given = inputs(40, 16, 16, 32)
    expected = run(by_kernel, given, 40)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = run(by_kernel, given, 40)
    assert all(torch.equal(x, expected[name]) for name, x in found.items())


def test_no_sequences_and_no_tokens_leave_the_state_as_it_is() -> None:
    given = {name: x[:0] for name, x in inputs(20, 16, 16, 16).items()}
    out, last = by_kernel(given, 20, num_sequences=1)
    assert out.shape == (1, 20, 0, 16)
    assert last.shape == (0, 16, 16)
    given = inputs(20, 16, 16, 16)
    given = {name: x if name == "state" else x[:, :0] for name, x in given.items()}
    out, last = by_kernel(given, 0)
    assert out.shape == (2, 0, 2, 16)
    assert torch.equal(last, given["state"])


@pytest.mark.parametrize(
    ("change", "length", "words"),
    [
        ({}, 33, "2 chunks of 16 tokens do not fit 33 tokens"),
        ({}, 16, "2 chunks of 16 tokens do not fit 16 tokens"),
        ({"read": torch.zeros(4, 2, 16, 24)}, 20, "keys of width 24"),
        ({"written": torch.zeros(4, 2, 16, 8)}, 20, "values of width 8"),
        ({"read": torch.zeros(4, 2, 8, 16)}, 20, "chunks of 8 tokens"),
        ({"state": torch.zeros(4, 16, 32)}, 20, None),
        ({"inner": torch.zeros(4, 2, 16, 16).bfloat16()}, 20, None),
        ({"written": torch.zeros(4, 2, 16, 16).bfloat16()}, 20, None),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change: dict[str, Tensor], length: int, words: str | None) -> None:
    given = inputs(20, 16, 16, 16) | {name: x.to(DEVICE) for name, x in change.items()}
    with pytest.raises(AssertionError, match=words):
        by_kernel(given, length)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "widths", "left_out"),
    [
        ("bf16", (64, 128, 128), ""),
        ("bf16", (64, 128, 128), "state_ptr new_ptr states_ptr dlast_ptr dstate_ptr"),
        ("bf16", (64, 256, 256), ""),
        ("fp16", (32, 64, 64), "state_ptr"),
        ("fp32", (16, 16, 16), ""),
        ("fp32", (64, 128, 128), ""),
    ],
)
def test_the_kernels_compile_for_hopper_and_multiply_from_shared_memory(
    dtype: str, widths: tuple[int, int, int], left_out: str, compile_for_hopper: RunProgram
) -> None:
    program = f"""
import re
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels.delta import scan as home

C, K, V = {widths}
dtype = dict(bf16=torch.bfloat16, fp16=torch.float16, fp32=torch.float32)["{dtype}"]
_, settings = home._launch(torch.empty(1, 1, C, K, dtype=dtype, device="meta"), V)
options = {{name: settings.pop(name) for name in ("num_warps", "num_stages")}}
settings["CAST"] = False  # as on a GPU
wide = "written_ptr shrink_ptr state_ptr last_ptr dlast_ptr dwritten_ptr dshrink_ptr dstate_ptr".split()
for kernel in (home._forward_kernel, home._backward_kernel):
    left_out = set({left_out.split()}) - ({{"states_ptr"}} if kernel is home._backward_kernel else set())
    given = settings | dict.fromkeys(left_out & set(kernel.arg_names))
    kinds = dict.fromkeys(kernel.arg_names, "*{dtype}") | dict.fromkeys(wide, "*fp32") | dict.fromkeys("JLH", "i32")
    kinds = {{name: "constexpr" if name in given else kinds[name] for name in kernel.arg_names}}
    aligned = [i for i, name in enumerate(kernel.arg_names) if kinds[name].startswith("*")]
    aligned = {{(i,): [["tt.divisibility", 16]] for i in aligned}}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=given, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert made.metadata.shared <= 227 * 1024, made.metadata.shared
    left = re.findall(r"warp_group_dot .*? : (\\S+)<.*? \\* ", made.asm["ttgir"])
    assert len(left) == (4 if C == 64 and dtype != torch.float32 else len(left)), left
    assert set(left) <= {{"!ttg.memdesc"}}, left
"""
    compile_for_hopper(program)
