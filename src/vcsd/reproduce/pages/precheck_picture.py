"""The picture of the pre-check's calibration: every base with the intervals of its gains, and the forecast's band."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from vcsd.evaluation.scoring.uncertainty import Estimate, interval_of_difference, interval_of_mean
from vcsd.inspect.precheck.calibration import FEWEST_BASES, expected_gain, runs_of_bases
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import NUM_QUESTIONS
from vcsd.reproduce.pages.plots import OTHERS, OURS, new_figure
from vcsd.reproduce.pages.precheck_page import dose_of, pairs_of
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.suites import ROTATED, SUITES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcsd.evaluation.scoring.uncertainty import Interval
    from vcsd.inspect.precheck.calibration import BaseRuns, Pair, StoredCell

SMALL = 10.0
"""Points. The right panel shows gains up to here, among which are those of the paper's size."""

Ends = tuple["Interval", "Interval"]
"""The intervals of the gains of contrast decoding and of training."""


def draw_precheck(out: Path, unseen: Collection[str] = ()) -> Figure | None:
    """Draw every base, and those that test the calibration as open circles; None if there are too few."""
    pairs, new = pairs_of(out), pairs_of(out, unseen)
    if len(pairs) < FEWEST_BASES:
        return None
    runs = {**runs_of_bases(out / "cells"), **runs_of_bases(out / "cells", unseen)}
    ends = {name: gain_intervals(runs[name]) for name in (*pairs, *new)}
    doses = dose_of(out)
    figure = new_figure(10.4, 5.0)
    left, right = figure.subplots(1, 2)
    for axis in (left, right):
        for place, dose in enumerate(sorted({doses[name] for name in pairs})):
            tone = OURS if dose == PARAMETERS.ignore_share else OTHERS[place % len(OTHERS)]
            own = {name: pair for name, pair in pairs.items() if doses[name] == dose}
            _dots(axis, own, ends, tone, f"dose {dose:g} ({len(own)})")
        if new:
            _dots(axis, new, ends, "#222222", f"bases that it has not seen ({len(new)})", face="white")
    _forecast(
        left, pairs, [min(0.0, *(own for own, _ in pairs.values())) - 4, max(own for own, _ in pairs.values()) + 4]
    )
    _forecast(right, pairs, [-SMALL / 2, SMALL])
    right.set_xlim(-SMALL / 2, SMALL)
    right.set_ylim(-SMALL, SMALL + SMALL / 2)
    left.set_title("every base; bars: 95% over questions; grey: 95% of the forecast", fontsize=9)
    right.set_title(f"gains up to {SMALL:g} points; grey: 95% of the forecast", fontsize=9)
    left.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    return figure


def _dots(
    axis: Axes, pairs: Mapping[str, Pair], ends: Mapping[str, Ends], tone: str, label: str, face: str = ""
) -> None:
    """A dot with its two intervals for each base; no line joins them."""
    xs, ys = ([pair[side] for pair in pairs.values()] for side in (0, 1))
    arms = [
        [
            [value - ends[name][side].low for name, value in zip(pairs, values, strict=True)],
            [ends[name][side].high - value for name, value in zip(pairs, values, strict=True)],
        ]
        for side, values in enumerate((xs, ys))
    ]
    axis.errorbar(
        xs,
        ys,
        xerr=arms[0],
        yerr=arms[1],
        fmt="o",
        color=tone,
        mfc=face or tone,
        label=label,
        markersize=5,
        elinewidth=0.9,
    )


def _forecast(axis: Axes, pairs: Mapping[str, Pair], limits: Sequence[float]) -> None:
    """The line that the calibration fits, contrast decoding plus a median, with its 95% band for another base."""
    values = [expected_gain(end, bases=pairs) for end in limits]
    offset = values[0].value - limits[0]
    axis.plot(
        limits,
        [each.value for each in values],
        "--",
        color="#8a8f98",
        linewidth=1,
        label=f"forecast: gain of decoding {offset:+.2f}",
    )
    low, high = [each.low for each in values], [each.high for each in values]
    axis.fill_between(limits, low, high, color="#8a8f98", alpha=0.12, linewidth=0, label="its 95% for another base")
    axis.axhline(0, color="#5f5f5f", linewidth=0.8)
    axis.axvline(0, color="#5f5f5f", linewidth=0.8)
    axis.set_xlabel("points gained by contrast decoding; line at 0: no gain")
    axis.set_ylabel("points gained by training; line at 0: no gain")
    axis.grid(alpha=0.3)


def gain_intervals(runs: BaseRuns) -> Ends:
    """The 95% intervals of what contrast decoding and training gain, over questions.

    Results keep no single answers, so the intervals are those of models that answer different questions. They are too
    wide if both tend to be right on the same ones. They say nothing about other seeds of training.
    """
    before, decoded, trained = (_scores(cells) for cells in ([runs.before], runs.decoded, runs.trained))
    return _interval(before, decoded), _interval(before, trained)


def _scores(cells: Sequence[StoredCell]) -> dict[str, float]:
    """The mean score on each suite."""
    return {suite: mean(cell["scores"][suite] for cell in cells) for suite in SEVEN}


def _interval(before: Mapping[str, float], after: Mapping[str, float]) -> Interval:
    limits = [
        interval_of_difference(_estimate(before[suite], suite), _estimate(after[suite], suite)) for suite in SEVEN
    ]
    return interval_of_mean([after[suite] - before[suite] for suite in SEVEN], limits)


def _estimate(score: float, suite: str) -> Estimate:
    """A score that is a mean over independent groups of questions, of which nothing but their number is known."""
    return Estimate(score / 100, np.zeros(num_independent(suite)), is_clustered=False)


def num_independent(suite: str) -> int:
    """The number of pictures of a suite, or of sets of two pictures: questions about one are no independent evidence.

    >>> num_independent("mixed"), num_independent("small"), num_independent("hallucination")
    (515, 128, 128)
    """
    kinds = SUITES[suite].kinds
    each = -(-NUM_QUESTIONS // len(kinds))
    return len(kinds) * (-(-each // 4) if suite in ROTATED or SEVEN[suite].cluster == "set" else each)
