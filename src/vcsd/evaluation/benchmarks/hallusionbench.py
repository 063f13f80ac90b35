"""HallusionBench: yes or no about pictures and their altered twins; the 951 questions that come with an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.layout import Asked, Layout, ParquetLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.rows import Row

_SET, _FIGURE, _QUESTION = 3, 4, 5
"""Places of the ids in an index such as VD_figure_1_0_1_0."""


def _read(row: Row) -> Asked:
    gold = row.need("answer").strip().capitalize()
    if gold not in ("Yes", "No"):
        raise DataError(row.id, f"{row.name}: the answer {gold!r} is neither Yes nor No.")
    parts = row.need("index").split("_")
    if len(parts) <= _QUESTION:
        raise DataError(
            row.id,
            f"{row.name}: the index must read category_subcategory_input_set_figure_question, as in VD_figure_1_0_1_0.",
        )
    groups = {
        "category": row.need("category"),
        "l2-category": row.need("l2-category"),
        "set": parts[_SET],
        "figure": parts[_FIGURE],
        "question": parts[_QUESTION],
    }
    return Asked(row.need("question"), "yes_no", "yes_no", gold, groups=groups)


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    parts = [
        str(row[name]) for name in ("category", "subcategory", "visual_input", "set_id", "figure_id", "question_id")
    ]
    return {
        "index": "_".join(parts),
        "question": str(row["question"]),
        "answer": {"0": "No", "1": "Yes"}[str(row["gt_answer"])],
        "category": parts[0],
        "l2-category": f"{parts[0]}_{parts[1]}",
    }


LAYOUT = Layout(
    "HallusionBench",
    951,
    "0c23ac0dc9ef46832d7a24504f2a0c7c",
    ("HallusionBench.tsv",),
    "https://opencompass.openxlab.space/utils/VLMEval/HallusionBench.tsv",
    ("index", "question", "answer", "category", "l2-category"),
    _read,
    ParquetLayout(
        "lmms-lab-encoder/HallusionBench",
        ("HallusionBench/image-*.parquet", "HallusionBench/*/image-*.parquet"),
        _cells,
    ),
    {"category": (591, 360), "l2-category": (170, 144, 108, 89, 80, 130, 112, 64, 54)},
)
