"""`vcsd reproduce`: run the paper's experiments in the offline world, and write tables, plots and verdicts."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcsd.errors import ConfigError, RunError
from vcsd.reproduce.experiments import NUM_PROMPTS, NUM_QUESTIONS, QUICK
from vcsd.terminal import say
from vcsd.terminal.stopping import exit_code_of, how_stopped
from vcsd.world.checks import checked_split, refuse_no_folder, refuse_none, refuse_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.reproduce.experiments import Experiment
    from vcsd.reproduce.paper.paper_setting import PaperSetting
    from vcsd.reproduce.results import Results

QUICK_QUESTIONS, QUICK_PROMPTS = 4, 8

MOST_JOBS, MOST_QUESTIONS, MOST_SEEDS = 1024, 100_000, 1000
"""Beyond these a number is a slip, which would fill the memory before anything runs."""

NAMES = (
    "main, alpha, support, divergence, control, anchor, temperature, dynamics, decoding, pmi, black, sharpening, dose"
)
ExperimentName = Annotated[str, typer.Argument(help=f"The experiment to run: {NAMES}, or all.")]
Seeds = Annotated[str, typer.Option(help="Seeds, such as 101..105 or 101,103. They are spread over the bases.")]
Bases = Annotated[
    list[Path] | None,
    typer.Option(help="Folder of a base model, or of several; repeatable. Default: the shipped bases."),
]
Jobs = Annotated[
    int,
    typer.Option(
        help="Number of runs in parallel, each in its own process. Runs on one GPU take turns unless NVIDIA MPS is "
        "running (nvidia-cuda-mps-control -d)."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for results. Runs that are already finished there are not repeated.")]
Cross = Annotated[bool, typer.Option("--cross", help="Start every seed from every base, instead of one base per seed.")]
Quick = Annotated[bool, typer.Option("--quick", help="Run two tiny steps and ask a few questions, as a smoke test.")]
Questions = Annotated[
    int | None, typer.Option(help=f"Questions per suite. Default: {NUM_QUESTIONS}, or {QUICK_QUESTIONS} with --quick.")
]
Split = Annotated[str, typer.Option(help="Questions to ask: test for results, dev for choosing parameters.")]
Setting = Annotated[str, typer.Option(help="world: tiny models, offline. paper: the paper's models and benchmarks.")]
Models = Annotated[str, typer.Option(help="With --setting paper: models such as qwen3_vl_2b,qwen3_5_9b. Default: all.")]
BenchmarkData = Annotated[
    Path | None, typer.Option("--data", help="With --setting paper: folder of the benchmarks. Default: $LMUData.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --setting paper: print what every row would cost.")]
Launcher = Annotated[
    str,
    typer.Option(
        help="With --setting paper: the command that starts the ranks of each training run, such as "
        "'torchrun --nproc-per-node 8'. Default: one process."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a recipe value in every run, such as trainer.learning_rate=5e-5; repeatable."),
]


_SEEDS = "101..105"
_WORLD_OPTIONS = ("--seeds", "--bases", "--jobs", "--cross", "--quick", "--questions", "--split")


def parse_seeds(text: str) -> list[int]:
    """Parse a range or a list of seeds.

    >>> parse_seeds("101..105"), parse_seeds("1,4")
    ([101, 102, 103, 104, 105], [1, 4])
    """
    try:
        first, dots, last = text.partition("..")
        seeds: Sequence[int] = range(int(first), int(last) + 1) if dots else [int(seed) for seed in text.split(",")]
        num_seeds = len(seeds)
    except (ValueError, OverflowError):
        seeds, num_seeds = [], 0
    refuse_none("--seeds: the number of seeds", max(1, num_seeds), MOST_SEEDS)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError([f"--seeds {text!r} is not a list of distinct seeds. Write 101..105, or 101,103."])
    for seed in seeds:
        refuse_seed("--seeds:", seed)
    return list(seeds)


def reproduce(  # noqa: PLR0913, PLR0917  one parameter for each option
    experiment: ExperimentName,
    seeds: Seeds = _SEEDS,
    bases: Bases = None,
    jobs: Jobs = 1,
    out: Out = Path("runs/reproduce"),
    cross: Cross = False,
    quick: Quick = False,
    questions: Questions = None,
    split: Split = "test",
    change: Changes = None,
    setting: Setting = "world",
    models: Models = "",
    data: BenchmarkData = None,
    dry_run: DryRun = False,
    launcher: Launcher = "",
) -> None:
    """Test a table or figure of the paper in the offline world: runs, tables, a plot, and verdicts on the claims.

    Resumes if interrupted. Example: `vcsd reproduce main --jobs 8 --bases bases/a --bases bases/b`

    With real models: `vcsd reproduce main --setting paper --models qwen3_vl_2b --dry-run`
    """
    start = time.monotonic()
    if setting != "world" or models or data is not None or dry_run or launcher:
        given = [seeds != _SEEDS, bases, jobs != 1, cross, quick, questions is not None, split != "test"]
        _refuse_world_options(setting, given)
        _reproduce_paper(experiment, setting, out, models, data, change or [], launcher, is_dry=dry_run)
        return
    from vcsd.bases.shipped_bases import shipped_base
    from vcsd.checkpoint.lock import only_process
    from vcsd.config.shipped import recipe_path
    from vcsd.reproduce.base_folders import FAMILY_TITLES, grouped
    from vcsd.reproduce.cell import Sweep
    from vcsd.reproduce.experiments import chosen
    from vcsd.reproduce.results import Results, runnable

    if questions is None:
        questions = QUICK_QUESTIONS if quick else NUM_QUESTIONS
    _refuse_slips(jobs, questions, out)
    requested = chosen(experiment)
    sweep = Sweep(
        recipe=recipe_path("world/reproduce"),
        out=out,
        num_questions=questions,
        num_prompts=QUICK_PROMPTS if quick else NUM_PROMPTS,
        overrides=(*(QUICK if quick else ()), *(change or ())),
        command=" ".join(["vcsd", *sys.argv[1:]]),
        curve_every=1 if quick else None,
        split=checked_split(split),
    )
    groups = grouped(bases or [shipped_base(family) for family in FAMILY_TITLES])
    results = Results(sweep, groups, parse_seeds(seeds), cross)
    experiments = runnable(requested, results)
    for line in _announcement(requested, experiments, results):
        say(line)
    with only_process(out):
        _run_and_write(experiments, results, jobs, start)


def _refuse_slips(jobs: int, questions: int, out: Path) -> None:
    refuse_none("--jobs", jobs, MOST_JOBS)
    refuse_none("--questions", questions, MOST_QUESTIONS)
    refuse_no_folder(out)


def _refuse_world_options(setting: str, are_given: Sequence[object]) -> None:
    """Raise a ConfigError for an option that the paper's setting would ignore."""
    given = [name for name, is_given in zip(_WORLD_OPTIONS, are_given, strict=True) if is_given]
    if setting == "paper" and given:
        raise ConfigError(
            [
                f"{given[0]} belongs to the offline world. --setting paper trains shipped recipes as they are; --set "
                "changes their values, such as --set trainer.max_steps=2."
            ]
        )


