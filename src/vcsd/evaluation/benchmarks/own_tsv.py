"""A user's own questions as a benchmark: a TSV with VLMEvalKit's columns, under the name of its file.

Required: `index`, `question`, `answer`, and `image` (base64) or `image_path`. With options A to Z, a question is
multiple choice. Without them, the gold answer decides: Yes or No, a whole number, another number, or free text, which
must be equal apart from case and a final full stop.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, is_file, nearest_path, shown
from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles
from vcsd.evaluation.benchmarks.files.tsv import read_tsv
from vcsd.evaluation.benchmarks.loading import DataReport, LoadedBenchmark, limited, questions_of
from vcsd.evaluation.benchmarks.read_rows import ParsedRecord, groups_of, multiple_choice, options_of
from vcsd.evaluation.benchmarks.world_suites import ALL_BENCHMARKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from vcsd.evaluation.benchmarks.files.records import Record, RecordTable
    from vcsd.types import AnswerKind

COLUMNS = ("index", "question", "answer")
_GROUPS = ("category", "l2-category", "split")
_TAKEN = ("acc", "unread")
"""Names of numbers that are reported next to those of the benchmarks."""
_LONGEST_PATH = 300
"""The most characters of a path that an error shows."""

_WHOLE = re.compile(r"[-+]?\d+")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NUMBER = re.compile(r"[-+]?\d*\.\d+")


def load_own_tsv(
    path: str | PathLike[str], *, style: str = "vlmevalkit", limit: int | None = None
) -> tuple[Benchmark, LoadedBenchmark]:
    """Load the questions of a file; at most `limit`, as `limited` chooses them."""
    path = Path(path)
    _check_path(path)
    table = read_tsv(path)
    absent = [column for column in COLUMNS if column not in table.columns]
    if absent:
        raise ConfigError(
            [
                f"{path} has no column {', '.join(map(repr, absent))}. It needs index, question, answer, and image "
                f"or image_path. Its columns: {', '.join(table.columns)}."
            ]
        )
    if problems := [*table.problems, *_missing_images(table)]:
        raise ConfigError([f"{path}: {problem}" for problem in problems[:5]])
    breakdown = tuple(name for name in _GROUPS if name in table.columns)
    benchmark = own_benchmark(path.stem, breakdown)
    questions = questions_of(benchmark, table.rows, style)
    chosen = limited(benchmark, questions, limit)
    report = DataReport(
        *(benchmark.name, table.path.name, table.kind, table.md5, False),
        *(len(questions), len(chosen), table.num_without_image),
    )
    return benchmark, LoadedBenchmark(tuple(chosen), report)


def load_own_tsvs(
    paths: Iterable[str | PathLike[str]], *, style: str = "vlmevalkit", limit: int | None = None
) -> tuple[list[LoadedBenchmark], dict[str, Benchmark]]:
    """Load the questions of several files. Return them, and all benchmarks by name, including those of the files."""
    loaded, suites = [], dict(ALL_BENCHMARKS)
    for path in paths:
        benchmark, questions = load_own_tsv(path, style=style, limit=limit)
        if benchmark.name in suites:
            raise ConfigError([f"two files are named {benchmark.name}. Rename one: results are kept by name."])
        suites[benchmark.name] = benchmark
        loaded.append(questions)
    return loaded, suites


def own_benchmark(name: str, breakdown: tuple[str, ...]) -> Benchmark:
    """Return the benchmark for a file of this name."""
    return replace(_OWN, name=name, title=name, breakdown=breakdown)


def _check_path(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(
            [f"{path} is a folder. Pass a TSV file. For a folder of benchmarks: --data, evaluation.data in a recipe."]
        )
    if not path.is_file():
        near = nearest_path(str(path), wants_file=True)
        raise ConfigError([f"there is no file {str(path)!r}.{near} Pass a TSV with index, question, answer and image."])
    if path.suffix.lower() != ".tsv":
        raise ConfigError([f"{path} does not end in .tsv. Write the questions with tabs between their cells."])
    if path.stem in ALL_BENCHMARKS:
        raise ConfigError(
            [
                f"{path.stem} is a published benchmark. Ask it with --benchmarks {path.stem} --data {path.parent} (in "
                "a recipe, evaluation.benchmarks and evaluation.data), or rename the file."
            ]
        )
    if path.stem.lower() in _TAKEN:
        raise ConfigError([
            f"{path.stem} already names a number that every evaluation reports. Rename the file: results are kept by "
            "name."
        ])  # fmt: skip


def _missing_images(table: RecordTable) -> Iterator[str]:
    """Yield a problem for each missing image file. If it were asked, such a question would only count as wrong."""
    for row in table.rows:
        for image in row.images:
            if isinstance(image, Path) and not is_file(image):
                name = shown(str(image), _LONGEST_PATH)
                yield f"{row.name}: there is no image {name}. Correct image_path, which is relative to the TSV."


def read_own(row: Record) -> ParsedRecord:
    """Read a row. With options it is multiple choice; otherwise the gold answer decides its kind."""
    groups = groups_of(row, _GROUPS)
    if options_of(row):
        return replace(multiple_choice(row), groups=groups)
    gold = row.need("answer").strip().replace("\u2212", "-")  # U+2212 is the mathematical minus sign
    gold = gold.replace(",", "") if _THOUSANDS.fullmatch(gold) else gold
    question, hint = row.need("question"), row.get("hint")
    if gold.lower() in ("yes", "no"):
        return ParsedRecord(question, "yes_no", "yes_no", gold.capitalize(), groups=groups, hint=hint)
    return ParsedRecord(question, "open", _kind(gold), gold, groups=groups, hint=hint)


def _kind(gold: str) -> AnswerKind:
    """Return the kind of a gold answer.

    >>> _kind("7"), _kind("-0.5"), _kind("red")
    ('integer', 'float', 'text')
    """
    if _WHOLE.fullmatch(gold):
        return "integer"
    return "float" if _NUMBER.fullmatch(gold) else "text"


_OWN = Benchmark(
    "own",
    files=BenchmarkFiles(names=(), md5="", source="your own file", columns=COLUMNS, read=read_own),
)
