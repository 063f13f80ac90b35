"""Do the whole study with one command: teach the bases, settle, make the final runs. Resumes after any kill.

    python -m vcsd.emoji.study.whole_study docs/results/language_runs.json --language smollm2 \\
        --sprites sprites.safetensors --bases bases --out runs/language --minutes 24

It starts one process per base, in the order of the list, and several that make runs (`emoji_bases.py`, `emoji_runs.py`)
and take whatever can be made. A process that dies is started again. All end with this one, however it ends. Worth
keeping are OUT/cells, OUT/runs, OUT/cards, OUT/lost and OUT/log; OUT/work and OUT/prompts-* are not. No accuracy is
printed. With these folders the study continues on another machine: bases whose runs are all made are not needed there,
and the others start over (`--set-aside-lost`).

The exit status is 0 if all runs are made, 3 if the time is over, 1 if something failed for good, and 2 if the list, the
language model or the sprites are refused.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import torch

from vcsd.checkpoint.lock import only_process
from vcsd.emoji.study.emoji_bases import IN_USE, check_planned
from vcsd.emoji.study.set_aside import lost_bases, set_aside
from vcsd.emoji.study.study_list import read_study
from vcsd.emoji.teach import CARD, read_card, timed_say
from vcsd.errors import ConfigError
from vcsd.terminal import exit_on_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.emoji.study.study_list import EmojiRun, StudyList
    from vcsd.emoji.teach import Say

_REFUSED, _TIME_IS_OVER = 2, 3
_MOST_STARTS = 4
"""Starts of one process: a fault of the machine may come again, one of the code comes every time."""

_LOOK_SECONDS, _SAY_SECONDS, _PAUSE_SECONDS, _GRACE_SECONDS = 1.0, 30.0, 5.0, 45.0
_SHARE_OF_WORKERS = 0.6
"""Of a GPU's memory. The rest is for teaching: a step of 27 thousand tokens needs about 40 GiB."""

_PROGRESS = re.compile(r"(sight|captions) (\d+)/(\d+).*about ([\d:]+) left")


@dataclass
class StudyProcess:
    """A process of the study, its log, and how often it was started."""

    name: str
    command: Sequence[str]
    log: Path
    num_starts: int = 0
    started: float = -math.inf
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self.process is not None and self.process.poll() is None

    @property
    def status(self) -> int | None:
        """Its exit status; None before the first start and while it runs."""
        return None if self.process is None else self.process.poll()

    @property
    def may_start(self) -> bool:
        """Whether it may be started now: not while it runs, not at once after it died, not too often."""
        is_calm = time.monotonic() - self.started >= _PAUSE_SECONDS
        return not self.is_running and is_calm and self.num_starts < _MOST_STARTS

    def start(self) -> None:
        """Start it; its output is appended to its log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.num_starts, self.started = self.num_starts + 1, time.monotonic()

    @property
    def num_failed(self) -> int:
        """Runs that failed, by its log."""
        return self.log.read_bytes().count(b"FAILED ") if self.log.is_file() else 0

    def last_words(self, num: int = 3) -> str:
        """The end of its log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-num:])


@dataclass(frozen=True)
class StudyPaths:
    """Where the study finds its inputs and leaves its outputs."""

    listed: Path
    language: Path
    sprites: Path
    bases: Path
    out: Path


