"""MMStar: 1500 questions that need their image, 250 in each of six capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.evaluation.benchmarks.layout import OPTION_COLUMNS, Layout, ParquetLayout, multiple_choice, options_inside

if TYPE_CHECKING:
    from collections.abc import Mapping


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """The authors' file has the options inside the question."""
    question, options = options_inside(str(row["question"]))
    return {
        "index": str(row["index"]),
        "question": question,
        **options,
        "answer": str(row["answer"]).strip().upper(),
        "category": str(row["category"]),
        "l2-category": str(row["l2_category"]),
    }


LAYOUT = Layout(
    "MMStar",
    1500,
    "e1ecd2140806c1b1bbf54b43372efb9e",
    ("MMStar.tsv",),
    "https://opencompass.openxlab.space/utils/VLMEval/MMStar.tsv",
    (*OPTION_COLUMNS, "category"),
    multiple_choice,
    ParquetLayout("Lin-Chen/MMStar", ("MMStar/*.parquet", "MMStar/*/*.parquet"), _cells),
    {"category": (250,) * 6},
)
