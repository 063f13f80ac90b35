"""The commands that made a folder of results: `runs.jsonl`, one line for each that ran something.

Seconds of a cell are its own; many run side by side. How long a command took is known only here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from vcsd.monitor.lines import Lines, read_lines
from vcsd.reproduce.machine import hardware

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.pool import Tally
    from vcsd.reproduce.results import Results

JOURNAL = "runs.jsonl"

NOT_RESULTS = ("logs/", "work/", "*.partial")
"""What git is to leave out of a folder of results."""

Ended = Literal["done", "interrupted"]


def prepare(out: Path) -> None:
    """Make the folder of results, one that can be committed as it is."""
    out.mkdir(parents=True, exist_ok=True)
    (out / ".gitignore").write_text("\n".join([*NOT_RESULTS, ""]), encoding="utf-8")


def note(
    experiments: Sequence[Experiment], results: Results, tally: Tally, jobs: int, wall_seconds: float, ended: Ended
) -> None:
    """Add what a command did, unless it found everything done."""
    if not tally.keys and not tally.failed:
        return
    Lines(results.plan.out / JOURNAL).append(
        {
            "command": results.plan.command,
            "experiments": [each.name for each in experiments],
            "seeds": list(results.seeds),
            "bases": {group: results.bases_used(group) for each in experiments for group in results.groups_of(each)},
            "hardware": hardware(),
            "jobs": jobs,
            "cells_run": len(tally.keys),
            "cells_known": tally.num_known,
            "cells_failed": len(tally.failed),
            "run_seconds": round(tally.run_seconds, 1),
            "wall_seconds": round(wall_seconds, 1),
            "ended": ended,
        }
    )


def noted(out: Path) -> list[dict[str, Any]]:
    """Every command that ran something, the earliest first."""
    return list(read_lines(out / JOURNAL))


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(42.4), duration(754.0)
    ('42 s', '754 s (12.6 min)')
    """
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds:,.0f} s ({seconds / 60:.1f} min)"
