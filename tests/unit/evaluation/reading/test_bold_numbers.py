"""The number in bold is the answer, unless it repeats the question or another one stands beside it."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer

REACH = "At what time t does the tank reach a level of 0.25?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The tank reaches a level of **0.25** at about **t = 0.8**.", "0.8"),
        ("At **0.25**, the time is **0.8 s**.", "0.8"),
        ("The level is 0.25 at **t ≈ 0.8** s.", "0.8"),
        ("It takes **0.8** s in one tank and **0.9** s in the other.", None),
        ("The tank with **N=10, k=400** is the first.", None),
        ("It reaches 0.25 at **0.8**, and the fit (**r = 0.97**) is good.", None),
    ],
)
def test_a_number_in_bold_that_repeats_the_question_is_not_the_answer(text, expected):
    assert read_answer(text, "float", asked=REACH).found == expected


def test_a_number_of_the_question_may_come_after_the_one_in_bold():
    text = "There are **3** cups on the shelf that is 40 cm high."
    assert read_answer(text, "integer", asked="How many cups are on the shelf of 40 cm?").found == "3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The year with the most rain is 2007 (**61** days).", None),
        ("The year with the most rain is 2007, with **61** days.", "2007"),
        ("The year with the most rain is **2007**, with 61 days.", "2007"),
    ],
)
def test_a_number_in_bold_that_says_more_about_the_answer_is_not_the_answer(text, expected):
    assert read_answer(text, "integer", asked="Which year has the most rain?").found == expected


def test_a_count_in_bold_may_come_after_with():
    text = "The chart shows several bars, with **5** of them red."
    assert read_answer(text, "integer", asked="How many red bars are there?").found == "5"
