"""`vcsd report` and `vcsd watch`: look at runs. Heavy imports wait until a command runs."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vcsd.errors import VcsdError
from vcsd.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT = "report.html"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of one or more runs: finished, live or crashed.")],
    output: Annotated[Path | None, typer.Option(help="The page. Default: report.html in the first folder.")] = None,
) -> None:
    """Write one standalone page about runs: curves, scores, time, memory, alarms, samples, configuration.

    Example: `vcsd report runs/first runs/second --output both.html`
    """
    from vcsd.inspect.run_folder import read_runs
    from vcsd.inspect.run_report import write_run_report

    path = Path(runs[0], REPORT) if output is None else output
    say(f"Wrote {write_run_report(read_runs(runs), path)}.")


def watch(run: Annotated[Path, typer.Argument(help="Folder of a run, live or not.")]) -> None:
    """Show a live run in the terminal until it ends: step, time left, metrics, phases, alarms, latest samples.

    Shows the last state of a run that has ended. Ctrl-C leaves the dashboard; the run continues.

    Example: `vcsd watch runs/first`
    """
    from vcsd.inspect.run_dashboard import watch_run

    try:
        watch_run(run, Console())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Write the report of a run when it ends, whether well or by an error. A report that fails ends nothing.

    A folder that another process uses gets no report from this one.
    """
    from vcsd.checkpoint.lock import InUseError

    is_ours = True
    try:
        yield
    except InUseError:
        is_ours = False
        raise
    finally:
        is_first = os.environ.get("RANK", "0") == "0"
        if is_ours and is_first and (folder / "metrics.jsonl").is_file():
            from vcsd.inspect.run_folder import read_run
            from vcsd.inspect.run_report import write_run_report

            try:
                say(f"The report is {write_run_report([read_run(folder)], folder / REPORT)}.")
            except VcsdError as error:
                say(f"No report: {error}", to_stderr=True)
