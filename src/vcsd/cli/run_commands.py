"""`vcsd report`, `watch`, `export`, `capsule`, `replay`: what to do with a run. Imports wait until a command runs."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vcsd.errors import ConfigError, VcsdError, nearest_path
from vcsd.terminal import is_replica, say, say_once, show_log
from vcsd.terminal.stopping import exit_code_of, how_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT = "report.html"
EVALUATION_REPORT = "runs.html"
"""The report's name in the folder of an evaluation, where report.html is the page of its answers."""

log = logging.getLogger(__name__)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of one or more runs: finished, live or crashed.")],
    output: Annotated[
        Path | None,
        typer.Option(help="The page to write. Default: report.html in the first folder; runs.html for an evaluation."),
    ] = None,
) -> None:
    """Write one standalone page about runs: curves, scores, time, memory, alarms, samples, configuration.

    Example: `vcsd report runs/first runs/second --output both.html`
    """
    from vcsd.inspect.run_folder import read_runs
    from vcsd.inspect.run_report import write_run_report

    records = read_runs(runs)
    path = runs[0] / (EVALUATION_REPORT if records[0].state == "evaluated" else REPORT) if output is None else output
    say(f"Wrote {write_run_report(records, path)}.")


def watch(run: Annotated[Path, typer.Argument(help="Folder of a run, live or not.")]) -> None:
    """Show a live run in the terminal until it ends: step, time left, metrics, phases, alarms, latest samples.

    Shows the last state of a run that has ended. Ctrl-C leaves the dashboard; the run continues.

    Example: `vcsd watch runs/first`
    """
    from vcsd.inspect.run_dashboard import watch_run

    try:
        watch_run(run, Console())
    except KeyboardInterrupt as stop:
        sys.exit(exit_code_of(stop))


_Base = Annotated[
    Path | None,
    typer.Option(metavar="MODEL", help="For a LoRA run: the base's folder if it was moved, or its hub id."),
]
_Scores = Annotated[
    list[Path] | None,
    typer.Option(metavar="FOLDER", help="Results of vcsd eval for this model, to put on its card. May be repeated."),
]
_Push = Annotated[
    str | None, typer.Option(metavar="ORG/NAME", help="Upload the export to the Hugging Face hub, privately.")
]


def export(  # noqa: PLR0913, PLR0917  one argument for each option
    run: Annotated[Path, typer.Argument(help="Folder of a run or of one of its checkpoints.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to create. Default: RUN/student; for checkpoint-10: RUN/student-10.")
    ] = None,
    what: Annotated[str, typer.Option(help="Model to export: student or teacher.")] = "student",
    dtype: Annotated[str, typer.Option(help="Precision: bfloat16, as in released models, or float32.")] = "bfloat16",
    adapter: Annotated[bool, typer.Option("--adapter", help="For a LoRA run: write the adapter for PEFT.")] = False,
    base: _Base = None,
    scores: _Scores = None,
    push: _Push = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: create a public repository.")] = False,
) -> None:
    """Export the student or the teacher of a run as a plain Hugging Face folder with a model card (README.md).

    LoRA adapters are merged into their base. Nothing leaves this machine without --push.

    Example: `vcsd export runs/first --what teacher`

    Publish: `vcsd export runs/first --scores runs/eval/first --push ORG/NAME`
    """
    show_log()
    from vcsd.checkpoint.export import public_base, warn_of_rounding
    from vcsd.checkpoint.new_folder import new_place
    from vcsd.monitor.work_bar import WorkBar
    from vcsd.publish.described_export import export_with_card

    if public and push is None:
        raise ConfigError(["--public has no effect without --push ORG/NAME. Add --push, or leave --public out."])
    if push is not None:
        stays_private = _check_push(push, run, base, is_public=public, is_adapter=adapter)
    elif adapter and public_base(run, base) is None:
        log.warning("adapter_config.json names no base, because it is a local folder. To name it: --base ORG/NAME.")
    folder = _export_folder(run, what) if out is None else out
    new_place(folder, "--out")
    with WorkBar("export") as bar:
        checkpoint = export_with_card(
            run,
            folder,
            what=what,
            dtype=dtype,
            adapter=adapter,
            base=base,
            scores=scores or (),
            name=push,
            tell=bar.advance,
        )
    say(f"Exported the {what} of {checkpoint} to {folder}, with its card, README.md.")
    if dtype == "bfloat16" and not adapter:
        warn_of_rounding(checkpoint)
    if push is not None:
        from vcsd.publish.push import push as upload

        say(f"Uploading {folder} to {push} ...")
        url = upload(folder, push, is_public=public, message=f"Upload the {what} of {checkpoint.name}")
        hint = "" if public and not stays_private else " before you make it public"
        say(f"Pushed to {url}. Read the card there{hint}.")
        if stays_private:
            say(f"{push} already existed and is still private. To make it public, change its settings on the hub.")


def _export_folder(run: Path, what: str) -> Path:
    """Return the default folder of an export. It is in the run's folder, since a checkpoint may be removed later."""
    name, _, step = run.name.rpartition("-")
    return run.parent / f"{what}-{step}" if name == "checkpoint" else run / what


