"""MMStar: 1500 questions that need their image, 250 in each of six capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles, ParquetFiles
from vcsd.evaluation.benchmarks.read_rows import OPTION_COLUMNS, multiple_choice, options_inside

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.files.records import ParquetRow


def _cells(row: ParquetRow) -> dict[str, str]:
    """Convert a row of the authors' file, which has the options inside the question."""
    question, options = options_inside(str(row["question"]))
    return {
        "index": str(row["index"]),
        "question": question,
        **options,
        "answer": str(row["answer"]).strip().upper(),
        "category": str(row["category"]),
        "l2-category": str(row["l2_category"]),
    }


BENCHMARK = Benchmark(
    "MMStar",
    num_questions=1500,
    breakdown=("category", "l2-category"),
    files=BenchmarkFiles(
        names=("MMStar.tsv",),
        md5="e1ecd2140806c1b1bbf54b43372efb9e",
        source="https://opencompass.openxlab.space/utils/VLMEval/MMStar.tsv",
        columns=(*OPTION_COLUMNS, "category"),
        read=multiple_choice,
        parquet=ParquetFiles("Lin-Chen/MMStar", ("MMStar/*.parquet", "MMStar/*/*.parquet"), _cells),
        sizes={"category": (250,) * 6},
    ),
)
