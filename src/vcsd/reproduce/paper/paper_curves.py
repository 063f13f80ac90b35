"""The training curves of the paper's setting: the scores after every few steps, as a table and a picture."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vcsd.errors import install_command
from vcsd.evaluation.live_lines import FILE, live_unread_share
from vcsd.monitor import read_lines
from vcsd.reproduce.paper.paper_scores import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

Curve = list[dict[str, Any]]
"""The lines of evaluation.jsonl, in the order of their steps."""


def read_curve(run: Path) -> Curve:
    """Read the evaluations of a run; none if it was not asked during training."""
    path = run / FILE
    return sorted(read_lines(path), key=lambda line: int(line["step"])) if path.is_file() else []


def curve_lines(row: str, curve: Curve) -> Iterator[str]:
    """The scores after each step in percent, in the columns of the table, and the number of questions."""
    if not curve:
        return
    num_questions = sum(score["num_questions"] for score in curve[-1]["benchmarks"].values())
    yield f"{row} during training, {num_questions:,} questions each time:"
    for line in curve:
        scores = [line["benchmarks"].get(name, {}).get("entry") for name in COLUMNS]
        yield line_of(f"  step {line['step']}", (*scores, line["acc"], live_unread_share(line)))


def line_of(label: str, numbers: Iterable[float | None]) -> str:
    """A line of the table: a label and its numbers in percent, with a dash for a missing one."""
    return f"{label:32}" + "".join(f"{'-' if x is None else f'{x:.2f}':>11}" for x in numbers)


def plot_curves(curves: Mapping[str, Curve], path: Path) -> Path | None:
    """Draw Acc over steps into a file. None if there is no curve, or, with a warning, no matplotlib."""
    if not any(curves.values()):
        return None
    try:
        from matplotlib.figure import Figure
    except ImportError:
        log.warning("No plot: matplotlib is not installed. Install it: %s.", install_command("eval"))
        return None
    figure = Figure(figsize=(4.6, 3.8))
    axis = figure.subplots()
    for row, curve in curves.items():
        axis.plot([line["step"] for line in curve], [line["acc"] for line in curve], marker="o", label=row)
    axis.set_xlabel("step")
    axis.set_ylabel("Acc, %")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    return path
