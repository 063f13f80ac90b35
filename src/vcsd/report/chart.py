"""Small charts: lines over steps, differences with their intervals, bars. Colours come from the page's style sheet.

A chart depends only on its numbers, so the same run gives the same file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from vcsd.report.markup import Html, text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vcsd.report.parts import ScoreRow

WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 24
NUM_TICKS = 4
MOST_POINTS = 500
"""The most points drawn of one line; more would be closer than a pixel."""

_ROUNDING = 1e-9
"""Numbers that differ by less than this share count as equal: ticks between them could not be told apart."""

SMOOTH_FROM = 24
"""Lines with at least this many points are drawn twice: faint as measured, and strong as a moving average."""


TONES = ("vcsd", "opsd", "other", "rose", "sky", "olive", "base")
"""The colours of the style sheet, in the order in which several runs get them."""


@dataclass(frozen=True)
class Line:
    """Numbers over steps. `tone` names the colour: one of TONES."""

    name: str
    tone: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """Lines under one title, and a sentence on what they show."""

    title: str
    lines: Sequence[Line]
    says: str = ""


@dataclass(frozen=True)
class ShareBar:
    """A share in percent. `note` follows the number, such as "N 40"."""

    name: str
    value: float
    note: str = ""


def ticks(low: float, high: float, count: int = NUM_TICKS) -> list[float]:
    """Return round numbers that cover a range: multiples of 1, 2 or 5 times a power of ten.

    >>> ticks(0.13, 0.92), ticks(0, 60)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 20.0, 40.0, 60.0])
    """
    if high - low <= _ROUNDING * max(abs(low), abs(high)):
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * (1 - 1e-9))
    # A rounding error below zero must not add a tick.
    first, last = math.floor(low / step + 1e-3), math.ceil(high / step - 1e-3)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def bar_chart(title: str, bars: Sequence[ShareBar]) -> Html:
    """Draw horizontal bars from 0 to 100 under a heading."""
    rows = "".join(
        f'<span>{text(bar.name)}</span><div class="track"><div class="fill" style="width:{bar.value:.1f}%"></div></div>'
        f'<span>{bar.value:.1f} <span class="soft">{text(bar.note)}</span></span>'
        for bar in bars
    )
    return Html(f'<h3>{text(title)}</h3><div class="bars">{rows}</div>' if bars else "")


def line_charts(charts: Sequence[Chart]) -> Html:
    """Draw charts side by side under one legend. Charts without a point are left out."""
    drawn = [(chart, svg) for chart in charts if (svg := line_chart(chart))]
    if not drawn:
        return Html("")
    tones = {line.name: line.tone for chart, _ in drawn for line in chart.lines}
    keys = "".join(f'<span><i class="key {text(tone)}"></i>{text(name)}</span>' for name, tone in tones.items())
    figures = "".join(
        f"<figure><figcaption><b>{text(chart.title)}</b>{text(chart.says)}</figcaption>{svg}</figure>"
        for chart, svg in drawn
    )
    return Html(f'<p class="legend">{keys}</p><div class="charts">{figures}</div>')


def line_chart(chart: Chart) -> Html:
    """Draw lines over steps as an SVG element; return nothing if no line has a point."""
    lines = [
        replace(line, points=[(x, y) for x, y in line.points if y is not None and math.isfinite(y)])
        for line in chart.lines
    ]
    points = [point for line in lines for point in line.points]
    if not points:
        return Html("")
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    x_ticks = [x for x in ticks(x_low, x_high) if x_low <= x <= x_high] if x_high > x_low else [x_low]
    y_ticks = ticks(min(y for _, y in points), max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / ((x_high - x_low) or 1)
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [_grid(y, place(x_low, y)[1]) for y in y_ticks]
    parts += [_below(f"{x:g}", place(x, y_ticks[0])[0], HEIGHT) for x in x_ticks]
    for line in lines:
        parts += _drawn(line, place)
    return _svg(WIDTH, HEIGHT, chart.title, parts)


def _grid(value: float, y: float) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{value:g}</text>'


def _below(label: str, x: float, height: int) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{height - 7}" text-anchor="middle">{label}</text>'


def _drawn(line: Line, place: Callable[[float, float], tuple[float, float]]) -> list[str]:
    if not line.points:
        return []
    is_long = len(line.points) >= SMOOTH_FROM
    points = thinned(smoothed(line.points)) if is_long else line.points
    parts = [_path(thinned(line.points), place, line.tone, "faint")] if is_long else []
    parts.append(_path(points, place, line.tone, "strong"))
    x, y = line.points[-1]
    across, down = place(*points[-1])
    label = f"{text(line.name)}: {y:.4g} at {x:g}"
    dot = f'<circle class="dot {text(line.tone)}" cx="{across:.1f}" cy="{down:.1f}" r="3">'
    return [*parts, f"{dot}<title>{label}</title></circle>"]


def _path(
    points: Sequence[tuple[float, float]], place: Callable[[float, float], tuple[float, float]], tone: str, weight: str
) -> str:
    drawn = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in (place(*point) for point in points))
    return f'<path class="line {text(tone)} {weight}" d="{drawn}"/>'


def smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Replace each point by the mean over its neighbours, a sixteenth of the line to either side.

    >>> smoothed([(1, 0.0), (2, 3.0), (3, 0.0)])
    [(1, 1.5), (2, 1.0), (3, 1.5)]
    """
    reach = max(1, len(points) // 16)
    totals = [0.0, *accumulate(y for _, y in points)]

    def mean(i: int) -> float:
        low, high = max(0, i - reach), min(len(points), i + reach + 1)
        return (totals[high] - totals[low]) / (high - low)

    return [(x, mean(i)) for i, (x, _) in enumerate(points)]


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """Keep the lowest and the highest point of each stretch of a long line, so that no peak is lost, and both ends.

    >>> thinned([(x, y) for x, y in enumerate((5, 1, 9, 2, 3, 0, 7, 4))], most=6)
    [(0, 5), (1, 1), (2, 9), (5, 0), (6, 7), (7, 4)]
    """
    if len(points) <= most:
        return list(points)
    num = max(1, (most - 2) // 2)
    kept = {0, len(points) - 1}
    for part in range(num):
        stretch = range(part * len(points) // num, (part + 1) * len(points) // num)
        kept |= {min(stretch, key=lambda i: points[i][1]), max(stretch, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def interval_chart(columns: Sequence[str], rows: Sequence[ScoreRow]) -> Html:
    """Draw differences with their intervals around a zero line: a band per column, a mark per row."""
    scores = [(name, row, row.scores[name]) for name in columns for row in rows if name in row.scores]
    if not scores:
        return Html("")
    ends = [end for _, _, score in scores for end in (score.low, score.high, score.value) if end is not None]
    marks = ticks(min(0.0, *ends), max(0.0, *ends), 6)
    width, band, gap = 760, 15, 13
    left = 150
    height = TOP + len(columns) * (len(rows) * band + gap) + BOTTOM

    def across(value: float) -> float:
        return left + (value - marks[0]) / (marks[-1] - marks[0]) * (width - left - 20)

    parts = []
    for mark in marks:
        kind = "zero" if mark == 0 else "grid"
        label = f"{mark:+g}".replace("-", "\u2212") if mark else "0"
        x = f"{across(mark):.1f}"
        parts.append(f'<line class="{kind}" x1="{x}" x2="{x}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(_below(label, across(mark), height))
    y = TOP + gap / 2
    for name in columns:
        middle = y + len(rows) * band / 2 + 4
        parts.append(f'<text class="label" x="{left - 14}" y="{middle:.1f}" text-anchor="end">{text(name)}</text>')
        for row in rows:
            if name in row.scores:
                parts.append(_whisker(row, name, y + band / 2, across))
            y += band
        y += gap
    return _svg(width, height, "Paired differences", parts)


def _whisker(row: ScoreRow, column: str, y: float, across: Callable[[float], float]) -> str:
    score = row.scores[column]
    low, high = (score.value if end is None else end for end in (score.low, score.high))
    title = f"<title>{text(row.name)}, {text(column)}: {score.value:+.1f} [{low:+.1f}, {high:+.1f}]</title>"
    ends = f'x1="{across(low):.1f}" x2="{across(high):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
    tone = text(row.tone)
    line = f'<line class="whisker {tone}" {ends}/>'
    return f'<g>{title}{line}<circle class="dot {tone}" cx="{across(score.value):.1f}" cy="{y:.1f}" r="4"/></g>'


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> Html:
    opening = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(title)}">'
    return Html(f"{opening}{''.join(parts)}</svg>")
