"""On a GPU: fused norms and rotations against transformers' own, alone and in the whole tiny model."""

import inspect
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_vl import modeling_qwen3_vl

from tiny_groups import gradients, nonlinear_loss, three_groups
from tiny_models import build_model
from vcsd.models.family import family_of
from vcsd.models.patch import replace_method
from vcsd.models.qwen import fused
from vcsd.models.score import hidden_states

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
FAMILIES = ["qwen3_vl", "qwen3_5"]
NORMS = {"qwen3_vl": modeling_qwen3_vl.Qwen3VLTextRMSNorm, "qwen3_5": modeling_qwen3_5.Qwen3_5RMSNorm}
MODULES = {"qwen3_vl": modeling_qwen3_vl, "qwen3_5": modeling_qwen3_5}
FORWARDS = {
    modeling_qwen3_vl.Qwen3VLTextRMSNorm: fused.norm_forward,
    modeling_qwen3_5.Qwen3_5RMSNorm: fused.zero_centred_forward,
    modeling_qwen3_5.Qwen3_5RMSNormGated: fused.gated_forward,
}
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1e-2}


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)


def distance(found: Tensor, true: Tensor) -> float:
    return ((found.double() - true.double()).norm() / true.double().norm()).item()


@pytest.fixture
def scoring() -> Any:
    before = fused._scoring.set(True)
    yield
    fused._scoring.reset(before)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("autocast", "out_dtype"), [(False, None), (True, torch.bfloat16)])
