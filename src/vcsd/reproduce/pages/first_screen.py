"""The start of a long page: the question, the result, how sure that is, and the command that repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def first_screen(title: str, *, question: str, result: Sequence[str], sure: str, repeat: str) -> list[str]:
    """The lines of the start. What speaks against the method comes first in `result`, which may be empty.

    >>> lines = first_screen("A page", question="Does it work?", result=["No."], sure="5 bases.", repeat="`make all`.")
    >>> [line for line in lines if line]
    ['# A page', '**Question:** Does it work?', '**Result:** No.', '**How sure:** 5 bases.', '**Repeat:** `make all`.']
    """
    first, *rest = result or [""]
    parts = [f"# {title}", f"**Question:** {question}"]
    parts += [f"**Result:** {first}", *rest] if first else []
    parts += [f"**How sure:** {sure}", f"**Repeat:** {repeat}"]
    return [line for part in parts for line in (part, "")]
