"""The start of a long page: what was asked, what came out, how sure that is, and the command that repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def first_screen(title: str, *, asked: str, came_out: Sequence[str], sure: str, repeat: str) -> list[str]:
    """The lines of the start. What speaks against the method comes first in `came_out`, which may be empty.

    >>> lines = first_screen("A page", asked="Does it work?", came_out=["No."], sure="5 bases.", repeat="`make pages`.")
    >>> [line for line in lines if line]
    ['# A page', '**Asked:** Does it work?', '**Came out:** No.', '**How sure:** 5 bases.', '**Repeat:** `make pages`.']
    """
    first, *rest = came_out or [""]
    parts = [f"# {title}", f"**Asked:** {asked}"]
    parts += [f"**Came out:** {first}", *rest] if first else []
    parts += [f"**How sure:** {sure}", f"**Repeat:** {repeat}"]
    return [line for part in parts for line in (part, "")]
