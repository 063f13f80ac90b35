"""The fallback: exact through the repeated batch, with a warning about the cost."""

from dataclasses import replace

import pytest
import torch

from tiny_fallbacks import build_fallback, tiled_prompts
from tiny_groups import TinyPrompt, gradients, nonlinear_loss, repeated_batch, three_groups, worst_gap
from tiny_models import build_model, exact_arithmetic
from vcsd.errors import ConfigError, DataError
from vcsd.models.family import extra_inputs, family_of, image_inputs
from vcsd.models.packed.packing import Group, longest_view, plan_rows
from vcsd.models.score import score
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling

pytestmark = pytest.mark.filterwarnings("ignore:.* once per response")


def test_scores_and_gradients_are_those_of_the_repeated_batch() -> None:
    groups = three_groups("llava")
    model, stock = (build_model("llava", dtype=torch.float64).train() for _ in range(2))
    with pytest.warns(UserWarning, match="not of a family that shares prefixes"):
        family_of(model).prepare(model)
    with exact_arithmetic(model, stock):
        expected = torch.cat(repeated_batch(stock, groups, "llava"))
        nonlinear_loss(expected).backward()
        scores = score(model, groups)
        nonlinear_loss(scores.hidden_ND).backward()
    assert len(scores.hidden_ND) == 9 + 3 + 17 + 1 + 6 + 70 + 2 + 2 + 5
    assert (scores.hidden_ND - expected).abs().max() < 1e-12
    assert worst_gap(gradients(model), gradients(stock))[0] < 1e-9


def test_a_configuration_without_a_token_to_pad_with_will_do() -> None:
    model, groups = build_model("llava"), three_groups("llava")
    expected = score(model, groups).hidden_ND
    model.config.get_text_config().pad_token_id = -1
    assert torch.equal(score(model, groups).hidden_ND, expected)
    prompts = [group.prompt for group in groups]
    assert TransformersEngine(model).sample(prompts, Sampling(max_new_tokens=2), num_rollouts=2, seed=0).rollouts


def test_the_plan_counts_the_repeated_prompts() -> None:
    groups = three_groups("llava")
    family = family_of(build_model("llava"))
    sizes = longest_view([groups])
    budget = max(4 * (size.prompt + max(size.responses)) for size in sizes)
    plan = plan_rows(sizes, budget, family.cost)
    assert len(plan.rows) > len(plan_rows(sizes, budget).rows)


def test_vision_tokens_in_a_response_are_refused_here_too() -> None:
    model = build_model("llava")
    (image,) = family_of(model).vision_token_ids(model)
    group = replace(three_groups("llava")[0], responses=[[1, image]])
    with pytest.raises(DataError, match="contains the vision token id"):
        score(model, [group])


def test_extra_inputs_are_padded_where_there_is_one_value_per_token() -> None:
    prompts = []
    for group in three_groups("llava")[:2]:
        num = len(group.prompt.input_ids)
        extra = {"types": torch.ones(1, num), "sizes": torch.ones(2, 2), "images_of_token": torch.ones(1, num, 3, 2)}
        prompts.append(replace(group.prompt, extra=extra))
    length = max(len(prompt.input_ids) for prompt in prompts) + 2
    left, right = (extra_inputs(prompts, length, left=left) for left in (True, False))
    assert left["types"].shape == right["types"].shape == (2, length)
    assert left["types"][0].sum() == len(prompts[0].input_ids)
    assert (left["types"][0, -1], left["types"][0, 0], right["types"][0, 0], right["types"][0, -1]) == (1, 0, 1, 0)
    assert left["sizes"].shape == (4, 2)
    for side in (left, right):
        assert side["images_of_token"].shape == (2, length, 3, 2)
        assert torch.equal(side["images_of_token"][:, :, 1, 1], side["types"])


@pytest.mark.filterwarnings("ignore:.*not of a family that shares prefixes")
@pytest.mark.parametrize("family", ["smolvlm", "llava_next"])
def test_images_with_different_numbers_of_tiles_are_scored_and_answered_as_one_by_one(family: str) -> None:
    model, prompts = build_fallback(family, torch.float64), tiled_prompts(family)
    groups = [Group(prompt, [[20, 21, 22], [30, 31]]) for prompt in prompts]
    sampling = Sampling(temperature=0, max_new_tokens=6)
    with exact_arithmetic(model), torch.no_grad():
        apart = torch.cat([score(model, [group]).hidden_ND for group in groups])
        assert (score(model, groups).hidden_ND - apart).abs().max() < 1e-12
        blind = [replace(group, prompt=changed(group.prompt)) for group in groups]
        assert (score(model, blind).hidden_ND - apart).abs().max() > 1e-3, "the images are seen"
        engine = TransformersEngine(model)
        together = engine.sample(prompts, sampling, num_rollouts=2, seed=0).rollouts
        alone = [r for prompt in prompts for r in engine.sample([prompt], sampling, num_rollouts=2, seed=0).rollouts]
    assert list(together) == alone


def changed(prompt: TinyPrompt) -> TinyPrompt:
    return prompt if prompt.pixel_values is None else replace(prompt, pixel_values=prompt.pixel_values.flip(1) + 1)


def test_images_that_do_not_fit_into_one_batch_are_a_clear_error() -> None:
    prompts = [replace(three_groups("llava")[0].prompt, pixel_values=torch.zeros(1, 3, side, 32)) for side in (32, 48)]
    with pytest.raises(ConfigError, match=r"pixel_values .* \(1, 3, 32, 32\), \(1, 3, 48, 32\)"):
        image_inputs(prompts)
