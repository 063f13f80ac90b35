"""A benchmark as one record: its files, how its answers become one number, and what else is reported.

The seven of the paper's table have their own modules in this package; others are in `more_benchmarks.py`. The suites of
the offline world have no files.

aggregation   how right and wrong answers become the reported number: a name in AGGREGATIONS of `aggregate.py`
cluster       which questions share an image and so are not independent: a name in CLUSTERS of `aggregate.py`
breakdown     group keys of a question; the number is also reported for each value of these keys
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.prompt_styles import prompt_text
from vcsd.types import Example, Question, message_texts, user_message

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from vcsd.evaluation.benchmarks.files.records import ParquetRow, Record
    from vcsd.evaluation.benchmarks.read_rows import ParsedRecord
    from vcsd.types import Message, MessagePart

Numbers = Literal["official", "nearest", "vlmevalkit"]
"""How MathVista-style answers are compared: as its authors do, without or with guesses, or as VLMEvalKit does."""

JudgeForm = Literal["options", "blink", "yes_no", "extract"]
"""Which of VLMEvalKit's judge prompts is used."""


_PLACE = re.compile(r"<image (\d)>")


@dataclass(frozen=True)
class ParquetFiles:
    """The authors' own files: their paths in the data folder, and how to convert a row to VLMEvalKit's cells."""

    dataset: str
    patterns: tuple[str, ...]
    convert: Callable[[ParquetRow], Mapping[str, str]]
    image_columns: tuple[str, ...] = ("image",)


@dataclass(frozen=True)
class BenchmarkFiles:
    """The published files of a benchmark and how to read a row. `names` are the file names of its TSV."""

    names: tuple[str, ...]
    md5: str
    source: str
    columns: tuple[str, ...]
    read: Callable[[Record], ParsedRecord]
    parquet: ParquetFiles | None = None
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The sizes of its groups by group key, in any order: Parquet files have no published checksum."""
    is_localized: bool = False
    """Whether VLMEvalKit re-encodes its images as JPEG, as it does with files above one gigabyte."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. `num_questions` is the size of a complete one; None accepts any number.

    `numbers` None follows the scoring mode: `final` compares officially, the others as VLMEvalKit.
    """

    name: str
    title: str = ""
    num_questions: int | None = None
    aggregation: str = "micro"
    cluster: str = "image"
    breakdown: tuple[str, ...] = ("category",)
    set_keys: tuple[str, ...] = ("l2-category", "set")
    """Group keys that together identify a set of paired questions; used by `paired` only."""
    numbers: Numbers | None = None
    is_read_twice: bool = False
    """Whether VLMEvalKit's exact route reads an option twice, as in MathVista; see `mathvista_answer.py`."""
    is_first_letter: bool = False
    """Whether VLMEvalKit's exact route takes the first of the letters A to E, as in MME-RealWorld."""
    judged_as: JudgeForm | None = None
    """Which of VLMEvalKit's judge prompts applies; None: the one for the kind of question."""
    split: str | None = None
    """The value under `split` of the rows that are asked; None: all rows."""
    is_interleaved: bool = False
    """Whether `<image 2>` in a text marks the place of the second image; otherwise all images come first."""
    files: BenchmarkFiles | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)

    @property
    def published(self) -> BenchmarkFiles:
        """The published files. Only for benchmarks that have some."""
        assert self.files is not None, f"{self.name} has no files: its questions are generated"
        return self.files

    def judge_form(self, question: Question) -> JudgeForm:
        """Return which of VLMEvalKit's judge prompts applies to a question."""
        by_kind: dict[str, JudgeForm] = {"option": "options", "yes_no": "yes_no"}
        return self.judged_as or by_kind.get(question.kind, "extract")

    def scored_together(self, question: Question) -> Hashable:
        """Identify the questions that are scored as one unit: a part of the unit would have another score."""
        if self.aggregation == "paired":
            return tuple(question.groups.get(key) for key in self.set_keys)
        if self.aggregation == "circular":
            return question.groups.get("circle")
        return rotation_of(question) if self.aggregation == "cycles" else question.id

    def question(self, row: Record, style: str) -> Question:
        """Turn a row into a question in a prompt style. Raises DataError for an invalid row."""
        parsed = self.published.read(row)
        offered = parsed.options if parsed.offered is None else parsed.offered
        text = prompt_text(style, parsed.form, parsed.question, options=offered, hint=parsed.hint)
        images, message = row.images, user_message(text, len(row.images))
        if self.is_interleaved and _PLACE.search(text):
            images, message = _interleaved(row, text)
        example = Example(row.need("index"), images, [message])
        groups = {**parsed.groups, **({"image": row.picture} if row.picture else {})}
        return Question(example, self.name, parsed.kind, parsed.gold, parsed.options, groups, dict(row.cells))


def rotation_of(question: Question) -> Hashable:
    """Identify a question regardless of the order of its options: HRBench asks each four times under other ids."""
    texts = tuple(message_texts(question.example.prompt[-1])) if "question" not in question.fields else ()
    wording = question.fields.get("question", question.groups.get("question", texts))
    return (wording, question.groups.get("category"), tuple(sorted(question.options.values())))


def _interleaved(row: Record, text: str) -> tuple[tuple[Any, ...], Message]:
    """Put images where a text names them. An image that is not named is left out; one may be shown twice."""
    words = _PLACE.split(text)
    numbers = [int(number) for number in words[1::2]]
    if missing := [number for number in numbers if not 1 <= number <= len(row.images)]:
        raise DataError(row.id, f"{row.name} names image {missing[0]}, but has {len(row.images)}.")
    parts: list[MessagePart] = []
    for place, word in enumerate(words):
        if place % 2:
            parts.append({"type": "image"})
        elif word:
            parts.append({"type": "text", "text": word})
    return tuple(row.images[number - 1] for number in numbers), {"role": "user", "content": parts}
