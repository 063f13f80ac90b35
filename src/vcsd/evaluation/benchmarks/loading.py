"""Loads benchmark questions from a folder of files, and checks whether the files are the published ones.

A TSV is recognised by its MD5 checksum. Parquet files have no published checksum; the sizes of their groups are checked
instead. Unknown data is refused unless allowed, because a score on other questions cannot be compared.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vcsd.errors import ConfigError, DataError, did_you_mean
from vcsd.evaluation.benchmarks import BENCHMARKS, PUBLISHED
from vcsd.evaluation.benchmarks.files.parquet import read_parquet
from vcsd.evaluation.benchmarks.files.records import StoredImage
from vcsd.evaluation.benchmarks.files.tsv import read_tsv

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from os import PathLike

    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.benchmarks.files.records import Record, RecordTable
    from vcsd.types import Question

T = TypeVar("T")

_FEW = 5
"""The most problems that an error lists."""


@dataclass(frozen=True)
class DataReport:
    """The data found for a benchmark. `doubts` is empty if it is the complete published data."""

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
    num_unanswerable: int = 0
    """Questions whose gold option is missing, an error in some published files. Every answer to them is wrong."""

    def line(self) -> str:
        """Describe the data in one line.

        >>> DataReport("BLINK", "BLINK.tsv", "TSV", "d5e8af", True, 1901, 100, 0).line()
        'BLINK: BLINK.tsv (TSV), md5 d5e8af as published, 1901 questions, 100 asked'
        >>> DataReport("mine", "mine.tsv", "TSV", "ca673a", False, 24, 24, 0).line()
        'mine: mine.tsv (TSV), md5 ca673a, 24 questions'
        """
        known = " as published" if self.is_published else " (not the published file)" if self.doubts else ""
        asked = "" if self.num_asked == self.num_questions else f", {self.num_asked} asked"
        unanswerable = f", {self.num_unanswerable} without their right option" if self.num_unanswerable else ""
        dropped = f", {self.num_without_image} rows without an image skipped" if self.num_without_image else ""
        return (
            f"{self.benchmark}: {self.file} ({self.kind}), md5 {self.md5}{known}, "
            f"{self.num_questions} questions{unanswerable}{dropped}{asked}"
        )


@dataclass(frozen=True)
class LoadedBenchmark:
    """The questions of a benchmark and the report on their data."""

    questions: tuple[Question, ...]
    report: DataReport


def data_folder(folder: str | PathLike[str] | None, asked: Sequence[str] = ()) -> Path:
    """Return the folder of the benchmark files; by default VLMEvalKit's ($LMUData, else ~/LMUData).

    `asked` are the benchmarks that need it, for the error message.
    """
    default = os.environ.get("LMUData", "~/LMUData")  # noqa: SIM112  VLMEvalKit's own spelling
    path = Path(default).expanduser() if folder is None else Path(folder)
    if not path.is_dir():
        wanted = f"{', '.join(asked)}: " if asked else ""
        raise ConfigError(
            [
                f"{wanted}the data folder {str(path)!r} does not exist. Pass the folder with the benchmark files "
                "(--data, or evaluation.data in a recipe), or ask other questions: --tsv FILE or --benchmarks world, "
                "in a recipe evaluation.tsv=FILE or evaluation.benchmarks=world."
            ]
        )
    return path


def choose_benchmarks(names: str | Sequence[str], also: Sequence[str] = ()) -> list[Benchmark]:
    """Find benchmarks by name; "all" means the seven. `also` are other names that the caller accepts, for errors.

    >>> [benchmark.name for benchmark in choose_benchmarks("VStarBench, blink")]
    ['VStarBench', 'BLINK']
    """
    words = [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]
    if not words:
        raise ConfigError([f"no benchmark was passed. {did_you_mean('', [*PUBLISHED, 'all'])}"])
    by_word = {name.lower(): benchmark for name, benchmark in PUBLISHED.items()}
    words = [name for word in words for name in (BENCHMARKS if word.lower() == "all" else [word])]
    unknown = [
        f"benchmark {word!r} is not known. {did_you_mean(word, [*PUBLISHED, 'all', *also])}"
        for word in words
        if word.lower() not in by_word
    ]
    if unknown:
        raise ConfigError(unknown)
    return [by_word[word] for word in dict.fromkeys(word.lower() for word in words)]


def require_files(benchmarks: Sequence[Benchmark], folder: Path) -> None:
    """Raise if benchmarks have no files in the folder. All are reported at once, before a large file is read."""
    missing = [problem for benchmark in benchmarks for problem in _missing(benchmark, folder)]
    if missing:
        raise ConfigError(missing)


def load_benchmark(
    benchmark: Benchmark,
    folder: str | PathLike[str],
    *,
    style: str = "vlmevalkit",
    limit: int | None = None,
    jpeg75: bool = False,
    allow_unknown_data: bool = False,
    allowed_by: str = "--allow-unknown-data",
) -> LoadedBenchmark:
    """Load the questions of a benchmark in a prompt style; at most `limit`, as `limited` chooses them.

    `allowed_by` is the option that allows unknown data, for the error message.
    With `jpeg75`, images that VLMEvalKit re-encodes as JPEG are re-encoded here too.
    """
    if limit is not None and limit < 1:
        raise ConfigError([f"limit = {limit} leaves no question. Give at least 1."])
    published, table = benchmark.published, _read(benchmark, Path(folder))
    # Parquet rows were converted to VLMEvalKit's names, but not every row has every cell.
    columns = set(table.columns) if table.kind == "TSV" else {name for row in table.rows for name in row.cells}
    absent = [column for column in published.columns if column not in columns]
    if absent:
        raise ConfigError([
            f"{table.path} has no column {', '.join(map(repr, absent))}, which {benchmark.name} needs. "
            f"Its columns: {', '.join(table.columns)}."
        ])  # fmt: skip
    rows = [_recoded(row) for row in table.rows] if jpeg75 and published.is_localized else table.rows
    is_published = table.md5 == published.md5
    rows = [replace(row, is_published=True) for row in rows] if is_published else rows
    questions = questions_of(benchmark, rows, style)
    doubts = (*_doubts(benchmark, table, questions), *table.problems[:_FEW])
    if doubts and not allow_unknown_data:
        raise ConfigError([
            f"{table.path}: {doubt} Download it again ({published.source}), or allow unknown data "
            f"({allowed_by})."
            for doubt in doubts
        ])  # fmt: skip
    chosen = limited(benchmark, questions, limit)
    report = DataReport(
        *(benchmark.name, table.path.name, table.kind, table.md5, is_published),
        *(len(questions), len(chosen), table.num_without_image, doubts),
        num_unanswerable=sum(q.kind == "option" and q.gold not in q.options for q in questions),
    )
    return LoadedBenchmark(tuple(chosen), report)


def _read(benchmark: Benchmark, folder: Path) -> RecordTable:
    published, paths = benchmark.published, _paths(benchmark, folder)
    if not paths:
        raise ConfigError(_missing(benchmark, folder))
    try:
        if paths[0].suffix == ".tsv":
            return read_tsv(paths[0])
        assert published.parquet is not None, "no pattern found these files"
        return read_parquet(paths, published.parquet.image_columns, published.parquet.convert)
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([f"{paths[0]} cannot be read: {error} Download it again ({published.source})."]) from error


def _paths(benchmark: Benchmark, folder: Path) -> list[Path]:
    """Find a benchmark's TSV or, without one, its Parquet files."""
    for name in benchmark.published.names:
        if (folder / name).is_file():
            return [folder / name]
    parquet = benchmark.published.parquet
    for pattern in parquet.patterns if parquet else ():
        if paths := sorted(folder.glob(pattern)):
            return paths
    return []


