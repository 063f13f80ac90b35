"""HRBench at 4K and 8K: 200 questions on high-resolution images, each asked four times with rotated options.

Both ask the same questions; the 8K images have twice the width and height, and their TSV has 4.6 GB.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vcsd.evaluation.benchmarks.benchmark import Benchmark, BenchmarkFiles, ParquetFiles
from vcsd.evaluation.benchmarks.read_rows import OPTION_COLUMNS, ParsedRecord, multiple_choice

if TYPE_CHECKING:
    from vcsd.evaluation.benchmarks.files.records import ParquetRow, Record


def _read(row: Record) -> ParsedRecord:
    """Read a multiple-choice row and the cycle of its rotation."""
    parsed = multiple_choice(row)
    return replace(parsed, groups={**parsed.groups, "cycle": row.need("cycle_category")})


def _cells(row: ParquetRow) -> dict[str, str]:
    """Convert a row of the authors' Parquet file, which has the columns of their TSV."""
    return {name: str(cell) for name, cell in row.items() if cell is not None}


def _benchmark(size: str, md5: str) -> Benchmark:
    name, file = f"HRBench{size.upper()}", f"hr_bench_{size}.tsv"
    return Benchmark(
        name,
        num_questions=800,
        aggregation="cycles",
        cluster="rotation",
        files=BenchmarkFiles(
            names=(f"{name}.tsv", file),
            md5=md5,
            source=f"Hugging Face dataset DreamMr/HR-Bench, file {file}",
            columns=(*OPTION_COLUMNS, "category", "cycle_category"),
            read=_read,
            parquet=ParquetFiles("DreamMr/HR-Bench", (f"HR-Bench/*{size}*.parquet", f"{name}/*.parquet"), _cells),
            sizes={"category": (400, 400), "cycle": (200,) * 4},
            is_localized=True,
        ),
    )


BENCHMARK_4K = _benchmark("4k", md5="f6b041b03d49543494b8a56d2e35be65")
BENCHMARK_8K = _benchmark("8k", md5="274c9c7f89329b804a4723178a00219c")
