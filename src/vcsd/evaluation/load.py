"""From a folder of benchmark files to questions, and to a word on whether the files are the published ones.

A file is known by its MD5 checksum; Parquet files, for which none is published, by the numbers of their rows and
groups. Unknown data is refused unless allowed: a number on other questions is another number.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, DataError, did_you_mean
from vcsd.evaluation.benchmarks import LAYOUTS
from vcsd.evaluation.parquet import read_parquet
from vcsd.evaluation.tsv import read_tsv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.benchmarks.layout import Layout
    from vcsd.evaluation.question import Question
    from vcsd.evaluation.rows import Row, Table

_FEW = 5


@dataclass(frozen=True)
class DataReport:
    """What was found of a benchmark. `doubts` is empty for the published data, whole."""

    benchmark: str
    file: str
    kind: str
    md5: str
    is_published: bool
    """Whether the checksum is the published one."""
    num_questions: int
    num_asked: int
    num_without_image: int
    doubts: tuple[str, ...] = ()

    def line(self) -> str:
        """The same in one line.

        >>> DataReport("BLINK", "BLINK.tsv", "TSV", "d5e8af", True, 1901, 100, 0).line()
        'BLINK: BLINK.tsv (TSV), md5 d5e8af as published, 1901 questions, 100 asked'
        """
        known = "as published" if self.is_published else "unknown" if self.kind == "TSV" else "not published"
        asked = "" if self.num_asked == self.num_questions else f", {self.num_asked} asked"
        dropped = f", {self.num_without_image} rows without an image left out" if self.num_without_image else ""
        return (
            f"{self.benchmark}: {self.file} ({self.kind}), md5 {self.md5} {known}, "
            f"{self.num_questions} questions{dropped}{asked}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True)
class LoadedBenchmark:
    """The questions of a benchmark, and where they come from."""

    questions: tuple[Question, ...]
    report: DataReport


def data_folder(given: str | PathLike[str] | None) -> Path:
    """The folder of the benchmarks' files: as given, or VLMEvalKit's ($LMUData, else ~/LMUData)."""
    usual = os.environ.get("LMUData", "~/LMUData")  # noqa: SIM112  VLMEvalKit's own spelling
    folder = Path(usual).expanduser() if given is None else Path(given)
    if not folder.is_dir():
        raise ConfigError(
            [f"the data folder {str(folder)!r} is no folder. Give the one with the benchmarks' files (--data)."]
        )
    return folder


def choose_benchmarks(names: str | Sequence[str]) -> list[Layout]:
    """Layouts by name; "all" are the seven.

    >>> [layout.name for layout in choose_benchmarks("VStarBench, blink")]
    ['VStarBench', 'BLINK']
    """
    words = [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]
    if not words:
        raise ConfigError([f"no benchmark is named. {did_you_mean('', [*LAYOUTS, 'all'])}"])
    if any(word.lower() == "all" for word in words):
        return list(LAYOUTS.values())
    by_word = {name.lower(): layout for name, layout in LAYOUTS.items()}
    unknown = [
        f"benchmark {word!r} is not known. {did_you_mean(word, [*LAYOUTS, 'all'])}"
        for word in words
        if word.lower() not in by_word
    ]
    if unknown:
        raise ConfigError(unknown)
    return [by_word[word] for word in dict.fromkeys(word.lower() for word in words)]


def load_benchmarks(layouts: Sequence[Layout], folder: str | PathLike[str], **how: Any) -> list[LoadedBenchmark]:
    """Several benchmarks; all that is missing is told at once, before a large file is read."""
    missing = [problem for layout in layouts for problem in _missing(layout, Path(folder))]
    if missing:
        raise ConfigError(missing)
    return [load_benchmark(layout, folder, **how) for layout in layouts]


def load_benchmark(
    layout: Layout,
    folder: str | PathLike[str],
    *,
    style: str = "vlmevalkit",
    limit: int | None = None,
    jpeg75: bool = False,
    allow_unknown_data: bool = False,
) -> LoadedBenchmark:
    """The questions of a benchmark in a prompt style; `limit` takes so many, spread evenly over the file.

    With `jpeg75`, images that VLMEvalKit re-encodes as JPEG are so here too.
    """
    if limit is not None and limit < 1:
        raise ConfigError([f"limit = {limit} leaves no question. Give at least 1."])
    table = _read(layout, Path(folder))
    absent = [column for column in layout.columns if column not in _columns(table)]
    if absent:
        raise ConfigError([
            f"{table.path} has no column {', '.join(map(repr, absent))}, which {layout.name} needs. "
            f"Its columns: {', '.join(table.columns)}."
        ])  # fmt: skip
    rows = [_recoded(row) for row in table.rows] if jpeg75 and layout.is_localized else table.rows
    questions = _questions(layout, rows, style)
    doubts = (*_doubts(layout, table, questions), *table.problems[:_FEW])
    if doubts and not allow_unknown_data:
        raise ConfigError([
            f"{table.path}: {doubt} Download it again ({layout.source}), or allow unknown data (--allow-unknown-data)."
            for doubt in doubts
        ])  # fmt: skip
    chosen = questions if limit is None else spread(questions, limit)
    is_published = table.md5 == layout.md5
    report = DataReport(
        *(layout.name, table.path.name, table.kind, table.md5, is_published),
        *(len(questions), len(chosen), table.num_without_image, doubts),
    )
    return LoadedBenchmark(tuple(chosen), report)


def _read(layout: Layout, folder: Path) -> Table:
    files = _files(layout, folder)
    if not files:
        raise ConfigError(_missing(layout, folder))
    try:
        if files[0].suffix == ".tsv":
            return read_tsv(files[0])
        assert layout.parquet is not None
        return read_parquet(files, layout.parquet.image_columns, layout.parquet.convert)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([f"{files[0]} cannot be read: {error} Download it again ({layout.source})."]) from error


def _files(layout: Layout, folder: Path) -> list[Path]:
    """The TSV of a benchmark, else its Parquet files; none if neither is there."""
    for name in layout.files:
        if (folder / name).is_file():
            return [folder / name]
    for pattern in layout.parquet.patterns if layout.parquet is not None else ():
        if found := sorted(folder.glob(pattern)):
            return found
    return []


def _missing(layout: Layout, folder: Path) -> list[str]:
    if _files(layout, folder):
        return []
    instead = "" if layout.parquet is None else (
        f" Or the Parquet files of the dataset {layout.parquet.dataset} as {folder / layout.parquet.patterns[0]}."
    )  # fmt: skip
    return [f"{layout.name} is not in {folder}. Get {layout.source} and put it at {folder / layout.files[0]}.{instead}"]


def _columns(table: Table) -> set[str]:
    """Parquet rows have been given VLMEvalKit's names; not every row has every cell."""
    return set(table.columns) if table.kind == "TSV" else {name for row in table.rows for name in row.cells}


