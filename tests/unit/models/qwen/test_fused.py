"""Fused norms, rotations and convolutions equal transformers' own, and are used where they should be."""

import inspect
import os
import sys
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_vl import modeling_qwen3_vl

from hopper_compiler import RunProgram
from tiny_groups import gradients, nonlinear_loss, short_groups, worst_gap
from tiny_models import build_model, shallow
from vcsd.models.family import family_of
from vcsd.models.packed.layout import Layout, Segment
from vcsd.models.patch import replace_method
from vcsd.models.qwen import delta_net, fused
from vcsd.models.score import hidden_states

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernel is defined, on first use

FAMILIES = ["qwen3_vl", "qwen3_5"]
ROTARY = {
    "qwen3_vl": modeling_qwen3_vl.apply_rotary_pos_emb,
    "qwen3_5": modeling_qwen3_5.apply_rotary_pos_emb,
}
VISION_ROTARY = modeling_qwen3_5.apply_rotary_pos_emb_vision
ROTARY = {name: inspect.unwrap(function) for name, function in ROTARY.items()}  # other tests may have patched it
VISION_ROTARY = inspect.unwrap(VISION_ROTARY)
FORWARDS = {
    modeling_qwen3_vl.Qwen3VLTextRMSNorm: fused.norm_forward,
    modeling_qwen3_5.Qwen3_5RMSNorm: fused.zero_centred_forward,
}
SHAPES = [(1, 3, 5, 8, 8), (2, 1, 7, 12, 12), (2, 5, 3, 10, 6), (1, 16, 2, 128, 128), (2, 33, 2, 160, 64)]
"""B, H, T, E, R."""


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuse on the CPU too, where Triton is interpreted."""
    pytest.importorskip("triton")
    monkeypatch.setattr(fused, "_suits", lambda x: x.dtype in fused._DTYPES)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry per rotation, forward or backward."""
    pytest.importorskip("triton")
    from vcsd.kernels import rotary

    found: list[str] = []
    launch = rotary._launch

    def count(*args: Any, backward: bool) -> Tensor:
        found.append("backward" if backward else "forward")
        return launch(*args, backward=backward)

    monkeypatch.setattr(rotary, "_launch", count)
    return found


