"""A live run in the terminal: step and time left, metrics and their course, phases, memory, alarms, latest samples."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Group as Stacked
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vcsd.evaluation.live_lines import told_losses
from vcsd.inspect.run_folder import as_written_by_a_run, prompt_of, read_run, seconds_by_phase
from vcsd.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console, RenderableType

    from vcsd.inspect.run_folder import RunRecord

METRICS = (
    ("loss", "loss", ".4g"),
    ("realised_contrast", "contrast", "+.3f"),
    ("kl_target_original", "pull", ".4f"),
    ("student_entropy", "entropy", ".3f"),
    ("length", "length", ".1f"),
    ("truncated", "truncated", ".1%"),
    ("repetition", "repetition", ".1%"),
    ("language_drift", "drift", ".1%"),
    ("gradient_norm", "gradient", ".3g"),
    ("teacher_distance", "teacher", ".3g"),
    ("evaluation/acc", "Acc", ".2f"),
    ("evaluation/unread", "unread, %", ".1f"),
)
"""Metric, its label and its format."""

BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
SPARK_WIDTH = 32
RECENT = 20
"""Steps over which the time left is estimated."""

NUM_SAMPLES, QUESTION_CHARACTERS, SAMPLE_CHARACTERS = 2, 150, 300

REFRESH_SECONDS = 2.0


def watch_run(folder: Path, console: Console, *, pause: Callable[[float], None] = time.sleep) -> RunRecord:
    """Show a run until it ends, or once if it has ended or if there is no terminal; return its last state."""
    with as_written_by_a_run(folder):
        return _watch_run(folder, console, pause)


def _watch_run(folder: Path, console: Console, pause: Callable[[float], None]) -> RunRecord:
    run = read_run(folder)
    if run.state != "running" or not console.is_terminal:
        console.print(dashboard(run))
        return run
    with Live(dashboard(run), console=console, auto_refresh=False) as live:
        while run.state == "running":
            start = time.monotonic()
            run = read_run(folder)
            live.update(dashboard(run), refresh=True)
            pause(max(REFRESH_SECONDS, 10 * (time.monotonic() - start)))
    return run


def dashboard(run: RunRecord) -> RenderableType:
    """Return everything about a run that fits on a screen; for a model that was only evaluated, its mean score."""
    if run.scorecard is not None and run.state == "evaluated":
        return Text.assemble(plain(run.name, "bold"), f"  evaluated, not trained: Acc {run.scorecard.acc:.2f}")
    return Stacked(_head(run), Text(), _metrics(run), Text(), _phases(run), *_alarms(run), *_samples(run))


def _head(run: RunRecord) -> RenderableType:
    colours = {"finished": "green", "running": "cyan", "stopped": "yellow"}
    of = f" of {run.max_steps}" if run.max_steps is not None else ""
    line = Text.assemble(
        plain(run.name, "bold"),
        "  ",
        plain(str(run.setting("method", "name") or ""), "bold"),
        "  ",
        (run.state, colours[run.state]),
        f"  step {run.last_step}{of}",
    )
    left = seconds_left(run)
    if run.state == "running" and left is not None:
        line.append(f"  about {duration(left)} left")
    if run.process is not None:
        line.append_text(plain(f"  ({run.process})", "dim"))
    if run.cause is not None:
        line.append_text(plain(f"\n{run.cause}; see skipped.jsonl", "yellow"))
    if run.max_steps is None:
        return line
    return Stacked(line, ProgressBar(total=run.max_steps, completed=run.last_step, width=60))


def seconds_left(run: RunRecord) -> float | None:
    """Estimate the time left from the latest steps; None if it is unknown."""
    if run.max_steps is None or not run.steps:
        return None
    recent = [sum(seconds_by_phase(record).values()) for record in run.steps[-RECENT:]]
    return sum(recent) / len(recent) * (run.max_steps - run.last_step)


def duration(seconds: float) -> str:
    """Format a time in the unit that people would use.

    >>> duration(42), duration(130), duration(7300)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def spark(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Draw a sparkline of some numbers with bars of eight heights; long series are averaged.

    >>> spark([0, 1, 2, 3, 4, 5, 6, 7])
    '\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588'
    """
    if not values:
        return ""
    num = min(width, len(values))
    parts = [values[i * len(values) // num : (i + 1) * len(values) // num] for i in range(num)]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    height = (high - low) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((mean - low) / height * len(BARS)))] for mean in means)


def _metrics(run: RunRecord) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for column in ("", "now", "first", "course"):
        table.add_column(column, justify="left" if column in ("", "course") else "right", no_wrap=True)
    for metric, label, form in METRICS:
        values = [value for _, value in run.series(metric)]
        if values:
            table.add_row(label, format(values[-1], form), format(values[0], form), spark(values))
    return table


def _phases(run: RunRecord) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("peak GiB", justify="right")
    last = run.steps[-1] if run.steps else {}
    for phase in seconds_by_phase(last):
        mean, peak = run.mean(f"seconds/{phase}"), last.get(f"peak_bytes/{phase}")
        memory = "-" if peak is None else f"{peak / 2**30:.1f}"
        table.add_row(plain(phase), "-" if mean is None else f"{mean:.3g}", memory)
    return table


def _alarms(run: RunRecord) -> list[Text]:
    """The guard's last alarm, and the scores that fell in the last evaluation."""
    alarms = [record for record in run.steps if record.get("guard") is not None]
    fell = told_losses(run.evaluations[-1]) if run.evaluations else ""
    losses = [plain(f"\nevaluation at step {run.evaluations[-1]['step']}: {fell}", "yellow")] if fell else []
    if not alarms:
        return [Text("\nguard: no alarm", "green"), *losses]
    last = alarms[-1]
    findings = "; ".join(map(str, last.get("findings", ())))
    said = f"\nguard: {last['guard']} at step {last['step']}: {findings} ({len(alarms)} steps in all)"
    return [plain(said, "yellow"), *losses]


def _samples(run: RunRecord) -> list[Text]:
    lines = []
    for record in run.samples[-NUM_SAMPLES:]:
        question = _cut(prompt_of(record), QUESTION_CHARACTERS)
        lines.append(plain(f"\nstep {record.get('step')}, {record.get('example_id')}: {question}".rstrip(), "dim"))
        lines.append(plain(_cut(str(record.get("response", "")), SAMPLE_CHARACTERS)))
    return lines


def _cut(text: str, most: int) -> str:
    """Write a text on one line, without its end if it is long.

    >>> _cut("What color\\nis it?", 10)
    'What color ...'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most].rstrip() + " ..."
