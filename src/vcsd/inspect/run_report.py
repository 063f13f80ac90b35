"""The report of one or more runs: a page with scores, curves, time, memory, alarms, samples and configuration.

It reads only what the runs wrote, so it also works on a run that is still training or has crashed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.evaluation.live_lines import live_unread_share
from vcsd.evaluation.scoring.compare import compare
from vcsd.inspect.run_folder import as_written_by_a_run, seconds_by_phase
from vcsd.inspect.run_samples import sampled
from vcsd.inspect.run_sections import alarms, configuration, disagreements, weight_syncs
from vcsd.report import parts
from vcsd.report.chart import TONES, Chart, Line, line_charts
from vcsd.report.markup import Html, text
from vcsd.report.page import Page, PageSection, write_page
from vcsd.report.parts import Score, ScoreRow, ScoreTable, Tile, plain_table, unread_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from vcsd.evaluation.scoring.compare import Difference
    from vcsd.inspect.run_folder import RunRecord
    from vcsd.monitor.lines import JsonLine

CURVES: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "Learning": (
        ("loss", "Loss", "Divergence from the target, times the loss scale."),
        ("realised_contrast", "Contrast", "Nats by which the image raises the token that the student sampled."),
        ("kl_target_original", "Pull", "Nats between the target and the teacher's prediction with the image."),
        ("argmax_changed", "Changed choices", "Share of tokens whose most likely candidate the contrast changed."),
        ("support_size", "Support", "Plausible candidates per token."),
        ("teacher_distance", "Teacher", "Distance between the teacher's and the student's weights."),
        ("gradient_norm", "Gradient", "Norm of the gradient before clipping."),
        ("learning_rate", "Learning rate", "As set by the schedule."),
    ),
    "Health of the responses": (
        ("student_entropy", "Entropy", "Entropy of the student in nats per token, at the distillation temperature."),
        ("length", "Length", "Tokens per response."),
        ("truncated", "Truncated", "Share of responses that reached the length limit."),
        ("repetition", "Repetition", "Share of responses that repeat themselves."),
        ("language_drift", "Language drift", "Share with letters of a script that the question lacks."),
    ),
}
"""The curves of a report: metric, title, and what it shows."""

STILL = 1e-6
"""A curve that moves by less than this share is listed instead of drawn."""

GIB = 2**30


def write_run_report(runs: Sequence[RunRecord], path: Path) -> Path:
    """Write the report of one or more runs; return its path."""
    with as_written_by_a_run(", ".join(str(run.folder) for run in runs)):
        page = run_page(runs)
    try:
        return write_page(page, path)
    except OSError as error:
        raise ConfigError([f"{path} cannot be written: {error}. Choose another file (--output)."]) from error


def run_page(runs: Sequence[RunRecord]) -> Page:
    """Build the page of one or more runs."""
    tones = tones_of(runs)
    table = score_table(runs, tones)
    trained = [run for run in runs if run.state != "evaluated"]
    sections = [
        PageSection("Scores", parts.score_table(table) if table.rows else Html(""), _SCORES_LEAD),
        PageSection("Paired differences", parts.difference_table(table), _DIFFERENCES_LEAD),
        PageSection("Where the runs disagree", parts.cases(disagreements(runs, tones)), _CASES_LEAD),
        PageSection("Benchmarks during training", line_charts(_benchmark_curves(runs, tones))),
        *(PageSection(title, _curves(trained, tones, curves)) for title, curves in CURVES.items()),
        PageSection("Time and memory", _costs(trained, tones), "Means over all steps."),
        PageSection("Rollouts by vLLM", weight_syncs(trained, tones), _SYNCS_LEAD),
        PageSection("Guard", alarms(trained) if trained else Html(""), "Steps at which a run left its usual range."),
        PageSection("Samples", sampled(runs), _SAMPLES_LEAD),
        PageSection("Configuration", configuration(runs)),
    ]
    title = f"Run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} runs"
    return Page(title, sections, _lead(runs), _tiles(runs, tones), _notes(runs))


def tones_of(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Give each run a colour. The first run of a method gets the method's own colour, if it has one."""
    tones: dict[str, str] = {}
    for run in runs:
        own = "base" if run.state == "evaluated" else run.setting("method", "name")
        if own in TONES and own not in tones.values():
            tones[run.name] = str(own)
    for index, run in enumerate(runs):
        free = [tone for tone in TONES if tone not in tones.values()]
        tones.setdefault(run.name, free[0] if free else TONES[index % len(TONES)])
    return tones


