"""`python COMMAND` in a process that starts at once: forked from one that has imported torch, transformers and vcsd.

Starting Python anew would spend six seconds on these imports. The process has nothing else from its parent: no model,
no thread, no signal handler.
"""

import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from subprocess import CompletedProcess

IMPORTED = ["tiny_ranks", "transformers.trainer", "vcsd.run", "vcsd.checkpoint.state", "vcsd.evaluation.live"]


def context() -> ForkServerContext:
    """The process that all others are forked from. It starts with the first of them, once in a session."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(IMPORTED)
    return forking


@dataclass(frozen=True)
class Python:
    """A process that has been started, and the folder of what it writes."""

    process: ForkServerProcess
    folder: Path

    def wait_for_output(self, text: str) -> None:
        """Wait until the process has written a text to stdout, or has ended."""
        while text not in (self.folder / "1").read_text() and self.process.is_alive():
            time.sleep(0.02)
        assert text in (self.folder / "1").read_text(), (self.folder / "2").read_text()

    def kill(self) -> None:
        """Kill it with -9 and wait for its end."""
        self.process.kill()
        self.process.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self, seconds: float | None = None) -> CompletedProcess[str]:
        """Wait for its end; kill it if that takes longer than so many seconds."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        out, err = ((self.folder / name).read_text() for name in "12")
        shutil.rmtree(self.folder)
        return CompletedProcess((), self.process.exitcode, out, err)


def start_python(*command: object, environment: dict[str, str] | None = None) -> Python:
    """Start `python COMMAND`: a script or `-m` and a module, and its arguments, with more environment variables."""
    folder = Path(tempfile.mkdtemp())
    for name in "12":
        (folder / name).touch()
    process = context().Process(target=_run, args=([str(word) for word in command], folder, environment or {}))
    process.start()
    return Python(process, folder)


def run_python(*command: object) -> CompletedProcess[str]:
    """Run `python COMMAND` to its end."""
    return start_python(*command).wait()


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    for number in (1, 2):
        os.dup2(os.open(folder / str(number), os.O_WRONLY), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
