"""What must be known of a benchmark to ask its questions: its files, what they hold, how a row is read.

Scoring knows a benchmark by another record, `vcsd.evaluation.benchmark`; the two share its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from vcsd.errors import DataError
from vcsd.evaluation.prompts import prompt_text
from vcsd.evaluation.question import AnswerKind, Question
from vcsd.types import Example

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vcsd.evaluation.prompts import Form
    from vcsd.evaluation.rows import Row


@dataclass(frozen=True)
class Asked:
    """A row as it is asked and scored: words, form, options, gold, groups."""

    question: str
    form: Form
    kind: AnswerKind
    gold: str
    options: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    hint: str | None = None


@dataclass(frozen=True)
class ParquetLayout:
    """The authors' own files: where they lie under the data folder, their images, their cells in VLMEvalKit's terms."""

    dataset: str
    patterns: tuple[str, ...]
    convert: Callable[[Mapping[str, Any]], Mapping[str, str]]
    image_columns: tuple[str, ...] = ("image",)


@dataclass(frozen=True)
class Layout:
    """One benchmark. `files` are the names its TSV goes by, `sizes` the sizes of its groups, in any order.

    >>> Layout("toy", 4, "0" * 32, ("toy.tsv",), "toy.org", ("answer",), multiple_choice).name
    'toy'
    """

    name: str
    num_questions: int
    md5: str
    files: tuple[str, ...]
    source: str
    columns: tuple[str, ...]
    read: Callable[[Row], Asked]
    parquet: ParquetLayout | None = None
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    is_localized: bool = False
    """Whether VLMEvalKit re-encodes its images as JPEG, as it does with files above one gigabyte."""

    def question(self, row: Row, style: str) -> Question:
        """The question of a row, in a prompt style. Raises DataError for a row that makes no sense."""
        asked = self.read(row)
        text = prompt_text(style, asked.form, asked.question, options=asked.options, hint=asked.hint)
        content = [*({"type": "image"} for _ in row.images), {"type": "text", "text": text}]
        example = Example(row.need("index"), row.images, ({"role": "user", "content": content},))
        groups = {**asked.groups, **({"image": row.picture} if row.picture else {})}
        return Question(example, self.name, asked.kind, asked.gold, asked.options, groups, dict(row.cells))


OPTION_COLUMNS = ("index", "question", "A", "B", "answer")


def multiple_choice(row: Row) -> Asked:
    """A row of VLMEvalKit's multiple-choice columns, with every group column that it has."""
    options = {letter: option for letter in ascii_uppercase if (option := row.get(letter)) is not None}
    gold = row.need("answer").strip()
    # pandas reads some words as nothing; a gold option of such a word is not offered upstream, but it is no mistake.
    written = [letter for letter in ascii_uppercase if row.cells.get(letter)]
    if gold not in written:
        raise DataError(
            row.id, f"{row.name}: the answer {gold!r} is none of its options {', '.join(written) or '(none)'}."
        )
    names = ("category", "l2-category")
    groups = {name: group for name in names if (group := row.get(name)) is not None}
    return Asked(row.need("question"), "option", "option", gold, options, groups, row.get("hint"))


_MARK = re.compile(r"(?:^|(?<=[\s,]))\(?([A-Z])[).:]\s*(?=\S)")
_HEADING = re.compile(r"[\s,]*(?:Options|Choices)\s*:?\s*$", re.IGNORECASE)
_INSTRUCTION = re.compile(r"\s*Answer with the option's letter from the given choices directly\.?\s*$")


def options_inside(text: str) -> tuple[str, dict[str, str]]:
    """A question and its options, where both are one text. No options where there is no A followed by a B.

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
