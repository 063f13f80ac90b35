"""Run lists of planned runs in parallel for a limited time. Resumes: finished bases and runs are not repeated.

    python -m vcsd.reproduce.planned.run_planned docs/results/planned.json --out runs/planned --jobs 14 --minutes 15
    python -m vcsd.reproduce.planned.run_planned docs/results/planned.json --out runs/planned --pretrain cuda

Runs are on the CPU, one thread each, in the order of the list. A run of 90 steps with its exam takes about 360 CPU
seconds (3.4 s a step on one core of an AMD EPYC, 15 s before, 45 s for the exam), so 14 processes finish about 30 in 15
minutes. With `--pretrain cuda`, bases of the list that do not exist are made on the GPU meanwhile, `--pretrain-jobs` at
a time: a stem for each seed, then a branch for each world; on a CPU a base would take an hour and a half. Runs whose
base does not exist yet wait. With `--device cuda`, the runs use the GPU too. They share it better with CUDA's
multi-process service (`nvidia-cuda-mps-control -d`): on an H200 with 16 cores, 15 runs at a time then took 96 to 150 s
each.

`--quick` is a smoke test of a list: the first run of each setting, with two tiny steps, from tiny bases that it makes.
All of it is in `OUT/quick`, because its bases have the names of the real ones; it does not use `--bases` and `--known`.
A base in the folder of bases that was not made as the list says is refused.

Several lists run together, the runs of the first list first; every result names its own list.

`--known` names a folder of results that need not be repeated. Their bases are not made again: a base with missing runs
must be put back into the folder of bases. If its weights are lost, `--again NAME` makes it again and repeats all its
runs; its results in `--known` do not count then, and must be moved away before the new ones are put there.

Everything that is worth keeping is in `--out`: `cells/`, `cards/` and `runs.jsonl`. `--archive FILE` packs it about
once a minute and at the end, with the bases that have missing runs: unpacked into `--out` elsewhere, it resumes there.
SIGTERM and Ctrl-C end it as the time does. SIGKILL leaves its processes behind: the same command waits for what they
have begun. The exit code is 1 if a run or a base failed, which the same command tries again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.bases.branch import is_stem
from vcsd.bases.card import CARD, read_card
from vcsd.bases.curriculum import Curriculum
from vcsd.checkpoint.lock import process_in
from vcsd.config.shipped import recipe_path
from vcsd.errors import ConfigError
from vcsd.monitor.lines import Lines
from vcsd.monitor.machine import hardware
from vcsd.reproduce.cell import Sweep
from vcsd.reproduce.experiments import NUM_PROMPTS, NUM_QUESTIONS, QUICK
from vcsd.reproduce.journal import JOURNAL, JournalEntry, create_results_folder, pack_results
from vcsd.reproduce.planned.known_runs import known_runs
from vcsd.reproduce.planned.run_list import SHIPPED, read_run_list, together
from vcsd.reproduce.pool import PoolTally, Worker, report_outcome
from vcsd.terminal import exit_on_error
from vcsd.terminal.stopping import handled_by
from vcsd.visible import visible
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vcsd.reproduce.cell import Cell
    from vcsd.reproduce.planned.known_runs import KnownRuns
    from vcsd.reproduce.planned.run_list import PlannedBase, PlannedRun, RunList

QUICK_QUESTIONS, QUICK_PROMPTS = 4, 64
QUICK_SIZE, QUICK_WORLD = "tiny", ("batch=8", "sight_steps=1", "answer_steps=1", "sway_steps=1")
POLL_SECONDS, SAVE_SECONDS = 1.0, 60.0


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(visible(text) + "\n")
    sys.stdout.flush()


@dataclass
class BaseMaker:
    """Makes bases in processes of their own, a few at a time: stems first, then their branches."""

    bases: Sequence[PlannedBase]
    folder: Path
    device: str | None
    jobs: int
    questions: int | None = None
    """Questions per suite that measure a base; None for the usual number."""
    used: frozenset[str] = frozenset()
    """Bases with results, which are not made again."""
    environment: dict[str, str] = field(default_factory=lambda: {**os.environ, "OMP_NUM_THREADS": "1"})
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    outs: dict[str, Path] = field(default_factory=dict)
    """The folders that they are made in."""
    failed: set[str] = field(default_factory=set)
    compared: set[str] = field(default_factory=set)
    """Bases whose cards are those of the planned ones."""

    def has(self, name: str) -> bool:
        """Whether a base can be used. Raise a ConfigError if the folder holds another base under its name."""
        if name.startswith(SHIPPED):
            return True
        if not (self.folder / name / CARD).is_file():
            return False
        if name not in self.compared:
            refuse_other_base(self.folder / name, next(base for base in self.bases if base.name == name))
            self.compared.add(name)
        return True

    def advance(self) -> None:
        """Collect what has ended, and start what can be made."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[name]
                if process.returncode and process_in(self.outs[name]) is None:
                    self.failed.add(name)
                how = "made" if not process.returncode else "FAILED, see logs" if name in self.failed else "in use"
                say(f"{time.strftime('%H:%M:%S')} {name}: {how}")
        if self.device is None:
            return
        for name, arguments in self._todo():
            if len(self.running) >= self.jobs:
                return
            self.outs[name] = Path(arguments[arguments.index("--out" if "--out" in arguments else "--stem") + 1])
            if name not in self.running and name not in self.failed and process_in(self.outs[name]) is None:
                self._start(name, arguments)

    @property
    def is_done(self) -> bool:
        """Whether nothing is running and nothing more can be made."""
        return not self.running and not any(name not in self.failed for name, _ in self._todo())

    def _todo(self) -> Iterator[tuple[str, list[str]]]:
        """What can be made now: a stem that some base needs, or a base whose stem is finished."""
        if self.device is None:
            return
        stems = set()
        for base in self.bases:
            if self.has(base.name) or base.name in self.used:
                continue
            stem = self.folder / "stems" / base.stem
            common = ["--family", base.family, "--size", base.size, "--seed", str(base.seed), "--stem", str(stem)]
            common += [] if self.questions is None else ["--questions", str(self.questions)]
            plan = Curriculum(base.family, base.size, base.seed, PARAMETERS.changed(base.shared))
            if is_stem(stem, plan):
                changes = [part for each in base.overrides for part in ("--set", each)]
                yield base.name, [*common, *changes, "--out", str(self.folder / base.name)]
            elif base.stem not in stems:
                stems.add(base.stem)
                yield f"stem {base.stem}", [*common, *(part for each in base.shared for part in ("--set", each))]

    def _start(self, name: str, arguments: list[str]) -> None:
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "vcsd.bases.branch", *arguments, "--device", str(self.device)]
        with (logs / f"{name.replace(' ', '-')}.txt").open("ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def stop(self) -> None:
        """End what is running. The next command resumes it from its latest checkpoint."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()


def refuse_other_base(folder: Path, planned: PlannedBase) -> None:
    """Raise unless the card of a base says that it was made as planned."""
    plan = Curriculum(planned.family, planned.size, planned.seed, PARAMETERS.changed(planned.overrides))
    card = read_card(folder)
    others = [
        f"{key} {card.get(key)}, planned {value}" for key, value in plan.identity().items() if card.get(key) != value
    ]
    if others:
        raise ConfigError([
            f"{folder} is not the planned base {planned.name}: {'; '.join(others)}. Move it away, or change --bases."
        ])  # fmt: skip


def run_list(
    listed: RunList,
    sweep: Sweep,
    maker: BaseMaker,
    known: KnownRuns,
    jobs: int,
    deadline: float,
    save: Callable[[], None] = lambda: None,
) -> PoolTally:
    """Run what is listed until it is done, the time is over, or Ctrl-C or SIGTERM comes.

    Calls `save` about once a minute.
    """
    todo = [run for run in listed.runs if not known.has_result(run, sweep)]
    tally = PoolTally(len(todo), len(listed.runs) - len(todo))
    next_cell = partial(_next_cell, listed, todo, sweep, maker, known, tally)
    workers: list[Worker] = []
    idle: list[Worker] = []
    is_last, saved = False, time.monotonic()
    # A KeyboardInterrupt could come while pydantic reads a recipe, which makes an error of its own of it.
    signals: list[int] = []
    with handled_by(lambda number, frame: signals.append(number)):
        try:
            while time.monotonic() < deadline and not is_last and not signals:
                maker.advance()
                if time.monotonic() - saved >= SAVE_SECONDS:
                    save()
                    saved = time.monotonic()
                while len(workers) < jobs and (cell := next_cell()) is not None:
                    workers.append(idle.pop() if idle else Worker(sweep.out / "logs", threads=1))
                    workers[-1].start(cell)
                is_last = not workers and maker.is_done and not any(maker.has(run.base) for run in todo)
                _collect(workers, idle, partial(report_outcome, tally, say, shows_score=False))  # one look, at the end
            if signals:
                say("Interrupted. The same command resumes.")
        finally:
            for worker in (*workers, *idle):
                worker.process.terminate()
            maker.stop()
            for worker in (*workers, *idle):
                worker.stop()
    return tally


def _next_cell(
    listed: RunList, todo: list[PlannedRun], sweep: Sweep, maker: BaseMaker, known: KnownRuns, tally: PoolTally
) -> Cell | None:
    """Take the first run from the list whose base exists, and that has no result and no process of a killed command."""
    for run in list(todo):
        if not maker.has(run.base):
            continue
        cell = listed.cell(run, maker.folder, sweep)
        if process_in(sweep.out / "work" / cell.key) is not None:
            continue
        todo.remove(run)
        if cell.key in known.keys or cell.result() is not None:
            tally.num_todo, tally.num_known = tally.num_todo - 1, tally.num_known + 1
            continue
        return cell
    return None


def waiting(listed: RunList, sweep: Sweep, maker: BaseMaker, known: KnownRuns) -> list[str]:
    """The bases with results and with missing runs that are not there."""
    missing = (run.base for run in listed.runs if run.base in known.bases and not known.has_result(run, sweep))
    return [name for name in dict.fromkeys(missing) if not maker.has(name)]


def _collect(workers: list[Worker], idle: list[Worker], report: Callable[..., None]) -> None:
    """Wait a moment for outcomes, and report them. A process in which a run failed is not used again."""
    if not workers:
        time.sleep(POLL_SECONDS)
        return
    ready = wait([worker.pipe for worker in workers], timeout=POLL_SECONDS)
    for worker in [worker for worker in workers if worker.pipe in ready]:
        outcome = worker.outcome()
        report(worker.cell, outcome)
        workers.remove(worker)
        if outcome[0] is None:
            worker.process.terminate()
            worker.stop()
        else:
            idle.append(worker)


def keep_cards(bases: Path, out: Path) -> None:
    """Copy the cards of the bases next to the results: they say how a base was made and what it can do."""
    for card in sorted(bases.glob(f"*/{CARD}")):
        (out / "cards").mkdir(exist_ok=True)
        shutil.copyfile(card, out / "cards" / f"{card.parent.name}.json")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m vcsd.reproduce.planned.run_planned", description="Run a list of planned runs."
    )
    parser.add_argument("lists", type=Path, nargs="+", metavar="list", help="Files of planned runs.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bases", type=Path, help="Folder for bases. Default: OUT/bases.")
    parser.add_argument("--known", type=Path, help="Results that need not be repeated.")
    parser.add_argument("--again", nargs="+", default=[], metavar="BASE", help="Bases whose weights are lost.")
    parser.add_argument("--archive", type=Path, help="Pack results, and bases with missing runs, into this .tar.gz.")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="Where runs compute.")
    parser.add_argument("--pretrain", choices=("cpu", "cuda"), help="Make missing bases there. Default: make none.")
    parser.add_argument("--pretrain-jobs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="A smoke test: each setting once, with tiny bases.")
    return parser.parse_args()


def _main(options: argparse.Namespace) -> bool:
    """Run the list; return whether everything that was tried succeeded."""
    started = time.monotonic()
    if options.jobs < 1 or options.pretrain_jobs < 1 or options.minutes <= 0:
        raise ConfigError(["--jobs, --pretrain-jobs and --minutes must be positive."])
    listed = _listed(options)
    if options.quick:
        options.out, options.bases, options.known = options.out / "quick", None, None
        options.pretrain = options.pretrain or "cpu"
        say(f"A smoke test, all in {options.out}: no base and no result from elsewhere is used or changed.")
    sweep = _sweep(options, "; ".join(dict.fromkeys(listed.commands.values())))
    create_results_folder(options.out)
    bases = options.bases or options.out / "bases"
    num = QUICK_QUESTIONS if options.quick else None
    maker = BaseMaker(list(listed.bases.values()), bases, options.pretrain, options.pretrain_jobs, num)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read by the processes that are started from here on
    os.environ["OMP_NUM_THREADS"] = "1"
    num_there = sum(maker.has(name) for name in listed.bases)
    say(
        f"{len(listed.runs)} runs and {len(listed.bases)} bases are listed, {num_there} bases are there; "
        f"{options.minutes:g} minutes at most."
    )
    known = known_runs(listed, [options.out, *([options.known] if options.known else [])], options.again)
    known.refuse_other_weights(bases)
    known.refuse_other_reader(listed, sweep)
    maker.used = frozenset(known.bases)
    for name in waiting(listed, sweep, maker, known):
        say(f"{name} has results and missing runs, but is not in {bases}: put it there, since it is not made again.")
    save = partial(_save, options.archive, listed, sweep, maker, known)
    tally = run_list(listed, sweep, maker, known, options.jobs, started + 60 * options.minutes, save)
    keep_cards(bases, options.out)
    wall = time.monotonic() - started
    ran = sorted({run.base for run in listed.runs if maker.has(run.base)})
    _note(listed, sweep, tally, options.jobs, ran, wall)
    save()
    say(f"{len(tally.keys)} runs finished, {len(tally.failed)} failed, {tally.num_known} known; {wall:.0f} s.")
    for failure in (*tally.failed, *sorted(maker.failed)):
        say(f"FAILED: {failure}")
    return not tally.failed and not maker.failed


def _listed(options: argparse.Namespace) -> RunList:
    """All lists as one. Raise a ConfigError if a base to make again is on none of them."""
    lists = {path: read_run_list(path) for path in options.lists}
    if options.quick:
        lists = {path: each.quick(QUICK_SIZE, QUICK_WORLD) for path, each in lists.items()}
    listed = together({
        f"python -m vcsd.reproduce.planned.run_planned {path} ({each.digest})": each for path, each in lists.items()
    })  # fmt: skip
    unknown = [name for name in options.again if name not in listed.bases]
    if unknown:
        raise ConfigError([f"--again {name} is no base of these lists." for name in unknown])
    return listed


def _save(archive: Path | None, listed: RunList, sweep: Sweep, maker: BaseMaker, known: KnownRuns) -> None:
    """Pack the results and the bases that runs still need."""
    if archive is None:
        return
    keep_cards(maker.folder, sweep.out)
    needed = []
    for run in listed.runs:
        if run.base in listed.bases and maker.has(run.base):
            cell = listed.cell(run, maker.folder, sweep)
            if cell.key not in known.keys and cell.result() is None:
                needed.append(run.base)
    try:
        pack_results(archive, sweep.out, maker.folder, dict.fromkeys(needed))
    except OSError as error:  # a file that is just being renamed, a full disk: the runs do not end for it
        say(f"No new archive: {error}.")


def _sweep(options: argparse.Namespace, command: str) -> Sweep:
    """What all runs share."""
    return Sweep(
        recipe=recipe_path("world/reproduce"),
        out=options.out,
        num_questions=QUICK_QUESTIONS if options.quick else NUM_QUESTIONS,
        num_prompts=QUICK_PROMPTS if options.quick else NUM_PROMPTS,
        overrides=QUICK if options.quick else (),
        command=command,
        curve_every=1 if options.quick else None,
    )


def _note(listed: RunList, sweep: Sweep, tally: PoolTally, jobs: int, ran: list[str], wall: float) -> None:
    """Add what was run to the journal."""
    entry = JournalEntry(
        command=sweep.command,
        experiments=list(listed.experiments),
        seeds=sorted({run.seed for run in listed.runs}),
        bases={"planned": ran},
        hardware=hardware(),
        jobs=jobs,
        cells_run=len(tally.keys),
        cells_known=tally.num_known,
        cells_failed=len(tally.failed),
        run_seconds=round(tally.run_seconds, 1),
        wall_seconds=round(wall, 1),
        ended="done" if len(tally.keys) + len(tally.failed) == tally.num_todo else "interrupted",
    )
    Lines(sweep.out / JOURNAL).append(asdict(entry))


def main() -> None:
    """Run the command."""
    with exit_on_error():
        sys.exit(0 if _main(_options()) else 1)


if __name__ == "__main__":
    main()
