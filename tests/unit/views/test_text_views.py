"""Snapshots of every word a view adds to a prompt, and where."""

import pytest

from tiny_examples import example, picture
from tiny_processor import build_processor
from vcsd.errors import DataError
from vcsd.models.encode import encode
from vcsd.types import Example, message_texts
from vcsd.views import VIEWS

OPEN = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>How many?"
CLOSE = "<|im_end|>\n<|im_start|>assistant\n"
COLUMNS = {"answer": "7", "demonstration": "I count 7 cubes.", "feedback": "You missed one."}

SNAPSHOTS = {
    "original": "",
    "black": "",
    "noise": "",
    "blur": "",
    "crop": "",
    "hint": (
        "\n\n[Reference answer]\n7\n[End of the reference answer]\n\n"
        "You have read the reference answer and can rely on it. Now solve the question yourself, step by step from "
        "what is shown, without mentioning it, and give the final answer in the form the question asks for."
    ),
    "demonstration": (
        "\n\n[Demonstration]\nI count 7 cubes.\n[End of the demonstration]\n\n"
        "The demonstration is a good response to this question. Now respond yourself, in your own words and without "
        "mentioning it."
    ),
    "feedback": (
        "\n\n[Feedback on an earlier attempt]\nYou missed one.\n[End of the feedback]\n\n"
        "Solve the question again from the start, with the feedback in mind and without mentioning it."
    ),
}


@pytest.mark.parametrize(("view", "added"), SNAPSHOTS.items())
def test_the_prompt_under_this_view_is_exactly(view: str, added: str) -> None:
    given = example(picture(), boxes=((10, 10, 40, 40),), **COLUMNS)
    assert encode(build_processor(), VIEWS[view](given)).text == OPEN + added + CLOSE


def test_an_added_crop_stands_right_after_its_image() -> None:
    given = example(picture(), boxes=((10, 10, 40, 40),))
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    text = encode(build_processor(), VIEWS["crop_added"](given)).text
    assert text == f"<|im_start|>user\n{mark}{mark}How many?{CLOSE}"


@pytest.mark.parametrize("view", ["hint", "demonstration", "feedback"])
def test_text_views_show_the_original_image(view: str) -> None:
    given = example(picture(), **COLUMNS)
    assert VIEWS[view](given).images[0].tobytes() == picture().tobytes()


@pytest.mark.parametrize("view", ["hint", "demonstration", "feedback"])
@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_view_without_its_text_names_the_example_and_the_column(view: str, value: str | None) -> None:
    column = "answer" if view == "hint" else view
    with pytest.raises(DataError, match=f"'virl-7': view '{view}' shows the column '{column}', but it is empty"):
        VIEWS[view](example(picture(), **{column: value}))


def test_an_answer_with_braces_is_shown_as_it_is() -> None:
    (part,) = VIEWS["hint"](example(answer="\\frac{1}{2} {answer}")).prompt[0]["content"]
    assert "\n\\frac{1}{2} {answer}\n" in part["text"]


def test_a_hint_ends_the_last_user_message_whatever_stands_around_it() -> None:
    prompt = (
        {"role": "user", "content": "First?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Second?"},
        {"role": "assistant", "content": "Let me"},
    )
    shown = VIEWS["hint"](Example(id="a", images=(), prompt=prompt, answer="7")).prompt
    first, second, third, fourth = (text for message in shown for text in message_texts(message))
    assert [first, second, fourth] == ["First?", "Yes.", "Let me"]
    assert third.startswith("Second?\n\n[Reference answer]\n7\n")


def test_a_hint_follows_an_image_that_ends_the_message() -> None:
    content = [{"type": "text", "text": "How many?"}, {"type": "image"}]
    given = Example(id="a", images=(picture(),), prompt=({"role": "user", "content": content},), answer="7")
    shown = VIEWS["hint"](given).prompt[0]["content"]
    assert shown[:2] == content
    assert shown[2]["text"].startswith("[Reference answer]\n7\n")
    assert len(content) == 2


def test_a_prompt_without_a_user_message_has_no_question_to_add_to() -> None:
    given = Example(id="a", images=(), prompt=({"role": "system", "content": "Be brief."},), answer="7")
    with pytest.raises(DataError, match="example 'a': the prompt has no user message"):
        VIEWS["hint"](given)
