"""How often an evaluation during training warns of a loss, by the size of the loss and the number of questions.

    python benchmarks/loss_warnings.py --out benchmarks/results/loss_warnings.json        # ten minutes on one core

A question has a difficulty from a normal distribution on the logit scale; the student answers it at each evaluation,
independently given its difficulty. A loss lowers the score of every question alike on that scale.

    cells    losses since the first evaluation: the student is asked before training and after it
    steady   runs without gain or loss, so every warning is a false one; the more evaluations, the luckier the best one
    peaks    runs that rise from 50% to 90%, stay there, and lose something before the last evaluation
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcsd.evaluation.live_losses import SURE, SURE_SINCE_BEST, is_clear_loss
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.uncertainty import Estimate, estimate, interval_of_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (50, 200, 500)
SCORES = (50, 70, 90)
LOSSES = (0, 5, 10, 20, 30)
LENGTHS = (5, 20, 100)
"""How many evaluations a run has after the first one."""
FIRST, PEAK = 50, 90
SPREAD = 2.0
"""The standard deviation of difficulties: most questions are nearly always right or nearly always wrong."""


def expit(logits: np.ndarray) -> np.ndarray:
    """The probability of a right answer."""
    return 1 / (1 + np.exp(-logits))


def mean_logit(score: float) -> float:
    """Return the mean logit at which questions of this spread have a score."""
    normal = np.random.default_rng(0).normal(size=20_000)
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(middle + SPREAD * normal).mean() < score else (low, middle)
    return low


def answered(rng: np.random.Generator, logits: np.ndarray) -> Estimate:
    """Answer every question once."""
    right = tuple(bool(one) for one in rng.random(len(logits)) < expit(logits))
    own = tuple(range(len(right)))
    return estimate([Tally((), right, own, {"acc": own})])


def is_below(before: Estimate, after: Estimate, sure: float) -> bool:
    """Whether an evaluation is clearly below an earlier one."""
    return is_clear_loss(100 * (after.share - before.share), interval_of_difference(before, after), sure)


def warnings_of(last: Estimate, earlier: Sequence[Estimate]) -> tuple[bool, bool]:
    """Whether an evaluation is clearly below the first one, and below the best one if that is another."""
    best = max(range(len(earlier)), key=lambda place: earlier[place].share)
    since_best = best > 0 and is_below(earlier[best], last, SURE_SINCE_BEST)
    return is_below(earlier[0], last, SURE), since_best


def share_warned(num: int, score: float, loss: float, draws: int) -> float:
    """Return the percentage of evaluations that are clearly below the first one."""
    rng = np.random.default_rng([num, int(100 * score), int(100 * loss)])
    before, after = mean_logit(score / 100), mean_logit((score - loss) / 100)
    warned = 0
    for _ in range(draws):
        difficulty = SPREAD * rng.normal(size=num)
        first, last = answered(rng, before + difficulty), answered(rng, after + difficulty)
        warned += is_below(first, last, SURE)
    return 100 * warned / draws


def steady_runs(num: int, score: float, length: int, draws: int) -> dict[str, float]:
    """Return the percentages of evaluations and of runs that warn, in runs whose student stays as it is."""
    rng = np.random.default_rng([num, score, length])
    mean, num_runs = mean_logit(score / 100), max(1, draws * 12 // length)
    warned = []
    for _ in range(num_runs):
        logits = mean + SPREAD * rng.normal(size=num)
        evaluations = [answered(rng, logits) for _ in range(length + 1)]
        warned.append([warnings_of(evaluations[k], evaluations[:k]) for k in range(1, length + 1)])
    warned_RKW = np.array(warned)
    return {
        "since_first": 100 * float(warned_RKW[..., 0].mean()),
        "since_best": 100 * float(warned_RKW[..., 1].mean()),
        "either": 100 * float(warned_RKW.any(-1).mean()),
        "runs": 100 * float(warned_RKW.any((1, 2)).mean()),
    }


def share_warned_after_peak(num: int, length: int, loss: float, draws: int) -> float:
    """Return the percentage of last evaluations that are clearly below the best one, after a loss."""
    rng = np.random.default_rng([num, length, int(100 * loss)])
    first, peak, after = (mean_logit(score / 100) for score in (FIRST, PEAK, PEAK - loss))
    warned = 0
    for _ in range(draws):
        difficulty = SPREAD * rng.normal(size=num)
        means = [first, *(peak for _ in range(length - 1)), after]
        *earlier, last = [answered(rng, mean + difficulty) for mean in means]
        warned += any(warnings_of(last, earlier))
    return 100 * warned / draws


def simulated(draws: int) -> dict[str, object]:
    """Return the percentages of all three kinds of runs."""
    cells = [
        {"questions": num, "score": score, "loss": loss, "warned": share_warned(num, score, loss, draws)}
        for num in SIZES
        for score in SCORES
        for loss in LOSSES
    ]
    steady = [
        {"questions": num, "score": score, "evaluations": length, **steady_runs(num, score, length, draws)}
        for num in SIZES
        for score in SCORES
        for length in LENGTHS
    ]
    peaks = [
        {
            **{"questions": num, "evaluations": length, "loss": loss},
            "warned": share_warned_after_peak(num, length, loss, draws),
        }
        for num in SIZES
        for length in LENGTHS[:2]
        for loss in LOSSES
    ]
    return {"cells": cells, "steady": steady, "peaks": peaks}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=4000)
    options = parser.parse_args()
    settings = {"draws": options.draws, "spread": SPREAD, "sure": SURE, "sure_since_best": SURE_SINCE_BEST}
    result = {**settings, **simulated(options.draws)}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
