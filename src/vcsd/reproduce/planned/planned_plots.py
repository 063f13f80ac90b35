"""Pictures of the planned runs: differences with intervals, and gains by dose. They need the extra `eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.experiments import DECODING, OPSD, VCSD
from vcsd.reproduce.pages.plots import COLOURS, OURS, error_bar, new_figure
from vcsd.reproduce.paired_runs import interval
from vcsd.reproduce.planned.answers import CONTROLS, MAIN_CONTROL, suite_changes
from vcsd.reproduce.planned.dose_page import TRIED, gain, gains_by_base

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

DOSE_COLOURS = {VCSD.name: OURS, MAIN_CONTROL: "#b3423a", DECODING.name: "#3b78a8", OPSD.name: COLOURS["OPSD"]}
DOT = "#9aa0a8"


def draw_verdicts(runs: PlannedResults) -> Figure | None:
    """VCSD minus `sharpened 2` by suite, and minus every control in Acc, the smallest first; None without runs."""
    suites: dict[str, Paired | None] = dict(suite_changes(runs))
    if not suites:
        return None
    suites["all seven"] = runs.change(MAIN_CONTROL, VCSD.name, runs.verdict_bases)
    known = {name: change for name in CONTROLS if (change := runs.change(name, VCSD.name, runs.verdict_bases))}
    controls = {_marked(name): known[name] for name in sorted(known, key=lambda name: known[name].mean)}
    figure = new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    draw_differences(left, suites)
    left.set_title(f"VCSD minus {MAIN_CONTROL}, by suite", fontsize=10)
    draw_differences(right, controls)
    right.set_title("VCSD minus each control, all seven suites", fontsize=10)
    figure.suptitle("bars are not corrected for two looks, nor for the number of comparisons", fontsize=9)
    figure.tight_layout()
    return figure


def _marked(name: str) -> str:
    """The name of a control; the rules do not ask about plain OPSD."""
    return f"{name}, not planned" if name == OPSD.name else name


def draw_differences(axis: Axes, changes: Mapping[str, Paired | None]) -> None:
    """One row for each difference: the mean with its 95% interval, and a grey dot for each base."""
    known = {name: change for name, change in changes.items() if change is not None}
    for place, change in enumerate(known.values()):
        axis.plot(change.difference.values, [place + 0.22] * change.num_bases, ".", color=DOT, zorder=1)
        axis.errorbar([change.mean], [place], xerr=error_bar(change), fmt="o", color=OURS, capsize=3, zorder=2)
    axis.axvline(0, color="#5f5f5f", linewidth=1)
    axis.set_yticks(range(len(known)), [f"{name} ({change.num_bases})" for name, change in known.items()])
    axis.set_ylim(max(len(known), 3) - 0.4, -0.6)  # the first row on top; a single one is not stretched
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("points; line at 0: no difference\nbars: 95% over bases; dots: bases\nin brackets: number of bases")


def draw_doses(runs: PlannedResults) -> Figure | None:
    """The gain of every variant by dose: means, 95% intervals, and bases of the same seed joined; None without runs."""
    figure = new_figure(7.4, 4.6)
    axis = figure.subplots()
    gains = {name: _gains_by_dose(runs, name) for name in TRIED}
    values = [value for of in gains.values() for change in of.values() for value in change.difference.values]
    if not values:
        return None
    room = 0.15 * (max(values) - min(values) + 1)
    axis.set_ylim(min(0.0, *values) - room, max(0.0, *values) + room)
    for place, (name, changes) in enumerate(gains.items()):
        _joined_seeds(axis, runs, name, place)
        _means(axis, changes, name, place)
    axis.axhline(0, color="#5f5f5f", linewidth=1)
    nums = {dose: gain(runs, VCSD.name, dose) for dose in runs.doses}
    axis.set_xticks(
        list(nums),
        [f"{dose:g}\n{'missing' if each is None else f'{each.num_bases} bases'}" for dose, each in nums.items()],
    )
    axis.set_xlim(min(nums) - 0.1, max(nums) + 0.1)
    axis.set_xlabel("dose: share of captions that ignore their picture")
    axis.set_ylabel("points over the base; line at 0: no gain")
    title = (
        "large dots: means; bars: 95% over bases (triangle: goes on);\nthin lines: bases of the same pre-training seed"
    )
    axis.set_title(title, fontsize=9)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=8, loc="upper left")
    figure.tight_layout()
    return figure


def _gains_by_dose(runs: PlannedResults, name: str) -> dict[float, Paired]:
    return {dose: change for dose in runs.doses if (change := gain(runs, name, dose)) is not None}


def _shift(place: int) -> float:
    """How far a variant is drawn beside its dose."""
    return 0.024 * (place - 1.5)


def _joined_seeds(axis: Axes, runs: PlannedResults, name: str, place: int) -> None:
    """A small dot for each base, with a thin line through those of the same pre-training seed."""
    lines: dict[int, list[tuple[float, float]]] = {}
    for dose in runs.doses:
        for (base, _), value in gains_by_base(runs, name, dose).items():
            lines.setdefault(runs.listed.bases[base].seed, []).append((dose + _shift(place), value))
    for points in lines.values():
        doses, values = zip(*points, strict=True)
        axis.plot(doses, values, ".-", color=DOSE_COLOURS[name], linewidth=0.6, alpha=0.4)


def _means(axis: Axes, changes: Mapping[float, Paired], name: str, place: int) -> None:
    """A large dot for each mean, with its 95% interval; a triangle marks an end that the frame cuts off."""
    tone = DOSE_COLOURS[name]
    doses = [dose + _shift(place) for dose in changes]
    axis.plot(doses, [change.mean for change in changes.values()], "o", color=tone, label=name, markersize=6)
    low, high = axis.get_ylim()
    for dose, change in zip(doses, changes.values(), strict=True):
        limits = interval(change)
        if limits is None:
            continue
        axis.plot([dose, dose], [max(low, limits[0]), min(high, limits[1])], "-", color=tone, linewidth=1.2)
        for is_cut, end, mark in ((limits[0] < low, low, "v"), (limits[1] > high, high, "^")):
            if is_cut:
                axis.plot([dose], [end], mark, color=tone, markersize=8, clip_on=False, zorder=3)
