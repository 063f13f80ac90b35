"""How often a scorecard's 95% interval contains the true score, for the real structure of each benchmark.

    python benchmarks/interval_coverage.py --out benchmarks/results/interval_coverage.json        # minutes on one core
    python benchmarks/interval_coverage.py --out /tmp/coverage.json --draws 100                   # check that it runs

Where every question is its own cluster, the coverage is exact: all numbers of right answers are weighted by their
probability. The others are simulated: each cluster has a difficulty from a normal distribution on the logit scale, so
its questions are correlated. HRBench has 200 questions in four rotations, HallusionBench 951 questions in 167 sets and
POPE 5,127 questions on 500 images, with shapes as in their authors' files. MMBench has 1,164 questions, each right only
if all of its rotations are. How many questions of AI2D, ScienceQA, MME-RealWorld-Lite and MMBench share an image is in
no published list, so each is measured twice: with an image of its own for every question, and with three questions on
each image.

The true score is drawn within a point of the one that is named, because the coverage of any interval for counts jumps
from one value to the next. Differences pair two models that share the difficulties. The percentile bootstrap that was
used before is computed where it costs little.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vcsd.evaluation.scoring.aggregate import Tally
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

IMAGES = {"1111122": 239, "11111112": 189, "111222": 35, "111123": 21, "1111113": 9, "11223": 5, "111111111": 2}
"""POPE's images: in how many categories each of its questions with the answer no is, and how many images. Each image
also has three questions with the answer yes, in three categories each."""

ROTATIONS = {4: 902, 3: 197, 2: 65}
"""MMBench's questions by their number of options. Assumed: a split that gives 1,164 questions and 4,329 rows."""

SINGLE = {
    "VStarBench": 191, "RealWorldQA": 765, "MMMU_DEV_VAL": 900, "MathVista_MINI": 1000, "MMStar": 1500, "BLINK": 1901,
    "MME-RealWorld-Lite": 1919, "ScienceQA_TEST": 2017, "ScienceQA_VAL": 2097, "AI2D_TEST": 3088, "six questions": 6,
}  # fmt: skip
"""Questions of the benchmarks without clusters. Assumed where the benchmark's record has no number: RealWorldQA,
MME-RealWorld-Lite, ScienceQA and AI2D."""
SHARED = ("MME-RealWorld-Lite", "ScienceQA_TEST", "ScienceQA_VAL", "AI2D_TEST")
SHARES = (0.05, 0.3, 0.55, 0.75, 0.93, 0.98)
NEAR = 0.01


