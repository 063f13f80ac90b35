"""V*Bench: small things in large pictures; 115 questions on attributes, 76 on positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.evaluation.benchmarks.layout import OPTION_COLUMNS, Layout, ParquetLayout, multiple_choice, options_inside

if TYPE_CHECKING:
    from collections.abc import Mapping


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """The authors' file has the options, and an instruction, inside the question. Question ids repeat per category."""
    question, options = options_inside(str(row["text"]))
    return {
        "index": f"{row['category']}_{row['question_id']}",
        "question": question,
        **options,
        "answer": str(row["label"]).strip().strip("()").upper(),
        "category": str(row["category"]),
    }


LAYOUT = Layout(
    "VStarBench",
    191,
    "b18854d7075574be06b631cd5f7d2d6a",
    ("VStarBench.tsv",),
    "Hugging Face dataset xjtupanda/VStar_Bench, file VStarBench.tsv",
    (*OPTION_COLUMNS, "category"),
    multiple_choice,
    ParquetLayout("lmms-lab-encoder/vstar-bench", ("VStarBench/*.parquet", "VStarBench/*/*.parquet"), _cells),
    {"category": (115, 76)},
)
