"""The picture of the emoji study: what VCSD gains on unusual colours over the others, and what it changes elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.emoji.study.settle import LEAST_GAIN, MARGIN
from vcsd.reproduce.pages.plots import new_figure
from vcsd.reproduce.planned.planned_plots import draw_differences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from vcsd.reproduce.paired_runs import Paired


def draw_language(gains: Mapping[str, Paired], gates: Mapping[str, Paired]) -> Figure:
    """Draw both: means with their intervals, and a dot for each base. Grey are differences too small to count.

    The smallest difference comes first.
    """
    figure = new_figure(11.0, 4.6)
    left, right = figure.subplots(1, 2)
    ordered = sorted(gains.items(), key=lambda named: named[1].mean)
    draw_differences(left, {f"VCSD minus {name}": change for name, change in ordered})
    left.axvspan(-LEAST_GAIN, LEAST_GAIN, color="#e8e8e8", zorder=0)
    left.set_title(f"unusual colours; grey: less than {LEAST_GAIN:g} points", fontsize=10)
    draw_differences(right, gates)
    right.axvspan(-MARGIN, MARGIN, color="#e8e8e8", zorder=0)
    right.set_title(f"VCSD minus base; grey: at most {MARGIN:g} points", fontsize=10)
    figure.tight_layout()
    return figure
