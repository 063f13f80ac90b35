"""What a few seeds can say: mean, spread, and whether a paired difference could be luck.

Runs with the same seed start from the same base and read the same prompts, so a difference is taken seed by seed. Its
mean is compared with its standard error by Student's t; with five seeds that is four degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vcsd.evaluation.compare import Spread, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

Run = TypeVar("Run", bound=Hashable)
"""What makes two runs a pair: their base and seed."""

CLEAR = 0.05
"""A difference with a smaller p is called clear."""


def standard_error(spread: Spread) -> float | None:
    """How far the mean may be off by the luck of the seeds; None with one seed alone."""
    return None if spread.sd is None else spread.sd / math.sqrt(len(spread.values))


def shown(spread: Spread, digits: int = 2) -> str:
    """Mean and standard deviation.

    >>> shown(spread([60.0, 62.0, 64.0])), shown(spread([60.0]), digits=1)
    ('62.00 ± 2.00', '60.0')
    """
    mean = f"{spread.mean:.{digits}f}"
    return mean if spread.sd is None else f"{mean} ± {spread.sd:.{digits}f}"


@dataclass(frozen=True)
class Paired:
    """A difference taken seed by seed. `p` is two-sided; None with one seed alone.

    >>> change = paired({101: 50.0, 102: 51.0, 103: 49.0}, {101: 54.0, 102: 54.5, 103: 53.5})
    >>> round(change.difference.mean, 2), round(change.p, 4)
    (4.0, 0.0052)
    """

    difference: Spread
    p: float | None

    @property
    def is_clear(self) -> bool:
        """Whether luck of the seeds is an unlikely reason."""
        return self.p is not None and self.p < CLEAR

    def __str__(self) -> str:
        if self.p is None:
            return f"{self.difference.mean:+.2f}"
        p = "< 0.001" if self.p < 0.001 else f"= {self.p:.3f}"
        return f"{self.difference.mean:+.2f} ± {standard_error(self.difference):.2f} (p {p})"


def paired(before: Mapping[Run, float], after: Mapping[Run, float]) -> Paired | None:
    """What `after` has above `before`, over the runs that both have; None if there is no such run."""
    runs = [run for run in before if run in after]
    if not runs:
        return None
    change = spread([after[run] - before[run] for run in runs])
    error = standard_error(change)
    if error is None:
        return Paired(change, None)
    if error == 0:
        return Paired(change, 1.0 if change.mean == 0 else 0.0)
    return Paired(change, two_sided(change.mean / error, len(runs) - 1))


def two_sided(t: float, freedom: int) -> float:
    """The probability that Student's t with some degrees of freedom is at least this far from zero.

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