def _reproduce_paper(
    experiment: str,
    setting: str,
    out: Path,
    models: str,
    data: Path | None,
    changes: Sequence[str],
    launcher: str,
    *,
    is_dry: bool,
) -> None:
    """Train, export and evaluate the rows of a table with the paper's models, or say what that would cost."""
    from vcsd.checkpoint.lock import only_process
    from vcsd.evaluation.asking.presets import parse_sampling
    from vcsd.evaluation.evaluate import Asking
    from vcsd.reproduce.paper.paper_costs import cost_lines
    from vcsd.reproduce.paper.paper_setting import PaperSetting, refuse_launcher, rows_of

    refuse_no_folder(out)
    if setting != "paper":
        given = (
            f"--setting {setting!r} is not world or paper"
            if setting != "world"
            else "--models, --data, --launcher and --dry-run"
        )
        raise ConfigError([f"{given}{'.' if setting != 'world' else ' need --setting paper.'}"])
    rows = rows_of(experiment, _model_names(models))
    refuse_launcher(launcher)
    plan = PaperSetting(out, Asking(sampling=parse_sampling("paper")), data, tuple(changes), launcher)
    if is_dry:
        for line in cost_lines([plan.cost(row) for row in rows]):
            say(line)
        return
    for row in rows:
        plan.recipe(row)  # report a value that some row refuses before hours of training
    try:
        with only_process(out):
            cards = [plan.score(row, say) for row in rows]
    except KeyboardInterrupt as stop:
        say(f"{how_stopped(stop)} The same command resumes from {out}.")
        sys.exit(exit_code_of(stop))
    _print_paper(plan, rows, cards)


