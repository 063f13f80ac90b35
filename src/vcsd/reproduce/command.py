"""`vcsd reproduce`: run an experiment of the paper in the synthetic world, and write what came of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vcsd.errors import ConfigError, RunError

QUICK = ("trainer.max_steps=2", "trainer.warmup_steps=1", "prompts_per_step=2", "rollout.num_per_prompt=2")
QUICK_QUESTIONS, QUICK_PROMPTS = 4, 8


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
    return seeds


def reproduce(  # noqa: PLR0913, PLR0917  one parameter for each option
    experiment: Annotated[str, typer.Argument(help="main, alpha, support, divergence, control, anchor, ... or all.")],
    seeds: Annotated[str, typer.Option(help="Such as 101..105 or 101,103; spread over the bases.")] = "101..105",
    bases: Annotated[
        list[Path] | None,
        typer.Option(help="A base's folder, or a folder of bases; repeatable. Default: those shipped."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs side by side, each in its own process.")] = 1,
    out: Annotated[Path, typer.Option(help="Where results go; finished runs found there are not run again.")] = Path(
        "runs/reproduce"
    ),
    cross: Annotated[bool, typer.Option("--cross", help="Every seed from every base, not one base a seed.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two tiny steps and a few questions: to see that it runs.")
    ] = False,
    questions: Annotated[int, typer.Option(help="Questions of each suite.")] = 512,
    split: Annotated[str, typer.Option(help="test for results; dev for choosing parameters.")] = "test",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A change to the recipe of every run: trainer.learning_rate=5e-5.")
    ] = None,
) -> None:
    """Put a table or figure of the paper to the test in the synthetic world: runs, tables, a plot, and the claims.

    Stopped, it goes on when started again. Example: `vcsd reproduce main --jobs 8 --bases bases/a --bases bases/b`
    """
    from vcsd.reproduce.bases import FAMILY_TITLES, grouped
    from vcsd.reproduce.cell import Plan
    from vcsd.reproduce.experiments import chosen
    from vcsd.reproduce.machine import hush_transformers
    from vcsd.reproduce.pages import write_pages
    from vcsd.reproduce.pool import run_cells
    from vcsd.reproduce.recipes import recipe_path
    from vcsd.reproduce.results import Results
    from vcsd.world.bases import shipped_base

    if jobs < 1:
        raise ConfigError([f"--jobs {jobs} must be at least 1."])
    if split not in ("dev", "test"):
        raise ConfigError([f"--split {split!r} is not a split to ask. Allowed: test, dev."])
    experiments = chosen(experiment)
    plan = Plan(
        recipe=recipe_path("reproduce"),
        out=out,
        num_questions=QUICK_QUESTIONS if quick else questions,
        num_prompts=QUICK_PROMPTS if quick else 3072,
        overrides=(*(QUICK if quick else ()), *(change or ())),
        command=" ".join(["vcsd", *sys.argv[1:]]),
        curve_every=1 if quick else None,
        split=split,
    )
    groups = grouped(bases or [shipped_base(family) for family in FAMILY_TITLES])
    results = Results(plan, groups, parse_seeds(seeds), cross)
    console = Console(soft_wrap=True, highlight=False)
    cells = [cell for each in experiments for cell in results.cells(each)]
    hush_transformers()
    failed = run_cells(cells, jobs, console.print)
    for path in write_pages(experiments, results):
        console.print(f"{path}")
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise RunError(f"a run failed: {failed[0]}{more}. The same command tries again what is missing.")