class WholeStudy:
    """Starts and watches the processes of the study."""

    def __init__(
        self, listed: StudyList, paths: StudyPaths, *, workers: int, teachers: int, overrides: Sequence[str], say: Say
    ) -> None:
        self.listed, self.paths, self.say = listed, paths, say
        self.num_teachers = teachers
        self.bases = {name: self._process(name, "emoji_bases", self._base_options(name)) for name in listed.bases}
        options = ["--out", str(paths.out), "--minutes", "1e6"]  # this process knows when the time is over
        options += [part for change in overrides for part in ("--set", change)]
        if torch.cuda.is_available():
            options += ["--gpu-share", f"{_SHARE_OF_WORKERS / workers:.3f}"]
        self.workers = [self._process(f"worker-{number + 1}", "emoji_runs", options) for number in range(workers)]
        self._seen = {run.name for run in listed.runs} - {run.name for run in self.left()}

    def _base_options(self, name: str) -> list[str]:
        return ["--language", str(self.paths.language), "--only", name]

    def _process(self, name: str, module: str, options: Sequence[str]) -> StudyProcess:
        places = ["--sprites", str(self.paths.sprites), "--bases", str(self.paths.bases), "--end-with-parent"]
        command = [sys.executable, "-m", f"vcsd.emoji.study.{module}", str(self.paths.listed), *places, *options]
        return StudyProcess(name, command, self.paths.out / "log" / f"{name}.log")

    def run(self, seconds: float) -> int:
        """Run until all is made, nothing more can be made, or the time is over. Return the exit status."""
        started = said = time.monotonic()
        self.say(f"{len(self._seen)} of {len(self.listed.runs)} runs are made already")
        try:
            while time.monotonic() - started < seconds:
                left = self.left()
                self._tell_finished(left)
                self.keep_cards()  # now: the machine may be gone before the end
                if not left:
                    return 0
                if any(each.status == _REFUSED for each in self.workers):
                    return self._refused()
                self._start_teaching()
                if not self._start_workers(left):
                    self.say(f"{len(left)} runs cannot be made: {self._why_not()}")
                    return 1
                if time.monotonic() - said >= _SAY_SECONDS:
                    self.say(self.progress(left))
                    said = time.monotonic()
                time.sleep(_LOOK_SECONDS)
        finally:
            self.stop()
            self.keep_cards()
        left = self.left()
        self._tell_finished(left)
        return _TIME_IS_OVER if left else 0

    def left(self) -> list[EmojiRun]:
        """The runs without a result."""
        cells = self.paths.out / "cells"
        return [run for run in self.listed.runs if not (cells / f"{run.name}.json").is_file()]

    def is_taught(self, base: str) -> bool:
        """Whether a base is finished."""
        return (self.paths.bases / base / CARD).is_file()

    def _is_lost(self, base: str) -> bool:
        """Whether a base cannot be taught: refused, or failed too often."""
        process = self.bases[base]
        if self.is_taught(base) or process.is_running or process.status is None:
            return False
        return process.status == _REFUSED or process.num_starts >= _MOST_STARTS

    def _start_teaching(self) -> None:
        """Teach the next bases. One whose results are complete is not needed any more.

        If a process of a study that was killed still holds a base, wait for it: this is no failure.
        """
        needed = {run.base for run in self.left()}
        for name, process in self.bases.items():
            if process.status == IN_USE:
                process.num_starts = 0
            running = sum(each.is_running for each in self.bases.values())
            is_open = name in needed and not self.is_taught(name) and not self._is_lost(name)
            if is_open and process.may_start and running < self.num_teachers:
                self._say_why(process)
                process.start()
                self.say(f"{name} is being taught")

    def _start_workers(self, left: Sequence[EmojiRun]) -> bool:
        """Keep the workers running. Return False if nothing can be made any more."""
        if not self._possible(left):
            return False
        for worker in self.workers:
            if worker.may_start:
                self._say_why(worker)
                worker.start()
        return any(worker.is_running or worker.num_starts < _MOST_STARTS for worker in self.workers)

    def _possible(self, left: Sequence[EmojiRun]) -> list[EmojiRun]:
        """The runs whose base is there or may come; final runs that train need the settling base too."""
        settling = {run.base for run in left if run.stage == "dev"}
        lost = {name for name in self.bases if self._is_lost(name)}

        def needs(run: EmojiRun) -> set[str]:
            return {run.base} | (settling if run.stage == "test" and run.trains else set())

        return [run for run in left if not needs(run) & lost]

    def _say_why(self, process: StudyProcess) -> None:
        if process.status is not None:
            self.say(f"{process.name} ended with status {process.status} and starts again: {process.last_words()}")

    def _why_not(self) -> str:
        lost = [process for name, process in self.bases.items() if self._is_lost(name)]
        return "; ".join(f"{process.name}: {process.last_words()}" for process in lost or self.workers)

    def _refused(self) -> int:
        worker = next(each for each in self.workers if each.status == _REFUSED)
        self.say(worker.last_words(1))
        return _REFUSED

    def _tell_finished(self, left: Sequence[EmojiRun]) -> None:
        made = {run.name for run in self.listed.runs} - {run.name for run in left}
        for name in sorted(made - self._seen):
            self.say(f"{name} is made; {len(made)} of {len(self.listed.runs)} runs")
        self._seen |= made

    def progress(self, left: Sequence[EmojiRun]) -> str:
        """One line: bases, runs, what is being made, and about how long it will take."""
        needed = {run.base for run in left}
        bases = ", ".join(self._base_progress(name) if name in needed else f"{name} done" for name in self.bases)
        work = [f"{run.name} {steps}" for run in left if (steps := self._steps_of(run)) is not None]
        made = len(self.listed.runs) - len(left)
        seconds = self.seconds_left(left)
        about = "time left not known yet" if seconds is None else f"about {timedelta(seconds=round(seconds))} left"
        at_work = f"; at work: {', '.join(work)}" if work else ""
        failed = sum(worker.num_failed for worker in self.workers)
        failures = f", {failed} FAILED attempts (see {self.paths.out / 'log'})" if failed else ""
        return f"{bases}; {made} of {len(self.listed.runs)} runs{failures}{at_work}; {about}"

    def _base_progress(self, name: str) -> str:
        if self.is_taught(name):
            return f"{name} taught"
        if self._is_lost(name):
            return f"{name} FAILED"
        found = self._last_progress(name)
        return f"{name} waits" if found is None else f"{name} {found[1]} {found[2]}/{found[3]}"

    def _last_progress(self, name: str) -> re.Match[str] | None:
        """The last line about steps in a base's log."""
        try:
            lines = self.bases[name].log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return None
        return next((found for line in reversed(lines) if (found := _PROGRESS.search(line))), None)

    def _steps_of(self, run: EmojiRun) -> str | None:
        """How far a run that is being made has come; None for one that is not."""
        metrics = self.paths.out / "work" / run.name / "metrics.jsonl"
        try:
            return f"step {len(metrics.read_bytes().splitlines())}"
        except OSError:
            return None

    def seconds_left(self, left: Sequence[EmojiRun]) -> float | None:
        """Estimate the time left from finished runs and from teaching so far; None before there are any."""
        times: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
        for run in self.listed.runs:
            if run not in left:
                result = self.listed.read_result(self.paths.out / "cells" / f"{run.name}.json") or {}
                times[run.stage, run.trains].append(float(result["seconds"]))
        every = [seconds for (_, trains), own in times.items() if trains for seconds in own]
        if not every:
            return None
        running = sum(mean(times.get((run.stage, run.trains)) or every) for run in left) / len(self.workers)
        teaching = self._teaching_left({run.base for run in left})
        return running if teaching is None else max(running, teaching + 2 * mean(every))

    def _teaching_left(self, needed: set[str]) -> float | None:
        """Seconds until all needed bases are taught; None if they are, or if no base says how long it takes."""
        missing = [name for name in needed if not self.is_taught(name) and not self._is_lost(name)]
        found = [(name, match) for name in missing if (match := self._last_progress(name)) is not None]
        cards = [
            float(str(read_card(self.paths.bases / name)["seconds"])) for name in self.bases if self.is_taught(name)
        ]
        if not missing or not (cards or found):
            return None
        known = {name: _seconds(match[4]) for name, match in found}
        usual = mean(cards) if cards else max(known.values())
        return sum(known.get(name, usual) for name in missing) / self.num_teachers

    def stop(self) -> None:
        """End all processes: first those that make runs, then teaching, which saves its state."""
        running = [each for each in [*self.workers, *self.bases.values()] if each.is_running]
        for each in running:
            assert each.process is not None
            each.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + _GRACE_SECONDS
        for each in running:
            assert each.process is not None
            try:
                each.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()

    def keep_cards(self) -> None:
        """Copy the cards of finished bases to the results."""
        for name in self.bases:
            card, kept = self.paths.bases / name / CARD, self.paths.out / "cards" / f"{name}.json"
            if card.is_file() and not (kept.is_file() and kept.read_bytes() == card.read_bytes()):
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(card, kept)


