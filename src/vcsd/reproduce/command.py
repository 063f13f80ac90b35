"""`vcsd reproduce`: run an experiment of the paper in the synthetic world, and write what came of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vcsd.errors import ConfigError, RunError
from vcsd.world.given import refuse_no_folder, refuse_none, refuse_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.results import Results

QUICK = ("trainer.max_steps=2", "trainer.warmup_steps=1", "prompts_per_step=2", "rollout.num_per_prompt=2")
NUM_QUESTIONS, NUM_PROMPTS = 512, 3072
QUICK_QUESTIONS, QUICK_PROMPTS = 4, 8

WHICH = "main, alpha, support, divergence, control, anchor, temperature, dynamics, decoding, pmi, black; or all."

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


def parse_seeds(text: str) -> list[int]:
    """Seeds as people write them.

    >>> parse_seeds("101..105"), parse_seeds("1,4")
    ([101, 102, 103, 104, 105], [1, 4])
    """
    try:
        first, dots, last = text.partition("..")
        seeds = list(range(int(first), int(last) + 1)) if dots else [int(each) for each in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError([f"--seeds {text!r} are not seeds. Write 101..105, or 101,103."])
    for seed in seeds:
        refuse_seed("--seeds:", seed)
    return seeds


def reproduce(  # noqa: PLR0913, PLR0917  one parameter for each option
    experiment: Annotated[str, typer.Argument(help=WHICH)],
    seeds: Annotated[str, typer.Option(help="Such as 101..105 or 101,103; spread over the bases.")] = "101..105",
    bases: Annotated[
        list[Path] | None,
        typer.Option(help="A base's folder, or a folder of bases; repeatable. Default: those shipped."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            help="Runs side by side, each in its own process. Several on one GPU take turns there unless NVIDIA MPS "
            "runs (nvidia-cuda-mps-control -d)."
        ),
    ] = 1,
    out: Annotated[Path, typer.Option(help="Where results go; finished runs found there are not run again.")] = Path(
        "runs/reproduce"
    ),
    cross: Annotated[bool, typer.Option("--cross", help="Every seed from every base, not one base a seed.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two tiny steps and a few questions: to see that it runs.")
    ] = False,
    questions: Annotated[
        int | None, typer.Option(help=f"Questions of each suite: {NUM_QUESTIONS}, or {QUICK_QUESTIONS} with --quick.")
    ] = None,
    split: Annotated[str, typer.Option(help="test for results; dev for choosing parameters.")] = "test",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A change to the recipe of every run: trainer.learning_rate=5e-5.")
    ] = None,
) -> None:
    """Put a table or figure of the paper to the test in the synthetic world: runs, tables, a plot, and the claims.

    Stopped, it goes on when started again. Example: `vcsd reproduce main --jobs 8 --bases bases/a --bases bases/b`
    """
    start = time.monotonic()
    from vcsd.reproduce.bases import FAMILY_TITLES, grouped
    from vcsd.reproduce.cell import Plan
    from vcsd.reproduce.experiments import chosen
    from vcsd.reproduce.journal import duration, note, prepare
    from vcsd.reproduce.machine import hush_transformers
    from vcsd.reproduce.pages import write_pages
    from vcsd.reproduce.pool import run_cells, take_stock
    from vcsd.reproduce.recipes import recipe_path
    from vcsd.reproduce.results import Results, runnable
    from vcsd.world.bases import shipped_base

    if questions is None:
        questions = QUICK_QUESTIONS if quick else NUM_QUESTIONS
    _refuse(jobs, questions, split, out)
    asked = chosen(experiment)
    plan = Plan(
        recipe=recipe_path("reproduce"),
        out=out,
        num_questions=questions,
        num_prompts=QUICK_PROMPTS if quick else NUM_PROMPTS,
        overrides=(*(QUICK if quick else ()), *(change or ())),
        command=" ".join(["vcsd", *sys.argv[1:]]),
        curve_every=1 if quick else None,
        split=split,
    )
    groups = grouped(bases or [shipped_base(family) for family in FAMILY_TITLES])
    results = Results(plan, groups, parse_seeds(seeds), cross)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    experiments = runnable(asked, results)
    for line in _announced(asked, experiments, results):
        console.print(line)
    hush_transformers()
    prepare(out)
    todo, tally = take_stock([cell for each in experiments for cell in results.cells(each)])
    if again := sum(cell.path.is_file() for cell in todo.values()):
        console.print(f"Run again: {again} whose answers went unread in part, by rules that read more today.")
    try:
        run_cells(todo, tally, jobs, console.print)
    except KeyboardInterrupt:
        note(experiments, results, tally, jobs, time.monotonic() - start, "interrupted")
        console.print(f"Stopped; {len(tally.keys)} of {tally.num_todo} cells are done. The same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
    wall_seconds = time.monotonic() - start
    note(experiments, results, tally, jobs, wall_seconds, "done")
    for path in write_pages(experiments, results):
        console.print(f"{path}")
    console.print(f"Wall time: {duration(wall_seconds)}; runs: {duration(tally.run_seconds)} in all.")
    if tally.failed:
        more = f" and {len(tally.failed) - 1} more" if len(tally.failed) > 1 else ""
        raise RunError(f"a run failed: {tally.failed[0]}{more}. The same command tries again what is missing.")


def _refuse(jobs: int, questions: int, split: str, out: Path) -> None:
    """Raise for options with which nothing can be run."""
    refuse_none("--jobs", jobs)
    refuse_none("--questions", questions)
    if split not in ("dev", "test"):
        raise ConfigError([f"--split {split!r} is not a split to ask. Allowed: test, dev."])
    refuse_no_folder(out)


def _announced(asked: Sequence[Experiment], experiments: Sequence[Experiment], results: Results) -> Iterator[str]:
    """What the command will do: experiments, bases and seeds; and what it leaves out, with the reason."""
    from vcsd.reproduce.results import why_not

    yield f"Experiments: {', '.join(each.name for each in experiments)}"
    used = {group for each in experiments for group in results.groups_of(each)}
    for group, bases in results.groups.items():
        names = ", ".join(base.title for base in bases)
        yield f"{group}: {names}" + ("" if group in used else " (not used: no experiment here starts from these)")
    yield f"Seeds: {', '.join(map(str, results.seeds))}; " + (
        "each from every base" if results.cross else "spread over the bases of a group"
    )
    yield from (f"Left out: {why_not(each)}" for each in asked if each not in experiments)
