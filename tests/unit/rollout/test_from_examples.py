"""From an example to its scores: view, processor, rollouts and scoring fit together in every family."""

from dataclasses import replace

import pytest
import torch

from tiny_examples import example, picture
from tiny_models import build_model
from tiny_processor import build_processor
from vcsd.models.encode import encode
from vcsd.models.family import family_of
from vcsd.models.features import Constant, FeatureCache
from vcsd.models.packed.packing import Group, longest_view, plan_rows
from vcsd.models.score import score
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.views import VIEWS

pytestmark = pytest.mark.filterwarnings("ignore:.* once per response")  # tested in test_fallback

FAMILIES = ["qwen3_vl", "qwen3_5", "llava"]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_example_is_answered_and_scored_under_two_views(family: str) -> None:
    model, processor = build_model(family), build_processor(family)
    examples = [
        replace(example(picture(90, 70), text="how many?"), id="a"),
        replace(example(picture(128, 64), text="what colour is the square ?"), id="b"),
    ]
    prompts = {view: [encode(processor, VIEWS[view](one)) for one in examples] for view in ("original", "black")}
    engine = TransformersEngine(model, tokenizer=processor.tokenizer)
    rollouts = engine.sample(prompts["original"], Sampling(max_new_tokens=12), num_rollouts=3, seed=0).rollouts
    groups = {
        view: [
            Group(prompt, [rollout.token_ids for rollout in rollouts if rollout.example_id == prompt.example_id])
            for prompt in prompts[view]
        ]
        for view in prompts
    }
    plan = plan_rows(longest_view(list(groups.values())), budget=10_000, cost=family_of(model).cost)
    assert len(plan.rows) == 1
    original, control = (score(model, plan.select(groups[view], 0)) for view in groups)
    num_tokens = sum(len(rollout.token_ids) for rollout in rollouts)
    assert len(original.hidden_ND) == len(control.hidden_ND) == num_tokens
    assert (original.hidden_ND - control.hidden_ND).abs().amax(-1).min() > 1e-4, "the image matters at every position"


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_a_black_view_of_several_examples_needs_one_pass_of_the_tower(family: str) -> None:
    model, processor, features = build_model(family), build_processor(family), FeatureCache()
    examples = [replace(example(picture(96, 64), text=text), id=text) for text in ("one", "two", "red")]
    prompts = [encode(processor, VIEWS["black"](one)) for one in examples]
    family_of(model).prepare(model)
    features.begin_step(version=0)
    with torch.no_grad():
        expected = score(model, [Group(prompt, [[1, 2, 3]]) for prompt in prompts])
        keyed = [Group(prompt, [[1, 2, 3]], image_keys=[Constant("black")]) for prompt in prompts]
        found = score(model, keyed, features)
    assert features.num_computed == 1
    torch.testing.assert_close(found.hidden_ND, expected.hidden_ND, rtol=1e-4, atol=1e-4)
