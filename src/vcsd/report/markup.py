"""HTML that is safe to put into a page. Parts and charts return `Html`; everything else is escaped."""

from __future__ import annotations

from html import escape
from typing import NewType

from vcsd.visible import visible

Html = NewType("Html", str)


def text(value: object) -> Html:
    r"""Escape a value for use between tags and in quoted attributes. Characters that reorder text are escaped too.

    >>> text("A & <b> \u202e")
    'A &amp; &lt;b&gt; \\u202e'
    """
    return Html(escape(visible(str(value)), quote=True))
