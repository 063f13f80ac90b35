"""The seven benchmarks of the paper's table, one module each (HRBench's two share one); others are in one module."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from vcsd.evaluation.benchmarks import blink, hallusionbench, hrbench, mathvista, mmstar, vstar
from vcsd.evaluation.benchmarks.more_benchmarks import MORE_BENCHMARKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.benchmarks.benchmark import Benchmark

_SEVEN = (
    *(blink.BENCHMARK, mmstar.BENCHMARK, vstar.BENCHMARK, mathvista.BENCHMARK),
    *(hrbench.BENCHMARK_4K, hrbench.BENCHMARK_8K, hallusionbench.BENCHMARK),
)
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({benchmark.name: benchmark for benchmark in _SEVEN})
"""The seven by VLMEvalKit's names, in the order of the paper's table."""

PUBLISHED: Mapping[str, Benchmark] = MappingProxyType({**BENCHMARKS, **MORE_BENCHMARKS})
"""Every benchmark with published files."""
