"""Many cells side by side: one process each for a few of them, since tiny models leave most of a device idle.

What a cell prints goes to a log beside the results; what is finished is said here, one line a cell. A cell that fails
does not keep the others from running, and all failures are named at the end.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vcsd.reproduce.cell import Cell

log = logging.getLogger(__name__)


def run_cells(cells: Sequence[Cell], jobs: int, say: Callable[[str], None]) -> list[str]:
    """Run every cell that has no result yet, equal ones once; what went wrong, cell by cell."""
    todo: dict[str, Cell] = {}
    keys = set()
    for cell in cells:
        keys.add(cell.key)
        if cell.result() is None:
            todo.setdefault(cell.key, cell)
    known = len(keys) - len(todo)
    say(f"{len(todo)} cells to run, {known} known, {jobs} at a time")
    if not todo:
        return []
    failed = _run_here(todo, say) if jobs == 1 else _run_beside(todo, jobs, say)
    return [f"{todo[key].title}: {error}" for key, error in failed.items()]


def _run_here(todo: dict[str, Cell], say: Callable[[str], None]) -> dict[str, str]:
    failed: dict[str, str] = {}
    for done, (key, cell) in enumerate(todo.items(), start=1):
        failed |= _tell(key, cell, _attempt(cell), f"{done}/{len(todo)}", say)
    return failed


def _run_beside(todo: dict[str, Cell], jobs: int, say: Callable[[str], None]) -> dict[str, str]:
    failed: dict[str, str] = {}
    context = multiprocessing.get_context("spawn")
    logs = next(iter(todo.values())).plan.out / "logs"
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(logs, threads))
    with pool:
        # The largest models first: a long run that begins last keeps all others waiting.
        order = sorted(todo, key=lambda key: -todo[key].base.num_parameters)
        running: dict[Future[Any], str] = {pool.submit(_attempt, todo[key]): key for key in order}
        done = 0
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(future)
                done += 1
                failed |= _tell(key, todo[key], future.result(), f"{done}/{len(todo)}", say)
    return failed


def _begin(logs: Path, threads: int) -> None:
    """A worker: its output goes to a file, and it leaves the other workers their cores."""
    logs.mkdir(parents=True, exist_ok=True)
    sys.stdout = sys.stderr = (logs / f"{os.getpid()}.txt").open("a", buffering=1, encoding="utf-8")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    import torch

    from vcsd.reproduce.machine import hush_transformers

    hush_transformers()
    torch.set_num_threads(threads)


def _attempt(cell: Cell) -> tuple[dict[str, Any] | None, str]:
    """The result, or what went wrong."""
    from vcsd.reproduce.cell import run_cell

    try:
        return run_cell(cell), ""
    except Exception as error:
        log.exception("%s failed", cell.title)
        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"


def _tell(
    key: str, cell: Cell, outcome: tuple[dict[str, Any] | None, str], count: str, say: Callable[[str], None]
) -> dict[str, str]:
    result, error = outcome
    clock = time.strftime("%H:%M:%S")
    if result is None:
        say(f"{clock} [{count}] {cell.title}: FAILED, {error}")
        return {key: error}
    acc = f"{result['acc']:.2f}, " if "acc" in result else ""
    say(f"{clock} [{count}] {cell.title}: {acc}{result['seconds']:.0f} s")
    return {}
