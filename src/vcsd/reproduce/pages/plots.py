"""Plots like the paper's figures. They need matplotlib, which the extra `eval` installs.

Every mean has a 95% interval over bases by Student's t, every axis says where it starts, and lines join only points
that have an order: steps and values of alpha.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vcsd.errors import install_command
from vcsd.reproduce.cell_result import CONTROLS
from vcsd.reproduce.experiments import BASE, OPSD
from vcsd.reproduce.pages.tables import variants_of
from vcsd.reproduce.paired_runs import by_base, interval, over_bases, paired
from vcsd.reproduce.results import curves_of, suite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.paired_runs import Paired, Run
    from vcsd.reproduce.results import Results

log = logging.getLogger(__name__)

COLOURS = {"base": "#8a8f98", "OPSD": "#d08a2e"}
OURS = "#1f7a6d"
OTHERS = ("#6b6fb5", "#b3423a", "#3b78a8", "#7a9a3a", "#a8508f", "#5f5f5f")
FAINT = "#b9bdc4"
ACCURACY = "accuracy, %"
HOW = "bars: 95% over bases, cut at 100; dots: bases"
HIGHEST = 101.5
"""Accuracy ends at 100: the part of an interval above it is not shown."""
DYNAMICS = {"acc": "all seven suites", "mixed": "mixed (MMStar)", "arithmetic": "arithmetic (MathVista)"}


def plot(experiment: Experiment, results: Results, path: Path) -> Path | None:
    """Draw an experiment into a file. None if nothing has been run, or, with a warning, if matplotlib is missing."""
    try:
        figure = draw(experiment, results)
    except ImportError:
        log.warning("No plot: matplotlib is not installed. Install it: %s.", install_command("eval"))
        return None
    if figure is None:
        return None
    figure.savefig(path, dpi=130)
    return path


def draw(experiment: Experiment, results: Results) -> Figure | None:
    """Draw an experiment; None if nothing has been run."""
    figure = _DRAWERS.get(experiment.name, _dots)(experiment, results)
    if figure is not None:
        figure.tight_layout()
    return figure


def new_figure(width: float, height: float = 3.4) -> Figure:
    """An empty figure, made without pyplot: no window, and nothing to close."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _one_panel(title: str, label: str) -> tuple[Figure, Axes]:
    figure = new_figure(4.6, 3.8)
    axis = figure.subplots()
    axis.set_title(title, fontsize=9)
    axis.set_ylabel(label)
    return figure, axis


def colour(variant: Variant, place: int) -> str:
    """The same colour everywhere for base, OPSD and the paper's VCSD, whatever the experiment calls it."""
    if variant.name in COLOURS:
        return COLOURS[variant.name]
    changes = [override for override in variant.overrides if override.startswith("method")]
    return OTHERS[place % len(OTHERS)] if changes or variant.kind != "train" else OURS


def state_origin(axis: Axes) -> None:
    """Say at which value the vertical axis starts, unless that is zero."""
    low = axis.get_ylim()[0]
    if abs(low) > 1e-9:
        axis.set_ylabel(f"{axis.get_ylabel()}\n(axis starts at {low:.3g})", fontsize=9)


def _within_percent(axis: Axes) -> None:
    """Show no accuracy below zero or above 100."""
    low, high = axis.get_ylim()
    axis.set_ylim(max(0.0, low), min(HIGHEST, high))


def error_bar(change: Paired | None) -> list[list[float]] | None:
    """The 95% interval of a difference, as matplotlib takes it; None where there is no interval."""
    ends = interval(change)
    return None if change is None or ends is None else [[change.mean - ends[0]], [ends[1] - change.mean]]


