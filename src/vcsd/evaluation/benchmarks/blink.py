"""BLINK, validation half: fourteen perception tasks, up to four images each."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles, ParquetFiles
from vcsd.evaluation.benchmarks.read_rows import OPTION_COLUMNS, multiple_choice

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.files.records import ParquetRow


def _cells(row: ParquetRow) -> dict[str, str]:
    options = dict(zip(ascii_uppercase, map(str, row["choices"]), strict=False))
    answer = str(row["answer"]).strip().strip("()")
    return {
        "index": str(row["idx"]),
        "question": str(row["question"]),
        **options,
        "answer": answer,
        "category": str(row["sub_task"]),
    }


BENCHMARK = Benchmark(
    "BLINK",
    num_questions=1901,
    judged_as="blink",
    files=BenchmarkFiles(
        names=("BLINK.tsv",),
        md5="d5e8af148b10ac69f535ff7b23f3f989",
        source="https://opencompass.openxlab.space/utils/VLMEval/BLINK.tsv",
        columns=(*OPTION_COLUMNS, "category"),
        read=multiple_choice,
        parquet=ParquetFiles(
            "BLINK-Benchmark/BLINK",
            ("BLINK/*/val-*.parquet", "BLINK/val*.parquet"),
            _cells,
            ("image_1", "image_2", "image_3", "image_4"),
        ),
        sizes={"category": (117, 120, 132, 130, 150, 150, 133, 122, 124, 134, 139, 143, 172, 135)},
    ),
)
