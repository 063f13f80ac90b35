"""What the bases say that the pre-check's table of statistics leaves out: does a statistic help within a dose?

They belong to lists that are read once, and may be shown since they were. The section was added after that: it
describes, and no verdict rests on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.inspect.precheck.calibration import (
    CHANGED_CHOICES,
    Correlation,
    base_statistics,
    correlated,
    statistic_names,
    within_groups,
)
from vcsd.reproduce.base_folders import FAMILY_TITLES
from vcsd.reproduce.cell_result import read_results
from vcsd.reproduce.failures import failures_page, power_page
from vcsd.reproduce.failures.failure_runs import FAILURE_LIST, POWER_LIST, readable
from vcsd.reproduce.pages.precheck_page import ADDED, LeftOut, dose_of, shown_name
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST, PAPER_DOSE_PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KNOWN, WITHIN = "the table of every statistic", "within a dose"
PAPER_DOSE, POWER, BOTH, BLURRED = "new, dose 0.4", "new, dose 0.6", "both", "blurred"
Statistics = dict[str, dict[str, float]]
"""The gain of training and every statistic, by base."""


def left_out(out: Path) -> LeftOut | None:
    """Correlate the statistics over the bases that were left out; None until both lists of ordinary bases are read."""
    paper_dose, power = _of_list(out, PAPER_DOSE_LIST), _of_list(out, POWER_LIST)
    blurred = {base: own for base, own in _of_list(out, FAILURE_LIST).items() if base not in power}
    if not paper_dose or not power:
        return None
    known = base_statistics(out / "cells")
    groups = {
        KNOWN: known,
        PAPER_DOSE: paper_dose,
        POWER: power,
        BOTH: {**paper_dose, **power},
        BLURRED: blurred,
    }
    table = {
        name: {group: correlated(_pairs(name, own)) for group, own in groups.items()}
        | {WITHIN: _within_a_dose(name, {**known, **paper_dose, **power}, dose_of(out))}
        for name in statistic_names(known)
    }
    section = [
        "## Within a dose",
        "",
        f"{ADDED} {_what(groups)} Each cell has the correlation with the gain of training, and in brackets the number "
        "of bases and the 95% interval; no interval is corrected for the number of cells. The last column removes the "
        "differences between doses: from each base of the first three columns, the mean of its dose is subtracted. "
        "Doses whose bases differ most weigh most in it. Rows whose sign is reversed within a dose come first.",
        "",
        _shown(table),
        "",
        f"{_on_later_bases(table)} {_parts_of_power(out, power)}".strip(),
        "",
    ]
    return LeftOut(_finding(table), section)


def _of_list(out: Path, name: str) -> Statistics:
    """The statistics of the bases of a list; none before it may be read."""
    runs = readable(out, name)
    return {} if runs is None else base_statistics(out / "cells", list(runs.runs.listed.bases))


def _pairs(name: str, bases: Statistics) -> list[tuple[float, float]]:
    return [(own[name], own["gain"]) for own in bases.values() if name in own]


def _within_a_dose(name: str, bases: Statistics, doses: Mapping[str, float]) -> Correlation | None:
    by_dose: dict[float, Statistics] = {}
    for base, own in bases.items():
        by_dose.setdefault(doses[base], {})[base] = own
    return within_groups([_pairs(name, own) for own in by_dose.values()])


def _what(groups: Mapping[str, Statistics]) -> str:
    """Which bases are in which column."""
    return (
        "[The table of every statistic](#every-statistic) leaves out bases that were read later: "
        f"{len(groups[PAPER_DOSE])} at [dose 0.4]({PAPER_DOSE_PAGE}), {len(groups[POWER])} of "
        f"[more bases]({power_page.PAGE}) at dose 0.6, and {len(groups[BLURRED])} that see "
        f"[blurred pictures]({failures_page.PAGE})."
    )


def _finding(table: Mapping[str, Mapping[str, Correlation | None]]) -> str:
    """The strongest statistic without labels, in the table and within a dose, for the top of the page."""
    own = table[CHANGED_CHOICES]
    within = own[WITHIN]
    says_nothing = within is not None and _has_zero(within)
    head = "tell doses apart and say nothing within one" if says_nothing else "on bases that were read later"
    return (
        f"**Changed choices, a statistic that needs no answers, {head}** (added after the results had been read; no "
        f"verdict rests on it). Their correlation with the gain of training is {own[KNOWN]} in [the table of every "
        f"statistic](#every-statistic), and {within} [within a dose](#within-a-dose), over all bases (in brackets: the "
        "number of bases, and the 95% interval)."
    )


def _on_later_bases(table: Mapping[str, Mapping[str, Correlation | None]]) -> str:
    """The same statistic on bases that its row in the table leaves out."""
    own = table[CHANGED_CHOICES]
    first, new = own[KNOWN], [own[PAPER_DOSE], own[POWER]]
    text = (
        f"Changed choices, on bases that were read later, have a correlation of {new[0]} at dose 0.4 and {new[1]} at "
        "dose 0.6"
    )
    if first is not None and all(one is not None and one.value * first.value < 0 for one in new):
        text += ", both with the opposite sign"
    if all(one is not None and _has_zero(one) for one in new):
        text += ", though neither interval excludes zero"
    return f"{text}. Over both doses together it is {own[BOTH]}."


def _has_zero(one: Correlation) -> bool:
    return one.low <= 0 <= one.high


def _shown(table: Mapping[str, Mapping[str, Correlation | None]]) -> str:
    rows = [
        [shown_name(name), *("" if cell is None else str(cell) for cell in cells.values())]
        for name, cells in sorted(table.items(), key=lambda item: _agreement(item[1]))
    ]
    return markdown(["statistic of the base", *next(iter(table.values()))], rows)


def _agreement(cells: Mapping[str, Correlation | None]) -> float:
    """How far the correlation within a dose has the sign of the first column: below zero, it has the other one."""
    first, within = cells[KNOWN], cells[WITHIN]
    if first is None or within is None:
        return 0.0
    return within.value if first.value > 0 else -within.value


def _parts_of_power(out: Path, power: Statistics) -> str:
    """Changed choices on parts of the bases at dose 0.6: those that were not made again, and each family."""
    lost = {cell["base"] for cell in read_results(out / power_page.LOST)}
    parts = {
        f"the bases that were not [made again]({power_page.PAGE})": [base for base in power if base not in lost],
        **{title: [base for base in power if base.startswith(f"{name}-")] for name, title in FAMILY_TITLES.items()},
    }
    texts = []
    for part, own in parts.items():
        one = correlated(_pairs(CHANGED_CHOICES, {base: power[base] for base in own}))
        if one is not None:
            texts.append(f"{one} on {part}")
    return f"At dose 0.6, the correlation of changed choices is {', '.join(texts)}." if texts else ""
