"""The command line. Commands import torch themselves, so that `vcsd --help` stays fast."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from vcsd import __version__
from vcsd.cli.contrast_command import contrast
from vcsd.cli.eval_command import eval as evaluate
from vcsd.cli.eval_command import score
from vcsd.cli.init_command import init, recipes
from vcsd.cli.precheck_command import precheck
from vcsd.cli.reproduce_command import reproduce
from vcsd.cli.run_commands import capsule, export, replay, report, reported, watch
from vcsd.cli.ui_command import ui
from vcsd.cli.unforeseen import EXIT_CODE, report_unforeseen
from vcsd.cli.world_command import app as world
from vcsd.errors import ConfigError, RunError, VcsdError, shown
from vcsd.terminal import announce_slow_import, guard_terminal, is_replica, plain, say, say_once, show_log
from vcsd.terminal.stopping import as_stopped, exit_code_of, how_stopped, stoppable
from vcsd.visible import visible, visible_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vcsd.config.recipe import Recipe


class _Commands(TyperGroup):
    """Escapes control characters in usage errors, which quote the command line, and reports stopped commands."""

    def invoke(self, ctx: Any) -> Any:
        with _said_stop(), _visible_usage_errors():
            return super().invoke(ctx)

    def make_context(self, *given: Any, **more: Any) -> Any:
        with _said_stop(), _visible_usage_errors():
            return super().make_context(*given, **more)


@contextmanager
def _said_stop() -> Iterator[None]:
    """Print that a signal stopped the command, and exit with the code for it."""
    try:
        with as_stopped():
            yield
    except KeyboardInterrupt as stop:
        if not is_replica():
            say(how_stopped(stop), to_stderr=True)
        sys.exit(exit_code_of(stop))


@contextmanager
def _visible_usage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if hasattr(error, "format_message"):  # where the classes of usage errors live depends on typer's version
            whole = error.format_message()
            vars(error)["message"] = visible(f"{message or ''}{_advice(whole)}")
        raise


def _advice(message: str) -> str:
    """Return what to do about a usage error.

    >>> _advice("No such option: --trainer.max_steps"), _advice("Got unexpected extra argument(s) (my.tsv)")
    ('. Settings have no dashes: trainer.max_steps=VALUE', '. Questions are passed as --tsv my.tsv')
    """
    if match := re.search(r"No such option: --([a-z_]+\.[\w.]+)", message):
        return f". Settings have no dashes: {match[1]}=VALUE"
    if "No such option: --resume" in message:
        return ". The same command resumes by itself"
    if match := re.search(r"unexpected extra argument.*?\(([^ )]+\.tsv)\)", message):
        return f". Questions are passed as --tsv {match[1]}"
    if "Missing argument 'recipe'" in message:
        return "Write one with vcsd init, or name one of those that vcsd recipes lists."
    return ""


app = typer.Typer(
    cls=_Commands,
    help="Post-train vision-language models without labels, by visual contrastive self-distillation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

_NO_ROOM = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""Error numbers of a write to a full disk or beyond a quota."""

_BAD_PATH = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EROFS, errno.EACCES, errno.EPERM}
"""Error numbers of a path that cannot be read or written, whatever the program does."""


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when a command imports huggingface_hub
    guard_terminal()
    announce_slow_import()
    with _said_stop(), stoppable(), said_errors():  # a signal may come while stoppable ends
        app()


@contextmanager
def said_errors() -> Iterator[None]:
    """Print an error and exit: with code 2 if it is meant for users, with 70 if it is unexpected."""
    try:
        with as_stopped():
            yield
    except VcsdError as error:
        _fail(error)
    except OSError as error:
        if error.errno in _NO_ROOM:
            _fail(RunError(f"the disk is full: {error}. Free some space and start again; saved files are intact."))
        if error.errno in _BAD_PATH and error.filename is not None:
            path = shown(os.fspath(error.filename), 200) if not isinstance(error.filename, int) else "a file"
            _fail(RunError(f"{path} cannot be read or written: {error.strerror}. Check the path and its permissions."))
        _fail_unforeseen(error)
    except Exception as error:
        _fail_unforeseen(error)


