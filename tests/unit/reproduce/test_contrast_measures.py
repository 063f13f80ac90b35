"""Measures of the contrast agree with a loop over full forward passes, and have the right sign."""

from dataclasses import replace

import pytest
import torch

from tiny_models import exact_arithmetic
from vcsd.bases.tiny_models import build_model
from vcsd.bases.tokenizer import write_processor_files
from vcsd.core import log_probs
from vcsd.method import METHODS
from vcsd.models.encode import encode
from vcsd.models.processor import load_processor
from vcsd.reproduce import contrast_measures
from vcsd.reproduce.contrast_measures import SampledResponse, correlation, pmi, profile, split_by_truth
from vcsd.views import VIEWS
from vcsd.world.questions.examples import training_examples


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    return load_processor(write_processor_files(tmp_path_factory.mktemp("processor"), "qwen3_vl"))


@pytest.fixture(scope="module")
def model():
    model = build_model("qwen3_vl", "tiny")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def responses(processor):
    examples = [each for each in training_examples(12) if each.images[0].width == 96][:4]
    texts = ["The circle is red. The answer is B.", "There are 2 blue things.", "no", "The ring is above"]
    ids = [processor.tokenizer(text)["input_ids"] for text in texts]
    return [SampledResponse(example, tokens) for example, tokens in zip(examples, ids, strict=True)]


def slowly(model, responses, processor, view="original", images=None):
    """Log-probabilities from one full forward per answer."""
    parts = []
    for place, each in enumerate(responses):
        example = each.example if images is None else replace(each.example, images=images[place])
        prompt = encode(processor, VIEWS[view](VIEWS["original"](example)))
        ids = torch.cat([prompt.input_ids, torch.tensor(each.token_ids)])[None]
        inputs = {"mm_token_type_ids": (ids == model.config.image_token_id).int(), "use_cache": False}
        out = model(input_ids=ids, pixel_values=prompt.pixel_values, image_grid_thw=prompt.grid_thw, **inputs)
        parts.append(log_probs(out.logits[0, len(prompt) - 1 : -1]))
    return torch.cat(parts)


def test_the_marginal_is_the_mean_over_the_other_images(model, responses, processor, monkeypatch):
    monkeypatch.setattr(contrast_measures, "NUM_OTHERS", 3)
    with exact_arithmetic(model), torch.no_grad():
        images = [[responses[(place + shift) % 4].example.images for place in range(4)] for shift in (1, 2, 3)]
        expected = (
            torch.stack([slowly(model, responses, processor, images=some).exp() for some in images]).mean(0).log()
        )
        found = contrast_measures._marginal(model, responses, processor)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    model.float()


def test_the_contrast_of_a_word_is_its_gain_from_the_image(model, responses, processor):
    with exact_arithmetic(model), torch.no_grad():
        raised = slowly(model, responses, processor) - slowly(model, responses, processor, "black")
        found = profile(model, responses, processor)
    ids = torch.tensor([token for each in responses for token in each.token_ids])
    own = raised[torch.arange(len(ids)), ids]
    words = [processor.tokenizer.decode([token]).strip() for token in ids.tolist()]
    is_seen = torch.tensor([word in {"circle", "red", "2", "blue", "no", "ring", "above"} for word in words])
    assert is_seen.sum() == 7 == found["num_seen"]
    assert found["seen"] == pytest.approx(own[is_seen].mean().item(), abs=1e-9)
    assert found["other"] == pytest.approx(own[~is_seen].mean().item(), abs=1e-9)
    model.float()


def test_right_answers_are_told_from_wrong_ones(responses, processor):
    first = replace(responses[0], example=replace(responses[0].example, answer="B"))
    second = replace(responses[0], example=replace(responses[0].example, answer="A"))
    assert split_by_truth([second, first], processor) == ([first], [second])
    assert profile(None, [], processor) == {}


def test_a_control_that_is_the_marginal_would_agree_with_it_fully(model, responses, processor, monkeypatch):
    black = contrast_measures.log_p_of(model, contrast_measures._groups(responses, "black", processor))
    monkeypatch.setattr(contrast_measures, "_marginal", lambda *_: black)
    found = pmi(model, responses, processor, METHODS["vcsd"])
    assert found["black"]["correlation"] == pytest.approx(1.0)
    assert (found["black"]["same_sign"], found["black"]["same_choice"], found["black"]["mean_gap"]) == (1.0, 1.0, 0.0)
    assert found["noise"]["correlation"] < 0.999
    assert found["num_tokens"] > found["num_positions"] > 0


def test_correlation_is_pearsons():
    x = torch.tensor([1.0, 2.0, 4.0])
    assert correlation(x, 3 * x + 1) == pytest.approx(1.0)
    assert correlation(x, -x) == pytest.approx(-1.0)
    assert correlation(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])) == pytest.approx(0.0)
