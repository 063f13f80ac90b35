"""What the planned runs say beyond the questions of the rules, first of all what speaks against the contrast.

Every number is computed from the results; the page of verdicts prints these lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.report.parts import unread_change
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, DECODING, EXPERIMENTS, OPSD, VCSD
from vcsd.reproduce.pages.details import LOSS_ALLOWED, guard_of
from vcsd.reproduce.pages.from_files import planned_bases, recorded_results
from vcsd.reproduce.paired_runs import CLEAR, interval, with_interval
from vcsd.reproduce.planned.answers import LOOKS, MAIN_CONTROL, lost_by_looks, over
from vcsd.reproduce.planned.dose_page import NULL_WORLD, gains_by_base
from vcsd.reproduce.planned.paper_dose import paper_dose
from vcsd.reproduce.results import acc_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

SUPPORT = "OPSD beta 0.1"
"""OPSD with VCSD's plausible support."""

STRICT = 100 * (1 - CLEAR / LOOKS)
"""The level of an interval, in percent, that is corrected for the looks at the results."""

PAPER_GAINS = {BASE.name: (1.86, 4.77), OPSD.name: (1.76, 5.33)}
"""The smallest and largest gain of VCSD in the paper, over the base and over OPSD."""


def also_against(runs: PlannedResults, at_paper_size: str = "") -> Iterator[str]:
    """What speaks against the contrast beyond the questions of the rules.

    `at_paper_size` says what more bases with gains of the paper's size show, which have rules of their own.
    """
    yield from _paper_sized(runs, at_paper_size)
    yield from _support(runs)
    yield from _behind(runs)
    yield from _sizes(runs)
    yield from _null_loss(runs)
    yield from _missed_losses(runs)


def _paper_sized(runs: PlannedResults, more_bases: str) -> Iterator[str]:
    """Gains of the paper's size: first the bases that give verdicts, then those that were read before them."""
    earlier = _three_bases(runs)
    if more_bases or earlier:
        where = f"- Where gains are of the paper's size, {more_bases or earlier}"
        yield where + (f" Read before, on other bases: {earlier}" if more_bases and earlier else "")


def _three_bases(runs: PlannedResults) -> str:
    """VCSD minus the controls at the dose that the rules chose, where three bases give no verdict."""
    closest = paper_dose(runs)
    if closest is None:
        return ""
    names = (DECODING.name, MAIN_CONTROL)
    changes = {name: runs.change(name, VCSD.name, runs.doses[closest.dose]) for name in names}
    parts = [f"`{name}` is {change.mean:+.2f}" for name, change in changes.items() if change is not None]
    num = min((change.num_bases for change in changes.values() if change is not None), default=0)
    joined = " and minus ".join(parts)
    return f"VCSD minus {joined} points ([dose {closest.dose:g}](doses.md), {num} bases, no verdict)." if parts else ""


def _support(runs: PlannedResults) -> Iterator[str]:
    """How much of the lead over OPSD the plausible support alone gives."""
    part = runs.change(OPSD.name, SUPPORT, runs.verdict_bases)
    whole, rest = (runs.change(name, VCSD.name, runs.verdict_bases) for name in (OPSD.name, SUPPORT))
    if part is None or whole is None or rest is None or part.mean <= 0 or whole.mean <= 0:
        return
    word = "Most" if 2 * part.mean > whole.mean else "A part"
    yield (
        f"- {word} of the lead over OPSD comes from the support: `{SUPPORT}` minus OPSD is {part.mean:+.2f}, VCSD "
        f"minus OPSD {whole.mean:+.2f} and VCSD minus `{SUPPORT}` {with_interval(rest)}; `{SUPPORT}` is ahead of "
        f"VCSD on {_num_behind(rest)} of {rest.num_bases} bases.{_unread_note(part)}"
    )


def _behind(runs: PlannedResults) -> Iterator[str]:
    """The suites on which VCSD is behind contrast decoding or OPSD with its support."""
    for suite in SEVEN:
        parts = []
        for name in (DECODING.name, SUPPORT):
            change = runs.change(name, VCSD.name, runs.verdict_bases, suite)
            if change is not None and change.mean < 0:
                parts.append(
                    f"VCSD minus `{name}` is {with_interval(change)}, behind on {_num_behind(change)} of "
                    f"{change.num_bases} bases"
                )
        if parts:
            yield f"- On `{suite}`, {'; '.join(parts)} (not corrected for seven suites or {LOOKS} looks)."


def _sizes(runs: PlannedResults) -> Iterator[str]:
    """The rule for intervals, applied to the sizes of the paper's gains."""
    parts = _excluded_sizes(runs, LOOKS)
    if parts:
        yield (
            f"- Sizes: VCSD {'; '.join(parts)}. By the rules, an interval that excludes numbers of the paper "
            f"contradicts them; here the interval does so at {STRICT:g}% too, for {LOOKS} looks. This world is the "
            "contrast's best case and exaggerates its gains."
        )


def undecided_sizes(runs: PlannedResults) -> Iterator[str]:
    """The sizes of the paper that the correction for the broken one-look rule leaves undecided."""
    parts = _excluded_sizes(runs, 1)
    if parts:
        yield (
            f"- **Sizes**: VCSD {'; '.join(parts)}. The 95% interval excludes these numbers; the {STRICT:g}% interval, "
            f"for {LOOKS} looks, does not."
        )


