"""How results were made: seeds, bases, commands, hardware, seconds, versions and the world's hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.cell_result import read_results
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.journal import JOURNAL, duration, read_journal
from vcsd.reproduce.pages.tables import markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.journal import JournalEntry
    from vcsd.reproduce.results import Results


MADE_PAGE = "how_made.md"
"""In a results folder, the page of commands and times."""


def made_page(experiments: Sequence[Experiment], results: Results) -> str:
    """Build the page that says how all results of a folder were made."""
    lines = [
        "# How the results were made",
        "",
        "The commands, bases, machines and times behind the [results](README.md) of the paper's experiments, then "
        "every command that made runs. `vcsd reproduce` writes this page; do not edit it.",
        "",
    ]
    lines += [*made_with(experiments, results), "", *_commands(results.sweep.out, experiments, results)]
    return "\n".join(lines)


def results_of(experiments: Iterable[Experiment], results: Results) -> list[CellResult]:
    """The results behind some experiments, each once."""
    cells = {cell.key: cell for experiment in experiments for cell in results.cells(experiment)}
    return [result for cell in cells.values() if (result := cell.result()) is not None]


def _distinct(values: Iterable[str]) -> str:
    return "; ".join(sorted(set(values)))


def hardware_line(results: Iterable[CellResult]) -> str:
    """The machines and the versions of torch that made some results."""
    results = list(results)
    versions = sorted({f"torch {result['versions']['torch']}" for result in results})
    return f"- Hardware: {_distinct(result['hardware'] for result in results)}; {', '.join(versions)}"


def summary(experiment: Experiment, results: Results) -> str:
    """One line: seeds, bases, runs, seconds, hardware."""
    finished = results_of([experiment], results)
    bases = sum(len(results.bases_used(group)) for group in results.groups_of(experiment))
    runs = f"{_count(len(results.seeds), 'seed')}, {_count(bases, 'base')}, {_count(len(finished), 'run')}"
    if not finished:
        return f"{runs}."
    hardware = _distinct(result["hardware"] for result in finished)
    return f"{runs}; {_total_duration(finished)} of run time on {hardware}."


def made_with(experiments: Iterable[Experiment], results: Results) -> Iterator[str]:
    """How some experiments were made, line by line."""
    experiments = list(experiments)
    finished = results_of(experiments, results)
    if not finished:
        return
    sweep = results.sweep
    commands = sorted({result["command"] for result in finished})
    yield f"- Command: `{commands[0]}`" if len(commands) == 1 else "- Commands:"
    yield from (f"  - `{command}`" for command in commands if len(commands) > 1)
    yield f"- Seeds: {len(results.seeds)} ({', '.join(map(str, results.seeds))})"
    for group in dict.fromkeys(group for experiment in experiments for group in results.groups_of(experiment)):
        bases = list(dict.fromkeys(base.title for base, _ in results.pairs(group)))
        yield f"- Bases of {group}: {len(bases)} ({', '.join(bases)})"
    yield f"- Hardware: {_distinct(result['hardware'] for result in finished)}"
    yield f"- Runs: {len(finished)}, {_total_duration(finished)} in total, many in parallel"
    yield f"- Versions: {_distinct(_versions(result) for result in finished)}"
    yield (
        f"- World parameters: {_distinct(str(result['identity']['world']) for result in finished)}; split "
        f"`{sweep.split}`, at least {sweep.num_questions} questions in each of {len(SEVEN)} suites; every run has a "
        "file in `cells/`"
    )


def wall_times(experiment: Experiment, results: Results) -> Iterator[str]:
    """How long the commands took that ran something for an experiment."""
    own = {name for group in results.groups_of(experiment) for name in results.bases_used(group)}
    for entry in read_journal(results.sweep.out):
        used = {name for names in entry.bases.values() for name in names}
        if experiment.name in entry.experiments and own & used:
            others = len(entry.experiments) - 1
            also = f", for this and {_count(others, 'other experiment')}" if others else ""
            yield f"- Wall time: {duration(entry.wall_seconds)} for {_what_ran(entry)}{also}: `{entry.command}`"


def _what_ran(entry: JournalEntry) -> str:
    """What a command did, such as "6 runs (2 already done, interrupted), 4 in parallel"."""
    notes = [f"{entry.cells_known} already done"] if entry.cells_known else []
    notes += [f"{entry.cells_failed} failed"] if entry.cells_failed else []
    notes += [entry.ended] if entry.ended != "done" else []
    in_brackets = f" ({', '.join(notes)})" if notes else ""
    return f"{_count(entry.cells_run, 'run')}{in_brackets}, {entry.jobs} in parallel"


def _count(num: int, word: str) -> str:
    return f"{num} {word}" + ("" if num == 1 else "s")


def _total_duration(finished: Iterable[CellResult]) -> str:
    return duration(sum(result["seconds"] for result in finished))


def _versions(result: CellResult) -> str:
    return ", ".join(f"{name} {number}" for name, number in result["versions"].items())


def _commands(out: Path, written: Sequence[Experiment], results: Results) -> Iterator[str]:
    """Every command that ran something: cells, seconds, wall time."""
    entries = read_journal(out)
    if not entries:
        return
    rows = [
        [
            f"`{entry.command}`",
            entry.hardware,
            str(len(entry.seeds)),
            str(sum(len(bases) for bases in entry.bases.values())),
            f"{entry.cells_run} ({entry.cells_known} already done, {entry.cells_failed} failed)",
            str(entry.jobs),
            f"{entry.run_seconds:,.0f}",
            f"{entry.wall_seconds:,.0f}" + (", interrupted" if entry.ended == "interrupted" else ""),
        ]
        for entry in entries
    ]
    head = ["command", "hardware", "seeds", "bases", "runs", "in parallel", "run seconds", "wall seconds"]
    yield from (f"Wall time, from `{JOURNAL}`:", "", markdown(head, rows), "")
    num_run = sum(entry.cells_run for entry in entries)
    if len(entries) > 1:
        wall_seconds = sum(entry.wall_seconds for entry in entries)
        yield from (f"Total: {num_run} runs, {duration(wall_seconds)} of wall time.", "")
    stored = read_results(out)
    num_files, num_shown = len(stored), len(results_of(written, results))
    if num_files > num_shown:
        num_planned = sum("run_planned" in result["command"] for result in stored)
        num_others = num_files - num_shown - num_planned
        yield (
            f"Why the numbers of runs differ: the table of the paper's experiments uses {num_shown} results. `cells/` "
            f"holds {num_files}: {num_planned} more come from planned runs, and {num_others} from other seeds and "
            f"bases that this table does not count. The commands above ran {num_run}; a repeated run counts each time."
        )
        yield ""
    if num_files > num_run:  # fewer is possible: a cell may be run again elsewhere, or after its file was removed
        yield f"`cells/` holds {num_files} results, but these commands ran {num_run}: the others have no wall time."
        yield ""