def test_rotations_equal_transformers(
    scoring: None, family: str, dtype: torch.dtype, autocast: bool, out_dtype: torch.dtype | None
) -> None:
    R = 128 if family == "qwen3_vl" else 64
    original = inspect.unwrap(MODULES[family].apply_rotary_pos_emb)
    q, k = draw(1, 3001, 16, 128, dtype=dtype), draw(1, 3001, 5, 128, dtype=dtype, seed=1)
    angle = 100 * draw(1, 3001, R // 2, seed=2)
    cos, sin = (torch.cat([x, x], -1) for x in (angle.cos(), angle.sin()))
    out: dict[bool, list[Tensor]] = {}
    for fuses, apply in ((False, original), (True, fused.rotary(original))):
        leaves = [x.clone().requires_grad_() for x in (q, k)]
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            rotated = apply(*(x.transpose(1, 2) for x in leaves), cos, sin)
        assert not fuses or all(x.dtype == (out_dtype or torch.float32) for x in rotated)
        # as attention does: it casts, so that the gradient is a cast one
        (rotated[0].to(out_dtype or torch.float32).float() * draw(1, 16, 3001, 128, seed=3)).sum().backward()
        (rotated[1].to(out_dtype or torch.float32).float() * draw(1, 5, 3001, 128, seed=4)).sum().backward()
        out[fuses] = [*(x.detach() for x in rotated), *(x.grad for x in leaves)]
    for mine, theirs in zip(out[True], out[False], strict=True):
        assert distance(mine, theirs) < TOLERANCE[torch.bfloat16 if autocast else dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotations_of_the_tower_equal_transformers(scoring: None, dtype: torch.dtype) -> None:
    function = modeling_qwen3_5.apply_rotary_pos_emb_vision
    original = inspect.unwrap(function)
    qkv, grad = draw(3001, 3, 16, 64, dtype=dtype).requires_grad_(), draw(2, 3001, 16, 64, dtype=dtype, seed=1)
    angle = 100 * draw(3001, 32, seed=2)
    cos, sin = (torch.cat([x, x], -1) for x in (angle.cos(), angle.sin()))
    found = []
    for apply in (fused.vision_rotary(original), original):
        q, k, _ = qkv.permute(1, 0, 2, 3).unbind(0)
        both = torch.stack(apply(q, k, cos, sin))
        found.append((both.detach(), *torch.autograd.grad(both, qkv, grad)))
    for mine, theirs in zip(*found, strict=True):
        assert mine.dtype == theirs.dtype == dtype
        assert distance(mine, theirs) < TOLERANCE[dtype]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("shape", [(2, 700, 2048), (1, 900, 7, 128), (3, 11, 96)])
def test_norms_equal_transformers(
    scoring: None, family: str, dtype: torch.dtype, weight_dtype: torch.dtype, autocast: bool, shape: tuple[int, ...]
) -> None:
    own = NORMS[family](shape[-1], eps=1e-6).cuda()
    with torch.no_grad():
        own.weight.add_(0.3 * draw(shape[-1], seed=1))
    own = own.to(weight_dtype)
    mine = deepcopy(own)
    replace_method(mine, "forward", FORWARDS[type(mine)])
    x, grad = 3 * draw(*shape, dtype=dtype), draw(*shape, seed=2)
    found = []
    for norm in (mine, own):
        leaf = x.clone().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            out = norm(leaf)
        (out.float() * grad).sum().backward()
        assert leaf.grad is not None
        found.append((out.detach(), leaf.grad, norm.weight.grad))
    assert found[0][0].dtype == found[1][0].dtype
    is_exact = dtype == weight_dtype == torch.float32
    for a, b in zip(*found, strict=True):
        assert distance(a, b) < (1e-5 if is_exact else 1e-2)


@pytest.mark.parametrize(
    ("dtype", "weight_dtype"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16)],
)
@pytest.mark.parametrize("shape", [(60_001, 128), (700, 16, 96), (11, 2048)])
def test_a_gated_norm_is_at_least_as_close_to_the_truth_and_repeatable(
    scoring: None, dtype: torch.dtype, weight_dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    own = modeling_qwen3_5.Qwen3_5RMSNormGated(shape[-1], eps=1e-6).cuda()
    with torch.no_grad():
        own.weight.add_(0.3 * draw(shape[-1], seed=1))
    own = own.to(weight_dtype)
    mine = deepcopy(own)
    replace_method(mine, "forward", FORWARDS[type(mine)])
    x, gate = (3 * draw(*shape, seed=seed) for seed in (0, 2))
    grad = draw(*shape, dtype=torch.bfloat16, seed=3)

    def by_hand(x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight * gate * gate.sigmoid()

    def run(norm: Any, weight: Tensor, wide: bool = False) -> list[Tensor]:
        leaves = [a.to(dtype).to(torch.float64 if wide else dtype).requires_grad_() for a in (x, gate)]
        out = norm(*leaves)
        return [out.detach(), *torch.autograd.grad(out, [*leaves, weight], grad.to(out.dtype))]

    weight = own.weight.detach().double().requires_grad_()
    true = run(lambda a, b: by_hand(a, b, weight), weight, wide=True)
    found, again, theirs = run(mine, mine.weight), run(mine, mine.weight), run(own, own.weight)
    assert all(map(torch.equal, found, again))
    for ours, other, exact in zip(found, theirs, true, strict=True):
        assert ours.dtype == other.dtype
        assert distance(ours, exact) <= max(1.01 * distance(other, exact), 2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(700, 6144), (3, 11, 96), (1,)])
def test_gated_products_equal_torchs(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    from vcsd.kernels.gated_silu import gated_silu

    gate, value, grad = (3 * draw(*shape, dtype=dtype, seed=seed) for seed in range(3))
    found = []
    for product in (gated_silu, lambda gate, value: torch.nn.functional.silu(gate) * value):
        leaves = [x.clone().requires_grad_() for x in (gate, value)]
        out = product(*leaves)
        found.append((out.detach(), *torch.autograd.grad(out, leaves, grad)))
    for mine, theirs in zip(*found, strict=True):
        assert mine.dtype == theirs.dtype == dtype
        assert distance(mine, theirs) < TOLERANCE[dtype]


def test_gated_products_beyond_32_bits_are_reached() -> None:
    from vcsd.kernels.gated_silu import gated_silu

    gate = torch.ones(2**31 + 5, dtype=torch.bfloat16, device="cuda")
    gate[-1] = 0
    out = gated_silu(gate, gate)
    assert out[-1] == 0
    assert torch.equal(out[-3:-1], gated_silu(gate[:2], gate[:2]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("autocast", [False, True])
def test_multiplied_patches_are_convolved_ones(family: str, autocast: bool) -> None:
    model: Any = on_gpu(family, torch.float32)
    embed = model.base_model.visual.patch_embed
    patches = draw(777, embed.proj.weight[0].numel())
    found = []
    for mixer in (SimpleNamespace(layout=None), None):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast), fused.multiplied_patches(mixer):
            out = embed(patches)
        found.append(
            (out.detach(), *torch.autograd.grad((out.float() * draw(*out.shape, seed=1)).sum(), embed.proj.weight))
        )
    for mine, theirs in zip(*found, strict=True):
        assert mine.dtype == theirs.dtype
        assert distance(mine, theirs) < (1e-2 if autocast else 2e-3)  # convolutions round to TF32
    if not autocast:
        assert not torch.equal(found[0][0], found[1][0]), "as if both had been convolved"


def on_gpu(family: str, dtype: torch.dtype) -> PreTrainedModel:
    model = build_model(family).to("cuda", dtype).train()
    family_of(model).prepare(model)
    return model


def scored(model: PreTrainedModel, family: str) -> tuple[Tensor, Tensor]:
    hidden = hidden_states(model, three_groups(family))
    nonlinear_loss(hidden.float()).backward()
    grads = gradients(model)
    return hidden.detach(), torch.cat([grads[name].double().flatten() for name in sorted(grads)])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(
    ("dtype", "autocast"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)]
)
def test_a_model_gives_the_same_scores_and_gradients(
    family: str, checkpointing: bool, dtype: torch.dtype, autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(fuse: bool, dtype: torch.dtype = dtype, autocast: bool = autocast) -> tuple[Tensor, Tensor]:
        model = on_gpu(family, dtype)
        if checkpointing:
            model.gradient_checkpointing_enable()
        monkeypatch.setattr(fused, "FUSE", fuse)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return scored(model, family)

    found, plain, true = run(True), run(False), run(False, torch.float32, False)
    for mine, other, exact in zip(found, plain, true, strict=True):
        # two roundings to bfloat16 differ from each other by as much as from the truth: 0.2 in these gradients
        assert distance(mine, exact) < max(1e-3, 1.3 * distance(other, exact))
    # Scores alone may agree to the last bit: under autocast every product rounds its input to bfloat16.
    assert not all(map(torch.equal, found, plain)), "as if nothing had been fused"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plain_batch_is_bit_for_bit_transformers_own(family: str) -> None:
    model, stock = on_gpu(family, torch.float32).eval(), build_model(family).cuda()
    stock.set_attn_implementation({"text_config": "sdpa"})
    ids = torch.randint(1, 200, (2, 30), generator=torch.Generator().manual_seed(0)).cuda()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        found, expected = (m.base_model(input_ids=ids, use_cache=False).last_hidden_state for m in (model, stock))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_teacher_scores_bit_for_bit_as_a_student_does(family: str) -> None:
    model, groups = on_gpu(family, torch.float32), three_groups(family)
    with torch.autocast("cuda", torch.bfloat16):
        student = hidden_states(model, groups).detach()
        with torch.no_grad():
            teacher = hidden_states(model, groups)
    assert torch.equal(student, teacher)
