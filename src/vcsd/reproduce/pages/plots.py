"""Plots like the paper's figures. They need matplotlib, which the extra `eval` installs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vcsd.evaluation.scoring.compare import spread
from vcsd.reproduce.cell_result import CONTROLS
from vcsd.reproduce.experiments import BASE, OPSD
from vcsd.reproduce.pages.tables import variants_of
from vcsd.reproduce.results import curves_of, suite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.paired_runs import Run
    from vcsd.reproduce.results import Results

log = logging.getLogger(__name__)

COLOURS = {"base": "#8a8f98", "OPSD": "#d08a2e"}
OURS = "#1f7a6d"
OTHERS = ("#6b6fb5", "#b3423a", "#3b78a8", "#7a9a3a", "#a8508f", "#5f5f5f")
ACCURACY = "accuracy, % (mean; thin lines: runs)"
DYNAMICS = {"acc": "all seven suites", "mixed": "mixed (MMStar)", "arithmetic": "arithmetic (MathVista)"}


def plot(experiment: Experiment, results: Results, path: Path) -> Path | None:
    """Draw an experiment into a file. None if nothing has been run, or, with a warning, if matplotlib is missing."""
    try:
        figure = draw(experiment, results)
    except ImportError:
        log.warning("No plot: matplotlib is not installed. Install the extra: pip install 'vcsd[eval]'.")
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
    figure = new_figure(4.6)
    axis = figure.subplots()
    axis.set_title(title, fontsize=10)
    axis.set_ylabel(label)
    return figure, axis


def colour(variant: Variant, place: int) -> str:
    """The same colour everywhere for base, OPSD and the paper's VCSD, whatever the experiment calls it."""
    if variant.name in COLOURS:
        return COLOURS[variant.name]
    changes = [override for override in variant.overrides if override.startswith("method")]
    return OTHERS[place % len(OTHERS)] if changes or variant.kind != "train" else OURS


def _dots(experiment: Experiment, results: Results) -> Figure | None:
    """The accuracy of every variant, one panel per group. A line follows each run, since runs differ by their base.

    Dots rather than bars, so that the axis need not start at zero.
    """
    groups = [group for group in results.groups_of(experiment) if variants_of(experiment, results, group)]
    if not groups:
        return None
    figure = new_figure(max(4.6, 3.4 * len(groups)), 3.6)
    axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)
    for axis, group in zip(axes[0], groups, strict=True):
        variants = variants_of(experiment, results, group)
        accs = [results.acc(variant, group) for variant in variants]
        _run_lines(axis, dict(enumerate(accs)))
        for place, (variant, acc) in enumerate(zip(variants, accs, strict=True)):
            mean = spread(list(acc.values())).mean
            axis.plot([place], [mean], "o", color=colour(variant, place), zorder=2)
            axis.annotate(f"{mean:.1f}", (place, mean), (7, -3), textcoords="offset points", fontsize=8)
        axis.set_xticks(range(len(variants)), [variant.name for variant in variants])
        axis.margins(x=0.2)
        axis.grid(axis="y", alpha=0.3)
        axis.set_title(group, fontsize=10)
        axis.tick_params(axis="x", labelsize=9)
        for label in axis.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")
    axes[0][0].set_ylabel(ACCURACY)
    return figure


def _run_lines(axis: Axes, accs: Mapping[float, Mapping[Run, float]]) -> None:
    """A grey line for each run, over the positions at which it has an accuracy."""
    for run in dict.fromkeys(run for acc in accs.values() for run in acc):
        known = {position: acc[run] for position, acc in accs.items() if run in acc}
        axis.plot(list(known), list(known.values()), ".-", color="#c9ccd1", linewidth=1, zorder=1)


