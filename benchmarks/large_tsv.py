"""Measure time and memory of reading a benchmark file of HRBench8K's size: 800 rows, 4.6 GB, random bytes as images.

    python benchmarks/large_tsv.py [--gigabytes 4.6]

Writes the file to a temporary folder, reads it as `vcsd eval` does, opens one image, and removes the file.
"""

import argparse
import base64
import os
import resource
import tempfile
import time
from pathlib import Path

from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.benchmarks.loading import load_benchmark

COLUMNS = b"index\tquestion\tA\tB\tC\tD\tanswer\tcategory\tcycle_category\timage\n"
NUM_ROWS = 800


def write(path: Path, num_bytes: float) -> None:
    size = int(num_bytes / NUM_ROWS * 3 / 4) // 3 * 3
    image = base64.b64encode(os.urandom(size))
    with path.open("wb") as file:
        file.write(COLUMNS)
        for row in range(NUM_ROWS):
            file.write(f"{row}\tWhere is {row // 4}?\tn\ts\te\tw\tA\tsingle\t{row % 4}\t".encode() + image + b"\n")


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=4.6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "HRBench8K.tsv"
        write(path, given.gigabytes * 1e9)
        before, start = peak_megabytes(), time.perf_counter()
        loaded = load_benchmark(BENCHMARKS["HRBench8K"], folder, allow_unknown_data=True)
        read = time.perf_counter()
        loaded.questions[-1].example.images[0].read()
        opened = time.perf_counter()
    print(f"{path.name}: {given.gigabytes} GB, {len(loaded.questions)} questions in {read - start:.1f} s")
    print(f"one image: {1000 * (opened - read):.0f} ms; peak memory {before:.0f} -> {peak_megabytes():.0f} MiB")


if __name__ == "__main__":
    main()