def _fail(error: VcsdError) -> NoReturn:
    Console(stderr=True).print("[bold red]error:[/] ", end="")
    say(str(error), to_stderr=True)
    sys.exit(2)


def _fail_unforeseen(error: Exception) -> NoReturn:
    report_unforeseen(error)
    sys.exit(EXIT_CODE)


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


def doctor() -> None:
    """Check whether this machine can run vcsd, and show what a run would use.

    The exit code is 1 if a required component is broken.

    Example: `vcsd doctor`
    """
    from vcsd.cli.doctor import examine

    console = Console()
    marks = {"ok": "[green]ok[/]", "off": "[dim]off[/]", "broken": "[bold red]BROKEN[/]"}
    num_broken = 0
    for title, findings in examine():
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 1)
        )
        for finding in findings:
            table.add_row(marks[finding.state], finding.subject, plain(finding.detail))
            num_broken += finding.state == "broken"
        console.print(table)
    if num_broken:
        console.print(f"[bold red]{num_broken} broken.[/] Reinstall with the tested versions: see constraints.txt.")
        raise typer.Exit(1)
    console.print("[green]All required components work.[/]")


def methods() -> None:
    """Print a table of the methods: the teacher's view, the shape of its target, and the student's loss.

    Example: `vcsd methods`
    """
    from vcsd.method import METHODS, PRESETS

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("method", "target", "contrast", "alpha", "beta", "anchor", "loss", "T", "teacher"):
        table.add_column(column, no_wrap=column == "method")
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


def config(
    recipe: Annotated[Path, typer.Argument(help="Path of a YAML recipe, or the name of a shipped one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Overrides, such as method.alpha=0.5.")] = None,
    sources: Annotated[
        bool, typer.Option("--sources", help="Print a table instead: each value, its source and the file that sets it.")
    ] = False,
) -> None:
    """Check a recipe and print it as JSON, with every default filled in.

    Example: `vcsd config paper/qwen3_vl_2b method.alpha=0.5`

    Sources: `vcsd config ablations/alpha_2 --sources` shows which values come from the paper or the authors' code.
    """
    from vcsd.config.recipe import load_recipe

    if sources:
        from vcsd.config.value_sources import as_lines, sourced_values

        for line in as_lines(sourced_values(recipe, overrides or ())):
            sys.stdout.write(visible(line) + "\n")
        return
    sys.stdout.write(visible_json(load_recipe(recipe, overrides or ()).to_json()))


def train(
    recipe: Annotated[Path, typer.Argument(help="Path of a YAML recipe, or the name of a shipped one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Overrides, such as method.alpha=0.5.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the run would do and need; train nothing.")
    ] = False,
    card: Annotated[
        str | None, typer.Option(help="With --dry-run: plan for a machine such as 24GB, a100-80, h200 or 8xh100.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: print everything as JSON, with the resolved recipe.")
    ] = False,
    from_last_good: Annotated[
        bool, typer.Option("--from-last-good", help="Resume from the last checkpoint before the guard's alarm.")
    ] = False,
) -> None:
    """Train a student with a recipe. Resumes from the latest checkpoint in the run's folder.

    On several GPUs: `torchrun --nproc-per-node 8 -m vcsd train RECIPE`, with `trainer.fsdp=true` to shard the weights.

    Example: `vcsd train paper/qwen3_vl_2b trainer.output_dir=runs/first`

    Plan: `vcsd train paper/qwen3_vl_8b --dry-run --card a100-80` needs no GPU, weights or data.
    """
    if (card is not None or as_json) and not dry_run:
        raise ConfigError([f"{'--card' if card is not None else '--json'} plans a run. Add --dry-run."])
    from vcsd.config.recipe import load_recipe

    settings = load_recipe(recipe, [*(overrides or ()), *(["resume=last_good"] if from_last_good else [])])
    if dry_run:
        _plan(settings, card, as_json=as_json)
        return
    show_log()
    from vcsd import run
    from vcsd.checkpoint import latest_checkpoint
    from vcsd.parallel.ranks import leave
    from vcsd.trainer.on_signal import OnSignal

    loaded = run.load(settings)
    with OnSignal() as on_signal:  # until the last message: when another rank ends first, the launcher sends SIGTERM
        try:
            with said_errors(), reported(loaded.output):
                trainer = run.train(loaded, callbacks=[on_signal])
                on_signal.raise_if_stopped()
        except KeyboardInterrupt as stop:
            say_once(f"{how_stopped(stop)} {run.how_to_resume(loaded)}")
            sys.exit(exit_code_of(stop))
    skips = trainer.stream.skips
    if skips.num_skipped:
        listed = loaded.output / "skipped.jsonl"
        say_once(f"Skipped {skips.num_rows_skipped} of {skips.num_rows_seen} rows ({skips.reasons()}); see {listed}.")
    if not trainer.was_finished:  # otherwise the trainer has already said so
        say_once(f"Finished {_steps(trainer.state.global_step)}. The run is in {loaded.output}.")
        if latest_checkpoint(loaded.output) is not None:
            run_folder = shlex.quote(str(loaded.output))
            measure = f"vcsd eval {run_folder} {_questions_of(loaded.recipe)}"
            say_once(f"Next: `{measure}` measures the student, `vcsd export {run_folder}` writes it.")
    leave()


