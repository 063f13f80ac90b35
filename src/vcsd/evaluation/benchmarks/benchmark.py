"""A benchmark as one record: its questions' files, how they become one number, and what else is reported.

The seven of the paper's table have their modules in this package; the suites of the offline world have no files.

aggregation   how right and wrong answers become the reported number: a name in AGGREGATIONS of `aggregate.py`
cluster       which questions share an image and are no independent evidence: a name in CLUSTERS of `aggregate.py`
breakdown     the group keys of a question for which the number is also reported value by value
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from vcsd.evaluation.benchmarks.prompt_styles import prompt_text
from vcsd.types import Example, Question, user_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vcsd.evaluation.benchmarks.files.records import ParquetRow, Record
    from vcsd.evaluation.benchmarks.read_rows import ParsedRecord

Numbers = Literal["official", "vlmevalkit"]
"""How answers of MathVista's kind are compared: as its authors do, or as VLMEvalKit does."""

JudgeForm = Literal["options", "blink", "yes_no", "extract"]
"""Which of VLMEvalKit's texts asks a judge about an answer."""


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
    parquet: ParquetFiles
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
    judged_as: JudgeForm | None = None
    """Which of VLMEvalKit's judge prompts applies; None: the one for the kind of question."""
    files: BenchmarkFiles | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)

    @property
    def published(self) -> BenchmarkFiles:
        """The published files, of a benchmark that has some."""
        assert self.files is not None, f"{self.name} has no files: its questions are generated"
        return self.files

    def judge_form(self, question: Question) -> JudgeForm:
        """Return which of VLMEvalKit's judge prompts applies to a question."""
        by_kind: dict[str, JudgeForm] = {"option": "options", "yes_no": "yes_no"}
        return self.judged_as or by_kind.get(question.kind, "extract")

    def question(self, row: Record, style: str) -> Question:
        """Turn a row into a question in a prompt style. Raises DataError for a row that makes no sense."""
        parsed = self.published.read(row)
        text = prompt_text(style, parsed.form, parsed.question, options=parsed.options, hint=parsed.hint)
        example = Example(row.need("index"), row.images, [user_message(text, len(row.images))])
        groups = {**parsed.groups, **({"image": row.picture} if row.picture else {})}
        return Question(example, self.name, parsed.kind, parsed.gold, parsed.options, groups, dict(row.cells))
