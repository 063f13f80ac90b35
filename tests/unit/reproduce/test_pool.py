"""Many cells: finished ones are not run, equal ones run once, and a failure or a dead process stops no other."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from pydantic import PlainSerializer, TypeAdapter

from vcsd.reproduce.pool import Worker, _attempt, _interrupts_blocked, run_cells, take_stock
from vcsd.terminal.stopping import Stopped, stoppable


def toy(key, result=None, length=(0, 0), ran=None):
    def run():
        ran.append(key)
        if key == "b":
            raise ValueError("no such base")
        return {"acc": 50.0, "seconds": 2.0}

    return SimpleNamespace(key=key, title=f"cell {key}", result=lambda: result, run=run, length=length)


def test_each_is_run_once_and_failures_are_named():
    ran, lines = [], []
    cells = [toy("a", ran=ran), toy("b", ran=ran), toy("a", ran=ran), toy("known", {"acc": 1.0}), toy("c", ran=ran)]
    todo, tally = take_stock(cells)
    run_cells(todo, tally, 1, lines.append)
    assert ran == ["a", "b", "c"]
    assert tally.failed == ["cell b: ValueError: no such base"]
    assert (tally.keys, tally.num_known, tally.run_seconds) == (["a", "c"], 1, 4.0)
    assert lines[0] == "3 cells to run, 1 already done, 1 in parallel"
    assert "cell b: FAILED, ValueError: no such base" in lines[2]
    assert lines[3].endswith("[3/3] cell c: 50.00, 2 s")


def test_long_runs_begin_first():
    cells = [toy("base", length=(0, 9)), toy("small", length=(90, 3)), toy("long", length=(300, 3))]
    todo, _ = take_stock([*cells, toy("medium", length=(90, 9))])
    assert list(todo) == ["long", "medium", "small", "base"]


def test_nothing_to_do_runs_nothing():
    todo, tally = take_stock([toy("known", {})])
    run_cells(todo, tally, 4, lambda line: None)
    assert (tally.keys, tally.failed) == ([], [])


@dataclass(frozen=True)
class InWorker:
    """A cell that has no result, and does in a worker what its key says."""

    key: str
    out: Path
    length: tuple[int, int] = (0, 0)

    @property
    def title(self):
        return f"cell {self.key}"

    @property
    def sweep(self):
        return SimpleNamespace(out=self.out)

    def result(self):
        return None

    def run(self):
        with (self.out / "begun.txt").open("a") as file:
            file.write(f"{self.key} {os.getpid()}\n")
        if self.key == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.key == "fault":
            raise RuntimeError("an illegal memory access was encountered")
        if self.key.startswith("endless"):
            time.sleep(600)
        return {"acc": 50.0, "seconds": 1.0}


def test_a_killed_worker_fails_its_cell_and_no_other(tmp_path):
    keys = ["killed", "fault", "a", "b", "c"]
    todo, tally = take_stock([InWorker(key, tmp_path) for key in keys])
    run_cells(todo, tally, 2, lambda line: None)
    assert sorted(tally.keys) == ["a", "b", "c"]
    assert sorted(tally.failed) == [
        "cell fault: RuntimeError: an illegal memory access was encountered",
        "cell killed: its process died (SIGKILL)",
    ]
    begun = [line.split() for line in (tmp_path / "begun.txt").read_text().splitlines()]
    places = dict(begun)
    assert len(begun) == len(keys), "each began once"
    after = {pid for key, pid in begun if key in "abc"}
    assert places["fault"] not in after, "a process in which a cell failed runs no other"


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from test_pool import InWorker
from vcsd.reproduce.pool import run_cells, take_stock
from vcsd.terminal.stopping import stoppable

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background without it
    out = Path(sys.argv[1])
    todo, tally = take_stock([InWorker(key, out) for key in ("a", "endless 1", "endless 2")])
    try:
        with stoppable():
            run_cells(todo, tally, 2, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print("interrupted", tally.keys, flush=True)
"""


@pytest.mark.parametrize("word", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupt_ends_the_workers_and_keeps_what_is_done(word, tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, str(script), str(tmp_path)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    begun = tmp_path / "begun.txt"
    # The second endless cell begins once the result of "a" is known. However busy the machine is, wait for it.
    while started.poll() is None and not (begun.exists() and begun.read_text().count("endless") == 2):
        time.sleep(0.05)
    started.send_signal(word)
    out, _ = started.communicate()
    assert "interrupted ['a']" in out
    for line in begun.read_text().splitlines():
        with pytest.raises(ProcessLookupError):
            os.kill(int(line.split()[-1]), 0)


def test_a_worker_that_starts_leaves_ctrl_c_to_its_parent(tmp_path):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    worker = Worker(tmp_path, 1)
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    worker.pipe.close()
    worker.stop()
    blocked = re.search(r"^SigBlk:\s*(\w+)", status, flags=re.MULTILINE)[1]
    assert int(blocked, 16) >> (signal.SIGINT - 1) & 1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_workers_start_where_no_signal_can_be_blocked(monkeypatch):
    """On Windows."""
    monkeypatch.delattr(signal, "pthread_sigmask")
    with _interrupts_blocked():
        pass


def test_a_signal_that_a_library_turns_into_an_error_ends_the_list_and_fails_no_cell():
    def run():
        TypeAdapter(Annotated[int, PlainSerializer(lambda value: signal.raise_signal(signal.SIGTERM))]).dump_json(1)

    todo, tally = take_stock([toy("a"), toy("b")])
    todo["a"].run = run
    with stoppable(), pytest.raises(Stopped):
        run_cells(todo, tally, 1, lambda line: None)
    assert (tally.keys, tally.failed) == ([], [])


def test_a_full_disk_fails_a_cell_with_its_sentence_and_without_a_traceback(caplog, capsys):
    def run():
        raise OSError(errno.ENOSPC, "No space left on device")

    result, error = _attempt(SimpleNamespace(run=run, title="a cell"))
    assert result is None
    assert error == "OSError: [Errno 28] No space left on device"
    assert "Traceback" not in caplog.text + capsys.readouterr().err
