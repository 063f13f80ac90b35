"""Statistics beyond the verdicts, and the committed page of claims, which result files alone give."""

import math
from pathlib import Path

import pytest

from vcsd.reproduce.pages.details import contrast_of_all
from vcsd.reproduce.pages.stricter import in_words
from vcsd.reproduce.paired_runs import equivalence, interval, paired

RESULTS = Path(__file__).parents[4] / "docs" / "results"


def changed(*values):
    runs = [(name, 1) for name in "abcde"[: len(values)]]
    return paired(dict.fromkeys(runs, 50.0), {run: 50.0 + value for run, value in zip(runs, values, strict=True)})


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((0.1, -0.1, 0.2, 0.0, -0.2), "alike"),
        ((3.0, 3.1, 2.9, 3.0, 3.2), "different"),
        ((-3.0, -3.1, -2.9, -3.0, -3.2), "different"),
        ((0.9, 1.2, 0.8, 1.3, 0.7), "undecided"),
        ((5.0, -5.0, 4.0, -4.0, 0.0), "undecided"),
    ],
)
def test_a_difference_is_alike_only_if_its_whole_interval_is_small(values, word):
    assert equivalence(changed(*values)) == word
    assert in_words(changed(*values)).endswith(f": {word}")


def test_one_base_has_no_interval():
    assert equivalence(changed(0.0)) == in_words(changed(0.0)) == ""
    assert equivalence(None) == ""


def test_intervals_are_those_of_students_t():
    change = changed(1.0, 2.0, 3.0, 4.0, 5.0)
    error = math.sqrt(2.5 / 5)
    assert interval(change, 0.90) == pytest.approx((3 - 2.131847 * error, 3 + 2.131847 * error))
    assert interval(change, 0.95) == pytest.approx((3 - 2.776445 * error, 3 + 2.776445 * error))


def test_all_answers_together_weigh_words_equally():
    result = {
        "profile": {"seen": 1.0, "other": 0.0, "num_seen": 30.0, "num_other": 10.0},
        "profile_of_wrong": {"seen": -1.0, "other": 0.5, "num_seen": 10.0, "num_other": 10.0},
    }
    assert contrast_of_all("seen")(result) == 0.5
    assert contrast_of_all("other")(result) == 0.25
    assert contrast_of_all("seen")({}) is None