def _questions_of(recipe: Recipe) -> str:
    """Return the options of vcsd eval that ask the questions of a run's own evaluation; a file to name without one."""
    evaluation = recipe.evaluation
    if evaluation.every is None:
        return "--tsv FILE"
    words = [word for file in evaluation.tsv or () for word in ("--tsv", file)]
    words += ["--benchmarks", ",".join(evaluation.benchmarks)] if evaluation.benchmarks else []
    words += ["--data", evaluation.data] if evaluation.data else []
    words += ["--limit", str(evaluation.limit)] if evaluation.limit else []
    return shlex.join(words)


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def _plan(settings: Recipe, card: str | None, *, as_json: bool) -> None:
    """Print what a run would do and need."""
    from vcsd.cli.preview import preview
    from vcsd.projection import outlook
    from vcsd.projection.machines import parse_machine

    machine = None if card is None else parse_machine(card)
    if is_replica():
        return
    run_outlook = preview(settings, machine)
    if as_json:
        sys.stdout.write(visible_json(outlook.as_json(run_outlook)))
        return
    for line in outlook.screen(run_outlook):
        sys.stdout.write(visible(line) + "\n")


def demo(
    family: Annotated[str, typer.Option(help="Model family: qwen3_vl or qwen3_5.")] = "qwen3_vl",
    seed: Annotated[int, typer.Option(help="Random seed. On one machine, the same seed gives the same table.")] = 0,
    fast: Annotated[bool, typer.Option("--fast", help="Use fewer steps and questions; takes about a minute.")] = False,
    base: Annotated[Path | None, typer.Option(help="Folder of a base model. Default: the shipped one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results. Default: a folder in runs/.")] = None,
) -> None:
    """Compare a tiny base model with OPSD and VCSD on seven suites, in about five minutes on two cores.

    Resumes if interrupted.

    Example: `vcsd demo --fast`
    """
    show_log()
    from vcsd.bases.shipped_bases import shipped_base
    from vcsd.demo import demonstration
    from vcsd.demo.demo_page import terminal_table, unread_line
    from vcsd.monitor.machine import hush_transformers

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
        shown = demonstration.demonstrate(setting, say)
    except KeyboardInterrupt as stop:
        say(f"{how_stopped(stop)} The same command resumes from {folder}.")
        sys.exit(exit_code_of(stop))
    console.print("\nRight answers in percent; paired differences in points with their 95% intervals:")
    console.print(terminal_table(shown))
    say(f"Change in answers that could not be read, in points: {unread_line(shown)}.")
    say(f"\n{shown.seconds:.0f} s. The report is {folder / 'report.html'}; training.html compares both runs in detail.")


GROUPS: dict[str, tuple[Callable[..., object], ...]] = {
    "Start": (demo, doctor, init, recipes, methods, config),
    "Train": (train, watch, report, export),
    "See what the image changes": (contrast, ui, precheck),
    "Evaluate": (evaluate, score),
    "Reproduce": (reproduce, capsule, replay),
}
"""The commands as `vcsd --help` lists them."""

for _group, _commands in GROUPS.items():
    for _command in _commands:
        app.command(rich_help_panel=_group)(_command)
app.add_typer(world, name="world", rich_help_panel="Reproduce")
