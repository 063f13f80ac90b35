"""How often an evaluation during training warns of a loss, by the size of the loss and the number of questions.

    python benchmarks/loss_warnings.py --out benchmarks/results/loss_warnings.json        # a minute on one core

A question has a difficulty from a normal distribution on the logit scale; the student answers it before training and
after it, independently given its difficulty. The loss lowers the score of every question alike on that scale. Without a
loss every warning is a false one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from vcsd.evaluation.live import SURE, is_clear_loss
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.uncertainty import Estimate, estimate, interval_of_difference

SIZES = (50, 200, 500)
SCORES = (50, 70, 90)
LOSSES = (0, 5, 10, 20, 30)
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


def share_warned(num: int, score: float, loss: float, draws: int) -> float:
    """Return the percentage of evaluations that warn."""
    rng = np.random.default_rng([num, int(100 * score), int(100 * loss)])
    before, after = mean_logit(score / 100), mean_logit((score - loss) / 100)
    warned = 0
    for _ in range(draws):
        difficulty = SPREAD * rng.normal(size=num)
        first, last = answered(rng, before + difficulty), answered(rng, after + difficulty)
        warned += is_clear_loss(100 * (last.share - first.share), interval_of_difference(first, last))
    return 100 * warned / draws


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=4000)
    options = parser.parse_args()
    cells = [
        {"questions": num, "score": score, "loss": loss, "warned": share_warned(num, score, loss, options.draws)}
        for num in SIZES
        for score in SCORES
        for loss in LOSSES
    ]
    result = {"draws": options.draws, "spread": SPREAD, "sure": SURE, "cells": cells}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for cell in cells:
        print(cell)


if __name__ == "__main__":
    main()