def _questions(layout: Layout, rows: Sequence[Row], style: str) -> list[Question]:
    questions, problems = [], []
    for row in rows:
        try:
            questions.append(layout.question(row, style))
        except DataError as error:
            problems.append(error.message)
    if problems:
        more = [f"and {len(problems) - _FEW} rows more."] if len(problems) > _FEW else []
        raise ConfigError(problems[:_FEW] + more)
    if not questions:
        raise ConfigError([f"{layout.name} has no row with an image. Download it again: {layout.source}"])
    counts = Counter(question.id for question in questions)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ConfigError([f"{layout.name} has several rows of the index {twice[0]!r}. An index names one question."])
    return questions


def _doubts(layout: Layout, table: Table, questions: Sequence[Question]) -> list[str]:
    """Why the data may not be the published one, in words."""
    if table.md5 == layout.md5:
        return []
    doubts = [] if table.kind == "Parquet" else [f"its md5 is {table.md5}, published is {layout.md5}."]
    if len(questions) != layout.num_questions:
        doubts.append(f"it has {len(questions)} questions with an image, {layout.name} has {layout.num_questions}.")
    elif table.kind == "Parquet":
        for key, sizes in layout.sizes.items():
            found = Counter(question.groups.get(key, "(none)") for question in questions)
            if sorted(found.values()) != sorted(sizes):
                shown = ", ".join(f"{name} {size}" for name, size in sorted(found.items()))
                doubts.append(f"its questions by {key} are {shown}, {layout.name} has {', '.join(map(str, sizes))}.")
    return doubts


def spread(questions: Sequence[Question], limit: int) -> Sequence[Question]:
    """So many questions, evenly over the file: benchmarks are sorted by category."""
    if limit >= len(questions):
        return questions
    return [questions[place * len(questions) // limit] for place in range(limit)]


def _recoded(row: Row) -> Row:
    return replace(row, images=tuple(image.recoded() if hasattr(image, "recoded") else image for image in row.images))


def data_reports(loaded: Sequence[LoadedBenchmark]) -> Mapping[str, Any]:
    """What a scorecard says of its data: file, checksum, counts of every benchmark."""
    return {each.report.benchmark: each.report.to_json() for each in loaded}