@pytest.fixture
def convolutions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of every row that the kernel convolved."""
    pytest.importorskip("triton")
    from vcsd.kernels import segment_conv

    found: list[int] = []
    convolve = segment_conv.segment_conv

    def count(x_TC: Tensor, *args: Any, **keywords: Any) -> Tensor:
        found.append(len(x_TC))
        return convolve(x_TC, *args, **keywords)

    monkeypatch.setattr(segment_conv, "segment_conv", count)
    return found


def rotate(*args: Any) -> Tensor:
    pytest.importorskip("triton")
    from vcsd.kernels.rotary import rotate

    return rotate(*args)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def heads(shape: tuple[int, ...], view: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """A leaf, and queries (B, H, T, E) that are a view of it."""
    B, H, T, E, _ = shape
    if view == "contiguous":
        leaf = draw(B, H, T, E, dtype=dtype).requires_grad_()
        return leaf, leaf
    if view == "transposed":  # as transformers passes them
        leaf = draw(B, T, H, E, dtype=dtype).requires_grad_()
        return leaf, leaf.transpose(1, 2)
    leaf = draw(B, E, H, 2 * T, dtype=dtype).requires_grad_()
    return leaf, leaf[..., ::2].permute(0, 2, 3, 1)


def angles(shape: tuple[int, ...], batch: int | None = None) -> tuple[Tensor, Tensor]:
    B, _, T, _, R = shape
    half = 3 * draw(B if batch is None else batch, T, R // 2, seed=1)
    both = torch.cat([half, half], -1)
    return both.cos(), both.sin()


def by_transformers(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    is_partial = cos.shape[-1] < x.shape[-1]
    return ROTARY["qwen3_5" if is_partial else "qwen3_vl"](x, x, cos, sin)[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("view", ["contiguous", "transposed", "strided"])
@pytest.mark.parametrize("batch", [None, 1])
def test_a_rotation_and_its_gradient_equal_transformers(shape: tuple[int, ...], view: str, batch: int | None) -> None:
    leaf, x = heads(shape, view)
    cos, sin = angles(shape, batch)
    grad = draw(*x.shape, seed=2)
    mine = rotate(x, cos, sin, torch.float32)
    (mine_grad,) = torch.autograd.grad(mine, leaf, grad, retain_graph=True)
    theirs = by_transformers(x, cos, sin)
    (their_grad,) = torch.autograd.grad(theirs, leaf, grad)
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(mine_grad, their_grad, rtol=1e-6, atol=1e-6)
    assert mine.transpose(1, 2).is_contiguous(), "attention over packed rows reads (T, H, E)"
    (from_a_view,) = torch.autograd.grad(mine, leaf, draw(1, seed=3).expand(mine.shape))
    assert from_a_view.isfinite().all()


def test_the_gradient_does_not_rely_on_equal_halves_of_sin() -> None:
    shape = (1, 2, 3, 8, 6)
    leaf, x = heads(shape, "transposed")
    cos, sin = draw(1, 3, 6, seed=1), draw(1, 3, 6, seed=2)
    grad = draw(*x.shape, seed=3)
    (mine,) = torch.autograd.grad(rotate(x, cos, sin, torch.float32), leaf, grad)
    (theirs,) = torch.autograd.grad(by_transformers(x, cos, sin), leaf, grad)
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotation_written_in_bfloat16_is_rounded_once(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    leaf, x = heads(shape, "transposed", dtype)
    cos, sin = angles(shape)
    mine = rotate(x, cos, sin, torch.bfloat16)
    wide = x.detach().double().requires_grad_()
    true = by_transformers(wide, cos.double(), sin.double())
    assert mine.dtype == torch.bfloat16
    ulp = 2.0**-8 if DEVICE == "cuda" else 2.0**-7  # half a unit in the last place; Triton's interpreter cuts off
    assert ((mine - true).abs() <= 1.01 * ulp * true.abs() + 1e-6).all()
    grad = draw(*x.shape, seed=2, dtype=torch.bfloat16)
    (mine_grad,) = torch.autograd.grad(mine, leaf, grad)
    (true_grad,) = torch.autograd.grad(true, wide, grad.double())
    assert mine_grad.dtype == dtype
    found, expected = (mine_grad.transpose(1, 2).double(), true_grad)
    eps = 1e-6 if dtype == torch.float32 else ulp
    assert ((found - expected).abs() <= 1.01 * eps * expected.abs() + 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["", "BLOCK_PASS"])
@pytest.mark.parametrize(("read", "written"), [("fp32", "bf16"), ("bf16", "fp32")])
def test_the_kernel_compiles_for_hopper(left_out: str, read: str, written: str, compile_for_hopper: RunProgram) -> None:
    program = f"""
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels.rotary import _kernel

