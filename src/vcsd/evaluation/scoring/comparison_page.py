"""The page of a comparison: paired differences, and which questions were gained and lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.errors import few
from vcsd.evaluation.scoring.compare import moves_of
from vcsd.evaluation.scoring.terminal_tables import unread_warning
from vcsd.report.chart import interval_chart
from vcsd.report.markup import Html, text
from vcsd.report.page import Page, PageSection
from vcsd.report.parts import Score, ScoreRow, Tile, plain_table, unread_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.evaluation.scoring.aggregate import Tally
    from vcsd.evaluation.scoring.compare import Comparison, Difference
    from vcsd.evaluation.scoring.scorecard import Scorecard

_MOST_LISTED = 200
"""The most questions listed as gained, and as lost."""


def comparison_page(
    comparison: Comparison, first: Sequence[Scorecard], second: Sequence[Scorecard], names: tuple[str, str]
) -> Page:
    """Build the page of two results, one scorecard for each seed. `names` are those of the first and the second."""
    changes = {**comparison.benchmarks, "Acc": comparison.acc}
    scores = {
        name: Score(change.difference, change.interval.low, change.interval.high) for name, change in changes.items()
    }
    chart = interval_chart(list(scores), [ScoreRow(f"{names[1]} minus {names[0]}", "vcsd", scores)])
    warning = "".join(f"<p>{text(line)}</p>" for line in unread_warning(comparison))
    sections = [
        PageSection("Differences in points", Html(_table(changes, names) + warning + chart)),
        PageSection("Questions gained and lost", _moved(first, second)),
        PageSection("Settings that differ", _settings(comparison, names)),
    ]
    acc = comparison.acc
    interval = f"{acc.interval.low:+.2f} to {acc.interval.high:+.2f}"
    tiles = [
        Tile(names[0], f"{acc.a:.2f}"),
        Tile(names[1], f"{acc.b:.2f}", "", "vcsd"),
        Tile("difference", f"{acc.difference:+.2f}", f"{interval}, {unread_note(acc.unread)}", "vcsd"),
    ]
    return Page(f"{names[1]} against {names[0]}", sections, tiles=tiles)


def _table(changes: dict[str, Difference], names: tuple[str, str]) -> Html:
    rows = [
        [
            name,
            f"{change.a:.2f}",
            f"{change.b:.2f}",
            f"{change.difference:+.2f}",
            f"{change.interval.low:+.2f} to {change.interval.high:+.2f}",
            str(change.num_gained),
            str(change.num_lost),
            f"{change.unread:+.2f}",
        ]
        for name, change in changes.items()
    ]
    return plain_table(("benchmark", *names, "difference", "95% interval", "gained", "lost", "unread"), rows)


def _moved(first: Sequence[Scorecard], second: Sequence[Scorecard]) -> Html:
    """List the ids of questions that one of the two answers correctly more often than the other."""
    parts = []
    for name, score in first[0].benchmarks.items():
        gained, lost = moved_ids([[card.benchmarks[name].tally for card in cards] for cards in (first, second)])
        lists = f"<p>gained: {_ids(gained)}</p><p>lost: {_ids(lost)}</p>"
        parts.append(f"<h3>{text(score.title)}</h3>{lists}")
    return Html("".join(parts))


def moved_ids(pair: Sequence[Sequence[Tally]]) -> tuple[list[str], list[str]]:
    """Return the ids of questions that the second answers correctly more often, and those that the first does."""
    moves = list(zip(pair[0][0].ids, moves_of(*pair), strict=True))
    return [name for name, move in moves if move > 0], [name for name, move in moves if move < 0]


def _ids(ids: list[str]) -> str:
    return text(few(ids, _MOST_LISTED)) if ids else "none"


def _settings(comparison: Comparison, names: tuple[str, str]) -> Html:
    rows = [[name, *pair] for name, pair in comparison.settings().items()]
    return plain_table(("setting", *names), rows)
