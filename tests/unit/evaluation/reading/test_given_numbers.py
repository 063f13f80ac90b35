"""Numbers that the question gives are not answers; "twice" is one if the question asks how many times."""

import pytest

from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.evaluation.reading.texts.question_words import QuestionWords

STAYS = "Which line stays above 0.4 all year?"
PEAKS = "How many peaks are in the plot 'Run (V=30, D=0.05)'?"
MEET = "How many times do the two roads meet?"


def number(text, asked=""):
    return read_answer(text, "float", asked=asked).found


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("The line above **0.4** all year is the red one.\n\n**Number in the chart:** **0.4**", STAYS, None),
        ("The lowest value of that line is **0.45**.", STAYS, "0.45"),
        ("There are 3 bars.", "How many bars are higher than 3?", "3"),
        ("0.4", STAYS, "0.4"),
    ],
)
def test_a_limit_of_the_question_is_not_the_answer_but_a_count_may_be_equal_to_it(text, asked, expected):
    assert number(text, asked) == expected


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("There are **2** peaks in the plot 'Run (V=30, D=0.05)'.", PEAKS, "2"),
        ("There are 2 peaks in 'Run (V=30, D=0.05)'.", PEAKS, "2"),
        ("The plot with V = 30 is 'Run (V=30, D=0.05)'.", PEAKS, None),
        ("So BC = AB = 5.", "In the figure AB = 5. How long is BC?", "5"),
        ("The length is 7 when r = 3.", "What is the length if r = 3?", "7"),
        ("So x = 4.", "Which is right, x = 4 or x = 5?", "4"),
    ],
)
def test_the_settings_of_a_title_are_not_the_result_of_an_equation(text, asked, expected):
    assert number(text, asked) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The two roads meet twice.", "2"),
        ("The roads meet **once** in the town.", "1"),
        ("The roads meet thrice on this map.", "3"),
        ("They meet twice, at x = 1 and at x = 4.", "2"),
        ("They meet more than once.", None),
        ("They meet once or twice.", None),
        ("They meet at least twice.", None),
        ("They meet once in the north and twice in the south.", None),
        ("The new road is twice as long as that one.", None),
        ("Once the roads leave the town, they part.", None),
    ],
)
def test_once_and_twice_are_numbers_if_the_question_asks_how_many_times(text, expected):
    assert number(text, MEET) == expected


def test_twice_is_no_number_if_the_question_asks_for_something_else():
    assert number("The train stops there twice.", "How many trains stop there?") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Final answer: The panel with one round stone is the lower one.", None),
        ("Final answer: The panel with one round stone is panel 4.", "4"),
        ("The answer is \\boxed{1}.", "1"),
        ("The answer is 1.", "1"),
    ],
)
def test_a_statement_that_repeats_a_number_of_the_question_does_not_answer_with_it(text, expected):
    assert number(text, "Which panel has one round stone?") == expected


def test_all_of_the_number_in_the_question_is_an_answer():
    assert number("The answer: all 5 cups are red.", "How many of the 5 cups are red?") == "5"


def test_what_says_how_to_answer_is_no_part_of_a_question():
    asked = "Which day is the warmest?\n    * Your final answer must be a number, e.g. 7.\n    * You may round it.\n"
    assert QuestionWords.of(asked).text == "Which day is the warmest?"
    choices = "Which one is it?\n- a red cup\n- a blue cup"
    assert QuestionWords.of(choices).text == choices