def _print_paper(plan: PaperSetting, rows: Sequence[str], cards: Sequence[Scorecard]) -> None:
    """Print the table, then the training curves if there are any, and draw them."""
    from vcsd.reproduce.paper.paper_curves import curve_lines, plot_curves
    from vcsd.reproduce.paper.paper_scores import PAPER_SCORES
    from vcsd.reproduce.paper.paper_setting import table

    curves = {row: curve for row in rows if (curve := plan.curve(row))}
    unknown = [row for row in rows if row not in PAPER_SCORES]
    notes = [f"The paper shows figures without a table, and so no scores, of {', '.join(unknown)}."] if unknown else []
    steps = [line for row, curve in curves.items() for line in curve_lines(row, curve)]
    for line in (*table(rows, cards), *notes, *steps):
        say(line)
    if (picture := plot_curves(curves, plan.out / "curves.png")) is not None:
        say(f"{picture}")


def _model_names(text: str) -> list[str]:
    """Parse a list of models; an empty one means all. Raise a ConfigError for a list without names, or a name twice."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and (not names or len(set(names)) < len(names)):
        raise ConfigError([f"--models {text!r} is not a list of distinct models. Write qwen3_vl_2b,qwen3_5_9b."])
    return names


def _run_and_write(experiments: Sequence[Experiment], results: Results, jobs: int, start: float) -> None:
    """Run the cells that have no result yet, then write all pages."""
    from vcsd.monitor.machine import hush_transformers
    from vcsd.reproduce.journal import add_to_journal, create_results_folder, duration
    from vcsd.reproduce.pages.write_pages import write_pages
    from vcsd.reproduce.pool import run_cells, take_stock

    hush_transformers()
    create_results_folder(results.sweep.out)
    todo, tally = take_stock([cell for experiment in experiments for cell in results.cells(experiment)])
    if num_again := sum(cell.path.is_file() for cell in todo.values()):
        say(f"Running {num_again} again: some answers were unread, and the reading rules have improved.")
    try:
        run_cells(todo, tally, jobs, say)
    except KeyboardInterrupt as stop:
        add_to_journal(experiments, results, tally, jobs, time.monotonic() - start, "interrupted")
        say(f"{how_stopped(stop)} {len(tally.keys)} of {tally.num_todo} cells are done. The same command resumes.")
        sys.exit(exit_code_of(stop))
    wall_seconds = time.monotonic() - start
    add_to_journal(experiments, results, tally, jobs, wall_seconds, "done")
    for path in write_pages(experiments, results):
        say(f"{path}")
    say(f"Wall time: {duration(wall_seconds)}; total run time: {duration(tally.run_seconds)}.")
    if tally.failed:
        more = f" and {len(tally.failed) - 1} more" if len(tally.failed) > 1 else ""
        raise RunError(f"a run failed: {tally.failed[0]}{more}. The same command retries what is missing.")


def _announcement(
    requested: Sequence[Experiment], experiments: Sequence[Experiment], results: Results
) -> Iterator[str]:
    """Yield lines on what the command will do: experiments, bases and seeds; and what it skips, and why."""
    from vcsd.reproduce.results import why_not

    yield f"Experiments: {', '.join(experiment.name for experiment in experiments)}"
    used = {group for experiment in experiments for group in results.groups_of(experiment)}
    for group, bases in results.groups.items():
        names = ", ".join(base.title for base in bases)
        yield f"{group}: {names}" + ("" if group in used else " (not used by these experiments)")
    yield f"Seeds: {', '.join(map(str, results.seeds))}; " + (
        "each from every base" if results.cross else "spread over the bases of a group"
    )
    yield from (f"Skipped: {why_not(experiment)}" for experiment in requested if experiment not in experiments)
