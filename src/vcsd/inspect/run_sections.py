"""Sections of a run report besides curves, scores and samples: case studies, alarms, weight syncs, settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vcsd.evaluation.live_lines import told_losses
from vcsd.inspect.run_folder import evenly_chosen
from vcsd.inspect.run_samples import MOST_TEXT, stored_pictures
from vcsd.report.chart import Chart, Line, line_charts
from vcsd.report.markup import Html, text
from vcsd.report.parts import Answer, Case, plain_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vcsd.inspect.run_folder import RunRecord
    from vcsd.monitor.lines import JsonLine

MOST_EVENTS = 50
"""The most alarms listed."""

_SYNC_CURVES = (
    ("probe_mean", "Probe", "Mean difference of log-probabilities between vLLM and the student, in nats."),
    ("seconds", "Seconds per sync", "To send the weights and read the version back, without the probe."),
)

MOST_CASES = 4
"""The most questions shown of each kind of disagreement."""

MAIN_SETTINGS = (
    *("model.path", "data.path", "method.name", "method.alpha", "method.beta", "prompts_per_step"),
    *("rollout.num_per_prompt", "rollout.max_new_tokens", "trainer.max_steps", "trainer.learning_rate", "trainer.seed"),
)
"""Settings that are always shown. Others are shown where runs differ; a collapsible part has all of them."""


def disagreements(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> list[Case]:
    """Choose questions that only the last run answers correctly, and questions that only it gets wrong."""
    scored = [run for run in runs if run.scorecard is not None]
    if len(scored) < 2:
        return []
    marks = [run.scorecard.marks() for run in runs if run.scorecard is not None]
    shared = [key for key in marks[0] if all(key in own for own in marks)]
    known = {key: (run, record) for run in scored for key, record in run.questions().items()}
    gained = [key for key in shared if marks[-1][key] and not any(own[key] for own in marks[:-1])]
    lost = [key for key in shared if not marks[-1][key] and all(own[key] for own in marks[:-1])]
    texts = [run.answers() for run in scored]
    cases = []
    for verdict, keys in ((f"only {scored[-1].name} is right", gained), (f"only {scored[-1].name} is wrong", lost)):
        shown = [key for key in keys if key in known] or keys  # prefer questions whose picture was kept
        for key in evenly_chosen(shown, MOST_CASES):
            answers = [
                Answer(run.name, tones[run.name], said.get(key, "")[:MOST_TEXT], own[key])
                for run, said, own in zip(scored, texts, marks, strict=True)
            ]
            cases.append(_case(f"{key[0]}: {key[1]}, {verdict}", known.get(key), answers))
    return cases


def _case(title: str, known: tuple[RunRecord, JsonLine] | None, answers: list[Answer]) -> Case:
    if known is None:
        return Case(title, "", "", (), answers)
    run, record = known
    images = stored_pictures(run.exam, record)
    return Case(title, str(record.get("text", "")), str(record.get("gold", "")), images, answers)


def alarms(runs: Sequence[RunRecord]) -> Html:
    """List where the guard's judgement changed, and evaluations that are clearly below the first or the best."""
    rows = []
    for run in runs:
        before = None
        for record in run.steps:
            action = record.get("guard")
            if action is not None and action != before:
                findings = "; ".join(map(str, record.get("findings", ())))
                rows.append([run.name, str(record["step"]), str(action), findings])
            before = action
        rows += [[run.name, str(line["step"]), "fell", said] for line in run.evaluations if (said := told_losses(line))]
    if not rows:
        return Html('<p class="soft">No alarm.</p>')
    more = f'<p class="note">{len(rows) - MOST_EVENTS} more.</p>' if len(rows) > MOST_EVENTS else ""
    table = plain_table(["run", "step", "action", "finding"], rows[:MOST_EVENTS])
    return Html(f'<div class="prose">{table}</div>{more}')


def weight_syncs(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> Html:
    """Show what vLLM was sent, and how its log-probabilities differed from the student's; nothing without vLLM."""
    sampled = [run for run in runs if run.syncs]
    if not sampled:
        return Html("")
    rows = []
    for run in sampled:
        last = run.syncs[-1]
        largest = max((value for _, value in _sync_series(run, "probe_mean")), default=None)
        cells = [len(run.syncs), last.get("version"), last.get("num_tensors"), last.get("manifest")]
        rows.append([run.name, *map(str, cells), "-" if largest is None else f"{largest:.2g}"])
    head = ["run", "syncs", "last version", "tensors", "hash of the last", "largest mean difference, nats"]
    charts = [
        Chart(title, [Line(run.name, tones[run.name], _sync_series(run, name)) for run in sampled], says)
        for name, title, says in _SYNC_CURVES
    ]
    return Html(f'<div class="prose">{plain_table(head, rows)}</div><br>{line_charts(charts)}')


def _sync_series(run: RunRecord, name: str) -> list[tuple[float, float]]:
    """Return (step, value) of each sync that has the value."""
    pairs = [(record.get("step"), record.get(name)) for record in run.syncs]
    return [(float(step), float(value)) for step, value in pairs if step is not None and isinstance(value, int | float)]


def configuration(runs: Sequence[RunRecord]) -> Html:
    """Show where the runs are and what they ran on, the settings in which they differ, and, collapsed, all settings."""
    head: list[list[str]] = [["folder", *(str(run.folder) for run in runs)]]
    names = dict.fromkeys(name for run in runs for name in run.environment)
    head += [[name, *(str(run.environment.get(name, "-")) for run in runs)] for name in names]
    flat = [dict(_flat(run.config)) for run in runs]
    keys = dict.fromkeys(key for one in flat for key in one)
    rows = [
        [key, *(json.dumps(one[key], ensure_ascii=False) if key in one else "-" for one in flat)]
        for key in keys
        if key in MAIN_SETTINGS or len({json.dumps(one.get(key)) for one in flat if one}) > 1
    ]
    shown = plain_table(["", *(run.name for run in runs)], [*head, *rows])
    full = "".join(
        f"<details><summary>all settings of {text(run.name)}</summary>"
        f"<pre>{text(json.dumps(run.config, indent=2, ensure_ascii=False))}</pre></details>"
        for run in runs
        if run.config
    )
    return Html(f'<div class="prose">{shown}</div>{full}')


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Yield each setting with its dotted name."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