def _with_interval(axis: Axes, place: float, values: Mapping[Run, float], tone: str, shift: float = -0.12) -> float:
    """Draw the mean over bases with its interval, and a faint dot for each base beside it; return the mean."""
    means = by_base(values)
    change = paired(dict.fromkeys(values, 0.0), values)
    assert change is not None
    axis.plot([place + shift] * len(means), list(means.values()), ".", color=FAINT, zorder=1)
    axis.errorbar([place], [change.mean], yerr=error_bar(change), fmt="o", color=tone, capsize=3, zorder=2)
    return change.mean


def _dots(experiment: Experiment, results: Results) -> Figure | None:
    """The accuracy of every variant with its interval, one panel per group. Variants have no order: no line joins them.

    Dots rather than bars, so that the axis need not start at zero.
    """
    groups = [group for group in results.groups_of(experiment) if variants_of(experiment, results, group)]
    if not groups:
        return None
    figure = new_figure(max(4.6, 3.4 * len(groups)), 3.9)
    axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)
    for axis, group in zip(axes[0], groups, strict=True):
        variants = variants_of(experiment, results, group)
        for place, variant in enumerate(variants):
            mean = _with_interval(axis, place, results.acc(variant, group), colour(variant, place))
            axis.annotate(f"{mean:.1f}", (place, mean), (7, -3), textcoords="offset points", fontsize=8)
        axis.set_xticks(range(len(variants)), [variant.name for variant in variants])
        axis.margins(x=0.2)
        axis.grid(axis="y", alpha=0.3)
        axis.set_title(f"{group}\n{HOW}", fontsize=9)
        axis.tick_params(axis="x", labelsize=9)
        for label in axis.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")
    axes[0][0].set_ylabel(ACCURACY)
    _within_percent(axes[0][0])
    state_origin(axes[0][0])
    return figure


def _alpha(experiment: Experiment, results: Results) -> Figure | None:
    """Accuracy over alpha: the mean with its interval, and a faint line for each base."""
    group = results.groups_of(experiment)[0]
    points = {float(v.name.split()[1]): acc for v in experiment.variants if (acc := results.acc(v, group))}
    if not points:
        return None
    figure, axis = _one_panel(f"{group}\nbars: 95% over bases, cut at 100; thin lines: bases", ACCURACY)
    alphas = list(points)
    for base in dict.fromkeys(base for acc in points.values() for base, _ in acc):
        known = {alpha: by_base(acc)[base] for alpha, acc in points.items() if base in by_base(acc)}
        axis.plot(list(known), list(known.values()), "-", color=FAINT, linewidth=0.8, zorder=1)
    means = [over_bases(acc).mean for acc in points.values()]
    axis.plot(alphas, means, color=OURS, label="VCSD", zorder=2)
    for alpha, acc in points.items():
        _with_interval(axis, alpha, acc, OURS, shift=0.0)
    axis.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
    axis.grid(axis="y", alpha=0.3)
    for reference in (BASE, OPSD):
        if values := results.acc(reference, group):
            label = f"{reference.name} (mean; band: 95%)"
            axis.axhline(over_bases(values).mean, color=COLOURS[reference.name], linestyle="--", label=label)
            change = paired(dict.fromkeys(values, 0.0), values)
            if change is not None and (ends := interval(change)) is not None:
                axis.axhspan(*ends, color=COLOURS[reference.name], alpha=0.1, linewidth=0)
    axis.set_xlabel("alpha")
    axis.legend(fontsize=8, loc="lower right")
    _within_percent(axis)
    axis.set_ylim(bottom=40)
    state_origin(axis)
    return figure