def _alpha(experiment: Experiment, results: Results) -> Figure | None:
    """Accuracy over alpha, with a line for each run, since runs differ by their base, and for the references."""
    group = results.groups_of(experiment)[0]
    points = {float(v.name.split()[1]): acc for v in experiment.variants if (acc := results.acc(v, group))}
    if not points:
        return None
    figure, axis = _one_panel(group, ACCURACY)
    alphas = list(points)
    _run_lines(axis, points)
    means = [spread(list(acc.values())).mean for acc in points.values()]
    axis.plot(alphas, means, marker="o", color=OURS, label="VCSD", zorder=2)
    axis.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
    axis.grid(axis="y", alpha=0.3)
    for reference in (BASE, OPSD):
        values = list(results.acc(reference, group).values())
        if values:
            axis.axhline(spread(values).mean, color=COLOURS[reference.name], linestyle="--", label=reference.name)
    axis.set_xlabel("alpha")
    axis.legend(fontsize=8)
    return figure


def _curves(experiment: Experiment, results: Results) -> Figure | None:
    """Accuracy over training: over all suites and, for `dynamics`, also on two single suites."""
    names = DYNAMICS if experiment.name == "dynamics" else {"acc": DYNAMICS["acc"]}
    group = results.groups_of(experiment)[0]
    if not any(results.finished(variant, group) for variant in experiment.variants):
        return None
    figure = new_figure(4.4 * len(names))
    axes = figure.subplots(1, len(names), squeeze=False)
    for axis, (name, title) in zip(axes[0], names.items(), strict=True):
        before = results.acc(BASE, group) if name == "acc" else results.values(BASE, group, suite(name))
        for place, variant in enumerate(experiment.variants):
            curves = curves_of(results, variant, group, name)
            starts = {run: {0: before[run]} if run in before else {} for run in curves}
            series = [{**starts[run], **curve} for run, curve in curves.items()]
            _lines(axis, series, variant.name, colour(variant, place))
        axis.set_title(f"{group}: {title}", fontsize=10)
        axis.set_xlabel("step")
        axis.grid(axis="y", alpha=0.3)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel(ACCURACY)
    return figure


def _drift(experiment: Experiment, results: Results) -> Figure | None:
    """The share of rollouts in another script over training."""
    group = results.groups_of(experiment)[0]
    if not any(results.finished(variant, group) for variant in experiment.variants):
        return None
    figure, axis = _one_panel(group, "rollouts in another script, %")
    for place, variant in enumerate(experiment.variants):
        shares = [result["series"]["language_drift"] for result in results.finished(variant, group).values()]
        series = [{step: 100 * share for step, share in enumerate(run, 1) if share is not None} for run in shares]
        _lines(axis, series, variant.name, colour(variant, place))
    axis.set_xlabel("step")
    axis.legend(fontsize=8)
    return figure


def _lines(axis: Axes, series: Sequence[dict[int, float]], label: str, tone: str) -> None:
    """The mean over runs, and a thin line for each run."""
    steps = sorted(set.intersection(*(set(run) for run in series))) if series else []
    if not steps:
        return
    for run in series:
        axis.plot(steps, [run[step] for step in steps], color=tone, linewidth=0.8, alpha=0.35)
    means = [spread([run[step] for run in series]).mean for step in steps]
    axis.plot(steps, means, label=label, color=tone, marker="o" if len(steps) < 20 else None)


def _pmi(experiment: Experiment, results: Results) -> Figure | None:
    """How close each control's contrast is to the mutual information."""
    group = results.groups_of(experiment)[0]
    measured = [result["pmi"] for result in results.finished(experiment.variants[0], group).values()]
    controls = [name for name in CONTROLS if measured and all(name in pmi for pmi in measured)]
    if not controls:
        return None
    figure, axis = _one_panel(group, "correlation with mutual information")
    spreads = [spread([pmi[name]["correlation"] for pmi in measured]) for name in controls]
    names = [name.replace("_", " ") for name in controls]
    axis.bar(names, [each.mean for each in spreads], yerr=[each.sd or 0.0 for each in spreads], capsize=3, color=OURS)
    return figure


_DRAWERS: dict[str, Callable[[Experiment, Results], Figure | None]] = {
    "alpha": _alpha,
    "support": _curves,
    "dynamics": _curves,
    "anchor": _drift,
    "pmi": _pmi,
}
