"""Coloured tokens: text whose background shows a number, with details on hover, on click and by keyboard.

The tokens of a row are one group of radio buttons: Tab enters the row, arrow keys move from token to token, a click
keeps a token's details open. Warm means positive, cool negative; negative tokens are also underlined. Optional end tags
are omitted, because a page may hold thousands of tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.report.markup import Html, text
from vcsd.report.parts import picture, signed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from PIL.Image import Image

_CANDIDATE_HEAD = "".join(f"<th>{column}" for column in ("image", "control", "contrast", "target", "student"))

MOST_SCALE = 6.0
"""In nats. Stronger contrasts get the full colour too: a token that a view rules out must not make all others pale."""

LEAST_SCALE = 0.1
"""In nats. A response with hardly any contrast must not look as if it had much."""

LEAST_LEVEL = 2
"""Tokens below this percentage of the full colour stay plain."""


@dataclass(frozen=True)
class TokenDetail:
    """One line of a token's details: a candidate and its numbers as text. `kind` marks it: "said", "off" or nothing."""

    name: str
    cells: Sequence[str]
    kind: str = ""


@dataclass(frozen=True)
class ColouredToken:
    """A token, the number that colours it, a sentence about it, and the candidates at its position."""

    text: str
    value: float
    about: str
    details: Sequence[TokenDetail] = ()


@dataclass(frozen=True)
class TokenRow:
    """A response scored by one model, or the difference between two models. `note` is shown next to its name."""

    name: str
    note: str
    tokens: Sequence[ColouredToken]


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Numbers over the tiles of an image, from its top left corner."""

    title: str
    about: str
    image: Image
    values: Sequence[Sequence[float]]


def full_colour(values: Iterable[float]) -> float:
    """Return the contrast, in nats, that gets the full colour: one number for everything that is compared.

    >>> full_colour([0.5, -2.0]), full_colour([]), full_colour([1e4])
    (2.0, 0.1, 6.0)
    """
    return min(MOST_SCALE, max([LEAST_SCALE, *map(abs, values)]))


def signed_nats(value: float) -> str:
    """Format a contrast with its sign and unit."""
    return f"{signed(value, digits=4)} nats"


def percent(value: float, scale: float) -> int:
    """Return the percentage of the full colour that a number gets, with its sign.

    >>> percent(1.5, 3.0), percent(-9.0, 3.0), percent(0.001, 3.0)
    (50, -100, 0)
    """
    level = round(100 * max(-1.0, min(1.0, value / scale)))
    return level if abs(level) >= LEAST_LEVEL else 0


def shown_token(token: str) -> str:
    """Show a token with visible signs for line breaks and lone spaces.

    >>> shown_token(" "), shown_token(chr(10)), shown_token(" red")
    ('\u2423', '\u21b5', ' red')
    """
    return token.replace("\n", "\u21b5") if token.strip() else token.replace(" ", "\u2423").replace("\n", "\u21b5")


def colour_legend(scale: float, *, low: str, high: str) -> Html:
    """Show the colour scale with its ends, in nats, and what they mean."""
    return Html(
        f'<div class="scale"><span>{text(low)}</span><span class="ends"><b>\u2212{scale:.3g}</b><i></i>'
        f"<b>+{scale:.3g} nats</b></span><span>{text(high)}</span></div>"
    )


def token_rows(rows: Sequence[TokenRow], scale: float) -> Html:
    """Show responses one below the other, coloured on one scale."""
    return Html("".join(_row(row, f"row{index}", scale) for index, row in enumerate(rows)))


def _row(row: TokenRow, group: str, scale: float) -> str:
    title = f'<h3>{text(row.name)} <span class="soft">{text(row.note)}</span></h3>'
    return title + tokens_only(row.name, row.tokens, group=group, scale=scale)


def tokens_only(name: str, tokens: Sequence[ColouredToken], *, group: str, scale: float) -> Html:
    """Show a response without a heading. `group` is unique on the page; a screen reader reads out the name."""
    shown = "".join(_token(token, group, scale) for token in tokens)
    return Html(f'<div class="tokens" role="radiogroup" aria-label="{text(name)}">{shown}</div>')


def _token(token: ColouredToken, group: str, scale: float) -> str:
    level = percent(token.value, scale)
    colour = f' class="{"warm" if level > 0 else "cool"}" style="--c:{abs(level)}"' if level else ""
    shown = text(shown_token(token.text))
    lines = "".join(_line(detail) for detail in token.details)
    table = f"<table><thead><tr><th>{_CANDIDATE_HEAD}<tbody>{lines}</table>" if lines else ""
    return (
        f'<div class="t"><label{colour}><input type="radio" name="{group}">{shown}</label>'
        f'<div class="card"><h4>{shown}</h4><p>{text(token.about)}</p>{table}</div></div>'
        + ("<br>" if "\n" in token.text else "")
    )


def _line(detail: TokenDetail) -> str:
    kind = f' class="{detail.kind}"' if detail.kind else ""
    return f"<tr{kind}><th>{text(shown_token(detail.name))}" + "".join(f"<td>{text(cell)}" for cell in detail.cells)


def side_by_side(pictures: Sequence[tuple[str, Image]]) -> Html:
    """Show pictures with their captions in a row."""
    figures = "".join(
        f'<figure class="view">{picture(image, alt=name)}<figcaption>{text(name)}</figcaption></figure>'
        for name, image in pictures
    )
    return Html(f'<div class="views">{figures}</div>')


def heat_maps(maps: Sequence[HeatMap], scale: float) -> Html:
    """Show numbers over the tiles of images, coloured on one scale; each tile shows its number on hover."""
    return Html(f'<div class="views">{"".join(_map(item, scale) for item in maps)}</div>' if maps else "")


def _map(item: HeatMap, scale: float) -> str:
    cells = "".join(_cell(value, scale) for row in item.values for value in row)
    return (
        f'<figure class="view map">{picture(item.image, alt=item.title)}'
        f'<div class="cells" style="--n:{len(item.values)}">{cells}</div>'
        f"<figcaption><b>{text(item.title)}</b>{text(item.about)}</figcaption></figure>"
    )


def _cell(value: float, scale: float) -> str:
    level = percent(value, scale)
    colour = f'class="{"warm" if level > 0 else "cool"}" style="--c:{abs(level)}" ' if level else ""
    return f'<i {colour}title="{text(f"{value:+.3f} nats")}"></i>'
