"""Contrast decoding by the real vLLM, with paired requests: the same tokens as by transformers."""

import os

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

os.environ.update(HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", TORCH_COMPILE_DISABLE="1", VLLM_LOGGING_LEVEL="ERROR")

import torch

from tiny_examples import example, picture
from tiny_models import build_model
from tiny_processor import build_processor, write_processor_files
from toy_questions import check_room
from vcsd.errors import RunError
from vcsd.evaluation.asking.model_answerer import ModelAnswerer
from vcsd.method import METHODS
from vcsd.rollout.contrast_engine import ContrastEngine, pair
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.fixed import paired_engine
from vcsd.rollout.fixed.proven_answers import ProvenAnswers
from vcsd.rollout.sampling import Sampling
from vcsd.types import Example

VCSD = METHODS["vcsd"]


def pairs(num):
    """Pairs with prompts of different lengths, one or two images each."""
    processor, made = build_processor(), []
    for place in range(num):
        pictures = [picture(64 + 32 * (place % 3), 64), picture(96, 32)][: 1 + place % 2]
        shown = example(*pictures, text="How many? " * (1 + place % 4))
        made.append(pair(Example(f"row-{place}", shown.images, shown.prompt), VCSD, processor))
    return made


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = write_processor_files(tmp_path_factory.mktemp("model"))
    model = build_model()
    model.save_pretrained(folder)
    return ProvenAnswers(model, folder, torch.float32, tokenizer=build_processor().tokenizer, contrast=VCSD)


def tokens(sampled):
    return [rollout.token_ids for rollout in sampled.rollouts]


def by_transformers(answers, asked, sampling, num_rollouts=1):
    engine = ContrastEngine(answers.base, method=VCSD, tokenizer=build_processor().tokenizer)
    return tokens(engine.sample(asked, sampling, num_rollouts=num_rollouts, seed=0))


GREEDY = Sampling(max_new_tokens=24, temperature=0.0)


def test_greedy_contrast_decoding_draws_the_tokens_of_transformers(answers):
    asked = pairs(40)
    own = by_transformers(answers, asked, GREEDY)
    assert tokens(answers.for_pairs().sample(asked, GREEDY, num_rollouts=1, seed=0)) == own
    plain = tokens(answers.sample([one.original for one in asked], GREEDY, num_rollouts=1, seed=0))
    assert sum(a != b for a, b in zip(plain, own, strict=True)) > 20  # the contrast matters


def test_sampled_pairs_depend_on_their_key_alone(answers):
    asked, warm = pairs(6), Sampling(max_new_tokens=12, top_p=0.9)
    together = tokens(answers.for_pairs().sample(asked, warm, num_rollouts=3, seed=1))
    alone = tokens(answers.for_pairs().sample(asked[4:5], warm, num_rollouts=3, seed=1))
    assert together[12:15] == alone
    assert len(set(together)) > 12


def test_pairs_that_vllm_begins_in_different_batches_are_asked_again(answers, monkeypatch):
    asked = pairs(12)
    own = by_transformers(answers, asked, GREEDY)
    longest = max(len(one.input_ids) for one in asked)
    monkeypatch.setattr(scheduler(answers), "max_num_scheduled_tokens", 3 * longest)
    before = answers.engine.num_out_of_step
    assert tokens(answers.for_pairs().sample(asked, GREEDY, num_rollouts=1, seed=0)) == own
    assert answers.engine.num_out_of_step > before


def test_a_pair_that_does_not_fit_into_one_batch_is_an_error(answers, monkeypatch):
    asked = pairs(1)
    monkeypatch.setattr(scheduler(answers), "max_num_scheduled_tokens", len(asked[0].input_ids) + 4)
    monkeypatch.setattr(paired_engine, "AT_ONCE", 1)
    with pytest.raises(RunError, match="did not compute both views of example 'row-0' in one batch"):
        answers.for_pairs().sample(asked, GREEDY, num_rollouts=1, seed=0)


@pytest.mark.parametrize("is_contrast", [False, True], ids=["plain", "contrast"])
def test_a_question_that_vllm_has_no_room_for_fails_alone(answers, is_contrast):
    processor, engine = build_processor(), answers.for_pairs() if is_contrast else answers
    options = {"tokenizer": processor.tokenizer}
    own = (
        ContrastEngine(answers.base, method=VCSD, **options)
        if is_contrast
        else TransformersEngine(answers.base, **options)
    )
    askers = [ModelAnswerer(one, processor, name="tiny") for one in (engine, own)]
    check_room(*askers, answers.room, processor)


def scheduler(answers):
    return answers.engine._target._llm.llm_engine.engine_core.engine_core.scheduler
