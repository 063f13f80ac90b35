"""HRBench at 8K: the questions of HRBench on pictures of twice the side. Its TSV has 4.6 GB."""

from vcsd.evaluation.benchmarks.hrbench4k import COLUMNS, SIZES, cells, read
from vcsd.evaluation.benchmarks.layout import Layout, ParquetLayout

LAYOUT = Layout(
    "HRBench8K",
    800,
    "274c9c7f89329b804a4723178a00219c",
    ("HRBench8K.tsv", "hr_bench_8k.tsv"),
    "Hugging Face dataset DreamMr/HR-Bench, file hr_bench_8k.tsv",
    COLUMNS,
    read,
    ParquetLayout("DreamMr/HR-Bench", ("HR-Bench/*8k*.parquet", "HRBench8K/*.parquet"), cells),
    SIZES,
    is_localized=True,
)
