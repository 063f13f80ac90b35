"""The parts of a page as HTML: tables, tiles, cards with answers, filterable answers, facts."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from io import BytesIO
from itertools import zip_longest
from math import isnan
from typing import TYPE_CHECKING, Literal

from vcsd.report.chart import interval_chart
from vcsd.report.markup import Html, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from PIL.Image import Image

MAX_SIDE = 320
"""Larger images are reduced to this side, so that a page with many of them stays small."""

MOST_NARROW = 3
"""Columns that fit on a narrow screen."""

SampleKind = Literal["right", "wrong", "unread", "failed"]
"""How an answer ended: `unread` means that no rule could read it, `failed` that there is no answer."""

KIND_LABELS: Mapping[SampleKind, str] = {"right": "right", "wrong": "wrong", "unread": "unresolved", "failed": "failed"}


@dataclass(frozen=True)
class Score:
    """A number in percent with its interval; an end is None if unknown.

    For a difference, `unread` is the change in answers from which nothing could be read, in points: answers that are
    only stated more plainly raise a score too.

    >>> Score(53.2, 51.0, 55.4).is_clear, Score(1.2, -0.4, 2.8).is_clear
    (True, False)
    """

    value: float
    low: float | None = None
    high: float | None = None
    unread: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the interval of a difference excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Tile:
    """A large number at the top of a page. `tone` names its colour, `note` is shown below it."""

    name: str
    value: str
    note: str = ""
    tone: str = "base"
    is_change: bool = False


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

    @property
    def names(self) -> list[str]:
        """All columns, the aggregate last."""
        return [*self.columns, *([self.aggregate] if self.aggregate else [])]


@dataclass(frozen=True)
class Answer:
    """What one model answered, and whether it was right; None if that is unknown."""

    name: str
    tone: str
    text: str
    is_right: bool | None


@dataclass(frozen=True, eq=False)
class Case:
    """A question with its images and the answers of several models. Unknown fields may be empty."""

    title: str
    question: str
    gold: str
    images: Sequence[Image]
    answers: Sequence[Answer]


@dataclass(frozen=True, eq=False)
class Sample:
    """One collapsible answer: its kind, a line about it, its images or why they cannot be read, and its texts."""

    kind: SampleKind
    title: str
    about: str
    images: Sequence[Image | str]
    texts: Sequence[str]


def signed(value: float, digits: int = 1) -> str:
    """Format a difference with its sign; zero has no sign.

    >>> signed(1.26), signed(-0.96), signed(-0.04), signed(1.25, digits=4)
    ('+1.3', '−1.0', '0.0', '+1.2500')
    """
    number = f"{value:+.{digits}f}".replace("-", "\u2212")
    return number[1:] if not float(number[1:]) else number


def unread_note(change: float | None, digits: int = 1) -> str:
    """Format the change in unread answers, which is shown next to every difference; empty if it does not apply.

    >>> unread_note(-0.46), unread_note(-0.04), unread_note(0.125, digits=2), unread_note(None)
    ('unread -0.5', 'unread +0.0', 'unread +0.12', '')
    >>> unread_note(float("nan"))
    'unread not recorded'
    """
    return "" if change is None else f"unread {unread_change(change, digits)}"


def unread_change(change: float, digits: int = 1) -> str:
    """Format the change in unread answers without its name; nan means that the results do not have it."""
    return "not recorded" if isnan(change) else f"{round(change, digits) + 0.0:+.{digits}f}"


def tiles(items: Sequence[Tile]) -> Html:
    """Show large numbers in a row."""
    cells = "".join(
        f'<div class="tile {"change " if tile.is_change else ""}{text(tile.tone)}"><span>{text(tile.name)}</span>'
        f"<strong>{text(tile.value)}</strong>{f'<small>{text(tile.note)}</small>' if tile.note else ''}</div>"
        for tile in items
    )
    return Html(f'<div class="tiles">{cells}</div>' if items else "")


def headline(table: ScoreTable) -> list[Tile]:
    """Make tiles of the aggregate of every row and of the differences that have an interval."""
    name = table.aggregate
    if name is None:
        return []
    levels = [
        Tile(row.name, f"{row.scores[name].value:.1f}", tone=row.tone) for row in table.rows if name in row.scores
    ]
    changes = [
        Tile(row.name, signed(score.value), _note(score), row.tone, is_change=True)
        for row in table.differences
        if (score := row.scores.get(name)) is not None and score.low is not None and score.high is not None
    ]
    return levels + changes


def _note(score: Score) -> str:
    """Format the interval of a difference and its change in unread answers."""
    ends = "" if score.low is None or score.high is None else f"{signed(score.low)} to {signed(score.high)}"
    return ", ".join(part for part in (ends, unread_note(score.unread)) if part)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Show rows of text under column names; the first cell names its row."""
    body = [
        f'<th scope="row">{text(name)}</th>'
        + "".join(
            f"<td{_label(column, columns)}>{text(cell)}</td>"
            for column, cell in zip_longest(columns[1:], cells, fillvalue="")
        )
        for name, *cells in rows
    ]
    return _table(columns, [f"<th>{text(column)}</th>" for column in columns], body)


def _label(column: str, columns: Sequence[str]) -> str:
    """Name a cell of a wide table, which is shown cell by cell on a narrow screen."""
    return f' data-label="{text(column)}"' if len(columns) > MOST_NARROW else ""


