"""Statistics of a few runs: mean, spread, and whether a paired difference could be due to chance.

Runs with the same base and seed see the same prompts, so differences are taken run by run. Runs that share a base are
similar, and the question is what another base would give. So the standard error sums the runs of a base before it
squares, and Student's t has one degree of freedom less than there are bases. If every run has its own base, this is
the ordinary paired t-test.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.evaluation.scoring.compare import Spread, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

Run = tuple[str, int]
"""What identifies a pair of runs: the base's name and the seed."""

CLEAR = 0.05
"""A difference with a smaller p is called clear."""

_ROUNDING = 1e-12
"""A standard error below this share of the mean is only rounding."""


def shown(spread: Spread, digits: int = 2) -> str:
    """Format mean and standard deviation.

    >>> shown(spread([60.0, 62.0, 64.0])), shown(spread([60.0]), digits=1)
    ('62.00 ± 2.00', '60.0')
    """
    mean = f"{spread.mean:.{digits}f}"
    return mean if spread.sd is None else f"{mean} ± {spread.sd:.{digits}f}"


@dataclass(frozen=True)
class Paired:
    """A difference taken run by run, with its standard error and two-sided p, which are None with a single base.

    >>> before = {("a", 101): 50.0, ("b", 102): 51.0, ("c", 103): 49.0}
    >>> change = paired(before, {("a", 101): 54.0, ("b", 102): 54.5, ("c", 103): 53.5})
    >>> print(change, change.num_bases)
    +4.00 ± 0.29 (p = 0.005) 3
    """

    difference: Spread
    num_bases: int
    error: float | None
    p: float | None

    @property
    def is_clear(self) -> bool:
        """Whether chance in bases and seeds is an unlikely explanation."""
        return self.p is not None and self.p < CLEAR

    def __str__(self) -> str:
        if self.p is None:
            return f"{self.difference.mean:+.2f}"
        p = "< 0.001" if self.p < 0.001 else f"= {self.p:.3f}"
        return f"{self.difference.mean:+.2f} ± {self.error:.2f} (p {p})"


def paired(before: Mapping[Run, float], after: Mapping[Run, float]) -> Paired | None:
    """The difference of `after` and `before` over the runs that both have; None if there are none."""
    changes = {run: after[run] - before[run] for run in before if run in after}
    if not changes:
        return None
    difference = spread(list(changes.values()))
    residuals: dict[str, float] = defaultdict(float)
    for (base, _), change in changes.items():
        residuals[base] += change - difference.mean
    num = len(residuals)
    if num == 1:
        return Paired(difference, num, None, None)
    error = math.sqrt(num / (num - 1) * sum(residual**2 for residual in residuals.values())) / len(changes)
    if error <= _ROUNDING * abs(difference.mean):
        return Paired(difference, num, 0.0, 1.0 if difference.mean == 0 else 0.0)
    return Paired(difference, num, error, two_sided(difference.mean / error, num - 1))


def interval(change: Paired, level: float) -> tuple[float, float] | None:
    """The interval of a difference by Student's t over bases; None with a single base.

    >>> before = {("a", 101): 50.0, ("b", 102): 51.0, ("c", 103): 49.0}
    >>> change = paired(before, {("a", 101): 54.0, ("b", 102): 54.5, ("c", 103): 53.5})
    >>> [round(end, 2) for end in interval(change, 0.95)]
    [2.76, 5.24]
    """
    if change.error is None:
        return None
    low, high = 0.0, 1.0
    while two_sided(high, change.num_bases - 1) > 1 - level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, change.num_bases - 1) > 1 - level else (low, middle)
    half = high * change.error
    return change.difference.mean - half, change.difference.mean + half


def two_sided(t: float, freedom: int) -> float:
    """The probability that Student's t with `freedom` degrees of freedom is at least this far from zero.

    For whole degrees of freedom the distribution function is a finite sum of cosines.

    >>> round(two_sided(2.776, 4), 4), two_sided(0.0, 4)
    (0.05, 1.0)
    """
    assert freedom >= 1, f"{freedom} degrees of freedom"
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    first, start = (cosine, 1) if freedom % 2 else (1.0, 0)
    term = total = first if freedom > 1 else 0.0
    for k in range(start + 2, freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    inside = 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total
    return max(0.0, 1.0 - inside)
