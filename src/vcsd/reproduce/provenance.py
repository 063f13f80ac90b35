"""How results were made: seeds, bases, command, hardware, seconds, versions and the world's hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.journal import duration, noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.results import Results


def results_of(experiments: Iterable[Experiment], results: Results) -> list[dict[str, Any]]:
    """The results behind some experiments, each once."""
    cells = {cell.key: cell for each in experiments for cell in results.cells(each)}
    return [result for cell in cells.values() if (result := cell.result()) is not None]


def all_of(found: Iterable[dict[str, Any]], read: Callable[[dict[str, Any]], str], *, code: bool = False) -> str:
    """Every value that occurs in some results.

    >>> all_of([{"hardware": "GPU"}, {"hardware": "CPU"}, {"hardware": "GPU"}], lambda result: result["hardware"])
    'CPU; GPU'
    """
    values = sorted({read(result) for result in found})
    return "; ".join(f"`{value}`" if code else value for value in values)


def summary(experiment: Experiment, results: Results) -> str:
    """One line: seeds, bases, runs, seconds, hardware."""
    found = results_of([experiment], results)
    bases = sum(len(results.bases_used(group)) for group in results.groups_of(experiment))
    return (
        f"{_count(len(results.seeds), 'seed')}, {_count(bases, 'base')}, {_count(len(found), 'run')}; "
        f"{duration(sum(result['seconds'] for result in found))} of runs on {all_of(found, _hardware) or 'nothing'}."
    )


def made_with(experiments: Iterable[Experiment], results: Results) -> Iterator[str]:
    """How some experiments were made, line by line."""
    experiments = list(experiments)
    found = results_of(experiments, results)
    if not found:
        return
    plan = results.plan
    yield f"- Command: {all_of(found, lambda result: str(result['command']), code=True)}"
    yield f"- Seeds: {len(results.seeds)} ({', '.join(map(str, results.seeds))})"
    for group in dict.fromkeys(group for each in experiments for group in results.groups_of(each)):
        bases = list(dict.fromkeys(base.title for base, _ in results.pairs(group)))
        yield f"- Bases of {group}: {len(bases)} ({', '.join(bases)})"
    yield f"- Hardware: {all_of(found, _hardware)}"
    yield f"- Runs: {len(found)}, {duration(sum(result['seconds'] for result in found))} in all, many side by side"
    yield f"- Versions: {all_of(found, _versions)}"
    yield (
        f"- World parameters: {all_of(found, lambda result: str(result['identity']['world']))}; split `{plan.split}`, "
        f"at least {plan.num_questions} questions in each of {len(SEVEN)} suites; every run is in `cells/`"
    )


def wall_times(experiment: Experiment, results: Results) -> Iterator[str]:
    """How long the commands took that ran something for an experiment."""
    for each in noted(results.plan.out):
        if experiment.name in each["experiments"]:
            others = len(each["experiments"]) - 1
            beside = f", this and {_count(others, 'other experiment')}" if others else ""
            yield f"- Wall time: {duration(each['wall_seconds'])} for {_ran(each)}{beside}: `{each['command']}`"


def _ran(each: dict[str, Any]) -> str:
    """What a command did.

    >>> _ran({"cells_run": 6, "cells_known": 2, "cells_failed": 0, "jobs": 4, "ended": "interrupted"})
    '6 runs (2 known before, interrupted), 4 at a time'
    """
    also = [f"{each['cells_known']} known before"] if each["cells_known"] else []
    also += [f"{each['cells_failed']} failed"] if each["cells_failed"] else []
    also += [each["ended"]] if each["ended"] != "done" else []
    told = f" ({', '.join(also)})" if also else ""
    return f"{_count(each['cells_run'], 'run')}{told}, {each['jobs']} at a time"


def _count(num: int, word: str) -> str:
    return f"{num} {word}" + ("" if num == 1 else "s")


def _hardware(result: dict[str, Any]) -> str:
    return str(result["hardware"])


def _versions(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in result["versions"].items())
