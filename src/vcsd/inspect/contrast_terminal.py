"""A token contrast in the terminal: the coloured response, its scale, and a table of the tokens that matter most.

Orange and blue differ for every kind of colour vision, and the table has every number in text, so that nothing depends
on colour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group as Stacked
from rich.style import Style
from rich.table import Table
from rich.text import Text

from vcsd.inspect.contrast_page import (
    colour_scale,
    difference_rows,
    model_row,
    notes,
    probability,
)
from vcsd.report.parts import signed
from vcsd.report.tokens import percent, shown_token
from vcsd.terminal import plain
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from vcsd.inspect.token_scores import ResponseContrast, TokenScore
    from vcsd.report.tokens import TokenRow

MOST_LINES = 8
"""The most tokens in the table."""

LEAST_INTEREST = 0.02
"""Tokens below this many nats get no line in the table."""

_PALE, _WARM, _COOL = (247, 247, 247), (235, 114, 20), (66, 140, 225)
_LEAST_LEVEL = 5
"""Tokens below this percentage of the full colour stay plain."""


def contrast_lines(seen: Sequence[ResponseContrast]) -> RenderableType:
    """Return what the terminal shows of the responses under one or more models."""
    scale = colour_scale(seen)
    parts: list[RenderableType] = [plain(seen[0].question, "bold"), Text()]
    for row in [*map(model_row, seen), *difference_rows(seen)]:
        parts += [Text.assemble((visible(row.name), "bold"), f"  {row.note}"), _coloured(row, scale), Text()]
    parts.append(_scale_line(scale))
    for one in seen:
        parts += [Text(), _table(one)]
    return Stacked(*parts, *(plain(note, "yellow") for note in notes(seen)))


def _coloured(row: TokenRow, scale: float) -> Text:
    line = Text()
    for token in row.tokens:
        text = visible(token.text) if token.text.strip() else visible(shown_token(token.text))
        line.append(text, _style(percent(token.value, scale)))
    return line


def _style(level: int) -> Style:
    """Black on a background between pale and the full colour. Negative tokens are also underlined."""
    if abs(level) < _LEAST_LEVEL:
        return Style.null()
    full = _WARM if level > 0 else _COOL
    mixed = [round(pale + (end - pale) * abs(level) / 100) for pale, end in zip(_PALE, full, strict=True)]
    return Style(color="#000000", bgcolor="#{:02x}{:02x}{:02x}".format(*mixed), underline=level < 0)


def _scale_line(scale: float) -> Text:
    line = Text(f"less likely \u2212{scale:.3g} ")
    for level in range(-100, 101, 25):
        line.append("  ", _style(level))
    return line.append(f" +{scale:.3g} nats more likely with the image")


def _table(one: ResponseContrast) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1), title=plain(one.name, "bold"), title_justify="left")
    for column in ("", "token", "contrast", "image", "control", "target", "support", "the target prefers"):
        is_text = column in ("token", "the target prefers")
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    numbers = sorted(range(len(one.tokens)), key=lambda i: -_interest(one.tokens[i]))[:MOST_LINES]
    for index in sorted(i for i in numbers if _interest(one.tokens[i]) >= LEAST_INTEREST):
        table.add_row(*_cells(index, one.tokens[index]))
    return table


def _interest(token: TokenScore) -> float:
    """Rank a token by its contrast, or by the contrast of what the target prefers at its place."""
    return max(abs(token.realised.contrast), token.candidates[0].contrast)


def _cells(index: int, token: TokenScore) -> list[Text]:
    said, best = token.realised, token.candidates[0]
    numbers = (
        signed(said.contrast, digits=4),
        probability(said.log_p_original),
        probability(said.log_p_control),
        "-" if said.log_q is None else probability(said.log_q),
        str(token.support_size),
    )
    prefers = "" if best == said else f"{best.text.strip()} {signed(best.contrast, digits=4)}"
    return [Text(str(index + 1)), plain(shown_token(said.text).strip()), *map(Text, numbers), plain(prefers)]
