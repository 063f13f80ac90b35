"""Intervals contain the truth as often as they say, count clusters once, and pair what is compared."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from tiny_answers import option, say, say_all, yes_no
from vcsd.errors import ConfigError
from vcsd.evaluation.reading import READER
from vcsd.evaluation.reading.exact import RULES
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.compare import compare, load_results, over_seeds
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.evaluation.scoring.uncertainty import estimate, interval


def answered(rights, name="BLINK", **groups):
    """A scorecard of as many questions, of which those in `rights` are answered correctly."""
    questions = [option(f"{place:04}", "A", benchmark=name, category="x", **groups) for place in range(len(rights))]
    predictions = [say(q.id, "A" if right else "B") for q, right in zip(questions, rights, strict=True)]
    return score(questions, predictions, mode="exact")


def tally_of(rights, clusters):
    return Tally(tuple(map(str, range(len(rights)))), tuple(rights), tuple(clusters), {"a": tuple(range(len(rights)))})


def limits(rights, clusters=None):
    found = interval(estimate([tally_of(rights, range(len(rights)) if clusters is None else clusters)]))
    return found.low, found.high


def test_independent_questions_have_wilsons_interval():
    # Of the textbook: 81 of 263 is 25.5% to 36.6%. The jackknife counts one question less than there are.
    assert limits([n < 81 for n in range(263)]) == pytest.approx((25.53, 36.62), abs=0.02)


def test_none_of_six_and_all_of_six_are_not_certain():
    assert limits([False] * 6) == pytest.approx((0.0, 39.03), abs=0.01)
    assert limits([True] * 6) == pytest.approx((60.97, 100.0), abs=0.01)
    assert limits([True]) == pytest.approx((20.65, 100.0), abs=0.01)


@pytest.mark.parametrize(("num_clusters", "t"), [(2, 12.706), (3, 4.303), (11, 2.228)])
def test_few_clusters_have_the_quantile_of_students_t(num_clusters, t):
    rights = [True, False, *[True] * (2 * num_clusters - 3), False]
    tally = tally_of(rights, [place // 2 for place in range(2 * num_clusters)])
    seen, limits_of = estimate([tally]), interval(estimate([tally]))
    num, p = seen.num_effective, seen.share
    middle = (p + t * t / (2 * num)) / (1 + t * t / num)
    arm = t / (1 + t * t / num) * math.sqrt(p * (1 - p) / num + t * t / (4 * num * num))
    expected = (100 * max(0, min(p, middle - arm)), 100 * min(1, max(p, middle + arm)))
    assert (limits_of.low, limits_of.high) == pytest.approx(expected, abs=0.02)


def test_questions_of_one_cluster_are_no_more_evidence_than_one():
    rights = [place % 10 < 7 for place in range(100)]
    alone = limits(rights)
    fourfold = [right for right in rights for _ in range(4)]
    together = limits(fourfold, [place // 4 for place in range(400)])
    assert together == pytest.approx(alone, abs=0.15)  # a little wider: the variance of clusters is itself estimated
    assert together[0] < alone[0] < alone[1] < together[1]
    independent = limits(fourfold)
    assert independent[1] - independent[0] == pytest.approx((alone[1] - alone[0]) / 2, rel=0.02)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.93, 0.98])
def test_the_interval_of_vstar_contains_the_truth_in_94_to_96_of_100_draws(share):
    """Exact, not simulated: all numbers of right answers, weighted, for true values near the share."""
    size = 191
    ends = np.array([limits([n < right for n in range(size)]) for right in range(size + 1)]) / 100
    coverage = []
    for truth in np.linspace(share - 0.01, share + 0.01, 41):
        right = np.arange(size + 1)
        log_p = right * np.log(truth) + (size - right) * np.log1p(-truth)
        weights = np.exp(
            log_p + [math.lgamma(size + 1) - math.lgamma(n + 1) - math.lgamma(size - n + 1) for n in right]
        )
        coverage.append(weights[(ends[:, 0] <= truth) & (truth <= ends[:, 1])].sum())
    assert 0.94 <= np.mean(coverage) <= 0.96


def test_the_interval_of_f1_contains_the_truth_in_about_95_of_100_draws():
    """Sixty images with three yes and three no each; what is hard about an image is hard for all its questions."""
    rng, hits, num = np.random.default_rng(0), 0, 1500
    is_yes, clusters = np.tile([True] * 3 + [False] * 3, 60), np.repeat(np.arange(60), 6)
    # A right answer has the chance 0.95 on half of the images and 0.65 on the others: F1 is 2 x 0.8 / (1 + 0.8 + 0.2).
    for _ in range(num):
        right = rng.random(360) < np.where(rng.random(60) < 0.5, 0.95, 0.65)[clusters]
        says_yes = right == is_yes
        pairs = tuple(zip((2 * (says_yes & is_yes)).tolist(), (says_yes.astype(int) + is_yes).tolist(), strict=True))
        found = interval(estimate([Tally((), tuple(right), tuple(clusters), {}, {"F1": pairs})]))
        hits += found.low <= 80 <= found.high
    assert 0.935 <= hits / num <= 0.965


def rotated(words, by):
    return {letter: words[(place + by) % len(words)] for place, letter in enumerate("ABC")}


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
    # A whole set is right or wrong, so that all three parts, and the entry, are shares of twelve sets.
    assert estimate([result.tally]).num_effective == pytest.approx(11)
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
    assert (same.difference, same.is_clear) == (0, False)
    assert (same.interval.low, same.interval.high) == pytest.approx((-0.28, 0.28), abs=0.01)


def test_equal_answers_to_six_questions_do_not_prove_two_models_equal():
    found = compare(answered([True] * 6), answered([True] * 6)).acc
    assert (found.interval.low, found.interval.high) == pytest.approx((-39.0, 39.0), abs=0.1)
    half = compare(answered([True, False] * 4), answered([True, False] * 4)).acc
    assert (half.interval.low, half.interval.high) == pytest.approx((-15.9, 15.9), abs=0.1)
    opposite = compare(answered([True, False] * 4), answered([False, True] * 4)).acc
    assert half.interval.high < opposite.interval.high / 3


def test_several_seeds_are_compared_by_their_means():
    before = [answered([place < right for place in range(10)]) for right in (4, 6)]
    after = [answered([place < right for place in range(10)]) for right in (6, 7, 8)]
    found = compare(before, after).acc
    assert (found.a, found.b, found.difference) == pytest.approx((50.0, 70.0, 20.0))
    assert (found.num_gained, found.num_lost) == (4, 0)
    assert compare(before[:1], after[:1]) == compare(before[0], after[0])
    seeds = compare(before * 8, after * 8).acc
    assert (seeds.interval.low, seeds.interval.high) == pytest.approx((found.interval.low, found.interval.high))
    with pytest.raises(ConfigError, match="no scorecards to compare"):
        compare([], after)


def test_a_folder_of_seeds_is_read_in_their_order(tmp_path):
    for seed, right in ((10, 3), (9, 2), (0, 1)):
        (tmp_path / f"seed-{seed}").mkdir()
        answered([place < right for place in range(4)]).save(tmp_path / f"seed-{seed}" / "scorecard.json")
    assert [card.acc for card in load_results(tmp_path)] == [25.0, 50.0, 75.0]


def test_versions_of_the_reader_are_not_mixed():
    questions = [option("0", category="x")]
    new = score(questions, say_all(questions, "A"), mode="final")
    for version, named in ((1, "version 1"), (None, "an unrecorded version")):
        old = replace(new, made_with={**new.made_with, "reader": version})
        with pytest.raises(
            ConfigError, match=f"read by version {READER} of the reader, another by {named}.*vcsd score"
        ):
            compare(new, old)
    exact = score(questions, say_all(questions, "A"), mode="exact")
    assert compare(exact, replace(exact, made_with={})).acc.difference == 0  # its rules have a version of their own


def test_judges_are_not_mixed():
    questions = [option("0", category="x")]
    card = score(questions, say_all(questions, "A"), mode="exact")
    ours, theirs = (
        replace(card, mode="judge", made_with={"judge": {"model": "reader", "preset": preset}})
        for preset in ("strict", "vlmevalkit")
    )
    with pytest.raises(ConfigError, match="judge's preset 'strict', another 'vlmevalkit'"):
        compare(ours, theirs)


def test_the_change_in_unread_answers_is_in_points():
    questions = [option(f"q{place}", "A") for place in range(4)]
    plain = [say(f"q{place}", "A") for place in range(4)]
    first, second = (
        score(questions, {"BLINK": answers}, mode="final") for answers in ([say("q0", "Hmm."), *plain[1:]], plain)
    )
    change = compare(first, second)
    assert (change.acc.difference, change.acc.unread, change.acc.is_doubtful) == (25.0, -25.0, False)
    assert change.benchmarks["BLINK"].unread == -25.0


def test_as_many_unread_answers_as_lost_points_are_no_doubt_whatever_the_rounding_of_means_over_seeds():
    questions = [option(f"q{place:02}", "A") for place in range(13)]

    def card(num_right):
        said = [say(q.id, "A" if place < num_right else "Hmm.") for place, q in enumerate(questions)]
        return score(questions, {"BLINK": said}, mode="final")

    pairs = [(before, after) for before in range(14) for after in range(14)]
    changes = [compare([card(a), card(7), card(8)], [card(b), card(5), card(7)]) for a, b in pairs[::5]]
    assert any(abs(change.acc.unread) > abs(change.acc.difference) for change in changes)  # by rounding
    assert not any(change.acc.is_doubtful for change in changes)


def test_only_scorecards_of_the_same_questions_and_rules_are_compared():
    a = answered([True, False])
    with pytest.raises(
        ConfigError, match=r"BLINK: the scorecards are of different questions\. Ask both .* --limit and version"
    ):
        compare(a, answered([True, False, True]))
    with pytest.raises(ConfigError, match="not all scorecards have the benchmarks BLINK, MMStar"):
        compare(a, answered([True, False], name="MMStar"))
    questions = [option("0000", category="x"), option("0001", category="x")]
    old = score(questions, say_all(questions, "A"), mode="exact", rules="2025-08")
    with pytest.raises(ConfigError, match="made with rules '2026-06', another with '2025-08'"):
        compare(a, old)


def test_rules_do_not_matter_where_the_mode_does_not_use_them():
    questions = [option("0", category="x")]
    cards = [score(questions, say_all(questions, "A"), mode="final", rules=rules) for rules in RULES]
    assert compare(*cards).acc.difference == 0


def test_two_modes_of_the_same_questions_differ_by_the_mode_alone():
    questions = [option("0", category="x")]
    cards = [score(questions, say_all(questions, "A"), mode=mode) for mode in ("final", "exact")]
    with pytest.raises(ConfigError, match=r"'final', another with 'exact'.*vcsd score FOLDER --mode final") as caught:
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
