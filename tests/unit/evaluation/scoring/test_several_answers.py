"""pass@k, diversity and length of several answers, worked by hand."""

import random
from itertools import combinations

import pytest

from tiny_answers import number, option
from vcsd.evaluation.scoring.several_answers import pass_at, several_answers
from vcsd.types import Prediction, Verdict

QUESTIONS = [option("0", "A"), option("1", "A"), option("2", "A", benchmark="MMStar")]


def read(letters):
    """One verdict for each question; a dot is an answer that could not be read."""
    return [
        Verdict(question.id, None if letter == "." else letter, letter == "A", "x")
        for question, letter in zip(QUESTIONS, letters, strict=True)
    ]


def said(*lengths):
    return [Prediction(question.id, "x", "end", length) for question, length in zip(QUESTIONS, lengths, strict=True)]


def test_the_measures_of_four_answers():
    verdicts = [read("AB."), read("AB."), read("AC."), read("BC.")]
    answers = [said(10, 20, None), said(10, 20, None), said(10, 20, None), said(30, 20, None)]
    found = several_answers(QUESTIONS, answers, verdicts)
    blink, mmstar = found["BLINK"], found["MMStar"]
    # Three of four right, then none: pass@1 is 3/8, pass@2 is half of 1, pass@4 half of 1.
    assert blink.pass_at == pytest.approx({1: 37.5, 2: 50.0, 4: 50.0})
    assert (blink.num_answers, blink.distinct, blink.unread, blink.mean_tokens) == (4, 2.0, 0.0, 17.5)
    assert blink.entropy == pytest.approx((0.8113 + 1.0) / 2, abs=1e-4)
    assert (mmstar.pass_at[4], mmstar.distinct, mmstar.entropy, mmstar.unread) == (0.0, 0.0, 0.0, 1.0)
    assert mmstar.mean_tokens is None


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("float", ["1.5", "1.50"]),
        ("integer", ["3", "3.0", "03"]),
        ("list", ["[1, 2]", "[1,2]"]),
        ("text", ["Red", "red "]),
    ],
)
def test_one_value_in_two_forms_is_one_answer(kind, found):
    questions = [number("n", "3", kind=kind)]
    verdicts = [[Verdict("n", text, is_right=True, by="x")] for text in found]
    answers = [[Prediction("n", text, "end", 1)] for text in found]
    measured = several_answers(questions, answers, verdicts)["MathVista_MINI"]
    assert (measured.distinct, measured.entropy) == (1.0, 0.0)


def test_pass_at_k_is_the_mean_over_all_choices_of_k_answers():
    rng = random.Random(0)
    for num in (1, 2, 5, 7):
        rights = [rng.random() < 0.3 for _ in range(num)]
        for k in range(1, num + 1):
            chosen = [any(several) for several in combinations(rights, k)]
            assert pass_at(k, num, sum(rights)) == pytest.approx(sum(chosen) / len(chosen))


def test_the_greatest_k_is_the_number_of_answers():
    found = several_answers(QUESTIONS, [said(1, 1, 1)] * 3, [read("AAA")] * 3)
    assert list(found["BLINK"].pass_at) == [1, 2, 3]
    assert set(found["BLINK"].pass_at.values()) == {100.0}
