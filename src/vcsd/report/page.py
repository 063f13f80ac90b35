"""The page builder: a title, tiles and sections become one HTML file that opens from disk, in light and in dark.

The file contains its style, charts and images. It has no script: the theme switch and the answer filter are form
controls that the style sheet reads, so they also work from the keyboard.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.checkpoint.whole_file import write_whole
from vcsd.report.markup import Html, text
from vcsd.report.parts import Tile, tiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

STYLE = Path(__file__).with_name("style.css")

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load and run for a page: its own style and images, no scripts, no other sources."""


@dataclass(frozen=True)
class PageSection:
    """A heading, an optional sentence, and the parts below it."""

    title: str
    body: Html
    lead: str = ""


@dataclass(frozen=True, eq=False)
class Page:
    """The content of a page. Sections without a body are left out."""

    title: str
    sections: Sequence[PageSection]
    lead: str = ""
    tiles: Sequence[Tile] = ()
    notes: Sequence[str] = ()
    """Sentences that a reader must not miss, such as that a run was stopped."""
    is_framed: bool = False
    """Whether another page shows this one in a frame: without its header, and with small pictures."""


def write_page(page: Page, path: str | PathLike[str]) -> Path:
    """Write the page and return its path. A reader never sees a partial page, or a mixture of two processes' pages."""
    return write_whole(Path(path), page_html(page))


def page_html(page: Page) -> Html:
    """Return the whole file as text."""
    lead = f'<p class="lead">{text(page.lead)}</p>' if page.lead else ""
    notes = "".join(f'<p class="warning">{text(note)}</p>' for note in page.notes)
    frame = ' class="framed"' if page.is_framed else ""
    body = "".join(_section(section) for section in page.sections if section.body)
    return Html(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(page.title)}</title><style>{STYLE.read_text(encoding='utf-8')}</style></head>"
        f"<body{frame}><main>"
        f'<header><div><h1>{text(page.title)}</h1>{lead}</div><label class="theme"><input type="checkbox" id="theme">'
        f"dark / light</label></header>{notes}{tiles(page.tiles)}{body}</main></body></html>\n"
    )


def _section(section: PageSection) -> str:
    lead = f'<p class="about">{text(section.lead)}</p>' if section.lead else ""
    return f"<section><h2>{text(section.title)}</h2>{lead}{section.body}</section>"
