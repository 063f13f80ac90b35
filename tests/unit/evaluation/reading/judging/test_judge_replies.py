"""Replies of a judge are read however they are dressed, and not at all if two values compete."""

import pytest

from tiny_answers import number, option, yes_no
from vcsd.evaluation.reading.judging.judge_replies import NOTHING, read_reply

OPTION, WORD = option("q", "B"), yes_no("VD_math_1_0_0_0")
WHOLE, PART, LIST = number("n", "3"), number("f", "1.5", kind="float"), number("l", "[1, 2]", kind="list")
TEXT = number("t", "red", kind="text")


@pytest.mark.parametrize(
    "reply", ["B", "b", '"B"', "$B$", "**B**", "(b)", "`B`.", r"\boxed{B}", r"$\boxed{\text{B}}$", "B.", "B。", "【B】"]
)
def test_a_letter_is_read(reply):
    assert read_reply(OPTION, reply, "2026-06") == "B"


def test_the_words_of_an_option_are_read_before_a_letter_that_is_an_article():
    animals = option("q", "B", {"A": "a cat", "B": "a dog", "C": "A cat."})
    assert read_reply(animals, "A dog.", "2026-06") == "B"
    assert read_reply(animals, "A", "2026-06") == "A"
    twins = option("q", "B", {"A": "dog", "B": "Dog"})
    assert read_reply(twins, "dog", "2026-06") is None


@pytest.mark.parametrize(("reply", "found"), [("z", NOTHING), ("The answer is B.", "B"), ("A or B", None), ("e", None)])
def test_a_refusal_is_read_and_a_choice_of_two_is_not(reply, found):
    assert read_reply(OPTION, reply, "2026-06") == found


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        *[(reply, "Yes") for reply in ("Yes", "yes.", "**Yes**", '"Yes"', "The answer is **yes**.")],
        *[("NO", "No"), ("Unknown", NOTHING), ("**Unknown**.", NOTHING), ("yes and no", None)],
    ],
)
def test_yes_and_no_are_read(reply, found):
    assert read_reply(WORD, reply, "2026-06") == found


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        *[(reply, "3") for reply in ("3", "3 people", "**3**", "$3$", "Extracted answer: 3", "x = 3.", "3 cm, so 3")],
        *[(reply, "3") for reply in ("3.0", "3.00 people", "**3.0**")],  # VLMEvalKit compares 3.0 as no integer
        *[("1,234 votes", "1234"), ("-7 degrees", "-7"), ("None", NOTHING), ("`none`", NOTHING)],
        *[(reply, None) for reply in ("3 or 4", "3/4", "3/3", "2^2", "3-4", "two", "between 3 and 4", "")],
    ],
)
def test_a_whole_number_is_read(reply, found):
    assert read_reply(WHOLE, reply, "2026-06") == found


@pytest.mark.parametrize("reply", ["-3", "\N{MINUS SIGN}3", "$\N{MINUS SIGN}3$", "\N{EN DASH}3 degrees"])
def test_a_minus_is_read_in_any_form(reply):
    assert read_reply(WHOLE, reply, "2026-06") == "-3"


@pytest.mark.parametrize("reply", ["minus 3", "negative 3", "x = - 3", "3 million", "2.5 thousand", "3 dozen", "nan"])
def test_digits_that_stand_for_another_number_are_not_read(reply):
    assert read_reply(WHOLE, reply, "2026-06") is None
    assert read_reply(PART, reply, "2026-06") is None


@pytest.mark.parametrize("reply", ["not B", "Not B.", "It is not (B).", "It isn't B", "anything but B", "not option B"])
def test_a_denied_letter_is_not_read(reply):
    assert read_reply(OPTION, reply, "2026-06") is None


@pytest.mark.parametrize("reply", ["not yes", "The answer is not **no**."])
def test_a_denied_word_is_not_read(reply):
    assert read_reply(WORD, reply, "2026-06") is None


@pytest.mark.parametrize(("reply", "found"), [("1.50 m", "1.50"), (".5", ".5"), ("50%", "50"), ("1.5 x 10^3", None)])
def test_a_decimal_number_is_read(reply, found):
    assert read_reply(PART, reply, "2026-06") == found


def test_lists_and_words_are_read():
    assert read_reply(LIST, "The list is [1, 2].", "2026-06") == "[1, 2]"
    assert read_reply(LIST, "[1, 2] or [2, 1]", "2026-06") is None
    assert read_reply(TEXT, '"red"', "2026-06") == "red"
    assert read_reply(TEXT, "None.", "2026-06") == NOTHING
    assert read_reply(TEXT, "nothing", "2026-06") == "nothing"  # what is in an empty box
    assert read_reply(option("q", "Z", {"Y": "a", "Z": "b"}), "z", "2026-06") == "Z"
