"""Many cells side by side: one process each for a few of them, since tiny models leave most of a device idle.

What a cell prints goes to a log beside the results; what is finished is said here, one line a cell. A cell that fails,
or whose process dies, does not keep the others from running, and all failures are named at the end.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from vcsd.reproduce.machine import num_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from vcsd.reproduce.cell import Cell

log = logging.getLogger(__name__)

Outcome = tuple[dict[str, Any] | None, str]
"""A cell's result, or None and what went wrong."""

PATIENCE = 5.0
"""Seconds that a worker which is told to end has before it is killed."""


@dataclass
class Tally:
    """What became of the cells of a command. `keys` of those that were run, `failed` with what went wrong."""

    num_todo: int
    num_known: int
    keys: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    run_seconds: float = 0.0


def take_stock(cells: Sequence[Cell]) -> tuple[dict[str, Cell], Tally]:
    """The cells without a result, equal ones once, the longest first: one that began last would keep others waiting."""
    once: dict[str, Cell] = {}
    for cell in cells:
        once.setdefault(cell.key, cell)
    todo = [cell for cell in once.values() if cell.result() is None]
    todo.sort(key=lambda cell: cell.length, reverse=True)
    return {cell.key: cell for cell in todo}, Tally(len(todo), len(once) - len(todo))


def run_cells(todo: dict[str, Cell], tally: Tally, jobs: int, say: Callable[[str], None]) -> None:
    """Run cells and count in `tally`, which is true at any time: after Ctrl-C it says what was done until then."""
    say(f"{tally.num_todo} cells to run, {tally.num_known} known, {jobs} at a time")
    if not todo:
        return

    def tell(cell: Cell, outcome: Outcome) -> None:
        _tell(cell, outcome, tally, say)

    with _terminated_as_interrupted():
        if jobs == 1:
            for cell in todo.values():
                tell(cell, _attempt(cell))
        else:
            _run_beside(todo, jobs, tell)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, as a time limit sends it, is taken like Ctrl-C: no worker is left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Worker:
    """A process that runs one cell after another, and a pipe to it."""

    def __init__(self, logs: Path, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(theirs, logs, threads))
        self.process.start()
        theirs.close()  # so that the death of the process is the end of the pipe
        self.cell: Cell | None = None

    def give(self, cell: Cell) -> None:
        """Let it run a cell. That it died meanwhile is seen when its outcome is read."""
        self.cell = cell
        try:
            self.pipe.send(cell)
        except OSError:
            log.debug("a worker died before %s", cell.title)

    def outcome(self) -> Outcome:
        """What it says of its cell; a process that died says it by the end of its pipe."""
        try:
            said: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            return None, f"its process died ({_how(self.process.exitcode)})"
        return said

    def end(self) -> None:
        """Wait for the process; one that does not end by itself is ended."""
        self.process.join(PATIENCE)
        for insist in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                insist()
                self.process.join(PATIENCE)


def _run_beside(todo: dict[str, Cell], jobs: int, tell: Callable[[Cell, Outcome], None]) -> None:
    waiting = deque(todo.values())
    logs = waiting[0].plan.out / "logs"
    threads = max(1, num_cores() // jobs)
    workers: list[Worker] = []
    leaving: list[Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(Worker(logs, threads))
                workers[-1].give(waiting.popleft())
            ready = wait([worker.pipe for worker in workers])
            for worker in [each for each in workers if each.pipe in ready]:
                is_well = _hear(worker, tell)
                if is_well and waiting:
                    worker.give(waiting.popleft())
                else:
                    worker.pipe.close()  # nothing more to do: it ends
                    workers.remove(worker)
                    leaving.append(worker)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in (*workers, *leaving):
            worker.end()


def _hear(worker: Worker, tell: Callable[[Cell, Outcome], None]) -> bool:
    """Pass on what became of a worker's cell; whether it may have another.

    A fault of the device outlives the error that told of it, so a process in which a cell failed is done with.
    """
    assert worker.cell is not None
    outcome = worker.outcome()
    tell(worker.cell, outcome)
    if outcome[0] is None:
        worker.process.terminate()
    return outcome[0] is not None


def _how(code: int | None) -> str:
    """How a process ended.

    >>> _how(-9), _how(3)
    ('SIGKILL', 'exit code 3')
    """
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _work(pipe: Connection, logs: Path, threads: int) -> None:
    """A worker's life: cells come through the pipe until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the one that started them decides
    _begin(logs, threads)
    while True:
        try:
            cell = pipe.recv()
        except EOFError:
            return
        pipe.send(_attempt(cell))
        _give_memory_back()


def _give_memory_back() -> None:
    """What a finished run leaves in this process's cache is memory that the others on the device may need."""
    import torch

    gc.collect()  # a trainer and its model refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _begin(logs: Path, threads: int) -> None:
    """Send the output to a file, and leave the other workers their cores."""
    logs.mkdir(parents=True, exist_ok=True)
    sys.stdout = sys.stderr = (logs / f"{os.getpid()}.txt").open("a", buffering=1, encoding="utf-8")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    import torch

    from vcsd.reproduce.machine import hush_transformers

    hush_transformers()
    torch.set_num_threads(threads)


def _attempt(cell: Cell) -> Outcome:
    """The result, or what went wrong."""
    from vcsd.reproduce.cell import run_cell

    try:
        return run_cell(cell), ""
    except Exception as error:
        log.exception("%s failed", cell.title)
        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"


def _tell(cell: Cell, outcome: Outcome, tally: Tally, say: Callable[[str], None]) -> None:
    result, error = outcome
    done = len(tally.keys) + len(tally.failed) + 1
    head = f"{time.strftime('%H:%M:%S')} [{done}/{tally.num_todo}] {cell.title}:"
    if result is None:
        tally.failed.append(f"{cell.title}: {error}")
        say(f"{head} FAILED, {error}")
        return
    tally.keys.append(cell.key)
    tally.run_seconds += result["seconds"]
    acc = f"{result['acc']:.2f}, " if "acc" in result else ""
    say(f"{head} {acc}{result['seconds']:.0f} s")
