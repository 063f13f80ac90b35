"""The commands that produced a results folder: `runs.jsonl`, one line for each command that ran something.

A cell records its own seconds, but many cells run in parallel. Only this file says how long a command took.
"""

from __future__ import annotations

import tarfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from vcsd.monitor.lines import Lines, read_lines
from vcsd.monitor.machine import hardware

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.pool import PoolTally
    from vcsd.reproduce.results import Results

JOURNAL = "runs.jsonl"

Ended = Literal["done", "interrupted"]


@dataclass(frozen=True)
class JournalEntry:
    """One line of the journal: what a command ran, on which machine, and how long it took."""

    command: str
    experiments: list[str]
    seeds: list[int]
    bases: dict[str, list[str]]
    hardware: str
    jobs: int
    cells_run: int
    cells_known: int
    cells_failed: int
    run_seconds: float
    wall_seconds: float
    ended: Ended


def create_results_folder(out: Path) -> None:
    """Create the results folder, with a .gitignore so that it can be committed as it is."""
    out.mkdir(parents=True, exist_ok=True)
    (out / ".gitignore").write_text("logs/\nwork/\n.lock\n*.partial\n", encoding="utf-8")


def add_to_journal(
    experiments: Sequence[Experiment], results: Results, tally: PoolTally, jobs: int, wall_seconds: float, ended: Ended
) -> None:
    """Record what a command did, unless everything was already done."""
    if not tally.keys and not tally.failed:
        return
    entry = JournalEntry(
        command=results.sweep.command,
        experiments=[experiment.name for experiment in experiments],
        seeds=list(results.seeds),
        bases={
            group: results.bases_used(group) for experiment in experiments for group in results.groups_of(experiment)
        },
        hardware=hardware(),
        jobs=jobs,
        cells_run=len(tally.keys),
        cells_known=tally.num_known,
        cells_failed=len(tally.failed),
        run_seconds=round(tally.run_seconds, 1),
        wall_seconds=round(wall_seconds, 1),
        ended=ended,
    )
    Lines(results.sweep.out / JOURNAL).append(asdict(entry))


def read_journal(out: Path) -> list[JournalEntry]:
    """All commands that ran something, the earliest first."""
    return [JournalEntry(**line) for line in read_lines(out / JOURNAL)]


def duration(seconds: float) -> str:
    """Format seconds for people.

    >>> duration(42.4), duration(754.0)
    ('42 s', '754 s (12.6 min)')
    """
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds:,.0f} s ({seconds / 60:.1f} min)"


def pack_results(archive: Path, out: Path, bases: Path, needed: Iterable[str]) -> None:
    """Pack results, cards, the journal and the `needed` bases. A kill while writing leaves the previous archive.

    Unpacked into a results folder, with its bases in `bases/`, a command continues there (`tar -xzf FILE -C OUT`).
    """
    partial = archive.with_name(archive.name + ".partial")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(partial, "w:gz", compresslevel=1) as tar:
        for name in ("cells", "cards", JOURNAL):
            if (out / name).exists():
                tar.add(out / name, name)
        for name in needed:
            tar.add(bases / name, f"bases/{name}")
    partial.replace(archive)
