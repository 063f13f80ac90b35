"""HRBench at 4K: 200 questions on high-resolution pictures, each asked four times with its options rotated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vcsd.evaluation.benchmarks.layout import OPTION_COLUMNS, Asked, Layout, ParquetLayout, multiple_choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.rows import Row


def read(row: Row) -> Asked:
    """A multiple-choice row with the cycle of its rotation, whatever the file calls the cycles."""
    asked = multiple_choice(row)
    return replace(asked, groups={**asked.groups, "cycle": row.need("cycle_category")})


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """The authors' Parquet file has the columns of their TSV."""
    return {name: str(cell) for name, cell in row.items() if cell is not None}


COLUMNS = (*OPTION_COLUMNS, "category", "cycle_category")
SIZES = {"category": (400, 400), "cycle": (200,) * 4}

LAYOUT = Layout(
    "HRBench4K",
    800,
    "f6b041b03d49543494b8a56d2e35be65",
    ("HRBench4K.tsv", "hr_bench_4k.tsv"),
    "Hugging Face dataset DreamMr/HR-Bench, file hr_bench_4k.tsv",
    COLUMNS,
    read,
    ParquetLayout("DreamMr/HR-Bench", ("HR-Bench/*4k*.parquet", "HRBench4K/*.parquet"), cells),
    SIZES,
    is_localized=True,
)