def _table(columns: Sequence[str], head: Sequence[str], body: Sequence[str]) -> Html:
    rows = "".join(f"<tr>{row}</tr>" for row in body)
    kind = "wide stack" if len(columns) > MOST_NARROW else "wide"
    return Html(
        f'<div class="{kind}"><table><thead><tr>{"".join(head)}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def score_table(table: ScoreTable) -> Html:
    """Show models by suites; the best of each column is bold, and the aggregate is set apart."""
    best = {
        name: max((row.scores[name].value for row in table.rows if name in row.scores), default=0)
        for name in table.names
    }

    def number(name: str, score: Score) -> str:
        return f"<b>{score.value:.1f}</b>" if score.value == best[name] else f"{score.value:.1f}"

    note = f'<p class="note">{text(table.note)}</p>' if table.note else ""
    return Html(_scores(table, table.rows, number, lambda end: f"{end:.1f}") + note)


def difference_table(table: ScoreTable) -> Html:
    """Show the differences in points, coloured where the interval excludes zero, as a table and as a chart."""

    def number(name: str, score: Score) -> str:
        kind = "" if not score.is_clear else "up" if score.value > 0 else "down"
        return f'<span class="{kind}">{signed(score.value)}</span>'

    if not table.differences:
        return Html("")
    chart = interval_chart(table.names, table.differences)
    return Html(f'{_scores(table, table.differences, number, signed)}<div class="intervals">{chart}</div>')


def _scores(
    table: ScoreTable, rows: Sequence[ScoreRow], number: Callable[[str, Score], str], end: Callable[[float], str]
) -> Html:
    kind = {table.aggregate: ' class="all"'}
    columns = ["", *table.names]

    def cell(name: str, score: Score | None) -> str:
        opening = f"<td{kind.get(name, '')}{_label(name, columns)}>"
        if score is None:
            return f"{opening}-</td>"
        ends = () if score.low is None or score.high is None else (f"{end(score.low)} to {end(score.high)}",)
        notes = [*ends, *([unread_note(score.unread)] if score.unread is not None else [])]
        return f"{opening}{number(name, score)}{''.join(f'<small>{note}</small>' for note in notes)}</td>"

    heads = [f"<th{kind.get(name, '')}>{text(name)}</th>" for name in table.names]
    body = [
        f'<th scope="row">{_key(row.tone)}{text(row.name)}</th>'
        + "".join(cell(name, row.scores.get(name)) for name in table.names)
        for row in rows
    ]
    return _table(columns, ["<th></th>", *heads], body)


def _key(tone: str) -> str:
    return f'<i class="key {text(tone)}"></i>'


def cases(items: Sequence[Case]) -> Html:
    """Show cards with the images, the question, and each model's answer."""
    return Html(f'<div class="cases">{"".join(_case(item) for item in items)}</div>' if items else "")


def _case(case: Case) -> str:
    images = "".join(picture(image) for image in case.images)
    shown = f'<div class="images">{images}</div>' if images else ""
    question = f'<p class="question">{text(case.question)}</p>' if case.question else ""
    gold = f'<p class="gold">answer: <b>{text(case.gold)}</b></p>' if case.gold else ""
    answers = "".join(_answer(answer) for answer in case.answers)
    return (
        f'<article>{shown}<div><p class="suite">{text(case.title)}</p>{question}{gold}'
        f"<ul>{answers}</ul></div></article>"
    )


def _answer(answer: Answer) -> str:
    kind = "" if answer.is_right is None else "right" if answer.is_right else "wrong"
    mark = f'<span class="mark">{kind}</span>' if kind else ""
    return (
        f'<li class="{kind}"><span class="who">{_key(answer.tone)}'
        f'{text(answer.name)}</span><span class="said">{text(answer.text) or "<em>nothing</em>"}</span>{mark}</li>'
    )


def samples(items: Sequence[Sample], totals: Mapping[SampleKind, int], *, name: str) -> Html:
    """Show collapsible answers with a filter by kind. `totals` counts all answers; `name` is unique on the page."""
    options = [("all", "all")]
    for kind, label in KIND_LABELS.items():
        num_shown = sum(item.kind == kind for item in items)
        if num_shown:
            options.append((kind, f"{label} ({num_shown} of {totals[kind]})"))
    choices = "".join(
        f'<label><input type="radio" name="filter-{text(name)}" value="{value}"{" checked" if value == "all" else ""}>'
        f"{text(label)}</label>"
        for value, label in options
    )
    body = "".join(_sample(item) for item in items)
    return Html(f'<h3>answers</h3><div class="samples"><div class="filter">{choices}</div>{body}</div>')


def _sample(sample: Sample) -> str:
    images = "".join(
        f'<p class="soft">{text(image)}</p>' if isinstance(image, str) else picture(image, is_photo=True)
        for image in sample.images
    )
    texts = "".join(f"<pre>{text(paragraph)}</pre>" for paragraph in sample.texts)
    return (
        f'<details class="{sample.kind}"><summary><span class="mark">{KIND_LABELS[sample.kind]}</span> '
        f'{text(sample.title)} <span class="soft">{text(sample.about)}</span></summary>{images}{texts}</details>'
    )


def picture(image: Image, *, is_photo: bool = False, alt: str = "") -> Html:
    """Embed an image, reduced if it is large; a photo as JPEG, which is smaller."""
    reduced = image.convert("RGB")
    reduced.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer, kind = BytesIO(), "jpeg" if is_photo else "png"
    reduced.save(buffer, format=kind, quality=70)  # PNG has no quality and ignores it
    content = base64.b64encode(buffer.getvalue()).decode()
    return Html(f'<img alt="{text(alt)}" src="data:image/{kind};base64,{content}">')


def facts(items: Sequence[tuple[str, str]]) -> Html:
    """Show names and values as a list."""
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in items)
    return Html(f"<dl>{rows}</dl>" if items else "")
