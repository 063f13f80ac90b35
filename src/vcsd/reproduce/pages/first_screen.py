"""The start of a page: the question, the words that it needs, the result, and the command that repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = "python -m vcsd.reproduce.every_page docs/results"
"""Writes every page from the result files."""

WORDS = (
    "*VCSD* trains a model, without reference answers, towards what its image makes more likely than a control, such "
    "as a black picture. *OPSD* is the baseline: its teacher sees the correct answer. A *base* is a model before "
    "training. *Acc* is the mean accuracy over seven suites of questions, in percent."
)


COMMAND = "python -m vcsd.reproduce.every_page docs/results"
"""What writes the pages of the committed results."""


def how_to_repeat(run_command: str, command: str = COMMAND) -> str:
    """What writes a page, and what makes its runs.

    >>> how_to_repeat("make runs", "make pages")
    '`make pages` writes this page from the files in `cells/`; do not edit it. `make runs` makes the runs.'
    """
    return f"`{command}` writes this page from the files in `cells/`; do not edit it. `{run_command}` makes the runs."


def question_first(title: str, question: str) -> list[str]:
    """The title, the question of a page, and the words that every page uses.

    >>> [line for line in question_first("A page", "Does it work?") if line] == [
    ...     "# A page", "**Question:** Does it work?", WORDS]
    True
    """
    return [f"# {title}", "", f"**Question:** {question}", "", WORDS, ""]


def first_screen(title: str, *, question: str, result: Sequence[str], sure: str, repeat: str) -> list[str]:
    """The lines of the start. What speaks against the method comes first in `result`, which may be empty.

    >>> lines = first_screen("A page", question="Does it work?", result=["No."], sure="5 bases.", repeat="`make all`.")
    >>> [line for line in lines if line and line != WORDS]
    ['# A page', '**Question:** Does it work?', '**Result:** No.', '**How sure:** 5 bases.', '**Repeat:** `make all`.']
    """
    first, *rest = result or [""]
    parts = [f"**Result:** {first}", *rest] if first else []
    parts += [f"**How sure:** {sure}", f"**Repeat:** {repeat}"]
    return question_first(title, question) + [line for part in parts for line in (part, "")]