def _missing(benchmark: Benchmark, folder: Path) -> list[str]:
    """Say what to download if a benchmark has no files in the folder."""
    if _paths(benchmark, folder):
        return []
    published, parquet = benchmark.published, benchmark.published.parquet
    others = ""
    if parquet is not None:
        others = f", or the Parquet files of the dataset {parquet.dataset} to {folder / parquet.patterns[0]}"
    return [
        f"{benchmark.name} is not in {folder}. Download {published.source} to {folder / published.names[0]}{others}."
    ]


def questions_of(benchmark: Benchmark, rows: Sequence[Record], style: str) -> list[Question]:
    """Turn rows into questions. A ConfigError lists the first invalid rows."""
    questions, problems = [], []
    for row in rows:
        if benchmark.split is not None and row.get("split") != benchmark.split:
            continue
        try:
            questions.append(benchmark.question(row, style))
        except DataError as error:
            problems.append(error.message)
    if problems:
        more = [f"and {len(problems) - _FEW} more rows."] if len(problems) > _FEW else []
        raise ConfigError(problems[:_FEW] + more)
    name = benchmark.name
    if not questions:
        is_own = not benchmark.published.names
        advice = "Fill image or image_path." if is_own else f"Download it again: {benchmark.published.source}"
        raise ConfigError([f"{name} has no row with an image. {advice}"])
    counts = Counter(question.id for question in questions)
    repeated = [index for index, count in counts.items() if count > 1]
    if repeated:
        raise ConfigError([f"{name} has several rows with the index {repeated[0]!r}. An index must be unique."])
    return questions


