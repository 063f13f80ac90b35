"""The command line. Heavy imports live inside the commands: `vcsd --help` must not wait for torch."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - Typer reads the annotation when it runs
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vcsd import __version__
from vcsd.errors import VcsdError

app = typer.Typer(
    help="Post-train vision-language models without labels, by visual contrastive self-distillation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; an error meant for users is printed without a traceback, with exit code 2."""
    try:
        app()
    except VcsdError as error:
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
