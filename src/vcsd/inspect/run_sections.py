"""The parts of a run report that are not curves or scores: the guard's alarms, samples, and the configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from vcsd.errors import DataError
from vcsd.report.markup import Html, text
from vcsd.report.parts import Answer, Case, picture, plain_table
from vcsd.views.original import load_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vcsd.inspect.run_folder import RunRecord
    from vcsd.monitor.lines import JsonLine

MOST_SAMPLES = 24
"""Samples shown of each run, spread over training."""

MOST_TEXT = 4000
"""Characters shown of a response."""

MOST_EVENTS = 50
"""Alarms listed."""

MOST_CASES = 4
"""Questions shown of each kind of disagreement."""

MAIN_SETTINGS = (
    *("model.path", "data.path", "method.name", "method.alpha", "method.beta", "prompts_per_step"),
    *("rollout.num_per_prompt", "rollout.max_new_tokens", "trainer.max_steps", "trainer.learning_rate", "trainer.seed"),
)
"""Settings that are always shown; others only where runs differ, and all of them to unfold."""

T = TypeVar("T")


def disagreements(runs: Sequence[RunRecord], tones: Mapping[str, str]) -> list[Case]:
    """Choose questions that only the last run answers rightly, and questions that only it answers wrongly."""
    scored = [run for run in runs if run.scorecard is not None]
    if len(scored) < 2:
        return []
    marks = [_marks(run) for run in scored]
    shared = [key for key in marks[0] if all(key in own for own in marks)]
    gained = [key for key in shared if marks[-1][key] and not any(own[key] for own in marks[:-1])]
    lost = [key for key in shared if not marks[-1][key] and all(own[key] for own in marks[:-1])]
    texts = [run.answers() for run in scored]
    return [
        Case(
            f"{key[0]}: {key[1]}",
            "",
            "",
            (),
            [
                Answer(run.name, tones[run.name], said.get(key, "")[:MOST_TEXT], own[key])
                for run, said, own in zip(scored, texts, marks, strict=True)
            ],
        )
        for key in (*_spread(gained, MOST_CASES), *_spread(lost, MOST_CASES))
    ]


def _marks(run: RunRecord) -> dict[tuple[str, str], bool]:
    """Return whether each question was answered rightly."""
    assert run.scorecard is not None
    return {
        (name, question): right
        for name, score in run.scorecard.benchmarks.items()
        for question, right in zip(score.tally.ids, score.tally.is_right, strict=True)
    }


def alarms(runs: Sequence[RunRecord]) -> Html:
    """List where the guard's judgement changed."""
    rows = []
    for run in runs:
        before = None
        for record in run.steps:
            action = record.get("guard")
            if action is not None and action != before:
                findings = "; ".join(map(str, record.get("findings", ())))
                rows.append([run.name, str(record["step"]), str(action), findings])
            before = action
    if not rows:
        return Html('<p class="soft">No alarm.</p>')
    more = f'<p class="note">{len(rows) - MOST_EVENTS} more.</p>' if len(rows) > MOST_EVENTS else ""
    table = plain_table(["run", "step", "action", "finding"], rows[:MOST_EVENTS])
    return Html(f'<div class="prose">{table}</div>{more}')


def sampled(run: RunRecord) -> Html:
    """Show samples of a run to unfold, spread over its training."""
    chosen = _spread(run.samples, MOST_SAMPLES)
    body = "".join(_sample(record, shows_image=index % 4 == 0) for index, record in enumerate(chosen))
    return Html(f"<h3>{text(run.name)}</h3>{body}" if body else "")


def _spread(records: Sequence[T], most: int) -> list[T]:
    """Choose records evenly from the first to the last.

    >>> [record["step"] for record in _spread([{"step": step} for step in range(7)], 3)]
    [0, 3, 6]
    """
    if len(records) <= most:
        return list(records)
    return [records[round(index * (len(records) - 1) / (most - 1))] for index in range(most)]


def _sample(record: JsonLine, *, shows_image: bool) -> str:
    prompt = "\n".join(
        str(part.get("text", ""))
        for message in record.get("prompt", ())
        for part in message.get("content", ())
        if isinstance(part, dict) and part.get("type") == "text"
    )
    answer = record.get("answer")
    about = f"{record.get('num_tokens')} tokens, stopped by {record.get('stop')}"
    response = str(record.get("response", ""))
    if len(response) > MOST_TEXT:
        response = f"{response[:MOST_TEXT]} [... {len(response) - MOST_TEXT} more characters]"
    images = "".join(_image(one) for one in record.get("images", ())) if shows_image else ""
    given = f'<p class="soft">answer in the data: {text(answer)}</p>' if answer else ""
    return (
        f"<details><summary>step {text(record.get('step'))} "
        f'<span class="soft">{text(record.get("example_id"))}; {text(about)}</span></summary>'
        f"{images}<pre>{text(prompt)}</pre><pre>{text(response)}</pre>{given}</details>"
    )


def _image(reference: object) -> str:
    """Show an image of a sample if its file is still there."""
    file = reference.get("file") if isinstance(reference, dict) else None
    if not isinstance(file, str):
        return ""
    try:
        return picture(load_image("sample", file), is_photo=True)
    except DataError as error:
        return f'<p class="soft">{text(error.message)}</p>'


def configuration(runs: Sequence[RunRecord]) -> Html:
    """Show where the runs are and what they ran on, the settings in which they differ, and all settings to unfold."""
    head: list[list[str]] = [["folder", *(str(run.folder) for run in runs)]]
    names = dict.fromkeys(name for run in runs for name in run.environment)
    head += [[name, *(str(run.environment.get(name, "-")) for run in runs)] for name in names]
    flat = [dict(_flat(run.config)) for run in runs]
    keys = dict.fromkeys(key for one in flat for key in one)
    rows = [
        [key, *(json.dumps(one.get(key), ensure_ascii=False) for one in flat)]
        for key in keys
        if key in MAIN_SETTINGS or len({json.dumps(one.get(key)) for one in flat}) > 1
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
