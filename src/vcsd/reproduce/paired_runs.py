"""Statistics of a few runs: mean, spread, and whether a paired difference could be due to chance.

Runs with the same base and seed see the same prompts, so differences are taken run by run. Runs that share a base are
similar, and the question is what another base would give. So the runs of a base are averaged first, bases count
equally, and Student's t has one degree of freedom less than there are bases. If every run has its own base, this is the
ordinary paired t-test.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING

from vcsd.evaluation.scoring.compare import Spread, spread
from vcsd.evaluation.scoring.student_t import quantile, two_sided
from vcsd.report.parts import unread_note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Run = tuple[str, int]
"""What identifies a pair of runs: the base's name and the seed."""

CLEAR = 0.05
"""A difference with a smaller p is called clear."""

NEAR = 1.0
"""Two accuracies are alike if the interval of their difference lies within this many points of zero."""

POWER = 0.8
"""The chance with which runs should show a difference, for it to count as one that they could have shown."""

_MOST_DIGITS = 6
"""Digits that show which side of zero the end of an interval is on."""

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
    looks: int = 1
    """How often results were looked at before the number of bases was settled; p is corrected for it."""
    unread: float | None = None
    """The change in the share of unread answers, in points; nan if a result does not record it, None if the
    difference is not one of scores."""

    @property
    def is_clear(self) -> bool:
        """Whether chance in bases and seeds is an unlikely explanation."""
        return self.p is not None and self.p < CLEAR

    @property
    def mean(self) -> float:
        """The mean over bases."""
        return self.difference.mean

    @property
    def detectable(self) -> float | None:
        """The smallest true difference that as many bases with this spread would show clearly in 80% of cases.

        The usual approximation: the standard error times the sum of two quantiles of Student's t.
        """
        if self.error is None:
            return None
        freedom = self.num_bases - 1
        return self.error * (quantile(1 - CLEAR / self.looks, freedom) + quantile(2 * POWER - 1, freedom))

    @property
    def alike_within(self) -> float | None:
        """The smallest margin within which as many bases with this spread would be alike in 80% of cases.

        That is for a true difference of zero, by the same approximation.
        """
        if self.error is None:
            return None
        freedom = self.num_bases - 1
        return self.error * (quantile(1 - 2 * CLEAR / self.looks, freedom) + quantile(POWER, freedom))

    def __str__(self) -> str:
        return self.followed_by("")

    def followed_by(self, words: str) -> str:
        """The difference, `words` about it, and last the change in unread answers.

        >>> run = ("base", 1)
        >>> paired({run: 50.0}, {run: 54.0}, unread=({run: 1.5}, {run: 1.0})).followed_by(" over OPSD")
        '+4.00 over OPSD, unread -0.50'
        """
        sure = "" if self.p is None else f" ± {self.error:.2f} (p {shown_p(self.p)})"
        note = unread_note(self.unread, digits=2)
        return f"{self.difference.mean:+.2f}{sure}{words}{f', {note}' if note else ''}"


