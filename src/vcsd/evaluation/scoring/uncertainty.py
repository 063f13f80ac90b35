"""The uncertainty of a score due to the choice of questions: Wilson intervals on an effective number of questions.

A benchmark is a sample of the questions that could have been asked. Questions about one image, the four rotations of
one question, and a set of paired questions are a cluster: they are not independent evidence. Leaving out one cluster at
a time (the jackknife) shows how much the score depends on each, whatever the aggregation is, and so how large its
variance is. The same variance with independent questions would take `p (1 - p) / variance` of them: the effective
number. Wilson's score interval for a share of that many questions has the right coverage near 0 and 1, where a
bootstrap is too narrow, and a width for a score of exactly 0 or 1, where a bootstrap has none.

Two scorecards of the same questions are compared by Newcombe's method: the two Wilson intervals are combined with the
correlation between the models, so that the difficulty that both share cancels. The interval of a mean over benchmarks
adds the half-widths of their intervals in quadrature. The interval does not include the noise of sampling answers or of
training; use several seeds for that. `benchmarks/interval_coverage.py` measures how often the intervals contain the
truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from vcsd.evaluation.scoring.aggregate import unit_matrices
from vcsd.evaluation.scoring.student_t import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vcsd.evaluation.scoring.aggregate import Tally

    Floats = NDArray[np.float64]

LEVEL = 0.95
_NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)
METHOD = "Wilson score, effective number of questions by a jackknife over clusters"


@dataclass(frozen=True)
class Interval:
    """The limits that contain the true value in 95 of 100 draws of questions, in percent."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A score as a share, and how much it moves when each cluster is left out."""

    share: float
    shifts_C: Floats
    is_clustered: bool
    """Whether some cluster has several questions."""

    @property
    def variance(self) -> float:
        """The jackknife's variance of the share."""
        num = len(self.shifts_C)
        return float((num - 1) / num * np.square(self.shifts_C).sum())

    @property
    def num_effective(self) -> float:
        """The number of independent questions that would leave the same uncertainty."""
        spread = self.share * (1 - self.share)
        # Without any variance, as when all answers are right, a cluster counts as one question.
        return spread / self.variance if self.variance > 0 and spread > 0 else len(self.shifts_C)


def estimate(tallies: Sequence[Tally]) -> Estimate:
    """Estimate a benchmark's entry; of several tallies, one per seed, their mean."""
    pairs = [_left_out(*unit_matrices(tally)) for tally in tallies]
    share = float(np.mean([share for share, _ in pairs]))
    clusters = tallies[0].clusters
    return Estimate(share, np.mean([shifts for _, shifts in pairs], axis=0), max(clusters) + 1 < len(clusters))


def _left_out(right_CP: Floats, units_CP: Floats) -> tuple[float, Floats]:
    """Return the entry as a share, and its change when each cluster is left out."""
    entry = _entries(right_CP.sum(0, keepdims=True), units_CP.sum(0, keepdims=True))[0]
    shifts_C = _entries(right_CP.sum(0) - right_CP, units_CP.sum(0) - units_CP) - entry
    return float(entry), shifts_C - shifts_C.mean()


def _entries(right_RP: Floats, units_RP: Floats) -> Floats:
    """Compute the mean of the parts, for each row. Parts without a unit are skipped; without any part it is 0."""
    share_RP = np.divide(right_RP, units_RP, out=np.zeros_like(units_RP), where=units_RP > 0)
    num_R = (units_RP > 0).sum(1)
    entries_R: Floats = share_RP.sum(1) / np.maximum(num_R, 1)
    return entries_R


def interval(score: Estimate) -> Interval:
    """Return the interval of a score, in percent.

    >>> from vcsd.evaluation.scoring.aggregate import Tally
    >>> never = Tally(tuple("abcdef"), (False,) * 6, clusters=tuple(range(6)), parts={"accuracy": tuple(range(6))})
    >>> interval(estimate([never]))
    Interval(low=0.0, high=39.03...)
    """
    # The variance of independent questions follows from the share; that of clusters is itself estimated.
    z = quantile(LEVEL, max(1, len(score.shifts_C) - 1)) if score.is_clustered else _NORMAL
    num, p = score.num_effective, score.share
    middle = (p + z * z / (2 * num)) / (1 + z * z / num)
    arm = z / (1 + z * z / num) * sqrt(p * (1 - p) / num + z * z / (4 * num * num))
    return Interval(100 * max(0.0, min(p, middle - arm)), 100 * min(1.0, max(p, middle + arm)))


def interval_of_difference(a: Estimate, b: Estimate) -> Interval:
    """Return the interval of b minus a on the same questions, in points."""
    of_a, of_b = interval(a), interval(b)
    correlation = min(_correlation(a, b), _most_alike(a, b))
    difference = 100 * (b.share - a.share)
    down = _arm(100 * b.share - of_b.low, of_a.high - 100 * a.share, correlation)
    up = _arm(of_b.high - 100 * b.share, 100 * a.share - of_a.low, correlation)
    return Interval(difference - down, difference + up)


def _correlation(a: Estimate, b: Estimate) -> float:
    together = sqrt(float(np.square(a.shifts_C).sum() * np.square(b.shifts_C).sum()))
    return float((a.shifts_C * b.shifts_C).sum()) / together if together > 0 else 0.0


def _most_alike(a: Estimate, b: Estimate) -> float:
    """Return the largest correlation that is allowed: that of two results that differ in half a question.

    If no answer differs, the correlation is 1, and at a score of 50% the interval would have no width.
    """
    spread = sqrt(a.share * (1 - a.share) * b.share * (1 - b.share))
    num = min(a.num_effective, b.num_effective)
    return max(0.0, 1 - 1 / (4 * num * spread)) if spread > 0 else 1.0


def _arm(first: float, second: float, correlation: float) -> float:
    return sqrt(max(0.0, first**2 + second**2 - 2 * correlation * first * second))


def interval_of_mean(values: Sequence[float], intervals: Sequence[Interval]) -> Interval:
    """Return the interval of the mean of independent values from the interval of each.

    >>> interval_of_mean([50.0, 70.0], [Interval(47.0, 53.0), Interval(66.0, 74.0)])
    Interval(low=57.5, high=62.5)
    """
    mean = sum(values) / len(values)
    pairs = list(zip(values, intervals, strict=True))
    down = sqrt(sum((value - limits.low) ** 2 for value, limits in pairs)) / len(values)
    up = sqrt(sum((limits.high - value) ** 2 for value, limits in pairs)) / len(values)
    return Interval(mean - down, mean + up)
