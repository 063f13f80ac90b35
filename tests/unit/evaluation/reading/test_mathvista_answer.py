"""MathVista's answers under both comparisons, by name."""

from dataclasses import replace

import pytest

from tiny_answers import number, option, say
from vcsd.errors import ConfigError, DataError
from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.reading.marking import Marking, mark
from vcsd.evaluation.reading.mathvista_answer import edit_distance, is_right, nearest_option, normalise, precision_of
from vcsd.evaluation.scoring.aggregate import group_names
from vcsd.evaluation.scoring.score_predictions import score


@pytest.mark.parametrize(
    ("kind", "gold", "said", "official", "vlmevalkit"),
    [
        ("integer", "3", "3", True, True),
        ("integer", "3", "3.0", True, False),
        ("integer", "3", "3.7", True, False),  # the authors cut off what follows the point
        ("integer", "0", "0", True, True),
        ("integer", "3", "4", False, False),
        ("integer", "3", "inf", False, False),
        ("float", "1.2", "1.2", True, True),
        ("float", "1.2", "1.23", True, False),
        ("float", "1.2", "1.26", False, False),
        ("float", "0.50", "0.5", True, True),
        ("list", "[1, 2]", "[1,2]", True, False),
        ("list", "[1, 2]", "[2, 1]", False, False),
        ("list", "[1, 2]", "3", False, False),
    ],
)
def test_numbers_are_compared_in_two_ways(kind, gold, said, official, vlmevalkit):
    question = number("q", gold, kind=kind)
    assert is_right(question, said, "official") is official
    assert is_right(question, said, "vlmevalkit") is vlmevalkit


def test_either_of_two_equal_options_is_right_officially():
    question = option("q", "C", options={"A": "9", "B": "12", "C": "18", "D": "18"})
    assert is_right(question, "D", "official")
    assert not is_right(question, "D", "vlmevalkit")
    assert not is_right(question, "B", "official")
    assert normalise(question, "(d) whatever") == "18"
    assert normalise(question, "12") == "12"
    assert normalise(question, "13") is None


def test_the_authors_last_resort_is_the_nearest_option():
    assert edit_distance("flaw", "lawn") == 2
    assert nearest_option({"A": "Yes", "B": "No"}, "") == "No"
    assert nearest_option({"A": "ab", "B": "cd"}, "xy") == "ab"
    assert nearest_option({"A": "Yes", "B": "No"}, "(c) Yes") == "No"  # C, in brackets, is nearer to No
    assert nearest_option({"A": "Yes", "B": "No"}, "A") == "Yes"


def test_precision_is_taken_from_its_cell_the_hint_or_gold():
    hint = "requiring a floating-point number with one decimal place and provide the final value"
    assert precision_of(number("q", "1.25", kind="float", fields={"precision": "1.0", "question": "two"})) == 1
    assert precision_of(number("q", "1.25", kind="float", fields={"question": hint})) == 1
    assert precision_of(number("q", "1.25", kind="float", precision="2", fields={"question": hint})) == 2
    assert precision_of(number("q", "1.25", kind="float")) == 2
    assert precision_of(number("q", "12", kind="float")) == 2
    with pytest.raises(DataError, match="precision = 'x' is not a number of decimal places"):
        precision_of(number("q", "1", kind="float", fields={"precision": "x"}))


@pytest.mark.parametrize("said", ["[{{}: 1}]", "[" + "-" * 60_000 + "1]", "[" * 3_000, "{1: 2}", "[1"])
def test_what_only_begins_like_a_list_is_wrong(said):
    """A judge may reply anything, and so may a cell of groups hold anything."""
    question = number("q", "[1, 2]", kind="list", skills=said)
    assert is_right(question, "[1,2]", "official")
    assert not is_right(question, said, "official")
    assert group_names(question, "skills") == [said]


def test_the_comparison_can_be_chosen_by_name():
    questions = [number("a", "1.2", kind="float"), number("b", "[1]", kind="list"), number("c", "0")]
    predictions = [say("a", "It is 1.23."), say("b", "[1]"), say("c", "Answer: 0")]
    usual = score(questions, predictions, mode="final").benchmarks["MathVista_MINI"]
    assert (usual.entry, usual.numbers) == (100.0, "official")
    row = replace(BENCHMARKS["MathVista_MINI"], numbers="vlmevalkit")
    other = score(questions, predictions, mode="final", suites={row.name: row}).benchmarks["MathVista_MINI"]
    assert (round(other.entry, 4), other.numbers) == (33.3333, "vlmevalkit")


def test_nearest_guesses_as_the_authors_do_and_still_counts_the_answer_as_unread():
    options = {"A": "decrease", "B": "no", "C": "increase"}
    question = option("q", "C", options=options)
    assert is_right(question, "C", "nearest")
    assert is_right(question, "it increases", "nearest")
    assert not is_right(question, "", "nearest")
    assert is_right(option("q", "B", options=options), "", "nearest")  # the shortest option
    assert is_right(number("q", "3"), "3.7", "nearest")
    guessing = {"MathVista_MINI": replace(BENCHMARKS["MathVista_MINI"], numbers="nearest")}
    questions = [
        replace(option(f"q{gold}", gold, options=options), benchmark="MathVista_MINI", groups={}) for gold in "BC"
    ]
    said = [say("qB", "Hard to say."), say("qC", "Hard to say.")]
    card = score(questions, said, mode="final", suites=guessing).benchmarks["MathVista_MINI"]
    assert (card.entry, card.counts.unresolved, card.numbers) == (50.0, 2, "nearest")
    assert score(questions, said, mode="final").benchmarks["MathVista_MINI"].entry == 0.0


def test_the_comparison_can_be_chosen_for_mathvista_alone():
    options = {"A": "decrease", "B": "no", "C": "increase"}
    questions = [option("m", "B", options=options, benchmark="MathVista_MINI"), option("b", "B", options=options)]
    said, marking = [say("m", "Hard to say."), say("b", "Hard to say.")], Marking("final", mathvista="nearest")
    assert [verdict.is_right for verdict in mark(questions, said, marking, BENCHMARKS)] == [True, False]
    assert [verdict.found for verdict in mark(questions, said, marking, BENCHMARKS)] == [None, None]
    assert [marking.numbers(BENCHMARKS[name]) for name in ("MathVista_MINI", "BLINK")] == ["nearest", "official"]


def test_a_comparison_that_is_unknown_or_without_effect_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'nearest'"):
        Marking("final", mathvista="nearst")
    with pytest.raises(ConfigError, match="exact compares as VLMEvalKit"):
        Marking("exact", mathvista="nearest")
