"""Run many cells in parallel, each in its own process, since a tiny model leaves most of a device idle.

A cell's output goes to a log next to the results; the terminal gets one line per finished cell. If a cell fails or its
process dies, the others still run, and the command lists all failures at the end.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, TypeAlias

from vcsd.errors import VcsdError
from vcsd.monitor.machine import num_cores
from vcsd.monitor.work_bar import WorkBar
from vcsd.terminal.stopping import as_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from vcsd.reproduce.cell import Cell
    from vcsd.reproduce.cell_result import CellResult

log = logging.getLogger(__name__)

CellOutcome: TypeAlias = "tuple[CellResult | None, str]"
"""A cell's result, or None and the error."""

PATIENCE = 5.0
"""Seconds between asking a worker to stop and killing it."""


@dataclass
class PoolTally:
    """The progress of a command: the keys of the cells that were run, and the errors of those that failed."""

    num_todo: int
    num_known: int
    keys: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    run_seconds: float = 0.0
    start: float = field(default_factory=time.monotonic)

    def time_left(self, num_done: int) -> str:
        """Say how long the cells that are left will take, at the pace of those that are done; nothing at the end."""
        seconds = (time.monotonic() - self.start) / max(1, num_done) * (self.num_todo - num_done)
        return f", {timedelta(seconds=round(seconds))} left" if num_done < self.num_todo else ""


def take_stock(cells: Sequence[Cell]) -> tuple[dict[str, Cell], PoolTally]:
    """The distinct cells without a result, the longest first, so that none is left running alone at the end."""
    by_key: dict[str, Cell] = {}
    for cell in cells:
        by_key.setdefault(cell.key, cell)
    todo = [cell for cell in by_key.values() if cell.result() is None]
    todo.sort(key=lambda cell: cell.length, reverse=True)
    return {cell.key: cell for cell in todo}, PoolTally(len(todo), len(by_key) - len(todo))


def run_cells(todo: dict[str, Cell], tally: PoolTally, jobs: int, say: Callable[[str], None]) -> None:
    """Run cells and count them in `tally`, which is up to date at any time, also after Ctrl-C."""
    say(f"{tally.num_todo} cells to run, {tally.num_known} already done, {jobs} in parallel")
    if not todo:
        return
    report = partial(report_outcome, tally, say)
    if jobs == 1:
        for cell in todo.values():
            report(cell, _attempt(cell))
    else:
        with WorkBar("runs") as bar:
            bar.begin(0, len(todo))
            _run_in_parallel(todo, jobs, report, bar)


class Worker:
    """A process that runs one cell after another, and the pipe to it."""

    def __init__(self, logs: Path, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, other_end = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(other_end, logs, threads))
        with _interrupts_blocked():
            self.process.start()
        other_end.close()  # only the process holds this end: the pipe closes when the process dies
        self.cell: Cell | None = None

    def start(self, cell: Cell) -> None:
        """Send a cell to the process. If it has died, `outcome` finds out."""
        self.cell = cell
        try:
            self.pipe.send(cell)
        except OSError:
            log.debug("a worker died before %s", cell.title)

    def outcome(self) -> CellOutcome:
        """Receive the outcome of its cell. A closed pipe means that the process died."""
        try:
            outcome: CellOutcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            return None, f"its process died ({_exit_reason(self.process.exitcode)})"
        return outcome

    def stop(self) -> None:
        """Wait for the process to end; terminate it, then kill it, if it does not."""
        self.process.join(PATIENCE)
        for force in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                force()
                self.process.join(PATIENCE)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start a process that Ctrl-C does not end: it reaches every process, and the parent handles it.

    The process inherits the mask from its start on.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # else the start of the process would start it, which ends the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_in_parallel(
    todo: dict[str, Cell], jobs: int, report: Callable[[Cell, CellOutcome], None], bar: WorkBar
) -> None:
    waiting = deque(todo.values())
    logs = waiting[0].sweep.out / "logs"
    threads = max(1, num_cores() // jobs)
    workers: list[Worker] = []
    leaving: list[Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(Worker(logs, threads))
                workers[-1].start(waiting.popleft())
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                is_usable = _collect(worker, report)
                bar.step()
                if is_usable and waiting:
                    worker.start(waiting.popleft())
                else:
                    worker.pipe.close()  # tells the process to end
                    workers.remove(worker)
                    leaving.append(worker)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in (*workers, *leaving):
            worker.stop()


def _collect(worker: Worker, report: Callable[[Cell, CellOutcome], None]) -> bool:
    """Report the outcome of a worker's cell, and return whether the worker can take another.

    A device fault persists after its error, so a process in which a cell failed is not used again.
    """
    assert worker.cell is not None
    outcome = worker.outcome()
    report(worker.cell, outcome)
    if outcome[0] is None:
        worker.process.terminate()
    return outcome[0] is not None


def _exit_reason(code: int | None) -> str:
    """Why a process ended.

    >>> _exit_reason(-9), _exit_reason(3)
    ('SIGKILL', 'exit code 3')
    """
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _work(pipe: Connection, logs: Path, threads: int) -> None:
    """Run the cells that come through the pipe until it is closed."""
    _set_up(logs, threads)
    import torch

    while True:
        try:
            cell = pipe.recv()
        except EOFError:
            return
        pipe.send(_attempt(cell))
        gc.collect()  # a trainer and its model refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # other processes on the device may need the memory


def _set_up(logs: Path, threads: int) -> None:
    """Redirect output to a file, and leave cores to the other workers."""
    logs.mkdir(parents=True, exist_ok=True)
    sys.stdout = sys.stderr = (logs / f"{os.getpid()}.txt").open("a", buffering=1, encoding="utf-8")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    import torch

    from vcsd.monitor.machine import hush_transformers

    hush_transformers()
    torch.set_num_threads(threads)


def _attempt(cell: Cell) -> CellOutcome:
    """Run a cell; return its result, or None and the error."""
    try:
        with as_stopped():
            return cell.run(), ""
    except (VcsdError, OSError) as error:  # the sentence says all, such as that the disk is full
        return None, f"{type(error).__name__}: {error}"
    except Exception as error:
        log.exception("%s failed", cell.title)
        return None, f"{type(error).__name__}: {error}"


def report_outcome(
    tally: PoolTally, say: Callable[[str], None], cell: Cell, outcome: CellOutcome, *, shows_score: bool = True
) -> None:
    """Count a cell's outcome and print one line about it."""
    result, error = outcome
    done = len(tally.keys) + len(tally.failed) + 1
    head = f"{time.strftime('%H:%M:%S')} [{done}/{tally.num_todo}] {cell.title}:"
    if result is None:
        tally.failed.append(f"{cell.title}: {error}")
        say(f"{head} FAILED, {error}{tally.time_left(done)}")
        return
    tally.keys.append(cell.key)
    tally.run_seconds += result["seconds"]
    acc = f"{result['acc']:.2f}, " if shows_score and "acc" in result else ""
    say(f"{head} {acc}{result['seconds']:.0f} s{tally.time_left(done)}")
