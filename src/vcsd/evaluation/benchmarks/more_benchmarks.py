"""Benchmarks besides the seven of the paper's table, as VLMEvalKit asks and scores them.

`all` does not include them. They are read from VLMEvalKit's TSVs only, which are recognised by their checksums.

MMBench_DEV_EN       each question with its options in every rotation; right if all rotations are right
MMMU_DEV_VAL         the 900 questions of the validation split; images stand where the text names them
MME-RealWorld-Lite   five options, its own instruction, and its own way of reading a letter
POPE                 yes or no; F1 of "yes", in which a question counts once for each of its categories
AI2D_TEST, RealWorldQA, ScienceQA_VAL, ScienceQA_TEST   plain questions with options
"""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase
from types import MappingProxyType
from typing import TYPE_CHECKING

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles
from vcsd.evaluation.benchmarks.files.python_lists import read_list
from vcsd.evaluation.benchmarks.read_rows import (
    OPTION_COLUMNS,
    ParsedRecord,
    choice_or_open,
    groups_of,
    multiple_choice,
    yes_or_no,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.benchmarks.files.records import Record

_ROTATION = 1_000_000
"""The rotations of question 7 have the indices 1000007, 2000007, and so on."""

_SERVER = "https://opencompass.openxlab.space/utils"
_CHOICES = "The choices are listed below:\n"
_BEST = (
    "Select the best answer to the above multiple-choice question based on the image. Respond with only the letter "
    "(A, B, C, D, or E) of the correct option. \nThe best answer is:"
)


def _rotated(row: Record) -> ParsedRecord:
    """Read one rotation of a question."""
    parsed, index = multiple_choice(row), row.need("index")
    if not index.isdecimal():
        raise DataError(row.id, f"{row.name}: the index {index!r} is not a number.")
    return replace(parsed, groups={**parsed.groups, "circle": str(int(index) % _ROTATION)})


def _listed(row: Record) -> ParsedRecord:
    """Read a row whose options are a list of "(A) words", which the prompt shows unchanged."""
    try:
        lines = [str(line) for line in read_list(row.need("multi-choice options"))]
    except ValueError as error:
        raise DataError(row.id, f"{row.name}: its options are not a Python list: {error}.") from error
    options = {letter: line[4:] for letter, line in zip(ascii_uppercase, lines, strict=False)}
    gold = row.need("answer").strip()
    if gold not in options:
        raise DataError(row.id, f"{row.name}: the answer {gold!r} is none of its options {', '.join(options)}.")
    text = f"{row.need('question')} {_CHOICES}" + "\n".join(lines) + f"\n{_BEST}"
    return ParsedRecord(text, "open", "option", gold, options, groups_of(row))


def _present(row: Record) -> ParsedRecord:
    """Read a question on whether something is in the image. It may belong to several categories."""
    gold, categories = yes_or_no(row), str(row.need("category").split(","))
    return ParsedRecord(row.need("question"), "yes_no", "yes_no", gold, groups={"category": categories})


def _options(name: str, md5: str, folder: str) -> Benchmark:
    """Return a benchmark of plain questions with options."""
    source = f"{_SERVER}/{folder}/{name}.tsv"
    return Benchmark(name, files=BenchmarkFiles((f"{name}.tsv",), md5, source, OPTION_COLUMNS, multiple_choice))


_MMBENCH = Benchmark(
    "MMBench_DEV_EN",
    "MMBench",
    aggregation="circular",
    breakdown=("category", "l2-category"),
    files=BenchmarkFiles(
        names=("MMBench_DEV_EN.tsv",),
        md5="b6caf1133a01c6bb705cf753bb527ed8",
        source=f"{_SERVER}/benchmarks/MMBench/MMBench_DEV_EN.tsv",
        columns=(*OPTION_COLUMNS, "category"),
        read=_rotated,
    ),
)
_MMMU = Benchmark(
    "MMMU_DEV_VAL",
    "MMMU (val)",
    num_questions=900,
    split="validation",
    is_interleaved=True,
    files=BenchmarkFiles(
        names=("MMMU_DEV_VAL.tsv",),
        md5="585e8ad75e73f75dcad265dfd0417d64",
        source=f"{_SERVER}/VLMEval/MMMU_DEV_VAL.tsv",
        columns=(*OPTION_COLUMNS, "split"),
        read=choice_or_open,
    ),
)
_REAL_WORLD = Benchmark(
    "MME-RealWorld-Lite",
    is_first_letter=True,
    breakdown=("category", "l2-category"),
    files=BenchmarkFiles(
        names=("MME-RealWorld-Lite.tsv", "mme_realworld_lite.tsv"),
        md5="4c17057d7d3b6c4a0d4397c3dae0881c",
        source="Hugging Face dataset yifanzhang114/MME-RealWorld-Base64, file mme_realworld_lite.tsv",
        columns=("index", "question", "answer", "category", "l2-category", "multi-choice options"),
        read=_listed,
    ),
)
_POPE = Benchmark(
    "POPE",
    aggregation="f1",
    files=BenchmarkFiles(
        names=("POPE.tsv",),
        md5="c12f5acb142f2ef1f85a26ba2fbe41d5",
        source=f"{_SERVER}/VLMEval/POPE.tsv",
        columns=("index", "question", "answer", "category"),
        read=_present,
    ),
)
_ALL = (
    *(_MMBENCH, _MMMU, _REAL_WORLD, _POPE),
    _options("AI2D_TEST", "0f593e0d1c7df9a3d69bf1f947e71975", "VLMEval"),
    _options("RealWorldQA", "4de008f55dc4fd008ca9e15321dc44b7", "VLMEval"),
    _options("ScienceQA_VAL", "96320d05e142e585e7204e72affd29f3", "benchmarks/ScienceQA"),
    _options("ScienceQA_TEST", "e42e9e00f9c59a80d8a5db35bc32b71f", "benchmarks/ScienceQA"),
)
MORE_BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({benchmark.name: benchmark for benchmark in _ALL})
"""These benchmarks by VLMEvalKit's names."""