def _start_over(listed: StudyList, paths: StudyPaths, *, may_set_aside: bool, say: Say) -> None:
    """Set the results of lost bases aside. Raise a ConfigError if that was not asked for."""
    lost = lost_bases(listed, paths.bases, paths.out)
    if not lost:
        return
    if not may_set_aside:
        raise ConfigError(
            [
                f"{paths.out} has results of {', '.join(lost)}, but not all, and {paths.bases} lacks the weights. If "
                "they are lost, pass --set-aside-lost: the results are moved, and the bases start over."
            ]
        )
    folder = set_aside(listed, lost, paths.out)
    say(f"the results of {', '.join(lost)} are set aside in {folder}; they start over")


def _seconds(text: str) -> float:
    """Read a time left.

    >>> _seconds("0:01:10")
    70.0
    """
    hours, minutes, seconds = (float(part) for part in text.split(":"))
    return 3600 * hours + 60 * minutes + seconds


def _end_by_signal(number: int, frame: object) -> None:
    sys.exit(128 + number)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.whole_study", description="Do the whole study.")
    parser.add_argument("list", type=Path)
    for name in ("--language", "--sprites", "--bases", "--out"):
        parser.add_argument(name, type=Path, required=True)
    # Six: the runs of a base on `test`, and half of those that settle. An H200 has room for them beside teaching.
    parser.add_argument("--workers", type=int, default=6, help="Processes that make runs.")
    parser.add_argument("--teachers", type=int, default=1, help="Bases that are taught at a time.")
    parser.add_argument("--minutes", type=float, default=math.inf, help="End after this time; run again to resume.")
    parser.add_argument(
        "--set-aside-lost",
        action="store_true",
        help="Move the results of bases whose weights are gone before all their runs were made, and start them over.",
    )
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    say = timed_say()
    signal.signal(signal.SIGTERM, _end_by_signal)
    with exit_on_error():
        for name in ("workers", "teachers"):
            if getattr(options, name) < 1:
                raise ConfigError([f"--{name} = {getattr(options, name)} must be at least 1."])
        # Without this, every process uses a thread per core, and they wait for each other.
        threads = max(1, (os.cpu_count() or 1) // (options.workers + options.teachers))
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        listed = read_study(options.list, options.overrides)
        check_planned(listed, options.language, options.sprites)
        paths = StudyPaths(options.list, options.language, options.sprites, options.bases, options.out)
        numbers = {"workers": options.workers, "teachers": options.teachers}
        with only_process(options.out):
            _start_over(listed, paths, may_set_aside=options.set_aside_lost, say=say)
            study = WholeStudy(listed, paths, **numbers, overrides=options.overrides, say=say)
            status = study.run(60 * options.minutes)
        say(study.progress(study.left()))
        sys.exit(status)


if __name__ == "__main__":
    main()
