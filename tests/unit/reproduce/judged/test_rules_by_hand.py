"""A second implementation of docs/preregistration_qwen3_5.md, written from its text alone, must give the same verdicts.

It shares no code with the first one, not even Student's t. So a change to anything that the first one imports, which
the order of commits does not watch, cannot move a verdict unnoticed. This file must not change after the first result
either.
"""

import json
import math
import random
from statistics import mean, stdev

import pytest
from scipy.stats import t as student

from made_up_results import RESULTS, made_up_runs
from vcsd.reproduce.judged.judged_claims import ON_QWEN3_5, QWEN3_5_LIST, on_whole_bases
from vcsd.reproduce.paired_runs import interval
from vcsd.reproduce.planned.planned_results import planned_results

BASES = [f"qwen3_5-small-{seed}" for seed in range(51, 63)]
OTHERS = ("base", "OPSD", "sharpened 2", "contrast decoding", "OPSD beta 0.1", "another picture")
VARIANTS = ("VCSD", *OTHERS)
IN_THE_PAPER = {"base": (1.86, 4.77), "OPSD": (1.76, 5.33)}


def p_by_hand(values):
    """Student's t over bases, two-sided."""
    middle, error = mean(values), stdev(values) / math.sqrt(len(values))
    if error <= 1e-12 * abs(middle):
        return 0.0 if middle else 1.0
    return 2 * student.sf(abs(middle / error), len(values) - 1)


def limits_by_hand(values, level):
    half = student.ppf(0.5 + level / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def verdict_by_hand(values, corrected_p):
    if len(values) < 8:
        return f"no verdict, {len(values)} of 8 bases"
    low, high = limits_by_hand(values, 0.90)
    if low >= -1 and high <= 1:
        return "disagrees: alike"
    if corrected_p < 0.05:
        return "agrees" if mean(values) > 0 else "disagrees"
    return "undecided"


def verdicts_by_hand(accs):
    """The verdict of each claim by the second variant, and the claims whose numbers in the paper are contradicted.

    `accs` maps base and variant to Acc; a missing run is not in it.
    """
    whole = [base for base in BASES if all((base, variant) in accs for variant in VARIANTS)]
    changes = {other: [accs[base, "VCSD"] - accs[base, other] for base in whole] for other in OTHERS}
    if len(whole) < 2:
        return {other: verdict_by_hand(values, 1.0) for other, values in changes.items()}, set()
    ordered = sorted(OTHERS, key=lambda other: p_by_hand(changes[other]))
    corrected, largest = {}, 0.0
    for place, other in enumerate(ordered):
        corrected[other] = largest = max(largest, (6 - place) * p_by_hand(changes[other]))
    contradicted = set()
    for other, (lowest, highest) in IN_THE_PAPER.items():
        low, high = limits_by_hand(changes[other], 0.95)
        if low > highest or high < lowest:
            contradicted.add(other)
    return {other: verdict_by_hand(changes[other], corrected[other]) for other in OTHERS}, contradicted


def verdicts_by_code(runs):
    changes = {claim.before: change for claim, change in ON_QWEN3_5.changes(on_whole_bases(runs)).items()}
    contradicted = set()
    for name, (low, high) in IN_THE_PAPER.items():
        ends = None if changes[name] is None else interval(changes[name], 0.95)
        if ends is not None and (ends[0] > high or ends[1] < low):
            contradicted.add(name)
    return {name: ON_QWEN3_5.verdict(change) for name, change in changes.items()}, contradicted


def accs_of(runs):
    finished = [(run, result) for run in runs.runs if (result := runs.result(run)) is not None]
    return {(run.base, run.variant.name): result["acc"] for run, result in finished}


def made_up(seed):
    """Differences of any size and spread, some of them small, equal or missing."""
    dice = random.Random(seed)
    gains = {name: dice.choice((0.0, dice.gauss(0, 1), dice.gauss(0, 8))) for name in VARIANTS}
    spreads = {name: dice.choice((0.0, 0.3, 1.0, 4.0, 12.0)) for name in VARIANTS}
    missing = dice.choice((0.0, 0.0, 0.02, 0.05, 0.3))
    runs = made_up_runs(QWEN3_5_LIST, gains, spread=0.0, closed_because="Over.").runs
    for run, result in runs._results.items():
        result["acc"] += dice.gauss(0, spreads[run.variant.name])
        if dice.random() < missing:
            runs._results[run] = None
    return runs


def test_both_give_the_same_verdicts_on_made_up_results():
    seen = set()
    for seed in range(300):
        runs = made_up(seed)
        by_hand = verdicts_by_hand(accs_of(runs))
        assert verdicts_by_code(runs) == by_hand, seed
        seen |= {verdict.partition(",")[0] for verdict in by_hand[0].values()}
    assert seen == {"no verdict", "disagrees: alike", "disagrees", "agrees", "undecided"}


def test_both_give_the_same_verdicts_on_the_results():
    runs = planned_results(RESULTS, QWEN3_5_LIST)
    assert verdicts_by_code(runs) == verdicts_by_hand(accs_of(runs))


def test_no_base_mixes_versions_of_the_reader_and_no_score_is_missing():
    readers = {}
    for path in sorted((RESULTS / "cells").glob("*.json")):
        result = json.loads(path.read_bytes())
        if result["base"] in BASES:
            readers.setdefault(result["base"], set()).add(result["reader"])
            assert 0 <= result["acc"] <= 100, path.name
    assert {base: found for base, found in readers.items() if len(found) > 1} == {}


def test_no_whole_base_was_made_again():
    lost = {}
    for path in (RESULTS / "lost" / "cells").glob("*.json"):
        result = json.loads(path.read_bytes())
        lost.setdefault((result["base"], result["identity"]["base"]), set()).add(result["variant"])
    assert [base for (base, _), variants in lost.items() if base in BASES and variants >= set(VARIANTS)] == []


@pytest.mark.parametrize("difference", [0.0, 0.5, 1.0, -1.0, 1.5, -1.5])
def test_differences_that_do_not_scatter(difference):
    """The interval is a point, and p is 0, or 1 at zero."""
    gains = {name: 0.0 if name == "VCSD" else -difference for name in VARIANTS}
    runs = made_up_runs(QWEN3_5_LIST, gains, spread=0).runs
    verdicts, contradicted = verdicts_by_code(runs)
    assert (verdicts, contradicted) == verdicts_by_hand(accs_of(runs))
    expected = "disagrees: alike" if abs(difference) <= 1 else "agrees" if difference > 0 else "disagrees"
    assert set(verdicts.values()) == {expected}