def _check_push(name: str, run: Path, base: Path | None, *, is_public: bool, is_adapter: bool) -> bool:
    """Raise a ConfigError if an export cannot be pushed; return whether its repository stays private anyway."""
    from vcsd.checkpoint.export import public_base
    from vcsd.publish.push import require_account, require_repository, require_visibility

    require_repository(name)
    if is_adapter and public_base(run, base) is None:
        raise ConfigError(
            ["the base of this adapter is a local folder, which others do not have. Name its hub id: --base ORG/NAME."]
        )
    require_account(name)
    return require_visibility(name, is_public=is_public)


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Write the report of a run when it ends, with or without an error. A report that fails does not fail the run.

    The report is left as it is after an error before the first new record, such as a refused resume, and if another
    process uses the folder.
    """
    from vcsd.checkpoint.lock import InUseError

    metrics, has_ended, is_ours = folder / "metrics.jsonl", False, True
    before = _version(metrics)
    try:
        yield
        has_ended = True
    except InUseError:
        is_ours = False
        raise
    finally:
        has_news = is_ours and metrics.is_file() and (has_ended or _version(metrics) != before)
        if has_news and not is_replica():
            from vcsd.inspect.run_folder import read_run
            from vcsd.inspect.run_report import write_run_report

            try:
                say(f"The report is {write_run_report([read_run(folder)], folder / REPORT)}.")
            except VcsdError as error:
                say(f"No report: {error}", to_stderr=True)


def _version(path: Path) -> tuple[int, int] | None:
    """Return a file's modification time and size, or None if it does not exist."""
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def capsule(
    run: Annotated[Path, typer.Argument(help="Folder of a run that has saved a checkpoint.")],
    output: Annotated[Path | None, typer.Option(help="The capsule to write. Default: RUN/capsule.json.")] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Results of vcsd eval of this run's models or base. May be repeated."),
    ] = None,
    base: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="With --scores: the base's folder, if it was moved.")
    ] = None,
) -> None:
    """Pack a run into one file: recipe, versions, hashes of weights and data, row ids, metrics, scores, intervals.

    Others can check it with `vcsd replay`. The file contains no weights, no data, no server addresses and no absolute
    paths from the recipe.

    Example: `vcsd capsule runs/first --output first.capsule.json --scores runs/eval/first`
    """
    from vcsd.publish.capsule import write_capsule
    from vcsd.publish.pack import pack

    path = run / "capsule.json" if output is None else output
    if base is not None and not scores:
        raise ConfigError(["--base has no effect without --scores FOLDER. Add --scores, or leave --base out."])
    show_log()
    packed = pack(run, scores or (), base=base)
    seal = write_capsule(packed, path)
    say(f"Wrote {path}: {packed['last_step']} steps.")
    for card in packed["scorecards"]:
        say(f"It holds a scorecard of {card['measured_on']}: Acc {card['acc']:.1f}.")
    say(f"Publish its seal with your results: {seal}")


def replay(  # noqa: PLR0913, PLR0917  one argument for each option
    file: Annotated[Path, typer.Argument(help="The capsule to replay.")],
    model: Annotated[
        Path | None, typer.Option(help="The model's folder, or world for the shipped base. Not needed for a hub id.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The training data.")] = None,
    images: Annotated[Path | None, typer.Option(help="The folder of images, if the recipe named one.")] = None,
    questions: Annotated[
        Path | None, typer.Option(help="The folder of benchmarks and TSV files, if the run evaluated.")
    ] = None,
    seal: Annotated[str | None, typer.Option(help="The published seal, which the file must match.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Repeat at most N steps. Default: all.")] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, help="Largest relative difference of a loss. Default: 0 on the same CPU, else 0.05."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run. Default: runs/replay-SEAL.")] = None,
) -> None:
    """Run a capsule again and compare: every step, every score that the run measured, and the last weights.

    On the same kind of CPU, with the same versions and ranks, everything must be equal bit for bit. Elsewhere, numbers
    may differ within a tolerance and weights are not compared; the output lists what was not compared. Scores of
    `vcsd eval` are not measured again. Resumes if interrupted. The exit code is 1 if something differs.

    Example: `vcsd replay first.capsule.json --data data/train.jsonl --seal 9c1f...`

    For a run of two ranks: `torchrun --nproc-per-node 2 -m vcsd replay`
    """
    show_log()
    from vcsd.bases.shipped_bases import shipped_base
    from vcsd.inspect.opened import WORLD
    from vcsd.publish.capsule import read_capsule, seal_of
    from vcsd.publish.replay import Files, recipe_of
    from vcsd.publish.replay import replay as run_again
    from vcsd.publish.replay_lines import replay_lines

    packed = read_capsule(file, seal)
    folder = Path("runs") / f"replay-{seal_of(packed)[:8]}" if out is None else out
    model = shipped_base() if str(model) == WORLD else model
    for name, path in (("--model", model), ("--data", data), ("--images", images), ("--questions", questions)):
        if path is not None and not path.exists():
            raise ConfigError([f"{name} {path} does not exist.{nearest_path(str(path), wants_file=True)}"])
    recipe = recipe_of(packed, Files(model, data, images, questions), folder)
    try:
        repetition = run_again(packed, recipe, tolerance=tolerance, num_steps=steps)
    except KeyboardInterrupt as stop:
        say(f"{how_stopped(stop)} The same command resumes from {folder}.")
        sys.exit(exit_code_of(stop))
    for line in replay_lines(repetition, folder, has_seal=seal is not None):
        say_once(line)
    if packed["scorecards"]:
        say_once(f"Its scores of vcsd eval were not measured again. To do so: vcsd eval {folder} --out FOLDER.")
    if repetition.differences:
        raise typer.Exit(1)
