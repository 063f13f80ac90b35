"""A timeline of the trainer and of the server that samples for it, step by step.

    python -m vcsd.report.timeline_figure runs/now runs/ahead --steps 2 5 --out timeline.png

It reads `timeline.jsonl` of runs with `rollout.engine: vllm_server` (or `vllm`), one panel per run, all on the same
scale. Numbers on bars are steps: whose batch is drawn or trained on. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, VcsdError, install_command
from vcsd.monitor.lines import read_lines
from vcsd.monitor.timeline import TIMELINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from vcsd.monitor.lines import JsonLine

TRAINER, SAMPLER = 1, 0
"""The positions of the two rows of a panel."""

LOOKS = {
    "data": ("#c9ccd1", "reads data"),
    "rollout": ("#e8e4da", "sends weights, waits"),
    "distill": ("#1f7a6d", "scores and learns"),
    "update": ("#6b6fb5", "updates the weights"),
    "send": ("#d08a2e", "takes the weights"),
    "draw": ("#3b78a8", "samples"),
}
"""The colour of each phase, and what it means."""

_NUMBERED = ("distill", "draw")


@dataclass(frozen=True)
class Bar:
    """A phase in a row of the timeline, in seconds."""

    row: int
    phase: str
    step: int
    start: float
    end: float


def bars_of(lines: Sequence[JsonLine], first: int, last: int) -> list[Bar]:
    """Return the bars of some steps; time 0 is where the trainer starts the first one.

    >>> line = {"step": 2, "trainer": [["distill", 5.0, 6.0]], "sampler": [["draw", 3, 5.5, 6.5]]}
    >>> bars_of([line], 2, 2)
    [Bar(row=1, phase='distill', step=2, start=0.0, end=1.0), Bar(row=0, phase='draw', step=3, start=0.5, end=1.5)]
    """
    lines = lines[_last_start(lines) :]
    shown = [line for line in lines if first <= line["step"] <= last]
    if not shown:
        return []
    trainer = [Bar(TRAINER, name, line["step"], start, end) for line in shown for name, start, end in line["trainer"]]
    begin, finish = min(bar.start for bar in trainer), max(bar.end for bar in trainer)
    sampler = [Bar(SAMPLER, *entry) for line in lines for entry in line["sampler"]]
    kept = [bar for bar in sampler if bar.start >= begin and bar.start <= finish]
    return [Bar(bar.row, bar.phase, bar.step, bar.start - begin, bar.end - begin) for bar in (*trainer, *kept)]


def _last_start(lines: Sequence[JsonLine]) -> int:
    """Return the index of the first line after the last resume, where times start again from 0."""
    starts = [line["trainer"][0][1] if line["trainer"] else 0.0 for line in lines]
    return max((place for place in range(1, len(lines)) if starts[place] < starts[place - 1]), default=0)


def draw_timeline(runs: Sequence[tuple[str, Sequence[Bar]]]) -> Figure:
    """Draw one panel per named run, on the same scale."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(9.0, 0.9 + 1.25 * len(runs)))
    panels = figure.subplots(len(runs), 1, squeeze=False, sharex=True)[:, 0]
    for panel, (name, bars) in zip(panels, runs, strict=True):
        for bar in bars:
            panel.barh(bar.row, bar.end - bar.start, left=bar.start, height=0.7, color=LOOKS[bar.phase][0])
            if bar.phase in _NUMBERED:
                middle = (bar.start + bar.end) / 2
                panel.text(middle, bar.row, str(bar.step), ha="center", va="center", color="white", fontsize=8)
        panel.set_yticks([TRAINER, SAMPLER], ["trainer", "sampler"])
        panel.set_title(name, fontsize=9, loc="left")
    panels[-1].set_xlabel("seconds")
    patches = [Patch(color=colour, label=meaning) for colour, meaning in LOOKS.values()]
    figure.legend(handles=patches, loc="lower center", ncols=len(patches), fontsize=7, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return figure


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vcsd.report.timeline_figure", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--names", nargs="+", help="What to call the runs. Default: their folders' names.")
    parser.add_argument("--steps", type=int, nargs=2, default=(2, 5), metavar=("FIRST", "LAST"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    names = options.names or [run.name for run in options.runs]
    if len(names) != len(options.runs):
        raise ConfigError([f"--names has {len(names)} names for {len(options.runs)} runs."])
    shown = []
    for name, run in zip(names, options.runs, strict=True):
        bars = bars_of(list(read_lines(run / TIMELINE)), *options.steps)
        if not bars:
            first, last = options.steps
            raise ConfigError([f"{run / TIMELINE} has no steps {first} to {last}. Only runs with vLLM write it."])
        shown.append((name, bars))
    draw_timeline(shown).savefig(options.out, dpi=130)
    sys.stdout.write(f"Wrote {options.out}.\n")


if __name__ == "__main__":
    try:
        _main()
    except ImportError:
        sys.exit(f"matplotlib is not installed. Install the extra: {install_command('eval')}.")
    except VcsdError as error:
        sys.exit(str(error))
