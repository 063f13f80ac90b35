"""MathVista, testmini: mathematics in pictures; 540 questions with options, 460 with a number or a list to give.

The `question` cell is the authors' whole query, hint included, so styles add nothing in front of it. VLMEvalKit's file
has no precision; the hint tells it.
"""

from __future__ import annotations

import ast
import re
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, cast

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.layout import Asked, Layout, ParquetLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.question import AnswerKind
    from vcsd.evaluation.rows import Row

_HINTED = {"one": "1", "two": "2"}
_KINDS = ("integer", "float", "list", "text")


def _read(row: Row) -> Asked:
    groups = {name: group for name in ("question_type", "answer_type", "task", "skills") if (group := row.get(name))}
    precision = row.get("precision") or _hinted_precision(row.need("question"))
    if precision is not None:
        groups["precision"] = _decimals(row, precision)
    if row.need("question_type") == "multi_choice":
        options = dict(zip(ascii_uppercase, _choices(row), strict=False))
        gold = row.need("answer_option").strip()
        if gold not in options:
            shown = ", ".join(options) or "(none)"
            raise DataError(row.id, f"{row.name}: the answer {gold!r} is none of its options {shown}.")
        return Asked(row.need("question"), "open", "option", gold, options, groups)
    kind = row.need("answer_type")
    if kind not in _KINDS:
        raise DataError(row.id, f"{row.name}: answer_type = {kind!r} is none of {', '.join(_KINDS)}.")
    return Asked(row.need("question"), "open", cast("AnswerKind", kind), row.need("answer"), groups=groups)


def _decimals(row: Row, precision: str) -> str:
    try:
        return str(int(float(precision)))
    except (ValueError, OverflowError) as error:
        raise DataError(row.id, f"{row.name}: precision = {precision!r} is no number of decimals.") from error


def _choices(row: Row) -> list[str]:
    try:
        return [str(choice) for choice in ast.literal_eval(row.need("choices"))]
    except (SyntaxError, ValueError, TypeError) as error:
        raise DataError(row.id, f"{row.name}: its choices are no Python list: {error}.") from error


def _hinted_precision(question: str) -> str | None:
    """The decimals that the hint of a query asks for.

    >>> _hinted_precision("Hint: ... a floating-point number with two decimal places and provide ...")
    '2'
    """
    found = re.search(r"with (one|two) decimal places?\b", question)
    return _HINTED[found.group(1)] if found else None


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    choices = [str(choice) for choice in row["choices"] or ()]
    about = row["metadata"]
    cells = {
        "index": str(row["pid"]),
        "question": str(row["query"]),
        "answer": str(row["answer"]),
        "question_type": str(row["question_type"]),
        "answer_type": str(row["answer_type"]),
        "choices": str(choices),
        "task": str(about["task"]),
        "skills": str([str(skill) for skill in about["skills"]]),
    }
    if choices:
        cells["answer_option"] = ascii_uppercase[choices.index(cells["answer"])]
    if row.get("precision") is not None:
        cells["precision"] = str(int(row["precision"]))
    return cells


LAYOUT = Layout(
    "MathVista_MINI",
    1000,
    "f199b98e178e5a2a20e7048f5dcb0464",
    ("MathVista_MINI.tsv",),
    "https://opencompass.openxlab.space/utils/VLMEval/MathVista_MINI.tsv",
    ("index", "question", "answer", "question_type", "answer_type", "choices", "answer_option"),
    _read,
    ParquetLayout(
        "AI4Math/MathVista",
        ("MathVista/data/testmini-*.parquet", "MathVista/testmini-*.parquet", "MathVista_MINI/*.parquet"),
        _cells,
        ("decoded_image",),
    ),
    {"answer_type": (540, 418, 40, 2)},
)
