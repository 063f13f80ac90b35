"""V*Bench: small objects in large images; 115 questions on attributes, 76 on positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles, ParquetFiles
from vcsd.evaluation.benchmarks.read_rows import OPTION_COLUMNS, multiple_choice, options_inside

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.files.records import ParquetRow


def _cells(row: ParquetRow) -> dict[str, str]:
    """Convert a row of the authors' file: the question contains the options, and ids repeat in each category."""
    question, options = options_inside(str(row["text"]))
    return {
        "index": f"{row['category']}_{row['question_id']}",
        "question": question,
        **options,
        "answer": str(row["label"]).strip().strip("()").upper(),
        "category": str(row["category"]),
    }


BENCHMARK = Benchmark(
    "VStarBench",
    "V*Bench",
    num_questions=191,
    files=BenchmarkFiles(
        names=("VStarBench.tsv",),
        md5="b18854d7075574be06b631cd5f7d2d6a",
        source="Hugging Face dataset xjtupanda/VStar_Bench, file VStarBench.tsv",
        columns=(*OPTION_COLUMNS, "category"),
        read=multiple_choice,
        parquet=ParquetFiles(
            "lmms-lab-encoder/vstar-bench", ("VStarBench/*.parquet", "VStarBench/*/*.parquet"), _cells
        ),
        sizes={"category": (115, 76)},
    ),
)