_SCORES_LEAD = "In percent, with 95% intervals over the questions, from each run's scorecard or last evaluation."
_DIFFERENCES_LEAD = (
    "In points, on the same questions. Coloured where the 95% interval excludes zero. Next to it is the change in "
    "unread answers, from which nothing could be extracted: answers that are only stated more plainly raise a score "
    "too."
)
_CASES_LEAD = "Questions that the last run answers correctly and all others do not, then the reverse."
_SYNCS_LEAD = (
    "Each time vLLM got the student's weights: all expected names were sent, the version was read back, and a probe "
    "compared vLLM's log-probabilities with the student's. They may differ by rounding only; a run stops at a jump."
)
_SAMPLES_LEAD = (
    "Responses that the student sampled, from the first step to the latest, as the loss saw them. Each token is "
    "coloured by its contrast, log p(token | image) - log p(token | control) under the teacher. A method without a "
    "control has none. Point at a token, click it, or move with Tab and the arrow keys to see the number."
)


def _lead(runs: Sequence[RunRecord]) -> str:
    words = {"finished": "has finished", "running": "is running", "stopped": "has ended before its last step"}
    sentences = []
    for run in runs:
        of = f" of {run.max_steps}" if run.max_steps is not None else ""
        if run.state == "evaluated":
            sentences.append(f"{run.name} was evaluated, not trained.")
            continue
        method = str(run.setting("method", "name") or "method unknown")
        sentences.append(f"{run.name}{'' if run.name == method else f' ({method})'} {words[run.state]}: ")
        sentences[-1] += f"step {run.last_step}{of}."
    return " ".join(sentences)


def _notes(runs: Sequence[RunRecord]) -> list[str]:
    notes = []
    for run in runs:
        if run.num_skipped:
            said = run.cause or f"{run.num_skipped} rows of the data were skipped"
            notes.append(f"{run.name}: {said}; see skipped.jsonl in its folder.")
        idle = [int(record["step"]) for record in run.steps if record.get("is_taken") is False]
        if idle:
            notes.append(f"{run.name}: {len(idle)} steps were not taken, the first is step {idle[0]}.")
        if not run.steps and run.state != "evaluated":
            notes.append(f"{run.name}: no step has been recorded yet.")
    return notes


