"""`exact` reads as VLMEvalKit does, faults included: the strings whose reading is known, by the month of the rules."""

import pytest

from tiny_answers import number, option, say, say_all, yes_no
from vcsd.evaluation.reading.exact import read_option, read_yes_no
from vcsd.evaluation.scoring.score_predictions import score

ONLY_SINCE_2026_06 = {
    "The answer is clear: it was painted over before the photograph was taken": "C",
    "The answer is a dog that sits next to the door of the house, as one can see": "A",
    "I think that the answer is because of the light that falls on it from the left": "B",
    "The answer is determined by the hue of the thing that lies on the floor": "D",
    "the ANSWER  is\n**b and not something else, as far as one can see in the picture": "B",
    "The answer is B since A is red and one can see no red thing in the picture at all": "B",
}
SAME_UNDER_BOTH = {
    "B": "B",
    "(B)": "B",
    "\\boxed{B}": "B",
    "**B. green**": "B",
    "The answer is: D": "D",
    "green": "B",
    "The car is Green.": "B",
    "Z": "Z",
    "Cannot determine the answer from it": "Z",
    "I can't process this file. B": "Z",
    "Failed to obtain answer via API. B": None,
    "Failed to obtain answer via API. green": None,
    "b": None,
    "answer: b": None,
    "$B$": None,
    '"B"': None,
    "B。": None,
    "<think>A or C</think>B": None,
    "A. red\nB. green": None,
    "B is what I see here": None,
    "it is B I think so": "B",
    "red or green": None,
    "": None,
}


@pytest.mark.parametrize("text", [*ONLY_SINCE_2026_06, *SAME_UNDER_BOTH])
def test_an_option_is_read_as_known(text):
    expected = {**ONLY_SINCE_2026_06, **SAME_UNDER_BOTH}[text]
    options = {"A": "red", "B": "green", "C": "blue", "D": "yellow"}
    assert read_option(text, options, "2026-06") == expected
    assert read_option(text, options, "2025-08") == (None if text in ONLY_SINCE_2026_06 else expected)


def test_the_later_pattern_names_only_options_of_the_question():
    assert (
        read_option("I would say that the answer is D, as anyone can plainly see from it", {"A": "x", "B": "y"}) is None
    )


def test_words_count_in_short_answers_alone():
    options = {"A": "red", "B": "green"}  # eight characters: sixteen are the limit
    assert read_option("green, surely it", options) == "B"
    assert read_option("green, surely it.", options) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Yes", "Yes"),
        ("no.", "No"),
        ("Answer: Yes", "Yes"),
        ("\\boxed{Yes}", "Yes"),
        ("**Yes**", None),
        ("Answer:Yes", None),
        ("Yes, there is no doubt", None),
        ("nothing", None),
        ("a. " * 31 + "yes.", "Yes"),
        ("a. " * 40 + "yes.", None),
    ],
)
def test_yes_and_no_are_read_as_known(text, found):
    assert read_yes_no(text) == found


def test_an_empty_answer_comes_back_as_nan():
    questions = [option("0", "A", options={"A": "an", "B": "other"}, category="x"), option("1", "A", category="x")]
    card = score(questions, [say("0", ""), say("1", "None")], mode="exact").benchmarks["BLINK"]
    assert card.entry == 50.0  # "nan" has "an" in it, and none of the colours
    assert card.counts.empty == 1
    assert card.counts.unresolved == 1


def test_mathvista_reads_twice_and_loses_zero_lists_and_rounding():
    questions = [
        number("zero", "0"),
        number("five", "5"),
        number("whole", "3"),
        number("rounded", "1.2", kind="float"),
        number("float", "1.20", kind="float"),
        number("list", "[1, 2]", kind="list"),
        option("letter", "B", benchmark="MathVista_MINI"),
        option("words", "B", benchmark="MathVista_MINI"),
        option("nan", "A", options={"A": "n", "B": "two"}, benchmark="MathVista_MINI"),
    ]
    said = {"zero": "0", "five": " 5 ", "whole": "3.0", "rounded": "1.19", "float": "1.2", "list": "[1, 2]"}
    said |= {"letter": "B", "words": "green", "nan": "I cannot tell from this picture"}
    card = score(questions, [say(name, text) for name, text in said.items()], mode="exact").benchmarks["MathVista_MINI"]
    right = {name for name, is_right in zip(card.tally.ids, card.tally.is_right, strict=True) if is_right}
    assert right == {"five", "float", "letter", "words", "nan"}
    assert card.numbers == "vlmevalkit"


def test_always_a_and_always_yes_score_what_can_be_counted_by_hand():
    letters = [option(str(n), gold, category="x") for n, gold in enumerate("AABAC")]
    pairs = [
        yes_no(f"VD_math_1_0_{figure}_{q}", gold) for figure, q, gold in ((0, 0, "Yes"), (0, 1, "Yes"), (1, 0, "No"))
    ]
    for mode in ("exact", "final"):
        card = score(letters, say_all(letters, "A"), mode=mode)
        assert card.acc == pytest.approx(60.0)
        found = score(pairs, say_all(pairs, "Yes"), mode=mode).benchmarks["HallusionBench"]
        assert found.metrics == pytest.approx({"aAcc": 200 / 3, "fAcc": 50.0, "qAcc": 50.0})