def shown_p(p: float) -> str:
    """Format a p-value with its sign of comparison.

    >>> shown_p(0.0004), shown_p(0.0312)
    ('< 0.001', '= 0.031')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def shown_ends(ends: tuple[float, float]) -> str:
    """Format an interval with two digits; an end that would be 0.00 gets more, so that its side of zero is seen.

    >>> shown_ends((0.0012, 2.66)), shown_ends((-2.6, -0.0004)), shown_ends((0.0, 1.0))
    ('+0.001 to +2.66', '-2.60 to -0.0004', '+0.00 to +1.00')
    """
    return " to ".join(_shown_end(end) for end in ends)


def with_interval(change: Paired) -> str:
    """Format a difference with its 95% interval and the change in unread answers.

    >>> before, after = {("a", 1): 50.0, ("b", 2): 51.0}, {("a", 1): 54.0, ("b", 2): 54.5}
    >>> with_interval(paired(before, after, unread=(before, before)))
    '+3.75 (95% +0.57 to +6.93, unread +0.00)'
    """
    ends = interval(change)
    limits = "" if ends is None else f"95% {shown_ends(ends)}, "
    return f"{change.mean:+.2f} ({limits}{unread_note(change.unread, digits=2)})"


def _shown_end(end: float) -> str:
    digits = 2
    while end and round(end, digits) == 0 and digits < _MOST_DIGITS:
        digits += 1
    return f"{end:+.{digits}f}"


def by_base(values: Mapping[Run, float]) -> dict[str, float]:
    """The mean over the runs of each base.

    >>> by_base({("a", 1): 50.0, ("a", 4): 52.0, ("b", 2): 40.0})
    {'a': 51.0, 'b': 40.0}
    """
    runs: dict[str, list[float]] = defaultdict(list)
    for (base, _), value in values.items():
        runs[base].append(value)
    return {base: mean(several) for base, several in runs.items()}


def over_bases(values: Mapping[Run, float]) -> Spread:
    """Mean and standard deviation over bases, each of which counts once."""
    return spread(list(by_base(values).values()))


def paired(
    before: Mapping[Run, float],
    after: Mapping[Run, float],
    *,
    looks: int = 1,
    unread: tuple[Mapping[Run, float], Mapping[Run, float]] | None = None,
) -> Paired | None:
    """The difference of `after` and `before` over the runs that both have; None if there are none.

    With several looks at the results, p is multiplied by their number (Bonferroni). `unread` holds the shares of unread
    answers before and after, in percent.

    >>> run = ("a", 1)
    >>> print(paired({run: 50.0}, {run: 54.0}, unread=({run: 1.5}, {run: 1.0})))
    +4.00, unread -0.50
    >>> print(paired({run: 50.0}, {run: 54.0}, unread=({run: 1.5}, {})))
    +4.00, unread not recorded
    """
    change = _paired(before, after, looks)
    if change is None or unread is None:
        return change
    shares = [{run: known.get(run, math.nan) for run in before if run in after} for known in unread]
    plainer = _paired(shares[0], shares[1], 1)
    return replace(change, unread=None if plainer is None else plainer.mean)


def _paired(before: Mapping[Run, float], after: Mapping[Run, float], looks: int) -> Paired | None:
    changes = {run: after[run] - before[run] for run in before if run in after}
    if not changes:
        return None
    difference = over_bases(changes)
    num = len(difference.values)
    if difference.sd is None:
        return Paired(difference, num, None, None, looks)
    error = difference.sd / math.sqrt(num)
    if error <= _ROUNDING * abs(difference.mean):
        return Paired(difference, num, 0.0, 1.0 if difference.mean == 0 else 0.0, looks)
    return Paired(difference, num, error, min(1.0, looks * two_sided(difference.mean / error, num - 1)), looks)


def holm(changes: Sequence[Paired], num_planned: int | None = None) -> list[Paired]:
    """The same differences with p-values by Holm's correction for their number; those without a p do not count.

    With `num_planned`, the correction is for that many: planned tests without a result count as if they were last.

    >>> apart = [Paired(spread([1.0]), 5, 1.0, p) for p in (0.03, 0.01, 0.04)]
    >>> [change.p for change in holm(apart)]
    [0.06, 0.03, 0.06]
    >>> [change.p for change in holm(apart[:1], num_planned=2)]
    [0.06]
    """
    order = sorted((change.p, place) for place, change in enumerate(changes) if change.p is not None)
    corrected, largest, num = list(changes), 0.0, num_planned or len(order)
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (num - rank) * p))
        corrected[place] = replace(changes[place], p=largest)
    return corrected


def equivalence(change: Paired | None) -> str:
    """ "alike" if the 90% interval lies within `NEAR` points of zero (two one-sided tests at 5%), "different" if
    outside, or "undecided"; empty if a single base leaves no interval. With several looks, the interval is wider.
    """
    limits = equivalence_interval(change)
    if limits is None:
        return ""
    low, high = limits
    if low >= -NEAR and high <= NEAR:
        return "alike"
    return "different" if high < -NEAR or low > NEAR else "undecided"


def equivalence_interval(change: Paired | None) -> tuple[float, float] | None:
    """The interval of two one-sided tests at 5%: of 90%, or of 95% after two looks. None as for `interval`."""
    return None if change is None else interval(change, 1 - 2 * CLEAR / change.looks)


def interval(change: Paired | None, level: float = 0.95) -> tuple[float, float] | None:
    """The interval of a difference by Student's t over bases; None without runs, or with a single base.

    >>> before = {("a", 101): 50.0, ("b", 102): 51.0, ("c", 103): 49.0}
    >>> change = paired(before, {("a", 101): 54.0, ("b", 102): 54.5, ("c", 103): 53.5})
    >>> [round(end, 2) for end in interval(change)]
    [2.76, 5.24]
    """
    if change is None or change.error is None:
        return None
    half = quantile(level, change.num_bases - 1) * change.error
    return change.mean - half, change.mean + half