def _tiles(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> list[Tile]:
    tiles = []
    for run in runs:
        if run.state == "evaluated":
            continue
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        of = f"of {run.max_steps}" if run.max_steps is not None else ""
        tiles.append(Tile(f"{prefix}steps", str(run.last_step), f"{of} {run.state}".strip(), tones[run.name]))
        loss = run.series("loss")
        if loss:
            tiles.append(Tile(f"{prefix}loss", f"{loss[-1][1]:.3g}", f"{loss[0][1]:.3g} at first", tones[run.name]))
    return tiles


def _curves(runs: Sequence[RunRecord], tones: Mapping[str, str], curves: Iterable[tuple[str, str, str]]) -> Html:
    """Draw the curves that move, and list those that do not."""
    charts, still = [], []
    for metric, title, says in curves:
        lines = [Line(run.name, tones[run.name], run.series(metric)) for run in runs]
        moving = [line for line in lines if not _is_still(line)]
        # A rounding error around zero is zero.
        constant = {line.name: f"{round(line.points[0][1], 9) + 0.0:.3g}" for line in lines if _is_still(line)}
        if any(line.points for line in moving):
            charts.append(Chart(title, moving, says))
            still += [f"{title} of {name} ({level})" for name, level in constant.items()]
        elif constant:
            still.append(f"{title} ({', '.join(dict.fromkeys(constant.values()))})")
    note = f'<p class="note">Constant: {text(", ".join(still))}.</p>' if still else ""
    return Html(line_charts(charts) + note)


def _is_still(line: Line) -> bool:
    values = [value for _, value in line.points]
    return bool(values) and max(values) - min(values) <= STILL * max(1.0, abs(values[0]))


def _benchmark_curves(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> list[Chart]:
    def line(run: RunRecord, name: str) -> Line:
        values = [(record["step"], _entry(record, name)) for record in run.evaluations]
        return Line(run.name, tones[run.name], [(float(step), value) for step, value in values if value is not None])

    names = dict.fromkeys(name for run in runs for record in run.evaluations for name in record.get("benchmarks", {}))
    overall = f"Mean over the benchmarks. {_unread_since_the_first(runs, '')}".strip()
    return [
        *([Chart("Acc", [line(run, "") for run in runs], overall)] if len(names) > 1 else []),
        *(Chart(name, [line(run, name) for run in runs], _unread_since_the_first(runs, name)) for name in names),
    ]


def _unread_since_the_first(runs: Sequence[RunRecord], name: str) -> str:
    """Describe for each run by how many points its unread answers changed from its first evaluation to its last."""
    notes = []
    for run in runs:
        shares = [share for record in run.evaluations if (share := live_unread_share(record, name)) is not None]
        if shares:
            notes.append(f"{run.name} {unread_note(shares[-1] - shares[0])}")
    return f"From the first to the last: {', '.join(notes)}." if notes else ""


def _entry(record: JsonLine, name: str) -> float | None:
    """Return the score of a benchmark in an evaluation; without a name, the mean over all."""
    value = record.get("benchmarks", {}).get(name, {}).get("entry") if name else record.get("acc")
    return float(value) if isinstance(value, int | float) else None


def score_table(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> ScoreTable:
    """Build the table of scores, and the differences between runs whose scorecards have the same questions."""
    rows = [ScoreRow(run.name, tones[run.name], scores) for run in runs if (scores := _scores(run))]
    columns = list(dict.fromkeys(name for row in rows for name in row.scores if name != "Acc"))
    return ScoreTable(columns, rows, _differences(runs, tones), aggregate="Acc" if rows else None)


def _scores(run: RunRecord) -> dict[str, Score]:
    if run.scorecard is not None:
        card = run.scorecard
        own = {
            name: Score(score.entry, score.interval.low, score.interval.high) for name, score in card.benchmarks.items()
        }
        return {**own, "Acc": Score(card.acc, card.interval.low, card.interval.high)}
    if not run.evaluations:
        return {}
    last = run.evaluations[-1]
    both = {**last.get("benchmarks", {}), "Acc": {"entry": last.get("acc"), "interval": last.get("interval")}}
    return {name: _recorded(one) for name, one in both.items() if one.get("entry") is not None}


def _recorded(one: Mapping[str, object]) -> Score:
    ends = one.get("interval")
    low, high = ends if isinstance(ends, list) and len(ends) == 2 else (None, None)
    return Score(float(str(one["entry"])), low, high)


def _differences(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> list[ScoreRow]:
    rows = []
    for before, after in pairwise(run for run in runs if run.scorecard is not None):
        assert before.scorecard is not None
        assert after.scorecard is not None
        try:
            comparison = compare(before.scorecard, after.scorecard)
        except ConfigError:  # other questions or other rules: not comparable
            continue
        scores = {name: _changed(change) for name, change in comparison.benchmarks.items()}
        title = f"{after.name} - {before.name}"
        rows.append(ScoreRow(title, tones[after.name], {**scores, "Acc": _changed(comparison.acc)}))
    return rows


def _changed(change: Difference) -> Score:
    return Score(change.difference, change.interval.low, change.interval.high, change.unread)


def _costs(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> Html:
    """Show seconds and peak memory of each phase, and the seconds of every step."""
    phases = dict.fromkeys(phase for run in runs for record in run.steps[:1] for phase in seconds_by_phase(record))
    rows = [[phase, *(_seconds(run, phase) for run in runs)] for phase in phases]
    if not rows:
        return Html("")
    memory = [[phase, *cells] for phase in phases if any(cells := [_memory(run, phase) for run in runs])]
    names = [run.name for run in runs]
    chart = Chart("Seconds per step", [Line(run.name, tones[run.name], _step_seconds(run)) for run in runs])
    tables = plain_table(["seconds in", *names], rows)
    if memory:
        tables = Html(f"{tables}<h3>Peak memory</h3>{plain_table(['GiB in', *names], memory)}")
    return Html(f"{tables}<br>{line_charts([chart])}")


def _seconds(run: RunRecord, phase: str) -> str:
    mean = run.mean(f"seconds/{phase}")
    return "-" if mean is None else f"{mean:.3g}"


def _memory(run: RunRecord, phase: str) -> str:
    values = [value for _, value in run.series(f"peak_bytes/{phase}")]
    return f"{max(values) / GIB:.2f}" if values else ""


def _step_seconds(run: RunRecord) -> list[tuple[float, float]]:
    seconds = [(float(record["step"]), seconds_by_phase(record)) for record in run.steps]
    return [(step, sum(own.values())) for step, own in seconds if own]
