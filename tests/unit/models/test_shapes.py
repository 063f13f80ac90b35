import pytest
import torch
from transformers import AutoModelForImageTextToText

from vcsd.models.shapes import SEEN, SHAPES, TextShape, known_shape, shared_flops, work_of

COUNTS = {"qwen3_vl_2b": 2_127_532_032, "qwen3_vl_4b": 4_437_815_808, "qwen3_vl_8b": 8_767_123_696}
"""Parameters of these shapes, so that a change of one is noticed; 2.13, 4.44 and 8.77 billion."""


def count(shape):
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(shape.config())
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_shapes_of_qwen3_vl_have_exactly_these_parameters(name):
    assert count(SHAPES[name]) == COUNTS[name]


@pytest.mark.parametrize(("name", "billions"), [("qwen3_5_2b", 2.2), ("qwen3_5_4b", 4.5), ("qwen3_5_9b", 9.4)])
def test_shapes_of_qwen3_5_have_about_the_parameters_of_their_names(name, billions):
    assert count(SHAPES[name]) / 1e9 == pytest.approx(billions, abs=0.05)
    assert (SHAPES[name].source == SEEN) == (name == "qwen3_5_2b")


def test_a_released_model_is_known_by_its_hub_id_and_no_other_is():
    assert known_shape("Qwen/Qwen3.5-9B") is SHAPES["qwen3_5_9b"]
    assert known_shape("Qwen/Qwen3.5-27B") is None


def test_a_quarter_of_the_layers_of_qwen3_5_attend_to_everything():
    text = TextShape.of(SHAPES["qwen3_5_2b"].config())
    assert (text.num_full, text.num_linear) == (6, 18)


def test_operations_per_token_are_two_per_weight_of_the_layers():
    text = SHAPES["qwen3_vl_2b"].text
    layer = 3 * 2048 * 6144 + 2048 * (2 * 2048 + 2 * 1024)
    work = work_of(SHAPES["qwen3_vl_2b"].config(), num_visual=1024)
    assert work.per_token == 2 * text["num_hidden_layers"] * layer
    assert work.per_position == 10 * 2048 * 151_936


def test_responses_share_the_operations_of_their_prompt():
    work = work_of(SHAPES["qwen3_vl_2b"].config(), num_visual=1024)
    alone, eight = shared_flops(work, 1064, [300]), shared_flops(work, 1064, [300] * 8)
    assert alone < eight < 8 * alone
