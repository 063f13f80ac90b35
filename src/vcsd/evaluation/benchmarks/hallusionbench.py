"""HallusionBench: yes-or-no questions about images and altered versions of them; only the 951 with an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles, ParquetFiles
from vcsd.evaluation.benchmarks.read_rows import ParsedRecord, yes_or_no

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.files.records import ParquetRow, Record


def _read(row: Record) -> ParsedRecord:
    gold = yes_or_no(row)
    parts = row.need("index").split("_")
    if len(parts) < 6:
        raise DataError(
            row.id,
            f"{row.name}: the index must be category_subcategory_input_set_figure_question, as in VD_figure_1_0_1_0.",
        )
    categories = {name: row.need(name) for name in ("category", "l2-category")}
    groups = {**categories, "set": parts[3], "figure": parts[4], "question": parts[5]}
    return ParsedRecord(row.need("question"), "yes_no", "yes_no", gold, groups=groups)


def _cells(row: ParquetRow) -> dict[str, str]:
    names = ("category", "subcategory", "visual_input", "set_id", "figure_id", "question_id")
    parts = [str(row[name]) for name in names]
    return {
        "index": "_".join(parts),
        "question": str(row["question"]),
        "answer": {"0": "No", "1": "Yes"}[str(row["gt_answer"])],
        "category": parts[0],
        "l2-category": f"{parts[0]}_{parts[1]}",
    }


BENCHMARK = Benchmark(
    "HallusionBench",
    num_questions=951,
    aggregation="paired",
    cluster="set",
    breakdown=("category", "l2-category"),
    files=BenchmarkFiles(
        names=("HallusionBench.tsv",),
        md5="0c23ac0dc9ef46832d7a24504f2a0c7c",
        source="https://opencompass.openxlab.space/utils/VLMEval/HallusionBench.tsv",
        columns=("index", "question", "answer", "category", "l2-category"),
        read=_read,
        parquet=ParquetFiles(
            "lmms-lab-encoder/HallusionBench",
            ("HallusionBench/image-*.parquet", "HallusionBench/*/image-*.parquet"),
            _cells,
        ),
        sizes={"category": (591, 360), "l2-category": (170, 144, 108, 89, 80, 130, 112, 64, 54)},
    ),
)
