"""How often a scorecard's 95% interval contains the true score, for the real structure of each benchmark.

    python benchmarks/interval_coverage.py --out benchmarks/results/interval_coverage.json        # minutes on one core
    python benchmarks/interval_coverage.py --out /tmp/coverage.json --draws 100                   # check that it runs

Where every question is its own cluster, the coverage is exact: all numbers of right answers are weighted by their
probability. HRBench (200 questions, four rotations each) and HallusionBench (951 questions in 167 sets, shapes as in
the authors' file) are simulated: each cluster has a difficulty from a normal distribution on the logit scale, so its
questions are correlated. The true score is drawn within a point of the one that is named, because the coverage of any
interval for counts jumps from one value to the next. Differences pair two models that share the difficulties. The
percentile bootstrap that was used before is computed next to it, except for Acc.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vcsd.evaluation.scoring.aggregate import Tally, unit_matrices
from vcsd.evaluation.scoring.uncertainty import (
    METHOD,
    Estimate,
    estimate,
    interval,
    interval_of_difference,
    interval_of_mean,
)

SETS = {
    "01 01": 72, "012 012": 42, "0123 0123": 21, "0123 0123 0123": 10, "0 0": 10, "012 012 012": 4, "01234567": 2,
    "012345 012345 012345": 2, "0123": 1, "01": 1, "01 01 01": 1, "012": 1,
}  # fmt: skip
"""HallusionBench's sets with an image: for each figure the questions that are asked about it, and how many sets."""

SINGLE = {"VStarBench": 191, "MathVista_MINI": 1000, "MMStar": 1500, "BLINK": 1901, "six questions": 6}
SHARES = {"VStarBench": (0.6, 0.8, 0.93, 0.98), "six questions": (0.5, 0.8, 0.95)}
NEAR = 0.01
NUM_RESAMPLES = 500