constants = dict(BACKWARD=True, BLOCK_H=16, BLOCK_HALF=64, BLOCK_PASS=64) | {{name: 0 for name in {left_out.split()}}}
types = dict(x_ptr="*{read}", out_ptr="*{written}", cos_ptr="*fp32", sin_ptr="*fp32")
kinds = {{name: "constexpr" if name in constants else types.get(name, "i32") for name in _kernel.arg_names}}
source = ASTSource(fn=_kernel, signature=kinds, constexprs=constants)
triton.compile(source, target=GPUTarget("cuda", 90, 32), options={{"num_warps": 4}})
"""
    compile_for_hopper(program)


def norm_of(family: str, width: int = 12, dtype: torch.dtype = torch.float32) -> nn.Module:
    made = {"qwen3_vl": modeling_qwen3_vl.Qwen3VLTextRMSNorm, "qwen3_5": modeling_qwen3_5.Qwen3_5RMSNorm}
    norm = made[family](width, eps=1e-5)
    with torch.no_grad():
        norm.weight.add_(0.3 * draw(width, seed=5).cpu())
    norm = norm.to(DEVICE, dtype)
    replace_method(norm, "forward", FORWARDS[type(norm)])
    return norm


def scored(norm: nn.Module, x: Tensor) -> Tensor:
    before = fused._scoring.set(True)
    try:
        out: Tensor = norm(x)
        return out
    finally:
        fused._scoring.reset(before)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("width", "autocast"), [(12, False), (37, False), (128, True)])
def test_a_norm_and_its_gradients_equal_transformers(anywhere: None, family: str, width: int, autocast: bool) -> None:
    norm = norm_of(family, width)
    x = (3 * draw(2, 3, 5, width)).transpose(1, 2).requires_grad_()
    grad = draw(*x.shape, seed=2)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        mine, theirs = scored(norm, x), type(norm).forward(norm, x)
    assert mine.dtype == theirs.dtype == torch.float32
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
    inputs = [x, norm.weight]
    found, expected = (torch.autograd.grad(out, inputs, grad) for out in (mine, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_a_norm_of_bfloat16_is_at_least_as_close_to_the_truth(
    anywhere: None, family: str, weight_dtype: torch.dtype
) -> None:
    norm = norm_of(family, 64, weight_dtype)
    x = draw(4, 50, 64, dtype=torch.bfloat16)
    mine, theirs = scored(norm, x), type(norm).forward(norm, x)
    assert mine.dtype == theirs.dtype
    wide = x.double()
    weight = norm.weight.double() + (family == "qwen3_5")
    true = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight
    assert (mine - true).norm() <= 1.001 * (theirs - true).norm()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deep_copy_of_a_norm_has_its_own_weight(anywhere: None, family: str) -> None:
    norm = norm_of(family)
    copy = deepcopy(norm)
    with torch.no_grad():
        copy.weight.add_(1.0)
    x = draw(3, 12)
    for call in (scored, lambda norm, x: norm(x)):
        torch.testing.assert_close(call(copy, x), type(copy).forward(copy, x))
        torch.testing.assert_close(call(norm, x), type(norm).forward(norm, x))
        assert not torch.equal(call(copy, x), call(norm, x))


def prepared(family: str, **config: Any) -> PreTrainedModel:
    model = build_model(family, **config).to(DEVICE)
    family_of(model).prepare(model)
    return model.train()


def test_norms_of_the_tower_and_experts_are_left_alone() -> None:
    model: Any = prepared("qwen3_vl_moe")
    assert "forward" not in vars(model.model.visual.blocks[0].norm1)
    layer = model.model.language_model.layers[0]
    assert layer.input_layernorm.feeds_linears
    assert not layer.post_attention_layernorm.feeds_linears


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_last_norm_is_in_no_layer_and_returns_the_bits_of_transformers(
    anywhere: None, family: str, dtype: torch.dtype
) -> None:
    model: Any = prepared(family, **shallow(family)).to(dtype)
    norm, layers = model.base_model.language_model.norm, model.base_model.language_model.layers
    with torch.no_grad():
        norm.weight.add_(0.3 * draw(len(norm.weight), dtype=dtype))
    calls: list[tuple[Tensor, Tensor]] = []
    fuses: list[bool] = []
    norm.register_forward_hook(lambda module, inputs, out: calls.append((inputs[0], out)))
    layers[-1].input_layernorm.register_forward_hook(lambda *_: fuses.append(fused._scoring.get()))
    ids = torch.tensor([[5, 6, 7]], device=DEVICE)
    with torch.no_grad():
        hidden_states(model, short_groups(family))
        model(input_ids=ids)
        with fused.fused_batches():
            model(input_ids=ids)
    assert fuses == [True, False, True]
    assert len(calls) == 3
    for x, out in calls:
        expected = type(norm).forward(norm, x)
        assert out.dtype == expected.dtype
        assert torch.equal(out, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plain_batch_gets_the_bits_of_a_model_that_was_never_patched(anywhere: None, family: str) -> None:
    model: Any = build_model(family, **shallow(family)).to(DEVICE)
    untouched = deepcopy(model)
    family_of(model).prepare(model)
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]], device=DEVICE)
    with torch.no_grad():
        found, expected = (text.base_model.language_model(input_ids=ids)[0] for text in (model, untouched))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_every_gated_norm_of_a_delta_net_is_fused(anywhere: None, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vcsd.kernels import gated_norm

    widths: list[int] = []
    kernel = gated_norm.gated_norm
    monkeypatch.setattr(gated_norm, "gated_norm", lambda x, *given: widths.append(x.shape[-1]) or kernel(x, *given))
    model = prepared(family)
    with torch.no_grad():
        hidden_states(model, short_groups(family))
        assert widths == [16, 16, 16]
        monkeypatch.setattr(fused, "FUSE", False)
        hidden_states(model, short_groups(family))
    assert widths == [16, 16, 16]


@pytest.mark.parametrize(("family", "num"), [("qwen3_vl", 4), ("qwen3_5", 4), ("qwen3_vl_moe", 0), ("qwen3_5_moe", 4)])
def test_every_dense_gated_product_is_fused(
    anywhere: None, family: str, num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vcsd.kernels import gated_silu

    launched: list[bool] = []
    kernel = gated_silu.gated_silu
    monkeypatch.setattr(gated_silu, "gated_silu", lambda *given: launched.append(True) or kernel(*given))
    model = prepared(family)
    with torch.no_grad():
        found = hidden_states(model, short_groups(family))
        assert len(launched) == num
        monkeypatch.setattr(fused, "FUSE", False)
        expected = hidden_states(model, short_groups(family))
    assert len(launched) == num
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def convolved(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry per convolution of patches."""
    found: list[bool] = []
    forward = nn.Conv3d.forward
    monkeypatch.setattr(nn.Conv3d, "forward", lambda self, x: found.append(True) or forward(self, x))
    return found


