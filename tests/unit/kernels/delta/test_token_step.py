"""One token of the gated delta rule in one kernel equals transformers' own step."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5

from hopper_compiler import RunProgram
from tiny_groups import three_groups
from tiny_models import build_model
from vcsd.models.family import family_of
from vcsd.models.qwen import delta_net, fused
from vcsd.rollout import decoder

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def inputs(R: int, H: int, K: int, V: int, dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        **{"query": draw(R, 1, H, K, seed=1, dtype=dtype), "key": draw(R, 1, H, K, seed=2, dtype=dtype)},
        **{"value": draw(R, 1, H, V, seed=3, dtype=dtype), "g": -draw(R, 1, H, seed=4).abs()},
        **{"beta": draw(R, 1, H, seed=5, dtype=dtype).sigmoid(), "initial_state": draw(R, H, K, V, seed=6)},
    }


def by_torch(given: dict[str, Tensor], is_normalised: bool) -> tuple[Tensor, Tensor]:
    stock = modeling_qwen3_5.torch_recurrent_gated_delta_rule
    rule = delta_net._of_torch(stock)
    return rule(**given, output_final_state=True, use_qk_l2norm_in_kernel=is_normalised)


def by_kernel(given: dict[str, Tensor], is_normalised: bool) -> tuple[Tensor, Tensor]:
    from vcsd.kernels.delta.token_step import delta_step

    state = given["initial_state"].clone()
    token = [given[name][:, 0] for name in ("query", "key", "value", "g", "beta")]
    return delta_step(*token, state, is_normalised=is_normalised)[:, None], state


def assert_close(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], limit: float) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        assert (mine.double() - theirs.double()).norm() <= limit * theirs.double().norm()


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("is_normalised", [True, False])
@pytest.mark.parametrize("sizes", [(3, 2, 16, 64), (1, 4, 64, 16), (2, 1, 128, 128)])
def test_a_step_equals_transformers(sizes: tuple[int, ...], is_normalised: bool, dtype: torch.dtype) -> None:
    given = inputs(*sizes, dtype)
    expected = by_torch(given, is_normalised)
    assert_close(by_kernel(given, is_normalised), expected, LIMITS[dtype])
    assert not torch.allclose(expected[1], given["initial_state"], atol=0.1), "the state has changed"


def test_any_strides_are_taken() -> None:
    """As a layer has them: heads of queries, keys and values beside each other in one tensor."""
    R, H, K, V = 3, 2, 16, 32
    together = draw(R, 1, H * (2 * K + V), seed=1)
    query, key, value = together.split([H * K, H * K, H * V], -1)
    given = inputs(R, H, K, V, torch.float32)
    given |= {"query": query.view(R, 1, H, K), "key": key.view(R, 1, H, K), "value": value.view(R, 1, H, V)}
    given |= {
        "g": -draw(H, 1, R, seed=4).abs().transpose(0, 2),
        "beta": draw(H, 1, R, seed=5).sigmoid().transpose(0, 2),
    }
    assert_close(by_kernel(given, True), by_torch(given, True), LIMITS[torch.float32])
    given["value"] = draw(R, 1, V, H, seed=3).transpose(2, 3)
    assert_close(by_kernel(given, True), by_torch(given, True), LIMITS[torch.float32])


def test_a_state_in_half_precision_stays_so() -> None:
    given = inputs(2, 2, 16, 16, torch.bfloat16)
    given["initial_state"] = given["initial_state"].bfloat16()
    out, state = by_kernel(given, True)
    assert state.dtype == torch.bfloat16
    assert_close((out, state.float()), by_torch(given, True), 1e-2)


def test_no_rollouts_are_no_problem() -> None:
    given = inputs(0, 2, 16, 16, torch.float32)
    assert by_kernel(given, True)[0].shape == (0, 1, 2, 16)


@pytest.mark.parametrize("wrong", ["width", "heads", "state", "strides"])
def test_what_the_kernel_cannot_take_is_refused(wrong: str) -> None:
    given = inputs(2, 2, 24 if wrong == "width" else 16, 16, torch.float32)
    if wrong == "heads":
        given["g"] = given["g"][:, :, :1]
    if wrong == "state":
        given["initial_state"] = given["initial_state"][:1]
    if wrong == "strides":
        given["initial_state"] = given["initial_state"].transpose(2, 3)
    from vcsd.kernels.delta.token_step import delta_step

    token = [given[name][:, 0] for name in ("query", "key", "value", "g", "beta")]
    with pytest.raises(AssertionError):
        delta_step(*token, given["initial_state"], is_normalised=True)


def decoded(monkeypatch: pytest.MonkeyPatch, *, fuse: bool) -> tuple[list[Tensor], int]:
    """The logits of a few steps of Qwen3.5, and how many of its layers' steps ran by the kernel."""
    from vcsd.kernels.delta import token_step as home

    steps: list[Any] = []
    step = home.delta_step
    monkeypatch.setattr(home, "delta_step", lambda *args, **keys: (steps.append(1), step(*args, **keys))[1])
    monkeypatch.setattr(fused, "FUSE", fuse)
    monkeypatch.setattr(fused, "_suits", lambda x: x.dtype in fused._DTYPES)  # on the CPU too
    model = build_model("qwen3_5").to(DEVICE)
    family_of(model).prepare(model)
    model.requires_grad_(False)
    tokens = torch.randint(1, 200, (5, 4), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    decoding = decoder.prefill(model, [group.prompt for group in three_groups("qwen3_5")])
    decoding.fork(torch.tensor([0, 0, 1, 2], device=DEVICE), 5)
    with torch.no_grad():
        logits = [decoding.step(token).clone() for token in tokens[:3]]
        decoding.keep(torch.tensor([0, 2], device=DEVICE))
        return logits + [decoding.step(token[:2]).clone() for token in tokens[3:]], len(steps)


def test_decoding_by_the_kernel_gives_the_same_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, num_plain = decoded(monkeypatch, fuse=False)
    found, num_steps = decoded(monkeypatch, fuse=True)
    assert (num_plain, num_steps) == (0, 3 * 5), "three delta nets, five steps"
    for mine, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_a_cache_of_somebody_else_is_left_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_suits", lambda x: True)
    given = inputs(2, 2, 16, 16, torch.float32)
    model = build_model("qwen3_5")
    family_of(model).prepare(model)
    wrapped = modeling_qwen3_5.torch_recurrent_gated_delta_rule
    before = given["initial_state"].clone()
    settings = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    with torch.no_grad():
        out, state = wrapped(**given, **settings)
        assert torch.equal(given["initial_state"], before)
        mine, same = wrapped(**given, **settings, mixer=object())
    assert same is given["initial_state"]
    assert_close((mine, same), (out, state), 2e-6)


def test_a_head_of_keys_serves_consecutive_heads_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_suits", lambda x: True)
    given = inputs(2, 4, 16, 16, torch.float32)
    few = {name: given[name][:, :, ::2] for name in ("query", "key")}
    whole = given | {name: x.repeat_interleave(2, 2) for name, x in few.items()}
    step = delta_net.step(by_torch)
    results = []
    for case in (given | few, whole):
        state = given["initial_state"].clone()
        with torch.no_grad():
            results.append(step(**case | {"initial_state": state}, mixer=object(), use_qk_l2norm_in_kernel=True))
    for mine, true in zip(*results, strict=True):
        assert torch.equal(mine, true)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "state"), [("bf16", "fp32"), ("fp16", "bf16"), ("fp32", "fp32")])
def test_the_kernel_compiles_for_hopper(dtype: str, state: str, compile_for_hopper: RunProgram) -> None:
    program = f"""
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels.delta import token_step as home

given = dict(K=128, V=128, BLOCK=home.BLOCK, NORMALISED=True)
kinds = {{name: "*{dtype}" if name.endswith("_ptr") else "i32" for name in home._kernel.arg_names}}
kinds |= dict(g_ptr="*fp32", state_ptr="*{state}") | dict.fromkeys(given, "constexpr")
source = ASTSource(fn=home._kernel, signature=kinds, constexprs=given)
triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=home.NUM_WARPS))
"""
    compile_for_hopper(program)
