"""Scorecards on a terminal: one row per benchmark, and beside each number what may make it mean less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vcsd.evaluation.compare import Comparison, Seeds
    from vcsd.evaluation.scorecard import Scorecard
    from vcsd.evaluation.uncertainty import Interval

COUNTS = ("failed", "unresolved", "truncated", "empty", "repeated")
_SHORT = {"unresolved": "unread", "truncated": "cut", "repeated": "loops"}
"""Names that leave the table its place on a terminal of 80 columns."""


def score_table(card: Scorecard) -> Table:
    """Entries with intervals, N, and the counts of answers that are not as they should be."""
    table = _table("benchmark", "score", "95%", "N", *(_SHORT.get(name, name) for name in COUNTS))
    for score in card.benchmarks.values():
        num = str(score.num_questions) if score.is_whole else f"{score.num_questions}/{score.num_expected}"
        counts = [getattr(score.counts, name) for name in COUNTS]
        shown = [Text(str(count), style="yellow" if count else "dim") for count in counts]
        table.add_row(score.title, f"{score.entry:.2f}", _range(score.interval), num, *shown)
    table.add_section()
    name = "Acc" if len(card.benchmarks) > 1 else "mean"
    total = str(sum(score.num_questions for score in card.benchmarks.values()))
    table.add_row(name, f"{card.acc:.2f}", _range(card.interval), total, style="bold")
    return table


def remarks(card: Scorecard) -> Iterator[str]:
    """How the numbers were made, and every reason to read them with care."""
    made: Mapping[str, Any] = card.made_with
    parts = [f"mode {card.mode}"] + ([] if card.mode == "final" else [f"rules {card.rules}"])
    parts += [f"{key} {made[key]}" for key in ("style", "seed") if key in made]
    if "sampling" in made:
        parts.append("sampling " + ", ".join(f"{key} {value}" for key, value in made["sampling"].items()))
    yield "; ".join(parts)
    partial = [score.title for score in card.benchmarks.values() if not score.is_whole]
    if partial:
        yield f"Not whole, so not comparable with published numbers: {', '.join(partial)}."
    unknown = [name for name, report in (made.get("data") or {}).items() if report.get("doubts")]
    if unknown:
        yield f"Not the published data (see scorecard.json): {', '.join(unknown)}."
    if card.mode == "exact":
        yield "exact is VLMEvalKit's rule without a judge: a lower bound for answers that reason. Use final or judge."


def comparison_table(comparison: Comparison, first: str, second: str) -> Table:
    """What the second scores above the first, paired; clear differences in colour."""
    table = _table("benchmark", first, second, "difference", "95% interval", "gained", "lost")
    rows = [*comparison.benchmarks.items(), ("Acc", comparison.acc)]
    for name, found in rows:
        if name == "Acc":
            table.add_section()
        style = ("green" if found.difference > 0 else "red") if found.is_clear else ""
        change = Text(f"{found.difference:+.2f}", style=style)
        gains = (str(found.num_gained), str(found.num_lost))
        table.add_row(
            name,
            f"{found.a:.2f}",
            f"{found.b:.2f}",
            change,
            f"{found.interval.low:+.1f} to {found.interval.high:+.1f}",
            *gains,
        )
    return table


def seeds_table(seeds: Seeds, titles: Mapping[str, str]) -> Table:
    """Mean and standard deviation over seeds; `titles` of the benchmarks by their names."""
    table = _table("benchmark", "mean", "sd", "seeds")
    for name, found in [*seeds.benchmarks.items(), ("Acc", seeds.acc)]:
        sd = "-" if found.sd is None else f"{found.sd:.2f}"
        table.add_row(
            titles.get(name, name), f"{found.mean:.2f}", sd, ", ".join(f"{value:.2f}" for value in found.values)
        )
    return table


def _range(interval: Interval) -> str:
    return f"{interval.low:.1f}-{interval.high:.1f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
    return table
