"""The report of an evaluation as one HTML file: numbers, bars by category, and answers to read with their images.

Nothing is loaded from anywhere: style, script and small copies of the images are in the file. It follows the reader's
choice of dark or light. Of each benchmark some right and some wrong answers are shown, spread over its questions; they
are a sample to look at, not to count.
"""

from __future__ import annotations

import base64
import io
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from vcsd.errors import DataError
from vcsd.evaluation.tables import COUNTS, remarks
from vcsd.views.original import load_image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.evaluation.question import Prediction, Question, Verdict
    from vcsd.evaluation.scorecard import BenchmarkScore, Scorecard

    Answer = tuple[Question, Prediction, Verdict]

PER_KIND = 8
"""Answers shown of each kind and benchmark."""

SIDE = 320
_LONGEST_TEXT = 6000
_KINDS = {"right": "right", "wrong": "wrong", "unread": "unresolved", "failed": "failed"}


def page(card: Scorecard, answers: Sequence[Answer], *, title: str) -> str:
    """The whole page. `answers` are questions with their predictions and verdicts."""
    sections = [
        _section(score, [each for each in answers if each[0].benchmark == name])
        for name, score in card.benchmarks.items()
    ]
    style, script = (
        files("vcsd.evaluation").joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    notes = "".join(f'<p class="dim">{escape(line)}</p>' for line in remarks(card))
    acc = f"{card.acc:.2f} <span class=dim>({card.interval.low:.2f} to {card.interval.high:.2f})</span>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><button id="theme">dark / light</button></header>'
        f"<h2>Acc {acc}</h2>{_numbers(card)}{notes}{''.join(sections)}<script>{script}</script></body></html>\n"
    )


def _numbers(card: Scorecard) -> str:
    heads = ("benchmark", "score", "95% interval", "N", *COUNTS)
    rows = []
    for score in card.benchmarks.values():
        num = str(score.num_questions) if score.is_whole else f"{score.num_questions} of {score.num_expected}"
        counts = [str(getattr(score.counts, name)) for name in COUNTS]
        interval = f"{score.interval.low:.2f} to {score.interval.high:.2f}"
        rows.append(
            "".join(f"<td>{escape(cell)}</td>" for cell in (score.title, f"{score.entry:.2f}", interval, num, *counts))
        )
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _section(score: BenchmarkScore, answers: Sequence[Answer]) -> str:
    parts = (
        "" if len(score.metrics) == 1 else _bars("parts", {name: (value, "") for name, value in score.metrics.items()})
    )
    groups = "".join(
        _bars(key, {name: (group.entry, f"N {group.num_questions}") for name, group in scores.items()})
        for key, scores in score.groups.items()
        if scores
    )
    return f"<section><h2>{escape(score.title)} {score.entry:.2f}</h2>{parts}{groups}{_samples(answers)}</section>"


def _bars(heading: str, values: dict[str, tuple[float, str]]) -> str:
    rows = "".join(
        f'<span>{escape(name)}</span><div class="track"><div class="fill" style="width:{value:.1f}%"></div></div>'
        f"<span>{value:.1f} <span class=dim>{note}</span></span>"
        for name, (value, note) in values.items()
    )
    return f'<h3>{escape(heading)}</h3><div class="bars">{rows}</div>'


def kind_of(prediction: Prediction, verdict: Verdict) -> str:
    """right, wrong, unread (nothing could be read out of the answer) or failed (there is no answer)."""
    if prediction.error is not None:
        return "failed"
    if verdict.found is None and not verdict.is_right:
        return "unread"
    return "right" if verdict.is_right else "wrong"


def _samples(answers: Sequence[Answer]) -> str:
    by_kind: dict[str, list[Answer]] = {kind: [] for kind in _KINDS}
    for answer in answers:
        by_kind[kind_of(answer[1], answer[2])].append(answer)
    chosen = {kind: _spread(found) for kind, found in by_kind.items() if found}
    buttons = '<button class="on" data-show="all">all</button>' + "".join(
        f'<button data-show="{kind}">{_KINDS[kind]} ({len(found)} of {len(by_kind[kind])})</button>'
        for kind, found in chosen.items()
    )
    shown = "".join(_sample(kind, *answer) for kind, found in chosen.items() for answer in found)
    return f'<h3>answers</h3><div class="filter">{buttons}</div><div>{shown}</div>'


def _spread(answers: Sequence[Answer]) -> list[Answer]:
    num = min(PER_KIND, len(answers))
    return [answers[place * len(answers) // num] for place in range(num)]


def _sample(kind: str, question: Question, prediction: Prediction, verdict: Verdict) -> str:
    images = "".join(_thumbnail(question.id, image) for image in question.example.images)
    found = "nothing" if verdict.found is None else verdict.found
    about = f"gold {question.gold}, read {found}" + (", cut off" if prediction.stop == "length" else "")
    said = prediction.text if prediction.error is None else prediction.error
    return (
        f'<details class="{kind}"><summary><span class="mark">{_KINDS[kind]}</span> {escape(question.id)} '
        f'<span class="dim">{escape(about)}</span></summary>{images}<pre>{escape(_prompt(question))}</pre>'
        f"<pre>{escape(_cut(said))}</pre></details>"
    )


def _prompt(question: Question) -> str:
    content = question.example.prompt[-1]["content"]
    return content if isinstance(content, str) else "\n".join(str(part["text"]) for part in content if "text" in part)


def _cut(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def _thumbnail(question_id: str, source: Any) -> str:
    """A small copy of an image inside the page; the reason in words where it cannot be read."""
    try:
        image = load_image(question_id, source).copy()
    except DataError as error:
        return f'<p class="dim">{escape(error.message)}</p>'
    image.thumbnail((SIDE, SIDE))
    written = io.BytesIO()
    image.save(written, "JPEG", quality=70)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}">'
