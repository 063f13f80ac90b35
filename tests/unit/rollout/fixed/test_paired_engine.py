"""Pairs are two requests with the same seed; those that vLLM did not compute in step are asked again."""

from types import SimpleNamespace

import pytest
import torch

from tiny_examples import example, picture
from tiny_models import build_model
from tiny_processor import build_processor
from vcsd.errors import RunError
from vcsd.method import METHODS
from vcsd.models.family import family_of
from vcsd.rollout.contrast_engine import pair
from vcsd.rollout.fixed.pair_rows import PAIR
from vcsd.rollout.fixed.paired_engine import PairedEngine
from vcsd.rollout.sampling import Sampling
from vcsd.types import Example

SAMPLING = Sampling(max_new_tokens=4, temperature=0.0)


class ToyTarget:
    """Replies with the same tokens to both requests of a pair, but begins some of them in different batches.

    Pairs beyond the first `fit` of a call are out of step: one of their requests draws a placeholder.
    """

    is_asleep = False

    def __init__(self, fit, reply, placeholder):
        self.fit, self.reply, self.placeholder, self.asked = fit, reply, placeholder, []

    def weight_version(self):
        return "step-1"

    def to_input(self, ids, images, salt):
        return ids

    def generate(self, inputs, values, tell):
        self.asked.append([value["extra_args"][PAIR] | {"seed": value["seed"]} for value in values])
        replies = []
        for place, ids in enumerate(inputs):
            is_late = place // 2 >= self.fit and place % 2 == 1
            tokens = [self.placeholder] if is_late else list(self.reply)
            output = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)
            replies.append(SimpleNamespace(prompt_token_ids=ids, outputs=[output]))
        return replies


@pytest.fixture(scope="module")
def model():
    return build_model()


def start(model, fit):
    family = family_of(model)
    placeholder = sorted(family.vision_token_ids(model))[0]
    target = ToyTarget(fit, (5, min(family.end_token_ids(model))), placeholder)
    engine = PairedEngine(model, target, dtype=torch.float32)
    engine.version = "step-1"
    return engine, target


def pairs(num):
    shown, processor = example(picture(64, 64)), build_processor()
    return [
        pair(Example(f"row-{place}", shown.images, shown.prompt), METHODS["vcsd"], processor) for place in range(num)
    ]


def test_both_requests_of_a_pair_have_the_same_seed_and_their_side(model):
    engine, target = start(model, fit=99)
    sampled = engine.sample(pairs(2), SAMPLING, num_rollouts=2, seed=0)
    assert [(rollout.example_id, rollout.index) for rollout in sampled.rollouts] == [
        *(("row-0", 0), ("row-0", 1), ("row-1", 0), ("row-1", 1)),
    ]
    (asked,) = target.asked
    assert [one["side"] for one in asked] == ["original", "control"] * 4
    names = [(one["pair"], one["seed"]) for one in asked]
    assert names[::2] == names[1::2]
    assert len({one["seed"] for one in asked}) == 4
    assert engine.num_out_of_step == 0


def test_pairs_out_of_step_are_asked_again_until_all_are_drawn(model):
    engine, target = start(model, fit=3)
    sampled = engine.sample(pairs(8), SAMPLING, num_rollouts=1, seed=0)
    assert len(sampled.rollouts) == 8
    assert [len(asked) // 2 for asked in target.asked] == [8, 5, 2]
    assert engine.num_out_of_step == 7


def test_a_pair_that_is_never_in_step_raises(model):
    engine, _ = start(model, fit=0)
    with pytest.raises(RunError, match="both views of example 'row-0' in one batch"):
        engine.sample(pairs(1), SAMPLING, num_rollouts=1, seed=0)
