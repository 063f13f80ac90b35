"""What a picture does not show is the answer to "Which of these is NOT in the image?"."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer

NOT_IN = "Which of these is NOT in the image: (A) kettle or (B) ladder?"
OPTIONS = {"A": "kettle", "B": "ladder"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The ladder is not in the image. The image shows a kettle on a stove.", "B"),
        ("The image does not contain a kettle. It only shows a ladder.", "A"),
        ("There is no kettle in the image, but there is a ladder.", "A"),
        ("The kettle isn't visible.", "A"),
        ("The kettle is missing in this picture.", "A"),
        ("The image shows a kettle.", None),
        ("The image contains both a kettle and a ladder.", None),
        ("The image does not contain a kettle or a ladder.", None),
        ("Neither the kettle nor the ladder is in the image.", None),
        ("It is not clear whether the kettle is in the image.", None),
        ("The kettle is not in the image. The ladder is not in the image.", None),
        ("The image does not show a kettle. A kettle is in the image.", None),
        ("The kettle is not made of steel.", None),
        ("The answer is (A) kettle.", "A"),
        ("Ladder", "B"),
    ],
)
def test_the_only_option_that_is_said_to_be_missing_is_chosen(text, expected):
    assert read_answer(text, "option", OPTIONS, NOT_IN).found == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("The image shows a kettle.", "A"), ("The image does not contain a kettle.", None)]
)
def test_a_question_for_what_is_there_is_read_as_before(text, expected):
    asked = "Which of these is in the image: (A) kettle or (B) ladder?"
    assert read_answer(text, "option", OPTIONS, asked).found == expected
