"""The picture of the main differences: VCSD minus six others, in the default world and at the paper's dose.

It needs matplotlib, which the extra `eval` installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.experiments import BASE, DECODING, OPSD, VCSD
from vcsd.reproduce.pages.plots import OURS, error_bar, new_figure
from vcsd.reproduce.paired_runs import interval, shown_ends
from vcsd.reproduce.planned.answers import MAIN_CONTROL
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

OTHERS = {
    BASE.name: "its base",
    OPSD.name: "OPSD, which sees the answers",
    "OPSD beta 0.1": "OPSD with VCSD's support",
    MAIN_CONTROL: "sharpening, without contrast",
    DECODING.name: "contrast decoding, without training",
    "another picture": "VCSD with another picture as control",
}
"""What VCSD is compared with, and in which words."""
DEFAULT_COLOUR, DOSE_COLOUR = OURS, "#a8508f"
NUMBERS_AT = 1.03
"""Where the numbers begin, in widths of the axis."""


def draw_main_differences(default: PlannedResults, at_dose: PlannedResults | None) -> Figure | None:
    """Draw every difference with its 95% interval, one row for each; None without runs. `at_dose` may be missing."""
    worlds = [
        (
            f"default world (dose {PARAMETERS.ignore_share:g})",
            DEFAULT_COLOUR,
            "o",
            _changes(default, default.verdict_bases),
        )
    ]
    if at_dose is not None:
        worlds.append(
            (
                f"gains of the paper's size (dose {_dose(at_dose):g})",
                DOSE_COLOUR,
                "s",
                _changes(at_dose, at_dose.listed.bases),
            )
        )
    if not any(changes for *_, changes in worlds):
        return None
    figure = new_figure(6.4, 5.2)
    axis = figure.subplots()
    for place, (title, tone, mark, changes) in enumerate(worlds):
        num_bases = max((change.num_bases for change in changes.values()), default=0)
        _draw_world(axis, changes, 0.04 + 0.3 * place, tone, mark, f"{title}, {num_bases} bases")
    _label(axis)
    figure.subplots_adjust(left=0.02, right=0.62, top=0.87, bottom=0.1)
    return figure


def _dose(runs: PlannedResults) -> float:
    """The dose of all bases of a list."""
    (dose,) = runs.doses
    return dose


def _changes(runs: PlannedResults, bases: list[str] | Mapping[str, object]) -> dict[str, Paired]:
    """VCSD minus each of the others that has runs, in Acc."""
    changes = {name: runs.change(name, VCSD.name, bases) for name in OTHERS}
    return {name: change for name, change in changes.items() if change is not None}


def _draw_world(axis: Axes, changes: Mapping[str, Paired], shift: float, tone: str, mark: str, title: str) -> None:
    """Draw the differences in one world, with their numbers beside the axis."""
    for place, name in enumerate(OTHERS):
        if (change := changes.get(name)) is None:
            continue
        ends, row = interval(change), place + shift
        axis.errorbar([change.mean], [row], xerr=error_bar(change), fmt=mark, color=tone, capsize=3, markersize=6)
        numbers = f"{change.mean:+.2f}" if ends is None else f"{change.mean:+.2f} ({shown_ends(ends)})"
        axis.text(NUMBERS_AT, row, numbers, transform=axis.get_yaxis_transform(), color=tone, fontsize=10, va="center")
    axis.plot([], [], mark, color=tone, label=title)


def _label(axis: Axes) -> None:
    """Name every row above its marks, and say what axis and bars are."""
    for place, words in enumerate(OTHERS.values()):
        where = axis.get_yaxis_transform()
        white = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        text = f"{VCSD.name} minus {words}"
        axis.text(0.012, place - 0.24, text, transform=where, fontsize=10, va="center", bbox=white)
        if place:
            axis.axhline(place - 0.45, color="#d5d8dc", linewidth=0.8)
    axis.axvline(0, color="#5f5f5f", linewidth=1)
    axis.set_ylim(len(OTHERS) - 0.45, -0.45)
    axis.set_yticks([])
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("points of Acc; line at 0: no difference; bars: 95% over bases", fontsize=10, loc="left")
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=10, frameon=False, borderaxespad=0.2)