def _doubts(benchmark: Benchmark, table: RecordTable, questions: Sequence[Question]) -> list[str]:
    """List the ways in which the data differs from the published data."""
    name, published = benchmark.name, benchmark.published
    if table.md5 == published.md5:
        return []
    doubts = [] if table.kind == "Parquet" else [f"its md5 is {table.md5}, published is {published.md5}."]
    if benchmark.num_questions is not None and len(questions) != benchmark.num_questions:
        doubts.append(f"it has {len(questions)} questions with an image, {name} has {benchmark.num_questions}.")
    elif table.kind == "Parquet":
        for key, sizes in published.sizes.items():
            counts = Counter(question.groups.get(key, "(none)") for question in questions)
            if sorted(counts.values()) != sorted(sizes):
                listed = ", ".join(f"{group} {size}" for group, size in sorted(counts.items()))
                doubts.append(f"its questions by {key} are {listed}, {name} has {', '.join(map(str, sizes))}.")
    return doubts


def limited(benchmark: Benchmark, questions: Sequence[Question], limit: int | None) -> Sequence[Question]:
    """Take at most `limit` questions, spread over the file. Questions that are scored together stay together.

    The rotations of a question, or a set of paired questions, are taken whole or not at all: a part of a group would
    score higher than the whole. At least one group is taken, even if it has more than `limit` questions.
    """
    if limit is None or limit >= len(questions):
        return questions
    groups: dict[Hashable, list[int]] = {}
    for index, question in enumerate(questions):
        groups.setdefault(benchmark.scored_together(question), []).append(index)
    for num in range(min(limit, len(groups)), 0, -1):
        indices = sorted(index for group in chosen_along(list(groups.values()), num) for index in group)
        if len(indices) <= limit or num == 1:
            return [questions[index] for index in indices]
    raise AssertionError("one group was taken")


def chosen_along(items: Sequence[T], limit: int) -> Sequence[T]:
    """Take at most `limit` items: split them into `limit` stretches and take a random one from each, always the same.

    Stretches, because many files are sorted by category. Random, because others repeat a pattern, such as A B C D in
    their answers: every k-th question could have the same answer.
    """
    num, rng = min(limit, len(items)), random.Random(0)
    stretches = [(place * len(items) // num, (place + 1) * len(items) // num) for place in range(num)]
    return [items[start + int(rng.random() * (end - start))] for start, end in stretches]


def _recoded(row: Record) -> Record:
    images = (image.recoded() if isinstance(image, StoredImage) else image for image in row.images)
    return replace(row, images=tuple(images))
