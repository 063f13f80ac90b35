"""Contrast decoding against a plain loop over full forwards, and its limits."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tiny_groups import TinyPrompt, make_prompt, repeated_batch
from tiny_models import build_model, exact_arithmetic, image_token_id
from tiny_processor import build_processor
from tiny_step import make_examples
from vcsd.core import log_probs, shape_target
from vcsd.errors import ConfigError
from vcsd.method import METHODS, Method
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group
from vcsd.rollout.contrast_engine import ContrastEngine, Pair, pair
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling, draw, rollout_key, uniforms

pytestmark = pytest.mark.filterwarnings("ignore:.* once per response")  # tested in test_fallback

FAMILIES = ["qwen3_vl", "qwen3_5", "llava"]
NUM_TOKENS = 12
GREEDY = Sampling(temperature=0, max_new_tokens=NUM_TOKENS)
DRAWN = Sampling(temperature=0.8, top_p=0.9, max_new_tokens=NUM_TOKENS)


def decode(model, originals, controls, sampling, *, num_rollouts=1, seed=0, **options):
    pairs = [Pair(*views) for views in zip(originals, controls, strict=True)]
    return ContrastEngine(model, **options).sample(pairs, sampling, num_rollouts=num_rollouts, seed=seed)


def two_prompts(family: str) -> tuple[list[TinyPrompt], list[TinyPrompt]]:
    """Prompts of different lengths, and the same with other pixels."""
    originals = [make_prompt(family, ((8, 12),), 5, 7, 1, "a"), make_prompt(family, ((4, 4),), 30, 3, 2, "b")]
    controls = [replace(prompt, pixel_values=torch.full_like(prompt.pixel_values, -1.0)) for prompt in originals]
    return originals, controls


def fit_to_stop(model: nn.Module, family: str) -> nn.Module:
    """Larger logits for the end and image tokens: some answers end early, and images are tempting."""
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        for token in (*model.generation_config.eos_token_id, image_token_id(family)):
            head[token] *= 8 if family == "llava" else 3
    return model


def plain_loop(
    model: nn.Module, views: Sequence[TinyPrompt], sampling: Sampling, method: Method, key: str, family: str
) -> list[int]:
    """Token by token: two full forwards over everything written so far, shape, draw."""
    banned = torch.tensor(sorted(family_of(model).vision_token_ids(model)))
    ends = family_of(model).end_token_ids(model)
    words: list[int] = []
    while len(words) < sampling.max_new_tokens and not ends.intersection(words):

        def next_log_p(prompt: TinyPrompt, written: list[int]) -> Tensor:
            # One more token, whichever: the last hidden state predicts it from the words before.
            hidden = repeated_batch(model, [Group(prompt, [[*written, 1]])], family)[0][-1:]
            return log_probs(model.lm_head(hidden).index_fill(1, banned, -torch.inf))

        log_q = shape_target(
            *(next_log_p(prompt, words) for prompt in views),
            alpha=method.alpha,
            beta=method.beta,
            anchor=method.anchor,
            end_token_ids=ends,
        )
        uniform = uniforms([key], len(words) // 4 * 4, 4)[:, len(words) % 4]
        words.append(int(draw(log_q, uniform, sampling)))
    return words


METHODS_TRIED = [Method(), Method(alpha=2.0, beta=0.02, anchor=0.5)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS_TRIED, ids=["paper", "strong"])
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_the_tokens_are_those_of_a_loop_over_full_forwards(family: str, method: Method, sampling: Sampling) -> None:
    model = fit_to_stop(build_model(family, dtype=torch.float64), family)
    originals, controls = two_prompts(family)
    with exact_arithmetic(model), torch.no_grad():
        found = decode(model, originals, controls, sampling, method=method, num_rollouts=2, seed=3).rollouts
        for rollout in found:
            place = "ab".index(rollout.example_id)
            key = rollout_key(3, 0, rollout.example_id, rollout.index)
            views = (originals[place], controls[place])
            assert list(rollout.token_ids) == plain_loop(model, views, sampling, method, key, family)
    assert [rollout.index for rollout in found] == [0, 1, 0, 1]


def answers(model: nn.Module, method: Method = METHODS["vcsd"], family: str = "qwen3_vl") -> list[tuple[int, ...]]:
    found = decode(model, *two_prompts(family), GREEDY, method=method).rollouts
    return [rollout.token_ids for rollout in found]


def test_the_contrast_changes_what_is_said_and_its_sides_cannot_be_swapped() -> None:
    model = build_model()
    originals, controls = two_prompts("qwen3_vl")
    plain = TransformersEngine(model).sample(originals, GREEDY, num_rollouts=1, seed=0).rollouts
    without = answers(model, replace(METHODS["no_contrast"], beta=0.0))
    assert without == [rollout.token_ids for rollout in plain], "alpha 0 is plain decoding"
    assert answers(model) != without
    swapped = decode(model, controls, originals, GREEDY).rollouts
    assert [rollout.token_ids for rollout in swapped] != answers(model)


def test_a_placeholder_that_the_model_would_choose_does_not_empty_the_support() -> None:
    model = build_model()
    with torch.no_grad():
        model.get_output_embeddings().weight[image_token_id("qwen3_vl")] *= 50
    engine = ContrastEngine(model, method=Method(beta=1.0))
    log_q = engine.shape(torch.randn(3, 512).index_fill(1, torch.tensor(engine.vision_ids), 1e4), torch.randn(3, 512))
    assert log_q.isfinite().any(-1).all()
    banned = family_of(model).vision_token_ids(model)
    assert not [tokens for tokens in answers(model) if banned.intersection(tokens)]


def test_an_answer_does_not_depend_on_its_batch() -> None:
    model = build_model(dtype=torch.float64)
    pairs = [Pair(*views) for views in zip(*two_prompts("qwen3_vl"), strict=True)]

    def drawn(some: Sequence[Pair], **options: int) -> dict:
        with exact_arithmetic(model):
            rollouts = ContrastEngine(model, **options).sample(some, DRAWN, num_rollouts=3, seed=1).rollouts
        return {(rollout.example_id, rollout.index): rollout.token_ids for rollout in rollouts}

    expected = drawn(pairs)
    assert len(set(expected.values())) == 6
    assert drawn(pairs[::-1]) == expected
    assert drawn(pairs, max_rows=2) == expected
    assert drawn(pairs[:1]) | drawn(pairs[1:]) == expected


def test_it_computes_twice_the_tokens_of_plain_decoding() -> None:
    model, counts = build_model(), []
    model.model.language_model.register_forward_pre_hook(
        lambda _, args, kwargs: counts.append(kwargs["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    originals, controls = two_prompts("qwen3_vl")
    few = replace(GREEDY, max_new_tokens=7)  # fewer than it takes before an answer that has ended is dropped
    TransformersEngine(model).sample(originals, few, num_rollouts=2, seed=0)
    plain = sum(counts)
    counts.clear()
    decode(model, originals, controls, few, num_rollouts=2)
    assert sum(counts) == 2 * plain
    one, two = TransformersEngine(model).cache_cost(), ContrastEngine(model).cache_cost()
    assert (two.per_token, two.per_rollout) == (2 * one.per_token, 2 * one.per_rollout)


def test_an_example_is_paired_with_its_control() -> None:
    example, processor = make_examples(1)[0], build_processor()
    found = pair(example, METHODS["vcsd"], processor)
    assert torch.equal(found.original.input_ids, found.control.input_ids)
    assert not torch.equal(found.original.pixel_values, found.control.pixel_values)
    assert found.control.pixel_values.unique().numel() == 1, "black"
    shorter = pair(example, replace(METHODS["vcsd"], contrast_view="no_image"), processor)
    assert len(shorter.control.input_ids) < len(shorter.original.input_ids) == len(shorter.input_ids)
    with pytest.raises(ConfigError, match="no contrast view"):
        pair(example, METHODS["opsd"], processor)


def test_a_placeholder_without_a_logit_need_not_be_banned() -> None:
    model = build_model()
    engine = ContrastEngine(model)
    logits = torch.randn(2, model.config.text_config.vocab_size, generator=torch.Generator().manual_seed(0))
    expected = engine.shape(logits, -logits)
    engine.vision_ids = [*engine.vision_ids, logits.shape[1]]
    assert torch.equal(engine.shape(logits, -logits), expected)
