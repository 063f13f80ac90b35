"""MathVista, testmini: mathematics in images; 540 questions with options, 460 whose answer is a number or a list.

The `question` cell is the authors' whole query, including the hint, so prompt styles add nothing before it.
VLMEvalKit's file has no precision column; it is taken from the hint.
"""

from __future__ import annotations

import re
from string import ascii_uppercase
from typing import TYPE_CHECKING, cast

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles, ParquetFiles
from vcsd.evaluation.benchmarks.files.python_lists import read_list
from vcsd.evaluation.benchmarks.read_rows import ParsedRecord, groups_of

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.files.records import ParquetRow, Record
    from vcsd.types import AnswerKind

_HINTED = {"one": "1", "two": "2"}
_KINDS = ("integer", "float", "list", "text")


def _read(row: Record) -> ParsedRecord:
    groups = groups_of(row, ("question_type", "answer_type", "task", "skills"))
    hinted = re.search(r"with (one|two) decimal places?\b", row.need("question"))
    precision = row.get("precision") or (_HINTED[hinted[1]] if hinted else None)
    if precision is not None:
        groups["precision"] = _decimals(row, precision)
    if row.need("question_type") == "multi_choice":
        options = dict(zip(ascii_uppercase, _choices(row), strict=False))
        gold = row.need("answer_option").strip()
        if gold not in options:
            letters = ", ".join(options) or "(none)"
            raise DataError(row.id, f"{row.name}: the answer {gold!r} is none of its options {letters}.")
        return ParsedRecord(row.need("question"), "open", "option", gold, options, groups)
    kind = row.need("answer_type")
    if kind not in _KINDS:
        raise DataError(row.id, f"{row.name}: answer_type = {kind!r} is none of {', '.join(_KINDS)}.")
    return ParsedRecord(row.need("question"), "open", cast("AnswerKind", kind), row.need("answer"), groups=groups)


def _decimals(row: Record, precision: str) -> str:
    try:
        return str(int(float(precision)))
    except (ValueError, OverflowError) as error:
        raise DataError(row.id, f"{row.name}: precision = {precision!r} is not a number of decimals.") from error


def _choices(row: Record) -> list[str]:
    try:
        return [str(choice) for choice in read_list(row.need("choices"))]
    except ValueError as error:
        raise DataError(row.id, f"{row.name}: its choices are not a Python list: {error}.") from error


def _cells(row: ParquetRow) -> dict[str, str]:
    choices = [str(choice) for choice in row["choices"] or ()]
    metadata = row["metadata"]
    cells = {
        "index": str(row["pid"]),
        "question": str(row["query"]),
        "answer": str(row["answer"]),
        "question_type": str(row["question_type"]),
        "answer_type": str(row["answer_type"]),
        "choices": str(choices),
        "task": str(metadata["task"]),
        "skills": str([str(skill) for skill in metadata["skills"]]),
    }
    if choices:
        cells["answer_option"] = ascii_uppercase[choices.index(cells["answer"])]
    if row.get("precision") is not None:
        cells["precision"] = str(int(row["precision"]))
    return cells


BENCHMARK = Benchmark(
    "MathVista_MINI",
    "MathVista",
    num_questions=1000,
    breakdown=("answer_type", "task", "skills"),
    is_read_twice=True,
    judged_as="extract",
    files=BenchmarkFiles(
        names=("MathVista_MINI.tsv",),
        md5="f199b98e178e5a2a20e7048f5dcb0464",
        source="https://opencompass.openxlab.space/utils/VLMEval/MathVista_MINI.tsv",
        columns=("index", "question", "answer", "question_type", "answer_type", "choices", "answer_option"),
        read=_read,
        parquet=ParquetFiles(
            "AI4Math/MathVista",
            ("MathVista/data/testmini-*.parquet", "MathVista/testmini-*.parquet", "MathVista_MINI/*.parquet"),
            _cells,
            ("decoded_image",),
        ),
        sizes={"answer_type": (540, 418, 40, 2)},
    ),
)
