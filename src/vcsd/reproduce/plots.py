"""Plots in the manner of the paper's figures. They need matplotlib, which comes with the extra `eval`."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vcsd.evaluation.compare import spread
from vcsd.reproduce.details import CONTROLS
from vcsd.reproduce.experiments import BASE, OPSD
from vcsd.reproduce.results import suite
from vcsd.reproduce.tables import variants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.results import Results

log = logging.getLogger(__name__)

COLOURS = {"base": "#8a8f98", "OPSD": "#d08a2e"}
OURS = "#1f7a6d"
OTHERS = ("#6b6fb5", "#b3423a", "#3b78a8", "#7a9a3a", "#a8508f", "#5f5f5f")
RUNS = "accuracy, %: mean, and a line a run"
DYNAMICS = {"acc": "all seven suites", "mixed": "mixed (MMStar)", "arithmetic": "arithmetic (MathVista)"}


def plot(experiment: Experiment, results: Results, path: Path) -> Path | None:
    """Draw an experiment; None, with a word in the log, where matplotlib is missing or nothing has been run."""
    try:
        import_module("matplotlib").use("Agg")  # no window
        pyplot = import_module("matplotlib.pyplot")
    except ImportError:
        log.warning("No plot: matplotlib is not installed. Install the extra: pip install 'vcsd[eval]'.")
        return None
    draw = _DRAWN.get(experiment.name, _dots)
    figure = draw(pyplot, experiment, results)
    if figure is None:
        return None
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


def colour(variant: Variant, place: int) -> str:
    """References keep their colours everywhere, and so does VCSD as the paper has it, whatever it is called."""
    if variant.name in COLOURS:
        return COLOURS[variant.name]
    changes = [each for each in variant.overrides if each.startswith("method")]
    return OTHERS[place % len(OTHERS)] if changes or variant.kind != "train" else OURS


def _dots(pyplot: Any, experiment: Experiment, results: Results) -> Any:
    """The aggregate of every variant, one panel a group; a line follows each run, since runs differ by their base.

    Dots rather than bars: an axis need not begin at zero.
    """
    groups = [group for group in results.groups_of(experiment) if variants_of(experiment, results, group)]
    if not groups:
        return None
    figure, axes = pyplot.subplots(
        1, len(groups), figsize=(max(4.6, 3.4 * len(groups)), 3.6), squeeze=False, sharey=True
    )
    for axis, group in zip(axes[0], groups, strict=True):
        variants = variants_of(experiment, results, group)
        found = [results.acc(variant, group) for variant in variants]
        for run in dict.fromkeys(run for acc in found for run in acc):
            places = [place for place, acc in enumerate(found) if run in acc]
            axis.plot(places, [found[place][run] for place in places], ".-", color="#c9ccd1", linewidth=1, zorder=1)
        for place, (variant, acc) in enumerate(zip(variants, found, strict=True)):
            mean = spread(list(acc.values())).mean
            axis.plot([place], [mean], "o", color=colour(variant, place), zorder=2)
            axis.annotate(f"{mean:.1f}", (place, mean), (7, -3), textcoords="offset points", fontsize=8)
        axis.set_xticks(range(len(variants)), [variant.name for variant in variants])
        axis.margins(x=0.2)
        axis.grid(axis="y", alpha=0.3)
        axis.set_title(group, fontsize=10)
        axis.tick_params(axis="x", labelsize=9)
        pyplot.setp(axis.get_xticklabels(), rotation=30, ha="right", rotation_mode="anchor")
    axes[0][0].set_ylabel(RUNS)
    return figure


def _alpha(pyplot: Any, experiment: Experiment, results: Results) -> Any:
    """The aggregate over alpha, with a line for each run, since runs differ by their base, and the references."""
    group = results.groups_of(experiment)[0]
    points = {float(v.name.split()[1]): acc for v in experiment.variants if (acc := results.acc(v, group))}
    if not points:
        return None
    figure, axis = pyplot.subplots(figsize=(4.6, 3.4))
    alphas = list(points)
    for run in dict.fromkeys(run for acc in points.values() for run in acc):
        known = [alpha for alpha in alphas if run in points[alpha]]
        axis.plot(known, [points[alpha][run] for alpha in known], ".-", color="#c9ccd1", linewidth=1, zorder=1)
    means = [spread(list(acc.values())).mean for acc in points.values()]
    axis.plot(alphas, means, marker="o", color=OURS, label="VCSD", zorder=2)
    axis.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
    axis.grid(axis="y", alpha=0.3)
    for reference in (BASE, OPSD):
        values = list(results.acc(reference, group).values())
        if values:
            axis.axhline(spread(values).mean, color=COLOURS[reference.name], linestyle="--", label=reference.name)
    axis.set_xlabel("alpha")
    axis.set_ylabel(RUNS)
    axis.set_title(group, fontsize=10)
    axis.legend(fontsize=8)
    return figure


def _curves(pyplot: Any, experiment: Experiment, results: Results) -> Any:
    """Accuracy over training: the aggregate, and for `dynamics` two suites beside it."""
    names = DYNAMICS if experiment.name == "dynamics" else {"acc": DYNAMICS["acc"]}
    group = results.groups_of(experiment)[0]
    if not any(results.found(variant, group) for variant in experiment.variants):
        return None
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.4 * len(names), 3.4), squeeze=False)
    for axis, (name, title) in zip(axes[0], names.items(), strict=True):
        for place, variant in enumerate(experiment.variants):
            before = results.values(BASE, group, (lambda r: r["acc"]) if name == "acc" else suite(name))
            found = results.found(variant, group).items()
            series = [{**({0: before[run]} if run in before else {}), **_curve(result, name)} for run, result in found]
            _lines(axis, series, variant.name, colour(variant, place))
        axis.set_title(f"{group}: {title}", fontsize=10)
        axis.set_xlabel("step")
        axis.grid(axis="y", alpha=0.3)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel(RUNS)
    return figure


def _curve(result: dict[str, Any], name: str) -> dict[int, float]:
    return {point["step"]: point["acc"] if name == "acc" else point["scores"][name] for point in result["curve"]}


def _drift(pyplot: Any, experiment: Experiment, results: Results) -> Any:
    """The share of rollouts in another script over training."""
    group = results.groups_of(experiment)[0]
    if not any(results.found(variant, group) for variant in experiment.variants):
        return None
    figure, axis = pyplot.subplots(figsize=(4.6, 3.4))
    for place, variant in enumerate(experiment.variants):
        found = results.found(variant, group).values()
        series = [_percent(result["series"]["language_drift"]) for result in found]
        _lines(axis, series, variant.name, colour(variant, place))
    axis.set_xlabel("step")
    axis.set_ylabel("rollouts that drift, %: mean, and a line a run")
    axis.set_title(group, fontsize=10)
    axis.legend(fontsize=8)
    return figure


def _percent(shares: Sequence[float | None]) -> dict[int, float]:
    """Percent by step, where there is a share."""
    return {step: 100 * share for step, share in enumerate(shares, 1) if share is not None}


def _lines(axis: Any, series: Sequence[dict[int, float]], label: str, tone: str) -> None:
    """The mean over runs, and a thin line for each of them."""
    steps = sorted(set.intersection(*(set(each) for each in series))) if series else []
    if not steps:
        return
    for each in series:
        axis.plot(steps, [each[step] for step in steps], color=tone, linewidth=0.8, alpha=0.35)
    means = [spread([each[step] for each in series]).mean for step in steps]
    axis.plot(steps, means, label=label, color=tone, marker="o" if len(steps) < 20 else None)


def _pmi(pyplot: Any, experiment: Experiment, results: Results) -> Any:
    """How near each control's contrast is to the mutual information."""
    group = results.groups_of(experiment)[0]
    found = [result["pmi"] for result in results.found(experiment.variants[0], group).values()]
    controls = [name for name in CONTROLS if found and all(name in each for each in found)]
    if not controls:
        return None
    figure, axis = pyplot.subplots(figsize=(4.6, 3.4))
    spreads = [spread([each[name]["correlation"] for each in found]) for name in controls]
    names = [name.replace("_", " ") for name in controls]
    axis.bar(names, [each.mean for each in spreads], yerr=[each.sd or 0.0 for each in spreads], capsize=3, color=OURS)
    axis.set_ylabel("correlation with mutual information")
    axis.set_title(group, fontsize=10)
    return figure


_DRAWN: dict[str, Callable[[Any, Experiment, Results], Any]] = {
    "alpha": _alpha,
    "support": _curves,
    "dynamics": _curves,
    "anchor": _drift,
    "pmi": _pmi,
}
