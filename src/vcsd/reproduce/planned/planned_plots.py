"""Pictures of the planned runs: differences with intervals, and gains by dose. They need the extra `eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.experiments import DECODING, OPSD, SHARPENED, VCSD
from vcsd.reproduce.pages.plots import COLOURS, OURS, new_figure
from vcsd.reproduce.paired_runs import interval
from vcsd.reproduce.planned.answers import MAIN_CONTROL, suite_changes
from vcsd.reproduce.planned.dose_page import TRIED, gain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

CONTROLS = (
    *(each.name for each in SHARPENED),
    "another picture",
    DECODING.name,
    "majority of 8",
    OPSD.name,
    "OPSD beta 0.1",
    "OPSD, best dev step",
)
DOSE_COLOURS = {VCSD.name: OURS, MAIN_CONTROL: "#b3423a", DECODING.name: "#3b78a8", OPSD.name: COLOURS["OPSD"]}
DOT = "#9aa0a8"


def draw_verdicts(runs: PlannedResults) -> Figure | None:
    """VCSD minus `sharpened 2` suite by suite, and minus every control in Acc; None without runs."""
    suites: dict[str, Paired | None] = dict(suite_changes(runs))
    if not suites:
        return None
    suites["all seven"] = runs.change(MAIN_CONTROL, VCSD.name, runs.verdict_bases)
    controls = {name: runs.change(name, VCSD.name, runs.verdict_bases) for name in CONTROLS}
    figure = new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    _differences(left, suites)
    left.set_title(f"VCSD minus {MAIN_CONTROL}, by suite", fontsize=10)
    _differences(right, controls)
    right.set_title("VCSD minus each control, all seven suites", fontsize=10)
    figure.tight_layout()
    return figure


def _differences(axis: Axes, changes: Mapping[str, Paired | None]) -> None:
    """One row for each difference: the mean with its 95% interval, and a grey dot for each base."""
    known = {name: change for name, change in changes.items() if change is not None}
    for place, change in enumerate(known.values()):
        axis.plot(change.difference.values, [place + 0.22] * change.num_bases, ".", color=DOT, zorder=1)
        limits = interval(change, 0.95)
        error = [[change.mean - limits[0]], [limits[1] - change.mean]] if limits else None
        axis.errorbar([change.mean], [place], xerr=error, fmt="o", color=OURS, capsize=3, zorder=2)
    axis.axvline(0, color="#5f5f5f", linewidth=1)
    axis.set_yticks(range(len(known)), [f"{name} ({change.num_bases})" for name, change in known.items()])
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("points; line at 0: no difference; bars: 95% over bases;\ndots: bases; in brackets: their number")


def draw_doses(runs: PlannedResults) -> Figure | None:
    """The gain of every variant by dose: means, 95% intervals and bases; None without runs."""
    figure = new_figure(6.6, 4.2)
    axis = figure.subplots()
    drawn = [_dose_line(axis, runs, name, place) for place, name in enumerate(TRIED)]
    if not any(drawn):
        return None
    values = [value for values in drawn for value in values]
    room = 0.15 * (max(values) - min(values) + 1)
    axis.set_ylim(min(0.0, *values) - room, max(0.0, *values) + room)
    axis.axhline(0, color="#5f5f5f", linewidth=1)
    axis.set_xticks(list(runs.doses), [f"{dose:g}" for dose in runs.doses])
    axis.set_xlabel("dose: share of captions that ignore their picture")
    axis.set_ylabel("points over the base; line at 0: no gain")
    axis.set_title("lines: means; bars: 95% over bases, cut at the frame; dots: bases", fontsize=9)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    return figure


def _dose_line(axis: Axes, runs: PlannedResults, name: str, place: int) -> list[float]:
    """Draw one variant; return the gains of all its bases."""
    changes = {dose: change for dose in runs.doses if (change := gain(runs, name, dose)) is not None}
    shift, tone = 0.012 * (place - 1.5), DOSE_COLOURS[name]
    doses = [dose + shift for dose in changes]
    axis.plot(doses, [change.mean for change in changes.values()], "o-", color=tone, label=name, markersize=5)
    for dose, change in zip(doses, changes.values(), strict=True):
        axis.plot([dose] * change.num_bases, change.difference.values, ".", color=tone, alpha=0.4)
        limits = interval(change, 0.95)
        if limits:
            axis.plot([dose, dose], limits, "-", color=tone, linewidth=1, alpha=0.6)
    return [value for change in changes.values() for value in change.difference.values]
