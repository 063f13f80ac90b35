"""Equivalence tests of pairs: which variants are alike within a point, which are different, and which are neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.experiments import LONG_STEPS
from vcsd.reproduce.pages.judges import SHORT_STEPS, variant
from vcsd.reproduce.paired_runs import CLEAR, NEAR, equivalence, equivalence_interval, paired
from vcsd.reproduce.results import acc_change, at_step, curves_of, unread_curves_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.results import Results

PAIRS = {
    "alpha 0.5 minus alpha 1": ("alpha", "alpha 1", "alpha 0.5"),
    "alpha 1.25 minus alpha 1": ("alpha", "alpha 1", "alpha 1.25"),
    "alpha 1.5 minus alpha 1": ("alpha", "alpha 1", "alpha 1.5"),
    "alpha 2 minus alpha 1": ("alpha", "alpha 1", "alpha 2"),
    "alpha 2 minus alpha 0": ("alpha", "alpha 0", "alpha 2"),
    "forward KL minus JSD": ("divergence", "JSD", "forward KL"),
    "noise minus black": ("control", "black", "noise"),
    "blur minus black": ("control", "black", "blur"),
    "no image minus black": ("control", "black", "no image"),
    "anchor 1 minus no anchor": ("anchor", "no anchor", "anchor 1"),
    "author_code minus paper": ("temperature", "paper", "author_code"),
    "VCSD minus contrast decoding": ("decoding", "contrast decoding", "VCSD"),
}


def stricter_lines(results: Results) -> list[str]:
    """A section of the page of claims; empty without results."""
    lines = [*_pairs(results), *_stable(results)]
    if not lines:
        return []
    head = (
        f"Pairs of variants on the smallest Qwen3-VL. *Alike* means that the interval lies within {NEAR:g} point of "
        "zero (two one-sided tests at 5%), *different* that it lies outside. These pairs were chosen after the results "
        "were known."
    )
    return ["## Alike or different", "", head, "", *lines, ""]


def in_words(change: Paired | None) -> str:
    """The interval of a difference, and what it says; empty if a single base leaves no interval.

    >>> print(in_words(paired({("a", 1): 1.0, ("b", 2): 1.0}, {("a", 1): 1.01, ("b", 2): 1.02})))
    90% interval -0.02 to +0.05: alike
    """
    limits = equivalence_interval(change)
    if change is None or limits is None:
        return ""
    level = 100 * (1 - 2 * CLEAR / change.looks)
    return f"{level:g}% interval {limits[0]:+.2f} to {limits[1]:+.2f}: {equivalence(change)}"


def _pairs(results: Results) -> Iterator[str]:
    group = results.smallest
    for title, (experiment, before, after) in PAIRS.items():
        change = acc_change(results, variant(experiment, before), variant(experiment, after), group)
        if change is not None and (text := in_words(change)):
            yield f"- {title}: {change.followed_by(f', {text}')}."


def _stable(results: Results) -> Iterator[str]:
    """The end of long runs against their own step 90, which is not chosen for being the best."""
    group = results.smallest
    for name in ("beta 0.1", "beta 0"):
        curves, shares = (read(results, variant("support", name), group) for read in (curves_of, unread_curves_of))
        ends, unread = ([at_step(each, step) for step in (SHORT_STEPS, LONG_STEPS)] for each in (curves, shares))
        change = paired(*ends, looks=results.looks(group), unread=(unread[0], unread[1]))
        if change is not None and (text := in_words(change)):
            yield f"- {name}, step {LONG_STEPS} minus step {SHORT_STEPS}: {change.followed_by(f', {text}')}."
