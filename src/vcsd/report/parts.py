"""The parts of a page as HTML text: a table of scores, what they differ by, example answers, facts of the run."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

from vcsd.report.chart import interval_chart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from PIL.Image import Image

MAX_SIDE = 320
"""Example images are shown no larger than this, so that a page with a dozen of them stays small."""


@dataclass(frozen=True)
class Score:
    """A number in percent with its interval; None for an end that is not known.

    >>> Score(53.2, 51.0, 55.4).is_clear, Score(1.2, -0.4, 2.8).is_clear
    (True, False)
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_clear(self) -> bool:
        """For a difference: whether its interval leaves out zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class ScoreRow:
    """One model, or one difference between two, over the columns of a table. `tone` names its colour."""

    name: str
    tone: str
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class ScoreTable:
    """Models by suites, and the differences between them. `aggregate` names the column that averages the others."""

    columns: Sequence[str]
    rows: Sequence[ScoreRow]
    differences: Sequence[ScoreRow] = ()
    aggregate: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """What one model said, and whether it was right."""

    name: str
    tone: str
    text: str
    is_right: bool


@dataclass(frozen=True, eq=False)
class Case:
    """A question with its images and the answers of several models to it."""

    title: str
    question: str
    gold: str
    images: Sequence[Image]
    answers: Sequence[Answer]


Facts = tuple[tuple[str, str], ...]
"""Names and values, in order."""


@dataclass(frozen=True)
class Section:
    """A heading and the HTML under it."""

    title: str
    body: str
    lead: str = field(default="")


def signed(value: float) -> str:
    """A difference with its sign and one digit; nothing is neither plus nor minus.

    >>> signed(1.26), signed(-0.96), signed(-0.04)
    ('+1.3', '−1.0', '0.0')
    """
    shown = f"{value:+.1f}".replace("-", "\u2212")
    return shown[1:] if shown[1:] == "0.0" else shown


def score_table(table: ScoreTable) -> str:
    """Models by suites; the best of each column is strong, the aggregate stands apart."""
    names = [*table.columns, *([table.aggregate] if table.aggregate else [])]
    head = "".join(f"<th{_last(name, table)}>{escape(name)}</th>" for name in names)
    best = {
        name: max((row.scores[name].value for row in table.rows if name in row.scores), default=0) for name in names
    }
    body = "".join(
        f'<tr><th scope="row"><i class="key {row.tone}"></i>{escape(row.name)}</th>'
        + "".join(_cell(row.scores.get(name), name, table, is_best=best[name]) for name in names)
        + "</tr>"
        for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def _last(name: str, table: ScoreTable) -> str:
    return ' class="all"' if name == table.aggregate else ""


def _cell(score: Score | None, name: str, table: ScoreTable, *, is_best: float) -> str:
    if score is None:
        return f"<td{_last(name, table)}>-</td>"
    shown = f"{score.value:.1f}"
    shown = f"<b>{shown}</b>" if score.value == is_best else shown
    range_ = "" if score.low is None or score.high is None else f"<small>{score.low:.1f} to {score.high:.1f}</small>"
    return f"<td{_last(name, table)}>{shown}{range_}</td>"


def difference_table(table: ScoreTable) -> str:
    """The differences in points with their intervals, marked where the interval leaves out zero; and their drawing."""
    names = [*table.columns, *([table.aggregate] if table.aggregate else [])]
    head = "".join(f"<th{_last(name, table)}>{escape(name)}</th>" for name in names)
    body = "".join(
        f'<tr><th scope="row"><i class="key {row.tone}"></i>{escape(row.name)}</th>'
        + "".join(_difference(row.scores.get(name), _last(name, table)) for name in names)
        + "</tr>"
        for row in table.differences
    )
    whole = f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f'{whole}<div class="intervals">{interval_chart(names, table.differences)}</div>'


def _difference(score: Score | None, last: str) -> str:
    if score is None:
        return f"<td{last}>-</td>"
    kind = "" if not score.is_clear else "up" if score.value > 0 else "down"
    range_ = (
        "" if score.low is None or score.high is None else f"<small>{signed(score.low)} to {signed(score.high)}</small>"
    )
    return f'<td{last}><span class="{kind}">{signed(score.value)}</span>{range_}</td>'


def cases(items: Sequence[Case]) -> str:
    """Cards with the images, the question, and what each model said to it."""
    return f'<div class="cases">{"".join(_case(item) for item in items)}</div>'


def _case(case: Case) -> str:
    images = "".join(f'<img alt="" src="{data_uri(image)}">' for image in case.images)
    answers = "".join(
        f'<li class="{"right" if answer.is_right else "wrong"}"><span class="who"><i class="key {answer.tone}"></i>'
        f'{escape(answer.name)}</span><span class="said">{escape(answer.text) or "<em>nothing</em>"}</span>'
        f'<span class="mark">{"right" if answer.is_right else "wrong"}</span></li>'
        for answer in case.answers
    )
    return (
        f'<article><div class="images">{images}</div><div><p class="suite">{escape(case.title)}</p>'
        f'<p class="question">{escape(case.question)}</p><p class="gold">answer: <b>{escape(case.gold)}</b></p>'
        f"<ul>{answers}</ul></div></article>"
    )


def data_uri(image: Image) -> str:
    """An image as part of the page, reduced if it is large."""
    shown = image.convert("RGB")
    shown.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = BytesIO()
    shown.save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def facts(items: Facts) -> str:
    """Names and values as a list."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in items) + "</dl>"


def legend(rows: Sequence[tuple[str, str]]) -> str:
    """Which colour is whose: names and tones."""
    keys = "".join(f'<span><i class="key {tone}"></i>{escape(name)}</span>' for name, tone in rows)
    return f'<p class="legend">{keys}</p>'
