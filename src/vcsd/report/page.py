"""One HTML file: headline, table, differences, curves, examples, facts. It opens from disk, in light and in dark.

Nothing is fetched and nothing runs: styles, charts and images are in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.report.chart import Chart, line_chart
from vcsd.report.parts import (
    Case,
    Facts,
    ScoreTable,
    Section,
    cases,
    difference_table,
    facts,
    legend,
    score_table,
    signed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

STYLE = Path(__file__).with_name("style.css")


@dataclass(frozen=True, eq=False)
class Page:
    """What a report says. Parts without content are left out of the page."""

    title: str
    lead: str
    table: ScoreTable
    charts: Sequence[Chart] = ()
    cases: Sequence[Case] = ()
    facts: Facts = ()
    notes: Sequence[str] = ()
    """Sentences that a reader must not miss, such as a run that was stopped."""


def write_page(page: Page, path: str | PathLike[str]) -> Path:
    """Write the page and return where it is; a reader never sees half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".partial")
    beside.write_text(page_html(page), encoding="utf-8")
    return beside.replace(path)


def page_html(page: Page) -> str:
    """The whole file as text."""
    notes = "".join(f'<p class="warning">{escape(note)}</p>' for note in page.notes)
    body = "".join(
        f"<section><h2>{escape(section.title)}</h2>"
        + (f'<p class="about">{escape(section.lead)}</p>' if section.lead else "")
        + f"{section.body}</section>"
        for section in _sections(page)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main>"
        f'<header><h1>{escape(page.title)}</h1><p class="lead">{escape(page.lead)}</p></header>'
        f"{notes}{_headline(page.table)}{body}</main></body></html>\n"
    )


def _headline(table: ScoreTable) -> str:
    """The aggregate of every row, large, and the differences of the last one."""
    name = table.aggregate
    if name is None:
        return ""
    tiles = [_tile(row.name, row.tone, f"{row.scores[name].value:.1f}") for row in table.rows if name in row.scores]
    for row in table.differences:
        score = row.scores.get(name)
        if score is not None and score.low is not None and score.high is not None:
            range_ = f"<small>{signed(score.low)} to {signed(score.high)}</small>"
            tiles.append(_tile(row.name, f"change {row.tone}", signed(score.value), range_))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(name: str, kind: str, number: str, more: str = "") -> str:
    return f'<div class="tile {kind}"><span>{escape(name)}</span><strong>{number}</strong>{more}</div>'


def _sections(page: Page) -> list[Section]:
    table = page.table
    sections = [Section("Accuracy", score_table(table), "In percent, with 95% bootstrap intervals over the questions.")]
    if table.differences:
        lead = "In points, on the same questions. Coloured where the 95% interval leaves out zero."
        sections.append(Section("Paired differences", difference_table(table), lead))
    drawn = [(chart, svg) for chart in page.charts if (svg := line_chart(chart))]
    if drawn:
        tones = {line.name: line.tone for chart, _ in drawn for line in chart.lines}
        figures = "".join(
            f"<figure><figcaption><b>{escape(chart.title)}</b>{escape(chart.says)}</figcaption>{svg}</figure>"
            for chart, svg in drawn
        )
        sections.append(
            Section("Training, step by step", legend(list(tones.items())) + f'<div class="charts">{figures}</div>')
        )
    if page.cases:
        sections.append(Section("Answers before and after", cases(page.cases)))
    if page.facts:
        sections.append(Section("How this was made", facts(page.facts)))
    return sections