@dataclass(frozen=True)
class Structure:
    """The clusters of a benchmark's questions, and its parts."""

    clusters: tuple[int, ...]
    parts: dict[str, tuple[int, ...]]

    def tally(self, right: np.ndarray) -> Tally:
        return Tally(tuple(map(str, range(len(right)))), tuple(right.tolist()), self.clusters, self.parts)

    def truth(self, mean: float, spread: float) -> float:
        """Return the expected score: a unit of k questions is right with probability E[p^k]."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        p = 1 / (1 + np.exp(-(mean + spread * nodes)))
        shares = []
        for units in self.parts.values():
            units_N = np.asarray(units)
            nums = np.bincount(np.bincount(units_N[units_N >= 0]))  # how many units have how many questions
            moments = [float((weights * p**k).sum() / weights.sum()) for k in range(len(nums))]
            shares.append(float(nums @ moments) / nums.sum())
        return float(np.mean(shares))


def hrbench() -> Structure:
    """Two hundred questions, each in four cycles."""
    units = {f"cycle {k}": tuple(n if n % 4 == k else -1 for n in range(800)) for k in range(4)}
    numbered = {name: tuple(-1 if n < 0 else n // 4 for n in part) for name, part in units.items()}
    return Structure(tuple(n // 4 for n in range(800)), numbered)


def hallusionbench() -> Structure:
    """All sets, with their figures and questions as units."""
    rows = [
        (cluster, (cluster, figure), (cluster, question))
        for cluster, shape in enumerate(shape for shape, num in SETS.items() for _ in range(num))
        for figure, questions in enumerate(shape.split())
        for question in questions
    ]
    clusters, figures, questions = zip(*rows, strict=True)
    numbers = [{key: n for n, key in enumerate(dict.fromkeys(keys))} for keys in (figures, questions)]
    parts = {"aAcc": tuple(range(len(rows)))}
    parts["fAcc"] = tuple(numbers[0][key] for key in figures)
    parts["qAcc"] = tuple(numbers[1][key] for key in questions)
    return Structure(tuple(clusters), parts)


def single(num: int) -> Structure:
    """Every question alone."""
    return Structure(tuple(range(num)), {"accuracy": tuple(range(num))})


def exact_coverage(num: int, share: float) -> dict[str, float]:
    """Weight all numbers of right answers by their probability, for true values near the share."""
    counts = np.arange(num + 1)
    log_ways = np.array([math.lgamma(num + 1) - math.lgamma(k + 1) - math.lgamma(num - k + 1) for k in counts])

    def probabilities(p: float) -> np.ndarray:
        if p in (0.0, 1.0):
            return (counts == num * p).astype(float)
        return np.exp(log_ways + counts * math.log(p) + (num - counts) * math.log1p(-p))

    truths = np.linspace(share - NEAR, share + NEAR, 41)
    likely = [k for k in counts if max(probabilities(truth)[k] for truth in truths[[0, 20, 40]]) > 1e-9]
    structure = single(num)
    hits = dict.fromkeys(("interval", "bootstrap"), 0.0)
    for right in likely:
        found = interval(estimate([structure.tally(counts[1:] <= right)]))
        cumulated = np.cumsum(probabilities(right / num))
        draws = [np.searchsorted(cumulated, tail) / num for tail in (0.025, 0.975)]
        for name, (low, high) in {"interval": (found.low / 100, found.high / 100), "bootstrap": draws}.items():
            hits[name] += sum(probabilities(p)[right] for p in truths if low <= p <= high) / len(truths)
    return hits


def mean_for(structure: Structure, share: float, spread: float) -> float:
    """Find the mean difficulty with which the expected score is the share."""
    low, high = -8.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if structure.truth(middle, spread) < share else (low, middle)
    return middle


def answers(rng: np.random.Generator, structure: Structure, mean: float, effects: np.ndarray) -> np.ndarray:
    p = 1 / (1 + np.exp(-(mean + effects[list(structure.clusters)])))
    return rng.random(len(p)) < p


def resamples(rng: np.random.Generator, tally: Tally) -> np.ndarray:
    """Draw how often each cluster is in each resample."""
    num = max(tally.clusters) + 1
    return rng.multinomial(num, np.full(num, 1 / num), size=NUM_RESAMPLES).astype(float)


def resampled_scores(times: np.ndarray, tally: Tally) -> np.ndarray:
    """Return the scores of the resamples."""
    right, units = unit_matrices(tally)
    return ((times @ right) / (times @ units)).mean(1)


def bootstrap(rng: np.random.Generator, tallies: list[Tally]) -> tuple[float, float]:
    """Return the middle 95% of resampled scores, or of the differences of two."""
    times = resamples(rng, tallies[0])
    scores = [resampled_scores(times, tally) for tally in tallies]
    values = scores[0] if len(scores) == 1 else scores[1] - scores[0]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def simulated(
    rng: np.random.Generator, structure: Structure, share: float, spread: float, gain: float | None, num: int
) -> dict[str, float]:
    """Return the coverage of a score, or with a gain of the difference of two models, over many benchmarks."""
    hits = dict.fromkeys(("interval", "bootstrap"), 0)
    means = np.linspace(share - NEAR, share + NEAR, 9)
    grid = [mean_for(structure, float(value), spread) for value in means]
    truths = [structure.truth(mean, spread) for mean in grid]
    changes = [structure.truth(mean + (gain or 0), spread) - truth for mean, truth in zip(grid, truths, strict=True)]
    for draw in range(num):
        mean = grid[draw % len(grid)]
        effects = spread * rng.standard_normal(max(structure.clusters) + 1)
        tallies = [structure.tally(answers(rng, structure, mean, effects))]
        truth = truths[draw % len(grid)]
        if gain is None:
            found = interval(estimate(tallies))
        else:
            tallies.append(structure.tally(answers(rng, structure, mean + gain, effects)))
            truth = changes[draw % len(grid)]
            found = interval_of_difference(*(estimate([tally]) for tally in tallies))
        low, high = bootstrap(rng, tallies)
        hits["interval"] += found.low / 100 <= truth <= found.high / 100
        hits["bootstrap"] += low <= truth <= high
    return {name: count / num for name, count in hits.items()}


def alone(rng: np.random.Generator, num: int, share: float) -> Estimate:
    """Draw the estimate of a benchmark whose questions are independent, without building its tally."""
    right = rng.binomial(num, share)
    is_right = (np.arange(num) < right).astype(float)
    shifts = (right - is_right) / (num - 1) - right / num
    return Estimate(right / num, shifts - shifts.mean(), is_clustered=False)


def mean_of_seven(rng: np.random.Generator, num: int) -> dict[str, float]:
    """Return the coverage of Acc over the seven benchmarks, near usual scores of each."""
    singles = ((1901, 0.7), (1500, 0.7), (191, 0.85), (1000, 0.75))
    cells = [(hrbench(), 0.8, 1.5), (hrbench(), 0.75, 1.5), (hallusionbench(), 0.55, 1.0)]
    means = [mean_for(*cell) for cell in cells]
    truth = np.mean([share for _, share in singles] + [share for _, share, _ in cells])
    hits = 0
    for _ in range(num):
        found = [alone(rng, *single) for single in singles]
        for (structure, _, spread), mean in zip(cells, means, strict=True):
            effects = spread * rng.standard_normal(max(structure.clusters) + 1)
            found.append(estimate([structure.tally(answers(rng, structure, mean, effects))]))
        both = interval_of_mean([100 * one.share for one in found], [interval(one) for one in found])
        hits += both.low / 100 <= truth <= both.high / 100
    return {"interval": hits / num}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=2000)
    options = parser.parse_args()
    rng, cells = np.random.default_rng(0), []

    def add(name: str, kind: str, share: float, coverage: dict[str, float], **about: object) -> None:
        rounded = {key: round(100 * float(value), 1) for key, value in coverage.items()}
        cells.append({"benchmark": name, "of": kind, "score": round(100 * share, 1), **about, **rounded})
        print(cells[-1], flush=True)

    for name, num in SINGLE.items():
        for share in SHARES.get(name, (0.55, 0.75)):
            near = min(share, 1 - NEAR)
            add(name, "score", share, exact_coverage(num, near), computed="exactly")
    about = {"computed": f"{options.draws} draws"}
    clustered = [("HRBench", hrbench(), 0.75, 1.5), ("HRBench", hrbench(), 0.93, 2.0)]
    clustered += [
        ("HallusionBench", hallusionbench(), share, spread) for share, spread in ((0.35, 0.5), (0.5, 1.0), (0.65, 1.5))
    ]
    for name, structure, share, spread in clustered:
        add(name, "score", share, simulated(rng, structure, share, spread, None, options.draws), **about)
    paired = [("VStarBench", single(191), 0.8, 1.5), ("VStarBench", single(191), 0.93, 1.5)]
    for name, structure, share, spread in [*paired, clustered[0], clustered[3]]:
        add(name, "difference", share, simulated(rng, structure, share, spread, 0.2, options.draws), **about)
    add("Acc of the seven", "score", 0.73, mean_of_seven(np.random.default_rng(11), options.draws), **about)
    options.out.write_text(json.dumps({"method": METHOD, "level": 95, "cells": cells}, indent=1) + "\n")


if __name__ == "__main__":
    main()