def _excluded_sizes(runs: PlannedResults, looks: int) -> list[str]:
    """The differences whose interval excludes the paper's numbers after at most so many looks."""
    changes = {name: over(runs, name) for name in PAPER_GAINS}
    return [
        f"minus {name} {with_interval(change)}, in the paper {PAPER_GAINS[name][0]:+.2f} to {PAPER_GAINS[name][1]:+.2f}"
        for name, change in changes.items()
        if change is not None and _most_looks(change, *PAPER_GAINS[name]) == looks
    ]


def _most_looks(change: Paired | None, least: float, most: float) -> int | None:
    """How many looks an interval may be corrected for and still exclude the paper's numbers; None if it does not."""
    for looks in (LOOKS, 1):
        limits = interval(change, 1 - CLEAR / looks)
        if limits is not None and (limits[0] > most or limits[1] < least):
            return looks
    return None


def _lost_sizes(runs: PlannedResults) -> list[str]:
    """The sizes of the paper that only an interval for one look excludes."""
    return [
        f"that the size of VCSD minus {name} contradicts the paper's"
        for name, gains in PAPER_GAINS.items()
        if _most_looks(over(runs, name), *gains) == 1
    ]


def _null_loss(runs: PlannedResults) -> Iterator[str]:
    gains = gains_by_base(runs, VCSD.name, NULL_WORLD)
    if gains and min(gains.values()) < 0:
        (base, _), value = min(gains.items(), key=lambda each: each[1])
        yield f"- In the [null world](doses.md#the-null-world), VCSD loses {-value:.2f} points on {base}."


def _missed_losses(runs: PlannedResults) -> Iterator[str]:
    base = runs.scores(BASE.name, runs.listed.bases)
    lost = [
        (base[run] - result["acc"], f"{name} on {run[0]}")
        for name, results in trained(runs).items()
        for run, result in results.items()
        if run in base and base[run] - result["acc"] > LOSS_ALLOWED and guard_of(result)["stop"] is None
    ]
    if lost:
        worst = max(lost)
        yield (
            f"- The guard does not stop {len(lost)} runs that end more than {LOSS_ALLOWED:g} points below their base "
            f"([table](#the-guard-on-new-runs)). The worst is {worst[1]}, {worst[0]:.1f} points below."
        )


def trained(runs: PlannedResults) -> dict[str, dict[tuple[str, int], CellResult]]:
    """The finished training runs on new bases, doses included, by variant."""
    names = dict.fromkeys(run.variant.name for run in runs.runs if run.variant.kind == "train")
    found = {name: runs.finished(name, runs.listed.bases) for name in names}
    return {name: results for name, results in found.items() if results}


def after_two_looks(runs: PlannedResults) -> str:
    """What the correction for the broken one-look rule is, and which verdicts it took away."""
    lost = [*lost_by_looks(runs), *_lost_sizes(runs)]
    return (
        f"So p-values are multiplied by {LOOKS}, as for two looks on [the claims](claims.md), and `80% power` takes "
        "this into account; the 95% intervals are not corrected. "
        + (f"**Lost by this correction, and now undecided: {', '.join(lost)}.**" if lost else "No verdict is lost.")
    )


def without_contrast(runs: PlannedResults) -> str:
    """What self-distillation without contrast gained on the earlier bases; empty without their results."""
    if not any((runs.out / "cells").glob("*.json")):
        return ""
    results = recorded_results(runs.out, planned_bases(runs.out))
    variants = {each.name: each for each in EXPERIMENTS["alpha"].variants}
    none, whole = (
        acc_change(results, BASE, variants[name], results.smallest) if results.smallest else None
        for name in ("alpha 0", "alpha 1")
    )
    if none is None or whole is None:
        return ""
    return (
        f" Part of what is called sharpening here may be plain self-distillation: on {none.num_bases} earlier bases, "
        f"[alpha 0](alpha.md), which has neither contrast nor a sharper anchor, gained {none.mean:+.2f} points of "
        f"VCSD's {whole.mean:+.2f}."
    )


def losses_of_the_control(runs: PlannedResults) -> Iterator[str]:
    """On which suites `sharpened 2` loses against its base, which is part of VCSD's lead there."""
    for suite in SEVEN:
        loss = runs.change(BASE.name, MAIN_CONTROL, runs.verdict_bases, suite)
        own, lead = (runs.change(name, VCSD.name, runs.verdict_bases, suite) for name in (BASE.name, MAIN_CONTROL))
        if loss is None or own is None or lead is None or loss.mean >= 0 or lead.mean <= 0:
            continue
        yield (
            f"On `{suite}`, `{MAIN_CONTROL}` itself loses against its base: {with_interval(loss)}. That is "
            f"{-100 * loss.mean / lead.mean:.0f}% of VCSD's lead over it ({lead.mean:+.2f}); VCSD minus base is "
            f"{with_interval(own)}."
        )
        yield ""


def _unread_note(change: Paired) -> str:
    """The change in unread answers of OPSD with the support, or that it is not recorded."""
    return (
        ""
        if change.unread is None
        else f" The change in unread answers from OPSD to `{SUPPORT}`: {unread_change(change.unread)}."
    )


def _num_behind(change: Paired) -> int:
    return sum(value < 0 for value in change.difference.values)
