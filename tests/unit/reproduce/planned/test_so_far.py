"""The page of the planned runs that are finished equals its result files, and its words hold."""

import json
from pathlib import Path

import pytest

from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.reproduce.planned.so_far import FinishedRuns, difference, pairs, share, so_far_page, unread_difference

RESULTS = Path(__file__).parents[4] / "docs" / "results"


@pytest.fixture(scope="module")
def runs():
    return FinishedRuns(planned_results(RESULTS))


def gaps(runs, before, after, suite=None):
    return [difference(runs, before, after, base, seed, suite) for base, seed in pairs(runs, before, after)]


def test_a_score_is_the_one_in_its_file(runs):
    result = json.loads((RESULTS / "cells" / "4fb60c93eca05897.json").read_text())
    assert (result["variant"], result["base"], result["seed"]) == ("sharpened 2", "qwen3_vl-small-1", 101)
    assert runs.score("sharpened 2", "shipped:qwen3_vl", 101) == result["acc"]
    assert runs.score("sharpened 2", "shipped:qwen3_vl", 101, "small") == result["scores"]["small"]
    assert runs.score("majority of 8", "shipped:qwen3_5", 104) is None


def test_the_words_against_the_contrast_hold(runs):
    assert len(gaps(runs, "VCSD", "another picture")) == 4
    assert min(gaps(runs, "VCSD", "another picture")) > 0
    assert min(gaps(runs, "VCSD", "contrast decoding")) > -1
    assert max(gaps(runs, "VCSD", "contrast decoding")) > 0
    assert min(gaps(runs, "OPSD", "OPSD beta 0.1")) > 0
    shares = [share(runs, "sharpened 2", base, seed) for base, seed in pairs(runs, "sharpened 2", "VCSD")]
    assert 50 <= min(shares) < max(shares) < 76
    for other in ("contrast decoding", "OPSD beta 0.1"):
        assert min(gaps(runs, "VCSD", other, "arithmetic")) > 0


def test_the_words_for_the_contrast_hold(runs):
    assert max(abs(gap) for gap in gaps(runs, "base", "majority of 8")) < 1
    for suite in ("hallucination", "arithmetic"):
        assert len(gaps(runs, "sharpened 2", "VCSD", suite)) == 4
        assert min(gaps(runs, "sharpened 2", "VCSD", suite)) > 10


def test_the_change_in_unread_answers_stands_next_to_every_difference(runs):
    result = json.loads((RESULTS / "cells" / "4fb60c93eca05897.json").read_text())
    assert runs.unread("sharpened 2", "shipped:qwen3_vl", 101) == 100 * result["unresolved"] / result["num_questions"]
    assert unread_difference(runs, "OPSD", "OPSD beta 0.1", "shipped:qwen3_vl", 101) == "-1.2"
    assert unread_difference(runs, "OPSD", "OPSD beta 0.1", "shipped:qwen3_vl", 101, "small") == "not recorded"
    page = so_far_page(runs)
    against = page.partition("## Against the contrast")[2].partition("## For the contrast")[0]
    assert len([line for line in against.splitlines() if line.startswith("- **")]) == 5
    listed = [line for line in against.splitlines() if "seed 10" in line]
    assert len(listed) == 4 + 4 + 3 + 4 + 4 + 2
    assert all(line.count("(unread ") == 1 for line in listed)
