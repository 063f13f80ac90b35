"""Statistics beyond the verdicts: all bases together, equivalence tests, and other rules for the same claims.

They were chosen after the results were known. So they are printed next to the verdicts and do not change them.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import mean
from typing import TYPE_CHECKING

from vcsd.reproduce.experiments import BASE, LONG_STEPS, OPSD, VCSD
from vcsd.reproduce.pages.judges import NEAR, variant
from vcsd.reproduce.paired_runs import interval, paired
from vcsd.reproduce.results import curves_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.experiments import Variant
    from vcsd.reproduce.paired_runs import Paired, Run
    from vcsd.reproduce.results import Results

SHORT_STEPS = 90
"""The steps of an ordinary run. A long run is stable if it ends where it was then."""

PAPER_OVER_JSD = 0.79

ALIKE = {
    "alpha 1.5 minus alpha 1": ("alpha", "alpha 1", "alpha 1.5"),
    "alpha 2 minus alpha 0": ("alpha", "alpha 0", "alpha 2"),
    "forward KL minus JSD": ("divergence", "JSD", "forward KL"),
    "noise minus black": ("control", "black", "noise"),
    "blur minus black": ("control", "black", "blur"),
    "no image minus black": ("control", "black", "no image"),
    "anchor 1 minus no anchor": ("anchor", "no anchor", "anchor 1"),
    "author_code minus paper": ("temperature", "paper", "author_code"),
}


def stricter_lines(results: Results) -> list[str]:
    """A section of the page of claims; empty without results."""
    lines = [*_pooled(results), *_equivalence(results), *_stable(results), *_figure_6(results)]
    if not lines:
        return []
    head = (
        "These were chosen after the results were known, so they change no verdict above. Runs of a base are averaged "
        "first, so bases count equally; ± is the standard error over bases. Alike means that the 90% interval lies "
        f"within {NEAR:g} point of zero (two one-sided tests at 5%), different that it lies outside. Some bases were "
        "added after a first look, and no p-value is corrected for that: p-values near 0.05 should not be relied on."
    )
    return ["## Other statistics of the same runs", "", head, "", *lines, ""]


def by_base(values: Mapping[Run, float]) -> dict[Run, float]:
    """The mean over the runs of each base.

    >>> by_base({("a", 1): 50.0, ("a", 4): 52.0, ("b", 2): 40.0})
    {('a', 0): 51.0, ('b', 0): 40.0}
    """
    runs: dict[str, list[float]] = defaultdict(list)
    for (base, _), value in values.items():
        runs[base].append(value)
    return {(base, 0): mean(several) for base, several in runs.items()}


def change_by_base(before: Mapping[Run, float], after: Mapping[Run, float]) -> Paired | None:
    """The paired difference over bases, with bases counted equally."""
    both = [run for run in before if run in after]
    return paired(*(by_base({run: values[run] for run in both}) for values in (before, after)))


def equivalence(change: Paired | None) -> str:
    """The 90% interval of a difference, and what it says; empty if a single base leaves no interval.

    >>> print(equivalence(paired({("a", 1): 1.0, ("b", 2): 1.0}, {("a", 1): 1.01, ("b", 2): 1.02})))
    90% interval -0.02 to +0.05: alike
    """
    limits = interval(change, 0.90) if change is not None else None
    if limits is None:
        return ""
    low, high = limits
    is_alike, is_different = low >= -NEAR and high <= NEAR, high < -NEAR or low > NEAR
    word = "alike" if is_alike else "different" if is_different else "undecided"
    return f"90% interval {low:+.2f} to {high:+.2f}: {word}"


def _pooled(results: Results) -> Iterator[str]:
    """VCSD over the base and over OPSD, over the bases of all architectures and sizes."""
    accs: dict[Variant, dict[Run, float]] = {
        each: {run: acc for group in results.ordinary for run, acc in results.acc(each, group).items()}
        for each in (BASE, OPSD, VCSD)
    }
    for before in (BASE, OPSD):
        change = change_by_base(accs[before], accs[VCSD])
        if change is None:
            continue
        gains = [accs[VCSD][run] - acc for run, acc in accs[before].items() if run in accs[VCSD]]
        above = sum(gain > 0 for gain in gains)
        yield (
            f"- All architectures and sizes together: VCSD {change} over {before.name}, {change.num_bases} bases; "
            f"above it in {above} of {len(gains)} runs."
        )


def _equivalence(results: Results) -> Iterator[str]:
    group = results.smallest
    for title, (experiment, before, after) in ALIKE.items():
        accs = [results.acc(variant(experiment, name), group) for name in (before, after)]
        change = change_by_base(*accs)
        if text := equivalence(change):
            yield f"- {title}: {change}, {text}{_against_paper(title, change)}."


def _against_paper(title: str, change: Paired | None) -> str:
    """Whether the 95% interval excludes the paper's number, where it has one for a small difference."""
    limits = interval(change, 0.95) if change is not None and title == "forward KL minus JSD" else None
    if limits is None:
        return ""
    low, high = limits
    word = "includes" if low <= PAPER_OVER_JSD <= high else "excludes"
    return f"; the 95% interval, {low:+.2f} to {high:+.2f}, {word} the paper's {PAPER_OVER_JSD:+.2f}"


def _stable(results: Results) -> Iterator[str]:
    """The end of long runs against their own step 90, which is not chosen for being the best."""
    for name in ("beta 0.1", "beta 0"):
        curves = curves_of(results, variant("support", name), results.smallest)
        ends = [
            {run: curve[step] for run, curve in curves.items() if step in curve} for step in (SHORT_STEPS, LONG_STEPS)
        ]
        change = change_by_base(*ends)
        if text := equivalence(change):
            yield f"- Stable, {name}: step {LONG_STEPS} minus step {SHORT_STEPS} {change}, {text}."


def contrast_of_all(words: str, result: CellResult) -> float | None:
    """The mean contrast of visual ("seen") or other words in all answers, right and wrong together."""
    parts = [result.get("profile"), result.get("profile_of_wrong")]
    pairs = [(part[words], part[f"num_{words}"]) for part in parts if part and words in part]
    total = sum(num for _, num in pairs)
    return sum(value * num for value, num in pairs) / total if total else None


def _figure_6(results: Results) -> Iterator[str]:
    """The rule for Figure 6 before it was limited to right answers."""
    gains: dict[str, dict[Run, float]] = {}
    for words in ("seen", "other"):
        opsd, vcsd = (
            results.values(each, results.smallest, lambda result, words=words: contrast_of_all(words, result))  # type: ignore[misc]
            for each in (OPSD, VCSD)
        )
        gains[words] = {run: vcsd[run] - value for run, value in opsd.items() if run in vcsd}
    grew = change_by_base(dict.fromkeys(gains["seen"], 0.0), gains["seen"])
    more = change_by_base(gains["other"], gains["seen"])
    if grew is None or more is None:
        return
    is_clear, is_up = grew.is_clear and more.is_clear, min(grew.difference.mean, more.difference.mean) > 0
    word = "undecided" if not is_clear else "agrees" if is_up else "disagrees"
    yield (
        f"- Figure 6 by the original rule, all answers together: {grew} nats over OPSD on visual words, {more} more "
        f"than on other words: **{word}**. The verdict above is by the later rule, right answers only."
    )
