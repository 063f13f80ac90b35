"""Reads rows of benchmark files: the question, its form, its options and its gold answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import TYPE_CHECKING

from vcsd.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.evaluation.benchmarks.files.records import Record
    from vcsd.evaluation.benchmarks.prompt_styles import Form
    from vcsd.types import AnswerKind


@dataclass(frozen=True)
class ParsedRecord:
    """A row, parsed: the question, its form, options, gold answer and groups."""

    question: str
    form: Form
    kind: AnswerKind
    gold: str
    options: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    hint: str | None = None
    offered: Mapping[str, str] | None = None
    """The options in the prompt, if they differ from those that the answer is read with."""


OPTION_COLUMNS = ("index", "question", "A", "B", "answer")


def options_of(row: Record) -> dict[str, str]:
    """Return the options A to Z that a row has."""
    return {letter: option for letter in ascii_uppercase if (option := row.get(letter)) is not None}


def groups_of(row: Record, names: Sequence[str] = ("category", "l2-category")) -> dict[str, str]:
    """Return a row's groups: the columns of these names that are filled."""
    return {name: group for name in names if (group := row.get(name)) is not None}


def yes_or_no(row: Record) -> str:
    """Return the gold answer of a row, Yes or No. Raises DataError for any other."""
    gold = row.need("answer").strip().capitalize()
    if gold not in ("Yes", "No"):
        raise DataError(row.id, f"{row.name}: the answer {gold!r} is neither Yes nor No.")
    return gold


def multiple_choice(row: Record) -> ParsedRecord:
    """Read a row with VLMEvalKit's multiple-choice columns, and every group column that it has."""
    options, gold = options_of(row), row.need("answer").strip()
    # pandas reads some words as missing values. VLMEvalKit leaves out such an option, even if it is the gold one.
    written = [letter for letter in ascii_uppercase if row.cells.get(letter)]
    # Some rows of published files lack the gold option too, as in RealWorldQA. VLMEvalKit asks them anyway.
    if gold not in written and not row.is_published:
        raise DataError(
            row.id,
            f"{row.name}: the answer {gold!r} is none of its options {', '.join(written) or '(none)'}. Correct it, or "
            "add the option.",
        )
    return ParsedRecord(row.need("question"), "option", "option", gold, options, groups_of(row), row.get("hint"))


def choice_or_open(row: Record) -> ParsedRecord:
    """Read a row that may have no option A, as in MMMU: VLMEvalKit then reads the answer with a made-up A and B."""
    if row.get("A") is not None:
        return multiple_choice(row)
    gold = row.need("answer").strip()
    letter = gold if len(gold) == 1 and gold in ascii_uppercase else "A"
    offered = options_of(row)
    options = dict(sorted({**offered, "A": gold, "B": "Other Answers"}.items()))
    hint = row.get("hint")
    return ParsedRecord(row.need("question"), "option", "option", letter, options, groups_of(row), hint, offered)


_MARK = re.compile(r"(?:^|(?<=[\s,]))\(?([A-Z])[).:]\s*(?=\S)")
_HEADING = re.compile(r"[\s,]*(?:Options|Choices)\s*:?\s*$", re.IGNORECASE)
_INSTRUCTION = re.compile(r"\s*Answer with the option's letter from the given choices directly\.?\s*$")


def options_inside(text: str) -> tuple[str, dict[str, str]]:
    """Split a text into the question and its options. There are no options without an A followed by a B.

    >>> options_inside("What is it?\\nOptions: A: a cat, big, B: a dog")
    ('What is it?', {'A': 'a cat, big', 'B': 'a dog'})
    >>> options_inside("Is A. left of B?\\n(A) yes\\n(B) no")
    ('Is A. left of B?', {'A': 'yes', 'B': 'no'})
    """
    text = _INSTRUCTION.sub("", text)
    run: list[re.Match[str]] = []
    best: list[re.Match[str]] = []
    for mark in _MARK.finditer(text):
        if mark.group(1) == "A":
            run = [mark]
        elif run and ord(mark.group(1)) == ord(run[-1].group(1)) + 1:
            run.append(mark)
        if len(run) > 1:
            best = run
    if not best:
        return text, {}
    ends = [*(mark.start() for mark in best[1:]), len(text)]
    options = {
        mark.group(1): text[mark.end() : end].strip().rstrip(",").rstrip() for mark, end in zip(best, ends, strict=True)
    }
    return _HEADING.sub("", text[: best[0].start()]).rstrip(), options
