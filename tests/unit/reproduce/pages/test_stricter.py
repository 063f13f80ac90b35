"""Statistics beyond the verdicts, and the committed page of claims, which result files alone give."""

import json
import math
from pathlib import Path

import pytest

from vcsd.reproduce.pages.from_files import planned_bases, recorded_results
from vcsd.reproduce.pages.index import index_page
from vcsd.reproduce.pages.stricter import change_by_base, contrast_of_all, equivalence
from vcsd.reproduce.pages.write_pages import claims_page, judged
from vcsd.reproduce.paired_runs import interval, paired

RESULTS = Path(__file__).parents[4] / "docs" / "results"


def test_the_claims_and_the_front_page_are_what_the_files_give():
    results = recorded_results(RESULTS, planned_bases(RESULTS))
    assert claims_page(results) == (RESULTS / "claims.md").read_text(encoding="utf-8")
    assert index_page(results, judged(results)) == (RESULTS / "README.md").read_text(encoding="utf-8")
    assert judged(results) == json.loads((RESULTS / "claims.json").read_text(encoding="utf-8"))


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
    assert equivalence(changed(*values)).endswith(f": {word}")


def test_one_base_has_no_interval():
    assert equivalence(changed(0.0)) == ""
    assert equivalence(None) == ""


def test_intervals_are_those_of_students_t():
    change = changed(1.0, 2.0, 3.0, 4.0, 5.0)
    error = math.sqrt(2.5 / 5)
    assert interval(change, 0.90) == pytest.approx((3 - 2.131847 * error, 3 + 2.131847 * error))
    assert interval(change, 0.95) == pytest.approx((3 - 2.776445 * error, 3 + 2.776445 * error))


def test_a_base_with_two_runs_counts_once():
    before = {("a", 1): 0.0, ("a", 4): 0.0, ("b", 2): 0.0}
    change = change_by_base(before, {("a", 1): 10.0, ("a", 4): 14.0, ("b", 2): 0.0})
    assert change.difference.mean == 6.0
    assert change.num_bases == 2


def test_all_answers_together_weigh_words_equally():
    result = {
        "profile": {"seen": 1.0, "other": 0.0, "num_seen": 30.0, "num_other": 10.0},
        "profile_of_wrong": {"seen": -1.0, "other": 0.5, "num_seen": 10.0, "num_other": 10.0},
    }
    assert contrast_of_all("seen", result) == 0.5
    assert contrast_of_all("other", result) == 0.25
    assert contrast_of_all("seen", {}) is None
