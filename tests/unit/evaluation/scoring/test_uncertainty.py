"""Intervals are as wide as theory says, draw clusters whole, and pair what is compared."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tiny_answers import option, say, say_all, yes_no
from vcsd.errors import ConfigError
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.compare import compare, over_seeds
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.evaluation.scoring.uncertainty import NUM_RESAMPLES, interval, resample


def answered(rights, name="BLINK", **groups):
    """A scorecard of as many questions, of which those in `rights` are answered rightly."""
    questions = [option(f"{place:04}", "A", benchmark=name, category="x", **groups) for place in range(len(rights))]
    predictions = [say(q.id, "A" if right else "B") for q, right in zip(questions, rights, strict=True)]
    return score(questions, predictions, mode="exact")


def tally_of(rights, clusters):
    return Tally(tuple(map(str, range(len(rights)))), tuple(rights), tuple(clusters), {"a": tuple(range(len(rights)))})


def test_the_spread_of_a_share_is_that_of_the_binomial():
    rights = [place % 10 < 7 for place in range(400)]
    values = resample(tally_of(rights, range(400)), [rights], name="x")[0]
    assert len(values) == NUM_RESAMPLES >= 2000
    assert values.mean() == pytest.approx(70, abs=0.2)
    assert values.std() == pytest.approx(100 * np.sqrt(0.7 * 0.3 / 400), rel=0.05)


def test_questions_of_one_cluster_are_no_more_evidence_than_one():
    rights = [place % 10 < 7 for place in range(100)]
    alone = resample(tally_of(rights, range(100)), [rights], name="x")[0]
    fourfold = [right for right in rights for _ in range(4)]
    together = resample(tally_of(fourfold, [place // 4 for place in range(400)]), [fourfold], name="x")[0]
    assert np.allclose(alone, together)  # as 400 independent questions the spread would be half as wide


def rotated(words, by):
    return {letter: words[(place + by) % len(words)] for place, letter in enumerate("ABC")}


def test_an_interval_is_the_middle_95_percent():
    found = interval(np.arange(1001.0))
    assert (found.low, found.high) == pytest.approx((25.0, 975.0))


def test_pictures_and_rotations_are_drawn_together():
    rows = [(f"{n}-{cycle}", n, cycle) for n in range(40) for cycle in range(4)]
    hr = [
        option(
            name, "A", options=rotated([f"x{n}", "y", "z"], c), benchmark="HRBench4K", cycle=str(c), category="single"
        )
        for name, n, c in rows
    ]
    card = score(hr, say_all(hr, "A"), mode="exact").benchmarks["HRBench4K"]
    assert max(card.tally.clusters) + 1 == 40
    shared = [option(str(n), images=[f"{n // 2}.png"], category="x") for n in range(10)]
    card = score(shared, say_all(shared, "A"), mode="exact").benchmarks["BLINK"]
    assert max(card.tally.clusters) + 1 == 5
    reused = [option(str(n), category="x", image="12") for n in range(10)]
    assert set(score(reused, say_all(reused, "A"), mode="exact").benchmarks["BLINK"].tally.clusters) == {0}


def test_sets_of_paired_questions_are_drawn_whole():
    questions = [yes_no(f"VD_math_1_{s}_{f}_{q}") for s in range(12) for f in range(2) for q in range(2)]
    wrong = {question.id for question in questions if question.groups["set"] in ("0", "1", "2")}
    predictions = [say(q.id, "No" if q.id in wrong else "Yes") for q in questions]
    result = score(questions, predictions, mode="exact").benchmarks["HallusionBench"]
    values = resample(result.tally, [result.tally.is_right], name="x")[0]
    # A whole set is right or wrong, so that all three parts, and the entry, are shares of twelve.
    assert np.allclose(values * 12 / 100, np.round(values * 12 / 100))
    assert result.interval.low < result.entry == 75.0 < result.interval.high


def test_intervals_repeat_and_do_not_depend_on_the_company():
    rights = [place % 3 > 0 for place in range(90)]
    assert answered(rights).benchmarks["BLINK"] == answered(rights).benchmarks["BLINK"]
    questions = [option(f"{place:04}", "A", category="x") for place in range(90)]
    more = [option("v", "A", benchmark="VStarBench", category="x")]
    predictions = {
        "BLINK": [say(q.id, "A" if right else "B") for q, right in zip(questions, rights, strict=True)],
        "VStarBench": [say("v", "A")],
    }
    both = score([*questions, *more], predictions, mode="exact")
    assert both.benchmarks["BLINK"].interval == answered(rights).benchmarks["BLINK"].interval


def test_acc_is_surer_than_one_of_its_benchmarks():
    rights = [place % 2 == 0 for place in range(100)]
    names = ("BLINK", "MMStar", "VStarBench")
    questions = [option(f"{n:04}", "A", benchmark=name, category="x") for name in names for n in range(100)]
    predictions = {name: [say(f"{n:04}", "A" if rights[n] else "B") for n in range(100)] for name in names}
    card = score(questions, predictions, mode="exact")
    width = card.interval.high - card.interval.low
    widths = [score.interval.high - score.interval.low for score in card.benchmarks.values()]
    assert width == pytest.approx(np.mean(widths) / np.sqrt(3), rel=0.1)


def test_a_difference_is_b_minus_a_and_counts_what_changed():
    a = answered([True, True, False, False, False, False, False, False])
    b = answered([True, False, True, True, True, False, False, False])
    found = compare(a, b)
    assert (found.acc.a, found.acc.b, found.acc.difference) == (25.0, 50.0, 25.0)
    assert (found.benchmarks["BLINK"].num_gained, found.benchmarks["BLINK"].num_lost) == (3, 1)
    assert found.acc.interval.low < 25.0 < found.acc.interval.high
    back = compare(b, a)
    assert back.acc.difference == -25.0
    assert back.acc.interval.low == pytest.approx(-found.acc.interval.high)


def test_a_paired_difference_is_surer_than_two_separate_scores():
    rng = random.Random(0)
    rights = [rng.random() < 0.5 for _ in range(500)]
    better = [right or place % 20 == 0 for place, right in enumerate(rights)]
    found = compare(answered(rights), answered(better)).acc
    assert found.difference > 0
    assert found.is_clear  # though the intervals of the two scores overlap almost entirely
    assert found.interval.high - found.interval.low < 4
    assert answered(rights).interval.high > answered(better).interval.low
    same = compare(answered(rights), answered(rights)).acc
    assert (same.difference, same.interval.low, same.interval.high, same.is_clear) == (0, 0, 0, False)


def test_only_scorecards_of_the_same_questions_and_rules_are_compared():
    a = answered([True, False])
    with pytest.raises(ConfigError, match="BLINK: the scorecards are of different questions"):
        compare(a, answered([True, False, True]))
    with pytest.raises(ConfigError, match="not all scorecards have the benchmarks BLINK, MMStar"):
        compare(a, answered([True, False], name="MMStar"))
    questions = [option("0000", category="x"), option("0001", category="x")]
    old = score(questions, say_all(questions, "A"), mode="exact", rules="2025-08")
    with pytest.raises(ConfigError, match="made with rules '2026-06', another with '2025-08'"):
        compare(a, old)


def test_two_modes_of_the_same_questions_differ_by_the_mode_alone():
    questions = [option("0", category="x")]
    cards = [score(questions, say_all(questions, "A"), mode=mode) for mode in ("final", "exact")]
    with pytest.raises(ConfigError, match="made with mode 'final', another with 'exact'") as caught:
        compare(*cards)
    assert "different questions" not in str(caught.value)
    other = replace(cards[0], benchmarks={n: replace(b, numbers="vlmevalkit") for n, b in cards[0].benchmarks.items()})
    with pytest.raises(ConfigError, match="numbers were compared by 'official' in one scorecard and by 'vlmevalkit'"):
        compare(cards[0], other)


def test_what_was_made_differently_is_named():
    questions = [option("0", category="x")]
    cards = [
        score(questions, say_all(questions, "A"), mode="exact", made_with={"model": model, "prompt": "default"})
        for model in ("base", "trained")
    ]
    assert compare(*cards).made_differently == {"model": ("base", "trained")}


def test_seeds_have_a_mean_and_a_standard_deviation():
    cards = [answered([place < right for place in range(10)]) for right in (5, 6, 7)]
    found = over_seeds(cards)
    assert (found.acc.mean, found.acc.sd, found.acc.values) == (60.0, 10.0, (50.0, 60.0, 70.0))
    assert found.benchmarks["BLINK"] == found.acc
    assert over_seeds(cards[:1]).acc.sd is None
    with pytest.raises(ConfigError, match="no scorecards"):
        over_seeds([])
