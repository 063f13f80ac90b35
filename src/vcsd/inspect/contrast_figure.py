"""A token contrast as a picture, like the paper's figure: image, control, and one coloured response per model."""

from __future__ import annotations

import warnings
from textwrap import wrap
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, install_command
from vcsd.inspect.contrast_page import colour_scale, difference_rows, model_row
from vcsd.report.tokens import percent, shown_token
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcsd.inspect.token_scores import ResponseContrast
    from vcsd.report.tokens import TokenRow

WIDTH, DPI = 9.0, 150
"""Inches, and dots per inch."""

PICTURE, LINE, GAP, TOP = 1.45, 0.27, 0.5, 0.35
"""Inches: a picture's side, a line of text, the space above a row of tokens, and the margin at the top."""

QUESTION_WIDTH, MOST_LINES = 50, 14
"""The most characters in a line of the question, and the most lines."""

SIZE = 11
"""The font size of the tokens, in points."""

_PALE, _WARM, _COOL = (1.0, 1.0, 1.0), (0.933, 0.478, 0.102), (0.235, 0.545, 0.878)


def require_matplotlib(path: Path) -> None:
    """Raise a ConfigError if the figure cannot be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        how = install_command("eval")  # this extra includes matplotlib
        raise ConfigError(
            [f"{path.suffix} needs matplotlib. Install the extra: {how}, or write .html or .json."]
        ) from error


def write_figure(seen: Sequence[ResponseContrast], path: Path) -> None:
    """Draw the figure and write it as PNG or SVG, by the ending of the path."""
    require_matplotlib(path)
    from matplotlib.figure import Figure

    rows = [*map(model_row, seen), *difference_rows(seen)]
    text = PICTURE * 2 + 0.5
    lines = [_laid_out(row, WIDTH - text - 0.2) for row in rows]
    asked = 0.17 * len(_question_lines(seen[0].question))
    height = max(PICTURE + 2 * TOP + 0.5 + asked, TOP + sum(GAP + LINE * (own[-1][1] + 1) for own in lines) + 0.6)
    figure = Figure(figsize=(WIDTH, height))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a font lacks some scripts; boxes appear instead
        _draw(figure, seen, rows, lines, text)
        figure.savefig(path, dpi=DPI)


def _draw(
    figure: Figure,
    seen: Sequence[ResponseContrast],
    rows: Sequence[TokenRow],
    lines: Sequence[list[tuple[float, int]]],
    left: float,
) -> None:
    scale, height = colour_scale(seen), float(figure.get_figheight())
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, height))
    axes.axis("off")
    names = ("image", f"control: {seen[0].method.contrast_view}")
    for index, image in enumerate((seen[0].images[0], seen[0].control_images[0])):
        x, y = 0.15 + index * (PICTURE + 0.12), height - TOP - PICTURE
        picture = figure.add_axes((x / WIDTH, y / height, PICTURE / WIDTH, PICTURE / height))
        picture.imshow(image.convert("RGB"))
        picture.axis("off")
        axes.text(x, y - 0.06, names[index], fontsize=8, va="top", color="#62686f")
    asked = "\n".join(_question_lines(seen[0].question))
    axes.text(0.15, height - TOP - PICTURE - 0.36, asked, fontsize=8, va="top", parse_math=False, linespacing=1.45)
    y = height - TOP
    for row, places in zip(rows, lines, strict=True):
        axes.text(left, y, visible(row.name), fontsize=9.5, weight="bold", va="center", parse_math=False)
        y -= GAP - 0.16
        for token, (x, line) in zip(row.tokens, places, strict=True):
            _token(axes, visible(shown_token(token.text)), (left + x, y - line * LINE), percent(token.value, scale))
        y -= places[-1][1] * LINE + 0.42
    _scale(axes, left, scale)


def _question_lines(question: str) -> list[str]:
    """Break a question into lines that fit under the pictures; a long one is cut.

    >>> _question_lines("What is it?\\nA. red")
    ['What is it?', 'A. red']
    """
    lines = [part for line in visible(question).splitlines() for part in wrap(line, QUESTION_WIDTH) or [""]]
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "\u2026"]


def _laid_out(row: TokenRow, width: float) -> list[tuple[float, int]]:
    """Return the place of each token: inches from the left, and its line."""
    x, line, places = 0.0, 0, []
    for token in row.tokens:
        wide = _width(visible(shown_token(token.text)))
        if x + wide > width and x > 0:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += wide
        if "\n" in token.text:
            x, line = 0.0, line + 1
    return places


def _width(text: str) -> float:
    """Return the width of a text in the tokens' fixed-width font, in inches; a wide character counts twice."""
    return sum(2 if ord(char) > 0x2E80 else 1 for char in text) * SIZE * 0.602 / 72


def _token(axes: Axes, text: str, place: tuple[float, float], level: int) -> None:
    from matplotlib.patches import Rectangle

    x, y = place
    box = Rectangle((x, y - LINE * 0.42), _width(text), LINE * 0.84, facecolor=_colour(level), edgecolor="none")
    axes.add_patch(box)
    axes.text(x, y, text, fontsize=SIZE, family="monospace", va="center_baseline", color="#1c2024", parse_math=False)


def _colour(level: int) -> tuple[float, float, float]:
    full = _WARM if level > 0 else _COOL
    red, green, blue = (pale + (end - pale) * abs(level) / 100 for pale, end in zip(_PALE, full, strict=True))
    return red, green, blue


def _scale(axes: Axes, left: float, scale: float) -> None:
    from matplotlib.patches import Rectangle

    for step in range(-50, 50):
        x = left + 1.05 + (step + 50) * 0.02
        axes.add_patch(Rectangle((x, 0.18), 0.021, 0.14, facecolor=_colour(2 * step), edgecolor="none"))
    axes.text(left, 0.25, f"less likely  \u2212{scale:.2f}", fontsize=8, va="center")
    axes.text(left + 3.1, 0.25, f"+{scale:.2f} nats  more likely with the image", fontsize=8, va="center")
