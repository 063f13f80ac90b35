"""BLINK, validation half: fourteen tasks of perception, up to four images each."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from vcsd.evaluation.benchmarks.layout import OPTION_COLUMNS, Layout, ParquetLayout, multiple_choice

if TYPE_CHECKING:
    from collections.abc import Mapping


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    options = dict(zip(ascii_uppercase, map(str, row["choices"]), strict=False))
    answer = str(row["answer"]).strip().strip("()")
    return {
        "index": str(row["idx"]),
        "question": str(row["question"]),
        **options,
        "answer": answer,
        "category": str(row["sub_task"]),
    }


LAYOUT = Layout(
    "BLINK",
    1901,
    "d5e8af148b10ac69f535ff7b23f3f989",
    ("BLINK.tsv",),
    "https://opencompass.openxlab.space/utils/VLMEval/BLINK.tsv",
    (*OPTION_COLUMNS, "category"),
    multiple_choice,
    ParquetLayout(
        "BLINK-Benchmark/BLINK",
        ("BLINK/*/val-*.parquet", "BLINK/val*.parquet"),
        _cells,
        ("image_1", "image_2", "image_3", "image_4"),
    ),
    {"category": (117, 120, 132, 130, 150, 150, 133, 122, 124, 134, 139, 143, 172, 135)},
)
