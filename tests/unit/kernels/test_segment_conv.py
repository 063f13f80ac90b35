"""The convolution of a packed row in one kernel equals the convolution of each path, forward and backward."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5

from hopper_compiler import RunProgram
from vcsd.kernels.sources import Sources
from vcsd.models.packed.layout import Layout, Segment
from vcsd.models.qwen import delta_net

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TREES = {
    "one token": [Segment(1, None)],
    "no fork": [Segment(7, None)],
    "three groups": [
        *(Segment(6, None), Segment(5, 0), Segment(1, 0), Segment(2, 0), Segment(4, 0)),
        *(Segment(1, None), Segment(1, 5), Segment(3, 5), Segment(9, 5)),
        *(Segment(2, None), Segment(2, 9)),
    ],
    "four levels": [
        *(Segment(1, None), Segment(1, 0), Segment(1, 1), Segment(2, 1), Segment(5, 2), Segment(1, 2), Segment(3, 0)),
        *(Segment(2, 3), Segment(1, 3), Segment(40, None), Segment(2, 9)),
    ],
}
PLAIN = delta_net.convolution(inspect.unwrap(modeling_qwen3_5.causal_conv1d_fn))


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def layout_of(tree: str, num_taps: int = 4) -> Layout:
    return Layout(TREES[tree], torch.device(DEVICE), num_taps)


def by_kernel(x_TC: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout, activation: str | None) -> Tensor:
    pytest.importorskip("triton")
    from vcsd.kernels.segment_conv import segment_conv

    return segment_conv(x_TC, weight, bias, layout.sources, is_silu=activation == "silu")


def by_gathers(x_TC: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout, activation: str | None) -> Tensor:
    """What runs where there is no kernel."""
    mixer = SimpleNamespace(layout=layout)
    return PLAIN(x_TC.T[None], weight, bias, activation=activation, mixer=mixer)[0].T


def inputs(
    layout: Layout, num_channels: int, has_bias: bool, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor | None]:
    x_TC = draw(layout.num_tokens, num_channels, seed=1, dtype=dtype).requires_grad_()
    weight_CK = draw(num_channels, layout.num_taps, seed=2).requires_grad_()
    return x_TC, weight_CK, draw(num_channels, seed=3).requires_grad_() if has_bias else None


def run(way: Any, given: Any, layout: Layout, activation: str | None, wide: bool = False) -> list[Tensor]:
    """The output, and the gradients of all that ask for one; wide: in float64."""
    leaves = [None if x is None else x.detach().clone().requires_grad_(x.requires_grad) for x in given]
    x, weight, bias = (None if leaf is None else leaf.double() if wide else leaf for leaf in leaves)
    out = way(x, weight, bias, layout, activation)
    asked = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    grad = draw(*out.shape, seed=4, dtype=torch.bfloat16).to(out.dtype)  # the same in every type
    return [out.detach(), *torch.autograd.grad(out, asked, grad)]


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize(
    ("num_channels", "num_taps", "has_bias", "activation"),
    [(5, 4, False, "silu"), (131, 4, True, "silu"), (16, 3, True, None), (7, 2, False, None), (3, 1, True, "silu")],
)
def test_a_row_and_its_gradients_equal_those_by_gathers(
    tree: str, num_channels: int, num_taps: int, has_bias: bool, activation: str | None
) -> None:
    layout = layout_of(tree, num_taps)
    given = inputs(layout, num_channels, has_bias)
    found, expected = (run(way, given, layout, activation) for way in (by_kernel, by_gathers))
    assert len(found) == (4 if has_bias else 3)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tree", TREES)
def test_every_tap_reads_its_own_path_and_readers_are_listed_once(tree: str) -> None:
    layout = layout_of(tree)
    paths = {int(path[-1 - i]): path[: len(path) - i] for path in layout._paths for i in range(len(path))}
    source_TK = layout.sources.source_TK.cpu()
    for token, source_K in enumerate(source_TK.tolist()):
        assert source_K == [-1, -1, -1, *paths[token].tolist()][-4:]
    starts, places = (table.cpu().tolist() for table in layout.sources.elsewhere)
    for token in range(layout.num_tokens):
        readers = {divmod(place, 4) for place in places[starts[token] : starts[token + 1]]}
        plain = {(token + 3 - k, k) for k in range(4) if token + 3 - k < len(source_TK)}
        readers |= {(t, k) for t, k in plain if source_TK[t, k] == token}
        assert readers == {divmod(place, 4) for place in (source_TK.flatten() == token).nonzero()[:, 0].tolist()}
    assert starts[-1] == len(places)
    assert source_TK.dtype == torch.int32


def test_the_example_of_the_tables() -> None:
    layout = Layout([Segment(3, None), Segment(2, 0), Segment(1, 0)], torch.device("cpu"), 3)
    assert layout.sources.source_TK[[2, 4, 5]].tolist() == [[0, 1, 2], [2, 3, 4], [1, 2, 5]]
    starts, places = layout.sources.elsewhere
    assert starts.tolist() == [0, 0, 1, 2, 2, 2, 2]
    assert [divmod(place, 3) for place in places.tolist()] == [(5, 0), (5, 1)]
    assert isinstance(layout.sources, Sources)
    assert layout.sources is layout.sources


def test_two_runs_give_the_same_bits() -> None:
    layout = layout_of("three groups")
    given = inputs(layout, 131, True)
    assert all(map(torch.equal, *(run(by_kernel, given, layout, "silu") for _ in range(2))))


def test_partial_sums_over_many_tokens_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from vcsd.kernels import segment_conv

    monkeypatch.setattr(segment_conv, "TOKENS_PER_SUM", 16)
    layout = layout_of("four levels")
    assert layout.num_tokens > 3 * 16
    given = inputs(layout, 5, True)
    for mine, theirs in zip(*(run(way, given, layout, "silu") for way in (by_kernel, by_gathers)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", None])
@pytest.mark.parametrize("needs", ["x", "weight", "bias", "x weight", "x bias"])
def test_only_what_is_asked_for_is_computed(
    needs: str, activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from vcsd.kernels import segment_conv

    sums: list[bool] = []
    through = segment_conv._through_activation
    to_sources = segment_conv._to_sources
    reached: list[bool] = []

    def count(ctx: Any, tensors: Any, sum_up: bool, needs_dz: bool) -> Any:
        sums.append(sum_up)
        return through(ctx, tensors, sum_up, needs_dz)

    monkeypatch.setattr(segment_conv, "_through_activation", count)
    monkeypatch.setattr(segment_conv, "_to_sources", lambda *given: reached.append(True) or to_sources(*given))
    layout = layout_of("three groups")
    given = inputs(layout, 9, True)
    for name, leaf in zip(("x", "weight", "bias"), given, strict=True):
        assert leaf is not None
        leaf.requires_grad_(name in needs.split())
    found, expected = (run(way, given, layout, activation) for way in (by_kernel, by_gathers))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    sums_are_asked_for = needs != "x"
    assert sums == ([sums_are_asked_for] if sums_are_asked_for or activation else [])
    assert reached == ([True] if "x" in needs.split() else [])


@pytest.mark.parametrize("view", ["transposed", "strided", "expanded"])
def test_any_strides_are_taken(view: str) -> None:
    layout = layout_of("three groups")
    T = layout.num_tokens
    x_TC = {
        "transposed": draw(6, T, seed=1).T,
        "strided": draw(T, 20, seed=1)[:, :6],
        "expanded": draw(1, 6, seed=1).expand(T, 6),
    }[view]
    _, weight, bias = inputs(layout, 6, True)
    found, expected = (way(x_TC, weight, bias, layout, "silu") for way in (by_kernel, by_gathers))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert found.is_contiguous(), "the layer transposes it back: what follows reads (T, C)"
    for grad_TC in (draw(6, T, seed=5).T, draw(T, 20, seed=5)[:, :6], draw(1, 1, seed=5).expand(T, 6)):
        mine, theirs = (torch.autograd.grad(out, [weight, bias], grad_TC, True) for out in (found, expected))
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_in_bfloat16_it_is_at_least_as_close_to_the_truth(weight_dtype: torch.dtype, autocast: bool) -> None:
    layout = layout_of("three groups")
    x, weight, bias = inputs(layout, 64, True, torch.bfloat16)
    assert bias is not None
    given = (x, *(leaf.detach().to(weight_dtype).requires_grad_() for leaf in (weight, bias)))
    true = run(by_gathers, given, layout, "silu", wide=True)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        mine, theirs = (run(way, given, layout, "silu") for way in (by_kernel, by_gathers))
    assert mine[0].dtype == mine[1].dtype == torch.bfloat16
    assert mine[2].dtype == mine[3].dtype == weight_dtype
    if DEVICE == "cpu":  # Triton's interpreter cuts off where a GPU rounds to the nearest
        wide = run(by_kernel, (x.detach().float().requires_grad_(), *given[1:]), layout, "silu")
        assert all(((cut - exact).abs() <= 2.0**-7 * exact.abs()).all() for cut, exact in zip(mine, wide, strict=True))
        mine = [exact.to(cut.dtype) for cut, exact in zip(mine, wide, strict=True)]
    for found, other, exact in zip(mine, theirs, true, strict=True):
        assert (found - exact).norm() <= 1.001 * (other - exact).norm() + 1e-6 * exact.norm()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "left_out"), [("bf16", ""), ("bf16", "bias_ptr dz_ptr"), ("fp32", "bias_ptr partial_ptr")]
)
def test_the_kernels_compile_for_hopper(dtype: str, left_out: str, compile_for_hopper: RunProgram) -> None:
    program = f"""
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels import segment_conv as home

constants = dict(K=4, SILU=True, BLOCK_C=128, TOKENS=256)
types = dict.fromkeys(("x_ptr", "out_ptr", "grad_ptr", "dx_ptr"), "*{dtype}")
types |= dict.fromkeys(("source_ptr", "starts_ptr", "elsewhere_ptr"), "*i32")
blocks = {{home._forward_kernel: 32, home._activation_kernel: 8, home._sources_kernel: 32}}
for kernel, block in blocks.items():
    left_out = dict.fromkeys({left_out.split()} if kernel is not home._sources_kernel else [])
    given = constants | dict(BLOCK_T=block) | left_out
    given = {{name: value for name, value in given.items() if name in kernel.arg_names}}
    kinds = {{name: "*fp32" if name.endswith("_ptr") else "i32" for name in kernel.arg_names}} | types
    kinds = {{name: "constexpr" if name in given else kinds[name] for name in kernel.arg_names}}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=given)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={{"num_warps": 4}})
"""
    compile_for_hopper(program)
