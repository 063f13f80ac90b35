"""Student's t distribution for whole degrees of freedom, computed without tables."""

from __future__ import annotations

import math
from functools import cache


@cache
def quantile(level: float, freedom: int) -> float:
    """Return the distance from zero within which Student's t lies with a probability of `level`.

    >>> round(quantile(0.95, 4), 3), round(quantile(0.60, 4), 3)
    (2.776, 0.941)
    """
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1 - level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > 1 - level else (low, middle)
    return high


def two_sided(t: float, freedom: int) -> float:
    """Return the probability that Student's t with `freedom` degrees of freedom is at least this far from zero.

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
