"""The command line. Heavy imports live inside the commands: `vcsd --help` must not wait for torch."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vcsd import __version__
from vcsd.errors import RunError, VcsdError
from vcsd.evaluation.command import eval as evaluate
from vcsd.reproduce.command import reproduce
from vcsd.world.command import app as world

app = typer.Typer(
    help="Post-train vision-language models without labels, by visual contrastive self-distillation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(world, name="world")

_NO_ROOM = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""What a write says on a full disk, and beyond a quota."""


def main() -> None:
    """Run the command line; an error meant for users is printed without a traceback, with exit code 2."""
    try:
        app()
    except VcsdError as error:
        _fail(error)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _fail(RunError(f"the disk is full: {error}. Make room and start again: what was saved is whole."))


def _fail(error: VcsdError) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {type(error).__name__}: ", end="")
    Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
    sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        Console().print(f"vcsd {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def doctor() -> None:
    """Say whether this machine can run vcsd, and what a run would use.

    Exit code 1 if something needed is broken.

    Example: `vcsd doctor`
    """
    from vcsd.doctor import examine

    console = Console()
    marks = {"ok": "[green]ok[/]", "off": "[dim]off[/]", "broken": "[bold red]BROKEN[/]"}
    num_broken = 0
    for title, findings in examine():
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 1)
        )
        for finding in findings:
            table.add_row(marks[finding.state], finding.subject, Text(finding.detail))
            num_broken += finding.state == "broken"
        console.print(table)
    if num_broken:
        console.print(f"[bold red]{num_broken} broken.[/] Reinstall with the tested versions: see constraints.txt.")
        raise typer.Exit(1)
    console.print("[green]All that is needed works.[/]")


@app.command()
def methods() -> None:
    """Print the table of methods: what the teacher sees, how its target is shaped, how the student follows.

    Example: `vcsd methods`
    """
    from vcsd.method import METHODS, PRESETS

    table = Table(box=None, padding=(0, 1), header_style="bold")
    for column in ("method", "target", "contrast", "alpha", "beta", "anchor", "loss", "T", "teacher"):
        table.add_column(column)
    for name, method in METHODS.items():
        views = (method.target_view, method.contrast_view or "-")
        shape = [f"{value:g}" for value in (method.alpha, method.beta, method.anchor)]
        teacher = f"ema {method.ema_rate:g}" if method.teacher == "ema" else method.teacher
        table.add_row(name, *views, *shape, method.divergence, f"{method.temperature:g}", teacher)
    console = Console()
    console.print(table)
    for name, preset in PRESETS.items():
        values = ", ".join(f"{key} {'T*T' if value is None else value}" for key, value in preset.items())
        console.print(f"preset [bold]{name}[/]: {values}", highlight=False)


@app.command()
def config(
    recipe: Annotated[Path, typer.Argument(help="A YAML recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes such as method.alpha=0.5.")] = None,
) -> None:
    """Check a recipe and print it resolved, every default filled in, as JSON.

    Example: `vcsd config recipes/paper/qwen3_vl_2b.yaml method.alpha=0.5`
    """
    from vcsd.config import load_recipe

    sys.stdout.write(load_recipe(recipe, overrides or ()).to_json())


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes such as method.alpha=0.5.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen and what it needs.")] = False,
) -> None:
    """Train a student as a recipe says. Started again, it goes on from its latest checkpoint.

    Example: `vcsd train recipes/paper/qwen3_vl_2b.yaml trainer.output_dir=runs/first --dry-run`
    """
    from vcsd.config import load_recipe

    settings = load_recipe(recipe, overrides or ())
    _show_log()
    from vcsd import run

    loaded = run.load(settings)
    if dry_run:
        for line in run.dry_run(loaded):
            sys.stdout.write(line.rstrip("\n") + "\n")
        return
    try:
        trainer = run.train(loaded)
    except KeyboardInterrupt:
        Console().print(f"Stopped. {run.how_to_go_on(loaded)}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    skips = trainer.stream.skips
    if skips.num_skipped:
        Console().print(f"Rows passed over: {skips.summary()}; see skipped.jsonl.", highlight=False, soft_wrap=True)
    done = f"{trainer.state.global_step} steps are done. The run is in {loaded.output}."
    Console().print(done, highlight=False, soft_wrap=True)


@app.command()
def demo(
    family: Annotated[str, typer.Option(help="qwen3_vl or qwen3_5.")] = "qwen3_vl",
    seed: Annotated[int, typer.Option(help="The same seed gives the same table on the same machine.")] = 0,
    fast: Annotated[bool, typer.Option("--fast", help="About a minute: fewer steps and questions.")] = False,
    base: Annotated[
        Path | None, typer.Option(help="A base model's folder; by default the one that is shipped.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; by default under runs/.")] = None,
) -> None:
    """Show the method at work on a tiny model: base, OPSD and VCSD on seven suites, in about five minutes on two cores.

    Stopped with Ctrl-C, it goes on when started again.

    Example: `vcsd demo --fast`
    """
    _show_log()
    from vcsd import demo as demonstration
    from vcsd.demo_page import terminal_table
    from vcsd.reproduce.machine import hush_transformers
    from vcsd.world.bases import shipped_base

    hush_transformers()
    folder = out or Path("runs") / f"demo-{family}-{seed}{'-fast' if fast else ''}"
    setting = demonstration.Setting(
        base=base or shipped_base(family),
        seed=seed,
        size=demonstration.FAST if fast else demonstration.FULL,
        out=folder,
        command=" ".join(["vcsd", *sys.argv[1:]]),
    )
    console = Console()
    try:
        shown = demonstration.demonstrate(setting, lambda line: console.print(line, highlight=False))
    except KeyboardInterrupt:
        console.print(f"Stopped. The same command goes on from {folder}.", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    console.print("\nRight answers in percent; paired differences in points with their 95% intervals:")
    console.print(terminal_table(shown))
    console.print(f"\n{shown.seconds:.0f} s. The report is {folder / 'report.html'}.", highlight=False, soft_wrap=True)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or one of its checkpoints.")],
    out: Annotated[Path | None, typer.Option(help="A new folder; by default RUN/student or RUN/teacher.")] = None,
    what: Annotated[str, typer.Option(help="student or teacher.")] = "student",
    dtype: Annotated[str, typer.Option(help="bfloat16, as models are released, or float32.")] = "bfloat16",
) -> None:
    """Write the student or the teacher of a run as a plain Hugging Face folder.

    Example: `vcsd export runs/first --what teacher`
    """
    from vcsd.checkpoint.export import export as write

    folder = run / what if out is None else out
    checkpoint = write(run, folder, what=what, dtype=dtype)
    Console().print(f"The {what} of {checkpoint} is in {folder}.", highlight=False, soft_wrap=True)


app.command()(evaluate)
app.command()(reproduce)


def _show_log() -> None:
    """Let what the package says reach the terminal: which rows were skipped, what the guard thinks."""
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("vcsd").setLevel(logging.INFO)
