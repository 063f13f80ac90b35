"""The suites of the offline world as benchmarks: `world` for all seven, or one such as `world/attributes`.

They are asked, scored and reported by the same code as the paper's benchmarks, each with the aggregation of the one
that it is modelled on. Their questions are generated: they need no data folder, and the prompt style does not change
their text.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from vcsd.evaluation.asking.predictions import questions_checksum
from vcsd.evaluation.benchmarks import PUBLISHED
from vcsd.evaluation.benchmarks.benchmark import Benchmark
from vcsd.evaluation.benchmarks.loading import DataReport, LoadedBenchmark, limited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.types import Question

ALL = "world"
PREFIX = f"{ALL}/"
_SEED = 0
_SPLIT: Literal["test"] = "test"

WORLD: Mapping[str, Benchmark] = MappingProxyType({
    suite.name: suite
    for suite in (
        Benchmark(f"{PREFIX}correspondence"),
        Benchmark(f"{PREFIX}mixed"),
        Benchmark(f"{PREFIX}attributes"),
        Benchmark(f"{PREFIX}arithmetic"),
        Benchmark(f"{PREFIX}small", aggregation="cycles", cluster="rotation"),
        Benchmark(f"{PREFIX}smaller", aggregation="cycles", cluster="rotation"),
        Benchmark(f"{PREFIX}hallucination", aggregation="paired", cluster="set", breakdown=("category", "l2-category")),
    )
})  # fmt: skip
"""The suites by name, in the order of the paper's table."""

ALL_BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({**PUBLISHED, **WORLD})


def load_world(names: Sequence[str], *, limit: int | None = None) -> list[LoadedBenchmark]:
    """Generate the questions of suites, always the same ones; at most `limit` of each."""
    from vcsd.world.questions.suites import build_suite  # loads NumPy, which listing the suites does not need

    loaded = []
    for name in names:
        suite = build_suite(name.removeprefix(PREFIX), _SEED, _SPLIT)
        questions = [_as_benchmark(question, name) for question in suite]
        chosen = tuple(limited(WORLD[name], questions, limit))
        file, md5 = f"seed {_SEED}, {_SPLIT}", questions_checksum(questions)
        report = DataReport(name, file, ALL, md5, False, len(questions), len(chosen), 0)
        loaded.append(LoadedBenchmark(chosen, report))
    return loaded


def _as_benchmark(question: Question, name: str) -> Question:
    """Rename a question to its suite's full name. A rotated question also gets its cycle and the original question."""
    groups = dict(question.groups)
    if "cycle_category" in groups:
        groups |= {"cycle": groups["cycle_category"], "question": question.id.rpartition("-")[0]}
    return replace(question, benchmark=name, groups=groups)
