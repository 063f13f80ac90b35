"""How results were made: seeds, bases, commands, hardware, seconds, versions and the world's hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.journal import duration, read_journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.journal import JournalEntry
    from vcsd.reproduce.results import Results


def results_of(experiments: Iterable[Experiment], results: Results) -> list[CellResult]:
    """The results behind some experiments, each once."""
    cells = {cell.key: cell for experiment in experiments for cell in results.cells(experiment)}
    return [result for cell in cells.values() if (result := cell.result()) is not None]


def _distinct(values: Iterable[str]) -> str:
    return "; ".join(sorted(set(values)))


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
    yield f"- Command: {_distinct('`' + result['command'] + '`' for result in finished)}"
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
