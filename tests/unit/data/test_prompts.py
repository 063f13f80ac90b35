"""Where images stand in a prompt."""

import pytest

from vcsd.data import RowError
from vcsd.data.prompts import build_prompt

IMAGE = {"type": "image"}


def text(words):
    return {"type": "text", "text": words}


def test_marks_become_images_where_they_stand_and_words_stay_to_the_letter():
    (message,) = build_prompt("a", "See <image>\n<image> and compare.", 2)
    assert message["content"] == [text("See "), IMAGE, text("\n"), IMAGE, text(" and compare.")]


def test_without_marks_images_come_first_in_the_first_user_message():
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Compare."}
    first, second = build_prompt("a", [system, user], 2)
    assert first["content"] == [text("Be brief.")]
    assert second["content"] == [IMAGE, IMAGE, text("Compare.")]


def test_image_parts_given_by_the_user_stay_where_they_are():
    prompt = [{"role": "user", "content": [text("Compare"), {"type": "image", "text": None}, text("with"), IMAGE]}]
    assert build_prompt("a", prompt, 2)[0]["content"] == [text("Compare"), IMAGE, text("with"), IMAGE]


def test_a_question_without_images_has_none():
    assert build_prompt("a", "How many?", 0) == ({"role": "user", "content": [text("How many?")]},)


@pytest.mark.parametrize(("words", "num_images"), [("<image>?", 0), ("<image>?", 2), ("<image><image>?", 1)])
def test_marks_and_images_must_be_as_many(words, num_images):
    with pytest.raises(RowError, match=f"but it has {num_images} images"):
        build_prompt("a", words, num_images)


def test_a_mark_in_an_answer_of_the_assistant_is_text():
    prompt = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "An <image>."}]
    first, second = build_prompt("a", prompt, 1)
    assert (first["content"], second["content"]) == ([IMAGE, text("?")], [text("An <image>.")])


def test_images_need_a_user_message():
    with pytest.raises(RowError, match="no user message"):
        build_prompt("a", [{"role": "system", "content": "Be brief."}], 1)


@pytest.mark.parametrize("words", [None, 5, ["How many?"]])
def test_a_text_part_without_text_is_no_prompt(words):
    with pytest.raises(RowError, match="'a': a text part needs 'text'") as error:
        build_prompt("a", [{"role": "user", "content": [{"type": "image", "text": None}, text(words)]}], 1)
    assert error.value.reason == "malformed_row"
