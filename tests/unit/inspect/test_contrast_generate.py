"""Contrast decoding inside `generate` says what the package's own contrast decoding says."""

import pytest
import torch

from tiny_models import exact_arithmetic
from vcsd.bases.shipped_bases import shipped_base
from vcsd.errors import ConfigError, RunError
from vcsd.inspect import ContrastLogits, contrast_inputs, open_model
from vcsd.method import Method
from vcsd.rollout.contrast_engine import ContrastEngine, pair
from vcsd.rollout.sampling import Sampling
from vcsd.world.questions.suites import build_suite

NUM_TOKENS = 12


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen3_5"])
def opened(request):
    return open_model(str(shipped_base(request.param)))


@pytest.fixture(scope="module")
def examples():
    """Pictures of several sizes and prompts of several lengths."""
    suites = [build_suite(name, num=4)[0] for name in ("mixed", "arithmetic", "smaller", "hallucination")]
    return [question.example for question in suites]


def generated(opened, inputs, contrast, **options):
    ids = opened.model.generate(
        **inputs, logits_processor=[contrast], max_new_tokens=NUM_TOKENS, do_sample=False, **options
    )
    return ids[:, inputs["input_ids"].shape[1] :].tolist()


def cut(token_ids, ends):
    """Drop what follows the first end token."""
    return next((token_ids[: i + 1] for i, token in enumerate(token_ids) if token in ends), token_ids)


def test_a_batch_says_what_the_contrast_engine_says(opened, examples):
    method = Method(alpha=2.0)
    with exact_arithmetic(opened.model):
        inputs, contrast = contrast_inputs(opened.model, opened.processor, examples, method=method)
        said = generated(opened, inputs, contrast)
        engine = ContrastEngine(opened.model, method=method, tokenizer=opened.processor.tokenizer)
        pairs = [pair(example, method, opened.processor) for example in examples]
        sampling = Sampling(max_new_tokens=NUM_TOKENS, temperature=0.0)
        wanted = engine.sample(pairs, sampling, num_rollouts=1, seed=0).rollouts
        plain = opened.model.generate(**inputs, max_new_tokens=NUM_TOKENS, do_sample=False)
    assert [cut(row, engine.end_ids) for row in said] == [list(rollout.token_ids) for rollout in wanted]
    assert plain[:, inputs["input_ids"].shape[1] :].tolist() != said  # the contrast changed something


def test_several_responses_to_a_prompt_share_its_control(opened, examples):
    inputs, contrast = contrast_inputs(opened.model, opened.processor, examples[:2])
    torch.manual_seed(0)
    ids = opened.model.generate(
        **inputs, logits_processor=[contrast], max_new_tokens=4, do_sample=True, num_return_sequences=3
    )
    assert len(ids) == 6


def test_reordered_rows_a_second_use_and_a_wrong_number_of_rows_are_refused(opened, examples):
    inputs, contrast = contrast_inputs(opened.model, opened.processor, examples[:2])
    logits = torch.zeros(2, opened.model.config.get_text_config().vocab_size)
    written = inputs["input_ids"]
    contrast(written, logits)
    swapped = torch.cat([written.flip(0), torch.ones_like(written[:, :1])], 1)
    with pytest.raises(RunError, match="beam search"):
        contrast(swapped, logits)
    inputs, contrast = contrast_inputs(opened.model, opened.processor, examples[:1])
    generated(opened, inputs, contrast)
    with pytest.raises(RunError, match="one call of generate"):
        generated(opened, inputs, contrast)
    three = ContrastLogits(opened.model, contrast._controls * 3)
    with pytest.raises(ConfigError, match="1 rows, but 3 control prompts"):
        generated(opened, inputs, three)


def test_a_control_without_image_is_refused(opened, examples):
    with pytest.raises(ConfigError, match="decoding needs one of black, noise, blur"):
        contrast_inputs(opened.model, opened.processor, examples, method=Method(contrast_view="no_image"))