def _curves(experiment: Experiment, results: Results) -> Figure | None:
    """Accuracy over training: over all suites and, for `dynamics`, also on two single suites."""
    names = DYNAMICS if experiment.name == "dynamics" else {"acc": DYNAMICS["acc"]}
    group = results.groups_of(experiment)[0]
    if not any(results.finished(variant, group) for variant in experiment.variants):
        return None
    figure = new_figure(4.4 * len(names), 3.8)
    axes = figure.subplots(1, len(names), squeeze=False)
    for axis, (name, title) in zip(axes[0], names.items(), strict=True):
        before = results.acc(BASE, group) if name == "acc" else results.values(BASE, group, suite(name))
        for place, variant in enumerate(experiment.variants):
            curves = curves_of(results, variant, group, name)
            starts = {run: {0: before[run]} if run in before else {} for run in curves}
            series = {run: {**starts[run], **curve} for run, curve in curves.items()}
            _lines(axis, series, variant.name, colour(variant, place))
        axis.set_title(f"{group}: {title}\nbands: 95% over bases, cut at 100; thin lines: runs", fontsize=9)
        axis.set_xlabel("step")
        axis.set_ylabel(ACCURACY)
        axis.grid(axis="y", alpha=0.3)
        axis.legend(fontsize=8)
        _within_percent(axis)
        state_origin(axis)
    return figure


def _drift(experiment: Experiment, results: Results) -> Figure | None:
    """The share of rollouts in another script over training."""
    group = results.groups_of(experiment)[0]
    if not any(results.finished(variant, group) for variant in experiment.variants):
        return None
    title = f"{group}\nbands: 95% over bases; thin lines: runs"
    figure, axis = _one_panel(title, "rollouts in another script, %")
    for place, variant in enumerate(experiment.variants):
        finished = results.finished(variant, group)
        shares = {run: result["series"]["language_drift"] for run, result in finished.items()}
        series = {
            run: {step: 100 * share for step, share in enumerate(several, 1) if share is not None}
            for run, several in shares.items()
        }
        _lines(axis, series, variant.name, colour(variant, place))
    axis.set_ylim(bottom=0)
    axis.set_xlabel("step")
    axis.legend(fontsize=8)
    return figure


def _lines(axis: Axes, series: Mapping[Run, Mapping[int, float]], label: str, tone: str) -> None:
    """The mean over bases with a band for its interval, and a thin line for each run."""
    steps = sorted(set.intersection(*(set(run) for run in series.values()))) if series else []
    if not steps:
        return
    for run in series.values():
        axis.plot(steps, [run[step] for step in steps], color=tone, linewidth=0.6, alpha=0.35)
    changes = []
    for step in steps:
        values = {run: curve[step] for run, curve in series.items()}
        change = paired(dict.fromkeys(values, 0.0), values)
        assert change is not None
        changes.append(change)
    axis.plot(
        steps, [change.mean for change in changes], label=label, color=tone, marker="o" if len(steps) < 20 else None
    )
    limits = [interval(change) or (change.mean, change.mean) for change in changes]
    axis.fill_between(steps, [low for low, _ in limits], [high for _, high in limits], color=tone, alpha=0.12, lw=0)


def _pmi(experiment: Experiment, results: Results) -> Figure | None:
    """How close each control's contrast is to the mutual information."""
    group = results.groups_of(experiment)[0]
    finished = results.finished(experiment.variants[0], group)
    controls = [name for name in CONTROLS if finished and all(name in result["pmi"] for result in finished.values())]
    if not controls:
        return None
    figure, axis = _one_panel(f"{group}\n{HOW.replace(', cut at 100', '')}", "correlation with mutual information")
    for place, name in enumerate(controls):
        values = {run: result["pmi"][name]["correlation"] for run, result in finished.items()}
        mean = _with_interval(axis, place, values, OURS)
        axis.annotate(f"{mean:.2f}", (place, mean), (7, -3), textcoords="offset points", fontsize=8)
    axis.set_xticks(range(len(controls)), [name.replace("_", " ") for name in controls])
    axis.set_ylim(0, 1)
    axis.margins(x=0.2)
    axis.grid(axis="y", alpha=0.3)
    return figure


_DRAWERS: dict[str, Callable[[Experiment, Results], Figure | None]] = {
    "alpha": _alpha,
    "support": _curves,
    "dynamics": _curves,
    "anchor": _drift,
    "pmi": _pmi,
}