@dataclass(frozen=True)
class Structure:
    """The clusters of a benchmark's questions and its parts; for F1, weight and gold answer of each question."""

    clusters: np.ndarray
    parts: dict[str, np.ndarray]
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    is_yes: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    yes_bias: float = 0.0
    """How much likelier than a right no a right yes is, on the logit scale: the model's inclination to say yes."""

    @property
    def num_clusters(self) -> int:
        return int(self.clusters.max()) + 1

    def tally(self, right: np.ndarray) -> Tally:
        # Arrays instead of tuples: the same values, without a conversion for every draw.
        ratios = {}
        if len(self.weights):
            says_yes = right == self.is_yes
            above, below = 2 * self.weights * (says_yes & self.is_yes), self.weights * (says_yes + 1.0 * self.is_yes)
            ratios["F1"] = np.stack([above, below], axis=1)
        return Tally((), right, self.clusters, self.parts, ratios)  # type: ignore[arg-type]

    def logits(self, mean: float) -> np.ndarray:
        """Return the mean logit of a right answer to each question."""
        if not len(self.weights):
            return np.full(len(self.clusters), mean)
        return mean + np.where(self.is_yes, 0.5, -0.5) * self.yes_bias

    def truth(self, mean: float, spread: float) -> float:
        """Return the expected score: a unit of k questions is right with probability E[p^k]."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum()
        if len(self.weights):
            yes, no = (
                float(weights @ (1 / (1 + np.exp(-(mean + sign * self.yes_bias / 2 + spread * nodes)))))
                for sign in (1, -1)
            )
            num_yes, num_no = self.weights[self.is_yes].sum(), self.weights[~self.is_yes].sum()
            return float(2 * yes * num_yes / (num_yes + yes * num_yes + (1 - no) * num_no))
        p = 1 / (1 + np.exp(-(mean + spread * nodes)))
        shares = []
        for units in self.parts.values():
            nums = np.bincount(np.bincount(units[units >= 0]))  # how many units have how many questions
            shares.append(float(nums @ [float(weights @ p**k) for k in range(len(nums))]) / nums[1:].sum())
        return float(np.mean(shares))


def hrbench() -> Structure:
    """Two hundred questions, each in four cycles."""
    places = np.arange(800)
    return Structure(places // 4, {f"cycle {k}": np.where(places % 4 == k, places // 4, -1) for k in range(4)})


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
    parts = {"aAcc": np.arange(len(rows))}
    parts["fAcc"] = np.array([numbers[0][key] for key in figures])
    parts["qAcc"] = np.array([numbers[1][key] for key in questions])
    return Structure(np.array(clusters), parts)


def pope(yes_bias: float = 0.0, num_images: int | None = None) -> Structure:
    """All images with their questions, or the first few of a mixed order."""
    shapes = [shape for shape, num in IMAGES.items() for _ in range(num)]
    shapes = [shapes[place] for place in np.random.default_rng(1).permutation(len(shapes))[:num_images]]
    rows = [(image, 3, True) for image in range(len(shapes)) for _ in range(3)]
    rows += [(image, int(times), False) for image, shape in enumerate(shapes) for times in shape]
    images, weights, is_yes = (np.array(column) for column in zip(*rows, strict=True))
    return Structure(images, {}, weights.astype(float), is_yes, yes_bias)


def mmbench(per_image: int = 1) -> Structure:
    """Questions that are right if all their rotations are."""
    sizes = [size for size, num in ROTATIONS.items() for _ in range(num)]
    sizes = np.array(sizes)[np.random.default_rng(1).permutation(len(sizes))]
    questions = np.repeat(np.arange(len(sizes)), sizes)
    return Structure(questions // per_image, {"accuracy": questions})


def single(num: int, per_image: int = 1) -> Structure:
    """Every question is its own unit, alone or with others on an image."""
    return Structure(np.arange(num) // per_image, {"accuracy": np.arange(num)})


def within(share: float) -> float:
    """Keep the neighbourhood of a share between 0 and 1."""
    return min(max(share, NEAR), 1 - NEAR)


def exact_coverage(num: int, share: float) -> dict[str, float]:
    """Weight all numbers of right answers by their probability, for true values near the share."""
    counts = np.arange(num + 1)
    log_ways = np.array([math.lgamma(num + 1) - math.lgamma(k + 1) - math.lgamma(num - k + 1) for k in counts])

    def probabilities(p: float) -> np.ndarray:
        if p in (0.0, 1.0):
            return (counts == num * p).astype(float)
        return np.exp(log_ways + counts * math.log(p) + (num - counts) * math.log1p(-p))

    truths = np.linspace(within(share) - NEAR, within(share) + NEAR, 41)
    chances = np.array([probabilities(truth) for truth in truths])
    structure = single(num)
    hits = dict.fromkeys(("interval", "bootstrap"), 0.0)
    for right in counts[(chances > 1e-9).any(0)]:
        found = interval(estimate([structure.tally(counts[1:] <= right)]))
        cumulated = np.cumsum(probabilities(right / num))
        draws = [np.searchsorted(cumulated, tail) / num for tail in (0.025, 0.975)]
        for name, (low, high) in {"interval": (found.low / 100, found.high / 100), "bootstrap": draws}.items():
            hits[name] += chances[(low <= truths) & (truths <= high), right].sum() / len(truths)
    return hits


def mean_for(structure: Structure, share: float, spread: float) -> float:
    """Find the mean difficulty with which the expected score is the share."""
    low, high = -12.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if structure.truth(middle, spread) < share else (low, middle)
    return middle


def answers(rng: np.random.Generator, structure: Structure, mean: float, effects: np.ndarray) -> np.ndarray:
    p = 1 / (1 + np.exp(-(structure.logits(mean) + effects[structure.clusters])))
    return rng.random(len(p)) < p


def simulated(
    rng: np.random.Generator, structure: Structure, share: float, spread: float, gain: float | None, num: int
) -> dict[str, float]:
    """Return the coverage of a score, or with a gain of the difference of two models, over many benchmarks."""
    hits = 0
    means = np.linspace(within(share) - NEAR, within(share) + NEAR, 11)[1:-1]
    grid = [mean_for(structure, float(value), spread) for value in means]
    truths = [structure.truth(mean, spread) for mean in grid]
    changes = [structure.truth(mean + (gain or 0), spread) - truth for mean, truth in zip(grid, truths, strict=True)]
    for draw in range(num):
        mean = grid[draw % len(grid)]
        effects = spread * rng.standard_normal(structure.num_clusters)
        first = estimate([structure.tally(answers(rng, structure, mean, effects))])
        truth = truths[draw % len(grid)]
        if gain is None:
            found = interval(first)
        else:
            second = estimate([structure.tally(answers(rng, structure, mean + gain, effects))])
            truth = changes[draw % len(grid)]
            found = interval_of_difference(first, second)
        hits += found.low / 100 <= truth <= found.high / 100
    return {"interval": hits / num}


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
            effects = spread * rng.standard_normal(structure.num_clusters)
            found.append(estimate([structure.tally(answers(rng, structure, mean, effects))]))
        both = interval_of_mean([100 * one.share for one in found], [interval(one) for one in found])
        hits += both.low / 100 <= truth <= both.high / 100
    return {"interval": hits / num}


def clustered() -> dict[str, tuple[Structure, float]]:
    """Return every structure with clusters of several questions, and the spread of their difficulties."""
    structures = {"HRBench": (hrbench(), 1.5), "HallusionBench": (hallusionbench(), 1.0)}
    structures |= {"POPE": (pope(), 1.0), "POPE, says no too often": (pope(-3.0), 1.0)}
    structures |= {"POPE, says yes too often": (pope(3.0), 1.0), "MMBench_DEV_EN": (mmbench(), 2.0)}
    structures["MMBench_DEV_EN, 3 an image"] = (mmbench(3), 1.5)
    return structures | {f"{name}, 3 an image": (single(SINGLE[name], 3), 1.0) for name in SHARED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=5000)
    options = parser.parse_args()
    cells = []

    def add(name: str, kind: str, share: float, coverage: dict[str, float], computed: str) -> None:
        rounded = {key: round(100 * float(value), 1) for key, value in coverage.items()}
        cells.append({"benchmark": name, "of": kind, "score": round(100 * share, 1), "computed": computed, **rounded})
        print(cells[-1], flush=True)

    for name, num in SINGLE.items():
        for share in SHARES:
            add(name, "score", share, exact_coverage(num, share), "exactly")
    rng, draws = np.random.default_rng(0), f"{options.draws} draws"
    for name, (structure, spread) in clustered().items():
        for share in SHARES:
            add(name, "score", share, simulated(rng, structure, share, spread, None, options.draws), draws)
    pairs = {"VStarBench": (single(191), 1.5), **clustered()}
    for name in ("VStarBench", "HRBench", "HallusionBench", "POPE", "MMBench_DEV_EN", "AI2D_TEST, 3 an image"):
        for share in (0.3, 0.75, 0.93):
            add(name, "difference", share, simulated(rng, *_swap(pairs[name], share), 0.2, options.draws), draws)
    rng = np.random.default_rng(12)
    for num in (64, 200):  # of `vcsd precheck`: the example of its help, and its default
        for share in (0.3, 0.75, 0.93):
            coverage = simulated(rng, single(num), share, 1.5, 0.2, options.draws)
            add(f"precheck, {num} examples", "difference", share, coverage, draws)
    add("Acc of the seven", "score", 0.73, mean_of_seven(np.random.default_rng(11), options.draws), draws)
    options.out.write_text(json.dumps({"method": METHOD, "level": 95, "cells": cells}, indent=1) + "\n")


def _swap(pair: tuple[Structure, float], share: float) -> tuple[Structure, float, float]:
    return pair[0], share, pair[1]


if __name__ == "__main__":
    main()
