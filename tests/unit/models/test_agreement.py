"""Models that use the fallback: rollouts are drawn from what is scored, or the model is refused."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tiny_fallbacks import build_fallback
from tiny_groups import TinyPrompt, make_prompt
from tiny_models import build_model, exact_arithmetic, image_token_id
from vcsd.errors import ConfigError
from vcsd.models import agreement, family
from vcsd.models.fallback import Fallback
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group
from vcsd.models.score import score
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling

THREE_AXES = ["qwen2_vl", "qwen2_5_vl", "glm4v"]
GREEDY = Sampling(temperature=0, max_new_tokens=12)
pytestmark = pytest.mark.filterwarnings("ignore:.*not of a family that shares prefixes")


def two_prompts(family: str = "qwen3_vl") -> list[TinyPrompt]:
    return [
        make_prompt(family, ((8, 12),), 5, 7, seed=1, example_id="a"),
        make_prompt(family, ((4, 4),), 30, 3, seed=2, example_id="b"),
    ]


def by_generate(model: nn.Module, prompt: TinyPrompt) -> list[int]:
    ids = prompt.input_ids[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": prompt.pixel_values}
    inputs |= {"image_grid_thw": prompt.grid_thw, "mm_token_type_ids": (ids == image_token_id("qwen3_vl")).int()}
    banned = sorted(family_of(model).vision_token_ids(model))
    out = model.generate(**inputs, do_sample=False, max_new_tokens=12, suppress_tokens=banned)
    return out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("name", THREE_AXES)
def test_three_axes_are_decoded_as_generate_does_and_scored_alike(name: str) -> None:
    model, prompts = build_fallback(name, torch.float64), two_prompts()
    with exact_arithmetic(model), torch.no_grad():
        expected = [by_generate(model, prompt) for prompt in prompts]
        drawn = TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0, with_log_probs=True)
        assert [list(rollout.token_ids) for rollout in drawn.rollouts] == expected
        scores = score(model, [Group(p, [r.token_ids]) for p, r in zip(prompts, drawn.rollouts, strict=True)])
        log_p_NV = (scores.hidden_ND @ scores.head.weight_VD.T).log_softmax(-1)
    tokens = torch.tensor([token for response in expected for token in response])
    found = log_p_NV.gather(1, tokens[:, None])[:, 0]
    assert (found - torch.cat(drawn.log_probs)).abs().max() < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", THREE_AXES)
def test_an_image_with_the_positions_of_text_is_refused(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_fallback(name, dtype)
    prompts = [replace(prompt, pixel_values=prompt.pixel_values.to(dtype)) for prompt in two_prompts()]
    TransformersEngine(model).sample(prompts, GREEDY, num_rollouts=1, seed=0)
    fresh = build_fallback(name, dtype)
    monkeypatch.setattr(family, "position_rule", lambda model: None)
    with pytest.raises(ConfigError, match="another distribution than the one that is scored"):
        TransformersEngine(fresh).sample(prompts, GREEDY, num_rollouts=1, seed=0)


@pytest.fixture
def llava() -> nn.Module:
    return build_model("llava", dtype=torch.float64)


def draw(model: nn.Module, prompts: list[TinyPrompt]) -> None:
    with exact_arithmetic(model):
        TransformersEngine(model).sample(prompts, Sampling(max_new_tokens=2), num_rollouts=1, seed=0)


def test_logits_that_are_more_than_the_heads_are_refused(llava: nn.Module) -> None:
    llava.lm_head.register_forward_hook(lambda _, args, out: 2 * out if args else out)
    with pytest.raises(ConfigError, match="LlavaForConditionalGeneration is not of a supported family"):
        draw(llava, two_prompts("llava"))


def test_hidden_states_of_other_positions_are_refused(llava: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Fallback.hidden_states
    monkeypatch.setattr(Fallback, "hidden_states", lambda *given: own(*given).roll(1, 0))
    with pytest.raises(ConfigError, match="example 'a'"):  # the shorter of the two prompts
        draw(llava, two_prompts("llava")[::-1])


def test_a_forward_that_fails_is_explained(llava: nn.Module) -> None:
    (prompt, _) = two_prompts("llava")
    with pytest.raises(ConfigError, match=r"example 'a' could not be decoded.*fallback: RuntimeError: .*channels"):
        draw(llava, [replace(prompt, pixel_values=prompt.pixel_values[:, :1])])
    llava.model.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("no room")))
    with pytest.raises(torch.OutOfMemoryError):
        draw(llava, [prompt])


def test_a_response_that_would_be_scored_with_its_future_in_sight_is_refused() -> None:
    model, prompt = build_fallback("paligemma", torch.float64), make_prompt("llava", (), 4, 4)
    types = {"token_type_ids": torch.zeros(1, len(prompt.input_ids), dtype=torch.long)}
    with pytest.raises(ConfigError, match="another distribution than the one that is scored"):
        draw(model, [replace(prompt, extra=types)])


def test_a_model_is_checked_once_with_an_image_and_once_without(
    llava: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored, seen = agreement._scored, []

    def counted(model, family, group):
        seen.append(group.example_id)
        return scored(model, family, group)

    monkeypatch.setattr(agreement, "_scored", counted)
    text = make_prompt("llava", (), 4, 4, example_id="text")
    for prompts in ([text], [text], [text, *two_prompts("llava")], two_prompts("llava")):
        draw(llava, prompts)
    assert seen == ["text", "a"]
    draw(build_model("qwen3_vl", dtype=torch.float64), two_prompts())
    assert seen == ["text", "a"], "a supported family is not checked"


def test_products_rounded_to_tf32_may_differ_more_than_in_float32_and_less_than_in_half(monkeypatch):
    def tolerance(precision: str, dtype: torch.dtype = torch.float32, *, is_cuda: bool = True) -> float:
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
        return agreement._tolerance(dtype, is_cuda=is_cuda)

    assert tolerance("highest") == tolerance("high", is_cuda=False) < tolerance("high")
    assert tolerance("high") < tolerance("high", torch.bfloat16)
    assert tolerance("high", torch.float64) == 1e-6
