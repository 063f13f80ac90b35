"""Format durations, bytes and counts as a person would say them."""

from __future__ import annotations

_YEAR = 365 * 86_400
_UNITS = (
    *(("second", 1, 90), ("minute", 60, 90 * 60), ("hour", 3600, 48 * 3600), ("day", 86_400, 2 * _YEAR)),
    ("year", _YEAR, 100 * _YEAR),
)
"""Name, seconds, and the duration from which the next unit is used."""


def duration(seconds: float) -> str:
    """Format a projected duration, rounded to its precision.

    >>> [duration(seconds) for seconds in (0.2, 41, 400, 9_000, 40_000, 400_000)]
    ['under a second', 'about 41 seconds', 'about 7 minutes', 'about 2.5 hours', 'about 11 hours', 'about 4.6 days']
    >>> duration(1e9), duration(1e14)
    ('about 32 years', 'more than 100 years')
    """
    if seconds < 1:
        return "under a second"
    if seconds >= _UNITS[-1][-1]:
        return "more than 100 years"
    name, size = next((name, size) for name, size, until in _UNITS if seconds < until)
    number = seconds / size
    is_small = number < 10 and name in {"hour", "day", "year"}
    text = f"{number:.1f}".removesuffix(".0") if is_small else f"{number:.0f}"
    return f"about {text} {name}{'' if text == '1' else 's'}"


def memory(num_bytes: float) -> str:
    """Format an amount of memory.

    >>> [memory(num_bytes) for num_bytes in (7 * 2**20, 5.25 * 2**30, 208.4 * 2**30)]
    ['7 MiB', '5.2 GiB', '208 GiB']
    """
    if num_bytes < 2**30:
        return f"{num_bytes / 2**20:.0f} MiB"
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes < 10 * 2**30 else f"{num_bytes / 2**30:,.0f} GiB"


def count(number: int) -> str:
    """Format a large count.

    >>> [count(number) for number in (512, 3_224_896, 8_767_123_696)]
    ['512', '3.2 million', '8.8 billion']
    """
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.1f} {name}"
    return f"{number:,}"