@pytest.mark.parametrize("autocast", [False, True])
def test_multiplied_patches_are_convolved_ones(anywhere: None, convolved: list[bool], autocast: bool) -> None:
    model: Any = prepared("qwen3_5")
    embed = model.base_model.visual.patch_embed
    patches = draw(9, embed.proj.weight[0].numel())
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        expected = embed(patches)
        assert convolved == [True]
        with fused.multiplied_patches(SimpleNamespace(layout=None)):
            found = embed(patches)
            assert convolved == [True]
    assert found.dtype == expected.dtype
    tolerance = 2e-2 if autocast else 1e-5
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    weight = embed.proj.weight
    mine, theirs = (torch.autograd.grad(out.float().square().sum(), weight)[0] for out in (found, expected))
    torch.testing.assert_close(mine, theirs, rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rows_patches_are_multiplied_and_others_convolved(
    anywhere: None, convolved: list[bool], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, groups = prepared(family), short_groups(family)
    tower: Any = model.base_model.visual
    with torch.no_grad():
        hidden_states(model, groups)
        assert not convolved
        tower(groups[0].prompt.pixel_values.float(), grid_thw=groups[0].prompt.grid_thw)
        assert convolved == [True]
        tower.patch_embed.proj.register_forward_hook(lambda *_: None)
        hidden_states(model, groups)
        assert convolved == [True, True], "a hook, as of an offloaded weight, must run"
        monkeypatch.setattr(fused, "FUSE", False)
        hidden_states(model, groups)
    assert convolved == [True, True, True]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reentrant", [False, True])
def test_blocks_with_hooks_of_accelerate_are_recomputed_as_they_were_computed(
    anywhere: None, launches: list[str], family: str, reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.hooks import ModelHook, add_hook_to_module

    model = build_model(family, **shallow(family)).to(DEVICE)
    for block in model.base_model.visual.blocks:
        add_hook_to_module(block, ModelHook())
    family_of(model).prepare(model)
    model.train().enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    expected, found = (score(model, family, fuse, monkeypatch) for fuse in (False, True))
    forwards, backwards = (launches.count(name) for name in ("forward", "backward"))
    assert forwards == 2 * backwards
    gap, name = worst_gap(found[1], expected[1])
    assert gap < 1e-4, name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plain_batch_runs_the_mlp_of_transformers(
    anywhere: None, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = prepared(family)
    mlp = model.base_model.language_model.layers[0].mlp
    ran: list[bool] = []
    forward = type(mlp).forward
    monkeypatch.setattr(type(mlp), "forward", lambda self, x: ran.append(True) or forward(self, x))
    x = draw(3, 96)
    mlp(x)
    assert ran == [True]
    with fused.scoring(SimpleNamespace(layout=None)):
        mlp(x)
    assert ran == [True]


def test_the_delta_rule_of_a_row_is_fused_in_sixteen_bits_alone(
    anywhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vcsd.kernels.delta import scan

    starts: list[bool] = []
    real_scan = scan.delta_scan

    def count(*given: Any, **keywords: Any) -> Any:
        starts.append(given[6] is not None)
        return real_scan(*given, **keywords)

    monkeypatch.setattr(scan, "delta_scan", count)
    model, groups = prepared("qwen3_5", **shallow("qwen3_5")), short_groups("qwen3_5")
    with torch.no_grad():
        plain = hidden_states(model, groups)
        assert not starts, "float32 is left to plain torch"
        with torch.autocast(DEVICE, torch.bfloat16):
            found = hidden_states(model, groups)
        assert starts == [False, True], "prompts from nothing, then responses from the states after them"
        monkeypatch.setattr(fused, "FUSE", False)
        with torch.autocast(DEVICE, torch.bfloat16):
            hidden_states(model, groups)
    assert len(starts) == 2
    assert (found - plain).norm() / plain.norm() < 0.04  # what bfloat16 itself costs these models


@pytest.mark.parametrize("family", FAMILIES)
def test_preparing_twice_changes_nothing(family: str) -> None:
    model: Any = prepared(family)
    layer, home = model.model.language_model.layers[0], sys.modules[type(model).__module__]
    block = model.model.visual.blocks[0]

    def replaced() -> tuple[Any, ...]:
        rotations = (home.apply_rotary_pos_emb, home.apply_rotary_pos_emb_vision)
        return layer.forward, layer.input_layernorm.forward, block.forward, *rotations

    before = replaced()
    family_of(model).prepare(model)
    assert replaced() == before
    assert home.apply_rotary_pos_emb.__wrapped__ is ROTARY[family]


def score(
    model: PreTrainedModel, family: str, fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[Tensor, dict[str, Tensor]]:
    monkeypatch.setattr(fused, "FUSE", fuse)
    hidden = hidden_states(model, short_groups(family))
    nonlinear_loss(hidden).backward()
    return hidden.detach(), gradients(model)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", ["off", "on", "reentrant"])
def test_a_model_gives_the_same_scores_and_gradients(
    anywhere: None,
    launches: list[str],
    convolutions: list[int],
    family: str,
    checkpointing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = prepared(family, **shallow(family))
    if checkpointing != "off":
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
    expected = score(model, family, False, monkeypatch)
    assert not launches
    assert not convolutions
    found = score(model, family, True, monkeypatch)
    layers, delta_nets = {"qwen3_vl": (2, 0), "qwen3_5": (1, 1)}[family]
    layers += len(model.base_model.visual.blocks)
    forwards = 1 if checkpointing == "off" else 2
    assert launches.count("forward") == 2 * layers * forwards
    assert launches.count("backward") == 2 * layers
    assert len(convolutions) == delta_nets * forwards
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
    gap, name = worst_gap(found[1], expected[1])
    assert gap < 1e-4, name


@pytest.mark.parametrize("family", FAMILIES)
def test_under_autocast_a_teacher_scores_as_a_student_does(
    anywhere: None, launches: list[str], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, groups = prepared(family, **shallow(family)), short_groups(family)
    outs: list[torch.dtype] = []
    norm: Any = model.base_model.language_model.layers[1].post_attention_layernorm
    norm.register_forward_hook(lambda module, inputs, out: outs.append(out.dtype))
    with torch.autocast(DEVICE, torch.bfloat16):
        student = hidden_states(model, groups).detach()
        with torch.no_grad():
            teacher = hidden_states(model, groups)
            monkeypatch.setattr(fused, "FUSE", False)
            plain = hidden_states(model, groups)
    assert launches
    assert outs == [torch.float32, torch.bfloat16, torch.float32]
    assert torch.equal(student, teacher), "a cast for all linear layers gives the bits of a cast in each"
    assert (student - plain).norm() / plain.norm() < 0.04  # what bfloat16 itself costs these models


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deep_copied_model_is_fused_and_has_its_own_weights(
    anywhere: None, launches: list[str], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepared(family)
    copy = deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        found = hidden_states(copy, short_groups(family))
        assert launches
        monkeypatch.setattr(fused, "FUSE", False)
        torch.testing.assert_close(found, hidden_states(copy, short_groups(family)), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(DEVICE != "cpu", reason="on a CPU")
@pytest.mark.parametrize("family", FAMILIES)
def test_on_the_cpu_nothing_changes_at_all(
    launches: list[str], convolutions: list[int], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepared(family)
    found, expected = (score(model, family, fuse, monkeypatch) for fuse in (True, False))
    assert torch.equal(found[0], expected[0])
    assert all(torch.equal(found[1][name], grad) for name, grad in expected[1].items())
    assert not launches
    assert not convolutions


def test_without_a_layout_a_layer_runs_transformers_own_code(anywhere: None) -> None:
    layer: Any = prepared("qwen3_vl").base_model.language_model.layers[0]
    seen: list[bool] = []
    layer.input_layernorm.register_forward_hook(lambda *_: seen.append(fused._scoring.get()))
    x = draw(1, 3, 96)
    cos, sin = angles((1, 1, 3, 32, 32))
    mixer = SimpleNamespace(attention=lambda module, query, key, value, scaling: query.transpose(1, 2))
    for more in ({}, {"layout": None}):
        layer(x, position_embeddings=(cos, sin), mixer=SimpleNamespace(**vars(mixer), **more))
    layer(x, position_embeddings=(cos, sin))
    assert seen == [False, True, False]
    assert not fused._scoring.get()


def test_a_frozen_convolution_has_no_gradient_and_the_others_stay(
    anywhere: None, convolutions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepared("qwen3_5")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("conv1d" not in name)
    expected, found = (score(model, "qwen3_5", fuse, monkeypatch) for fuse in (False, True))
    assert len(convolutions) == 3
    assert not any("conv1d" in name for name in found[1])
    gap, name = worst_gap(found[1], expected[1])
    assert gap < 1e-4, name


def test_a_convolution_that_the_kernel_does_not_know_is_left_to_transformers(
    anywhere: None, convolutions: list[int]
) -> None:
    convolve = delta_net.convolution(inspect.unwrap(modeling_qwen3_5.causal_conv1d_fn))
    before = fused._scoring.set(True)
    try:
        for num_taps, activation, dtype in ((5, "silu", "float32"), (4, "gelu", "float32"), (4, "silu", "float64")):
            layout = Layout([Segment(3, None), Segment(2, 0)], torch.device(DEVICE), num_taps)
            x, weight = draw(1, 6, 5), draw(6, num_taps, seed=1)
            given = (x.to(getattr(torch, dtype)), weight.to(getattr(torch, dtype)))
            out = convolve(*given, activation=activation, mixer=SimpleNamespace(layout=layout))
            assert out.shape == x.shape
            assert layout.seen["convolution"] == 1
        assert not convolutions
        layout = Layout([Segment(3, None), Segment(2, 0)], torch.device(DEVICE))
        convolve(x, draw(6, 4, seed=1), activation="silu", mixer=SimpleNamespace(layout=layout))
        assert convolutions == [5]
        assert layout.seen["convolution"] == 1
    finally:
        fused._scoring.reset(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotation_of_the_tower_and_its_gradients_equal_transformers(
    anywhere: None, launches: list[str], dtype: torch.dtype
) -> None:
    qkv = draw(7, 3, 5, 12, dtype=dtype).requires_grad_()  # as the tower's one projection gives them
    grad = draw(2, 7, 5, 12, seed=2, dtype=dtype)
    cos, sin = (x[0] for x in angles((1, 5, 7, 12, 12)))
    wrapped = fused.vision_rotary(VISION_ROTARY)
    found = []
    for is_scoring in (True, False):
        before = fused._scoring.set(is_scoring)
        try:
            q, k, _ = qkv.permute(1, 0, 2, 3).unbind(0)
            both = torch.stack(wrapped(q, k, cos, sin))
        finally:
            fused._scoring.reset(before)
        assert both.dtype == dtype
        found.append((both.detach(), *torch.autograd.grad(both, qkv, grad)))
    assert launches == 2 * ["forward"] + 2 * ["backward"]
    rounding = 1e-6 if dtype == torch.float32 else 2**-7  # one step of bfloat16
    torch.testing.assert_close(*found, rtol=rounding, atol=rounding)


def test_a_rotation_of_the_tower_keeps_the_same_types_whatever_those_of_its_angles(anywhere: None) -> None:
    """FSDP2 hands a layer angles in half precision, and before torch 2.13 in float32 when it is recomputed."""
    wrapped = fused.vision_rotary(VISION_ROTARY)
    q, (cos, sin) = draw(7, 5, 12, dtype=torch.bfloat16).requires_grad_(), (x[0] for x in angles((1, 5, 7, 12, 12)))
    kept: dict[torch.dtype, list[torch.dtype]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        kept[dtype] = []
        keep = lambda x, dtypes=kept[dtype]: dtypes.append(x.dtype)  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), fused._switched(fused._scoring, True):
            wrapped(q, q, cos.to(dtype), sin.to(dtype))
    assert kept[torch.float32] == kept[torch.bfloat16] == 4 * [torch.float32]


def test_a_rotation_of_the_tower_of_unknown_shape_is_left_to_transformers(anywhere: None, launches: list[str]) -> None:
    wrapped = fused.vision_rotary(VISION_ROTARY)
    q, (cos, sin) = draw(7, 5, 12), (x[0] for x in angles((1, 5, 7, 12, 12)))
    before = fused._scoring.set(True)
    try:
        for args in ((q.double(), q.double(), cos, sin), (q, q, cos.requires_grad_(), sin)):
            assert torch.equal(wrapped(*args)[0], VISION_ROTARY(*args)[0])
    finally:
        fused._scoring.reset(before)
    assert not launches


def test_unknown_layouts_are_left_to_transformers(anywhere: None, launches: list[str]) -> None:
    rotary = fused.rotary(ROTARY["qwen3_5"])
    shape = (2, 3, 5, 8, 6)
    _, x = heads(shape, "transposed")
    cos, sin = angles(shape)
    before = fused._scoring.set(True)
    try:
        calls = [
            ((x.transpose(1, 2), x.transpose(1, 2), cos, sin), {"unsqueeze_dim": 2}),
            ((x[0], x[0], cos[0], sin[0]), {"unsqueeze_dim": 0}),
            ((x.double(), x.double(), cos.double(), sin.double()), {}),
            ((x, x, cos.requires_grad_(), sin), {}),
        ]
        for args, keywords in calls:
            assert torch.equal(rotary(*args, **keywords)[0], ROTARY["qwen3_5"](*args, **keywords)[0])
        assert not launches
        rotary(x, x, cos.detach(), sin)
        assert launches == ["forward", "forward"]
    finally:
        fused._scoring.reset(before)
