import copy
import dataclasses

import pytest

from tiny_examples import example, picture
from tiny_processor import build_processor
from vcsd.method import CHOICES, NEEDS
from vcsd.models.encode import encode
from vcsd.types import Example, Rollout
from vcsd.views import SAME_LAYOUT, VIEWS


def full_example() -> Example:
    texts = {"answer": "7", "demonstration": "Seven.", "feedback": "You missed one."}
    return example(picture(), boxes=((10, 10, 40, 40),), control_images=(picture(31, 17),), **texts)


def test_every_view_a_method_may_name_exists() -> None:
    named = {*CHOICES["target_view"], *CHOICES["contrast_view"]} - {None}
    assert named <= VIEWS.keys()
    assert set(SAME_LAYOUT) < VIEWS.keys()
    assert set(CHOICES["target_view"]) == {"original", *NEEDS} - {"given"}, "every view is a target, a control, or both"
    assert named == VIEWS.keys()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_pure(view: str) -> None:
    given = full_example()
    prompt, pixels = copy.deepcopy(given.prompt), given.images[0].tobytes()
    first, second = VIEWS[view](given), VIEWS[view](given)
    assert given.prompt == prompt
    assert given.images[0].tobytes() == pixels
    assert first.prompt == second.prompt
    assert [image.tobytes() for image in first.images] == [image.tobytes() for image in second.images]
    assert first.id == given.id


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_ends_where_the_response_begins_and_never_sees_it(view: str) -> None:
    rollout = Rollout(example_id="virl-7", index=0, token_ids=(7, 8, 9), stop="end")
    fields = {each.name for each in dataclasses.fields(Example)}
    assert not fields & {each.name for each in dataclasses.fields(Rollout)}
    processor = build_processor("qwen3_5")
    encoded = encode(processor, VIEWS[view](full_example()), chat_template_kwargs={"enable_thinking": False})
    assert encoded.text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    tail = processor.tokenizer("assistant\n<think>\n\n</think>\n\n")["input_ids"]
    assert [*encoded.input_ids.tolist(), *rollout.token_ids][-len(tail) - 3 :] == [*tail, 7, 8, 9]


@pytest.mark.parametrize("view", sorted(VIEWS.keys() - {"original"}))
def test_a_view_shows_something_else_than_the_original(view: str) -> None:
    processor = build_processor()
    shown, other = (encode(processor, VIEWS[each](full_example())) for each in ("original", view))
    same_text = shown.input_ids.tolist() == other.input_ids.tolist()
    assert not same_text or (shown.pixel_values != other.pixel_values).any()
    assert (view in SAME_LAYOUT) == same_text
