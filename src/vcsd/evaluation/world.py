"""The suites of the synthetic world as benchmarks: `world` for all seven, or one such as `world/attributes`.

They are asked, scored and reported by the code of the paper's benchmarks, each with the rule of the one it stands for.
Their questions are made, not read: no data folder is needed, and a prompt style does not change their words.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from vcsd.evaluation.benchmark import BENCHMARKS, Benchmark
from vcsd.evaluation.load import DataReport, LoadedBenchmark, spread
from vcsd.evaluation.predictions import image_identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.evaluation.question import Question

ALL = "world"
PREFIX = f"{ALL}/"
_SEED = 0
_SPLIT: Literal["test"] = "test"

WORLD: Mapping[str, Benchmark] = MappingProxyType({
    each.name: each
    for each in (
        Benchmark(f"{PREFIX}correspondence"),
        Benchmark(f"{PREFIX}mixed"),
        Benchmark(f"{PREFIX}attributes"),
        Benchmark(f"{PREFIX}arithmetic"),
        Benchmark(f"{PREFIX}small", aggregation="cycles", cluster="rotation"),
        Benchmark(f"{PREFIX}smaller", aggregation="cycles", cluster="rotation"),
        Benchmark(f"{PREFIX}hallucination", aggregation="paired", cluster="set", breakdown=("category", "l2-category")),
    )
})  # fmt: skip
"""By name, in the order of the paper's table."""

ALL_BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({**BENCHMARKS, **WORLD})


def load_world(names: Sequence[str], *, limit: int | None = None) -> list[LoadedBenchmark]:
    """The questions of suites, always the same; `limit` takes so many of each, evenly."""
    from vcsd.world.suites import build_suite  # the world draws with NumPy, which naming its suites does not need

    loaded = []
    for name in names:
        made = build_suite(name.removeprefix(PREFIX), _SEED, _SPLIT)
        questions = [_as_benchmark(question, name) for question in made]
        chosen = tuple(questions if limit is None else spread(questions, limit))
        file, md5 = f"seed {_SEED}, {_SPLIT}", _checksum(questions)
        loaded.append(LoadedBenchmark(chosen, DataReport(name, file, ALL, md5, False, len(made), len(chosen), 0)))
    return loaded


def _as_benchmark(question: Question, name: str) -> Question:
    """A question under its suite's full name. What is asked once per rotation says which, and of what."""
    groups = dict(question.groups)
    if "cycle_category" in groups:
        groups |= {"cycle": groups["cycle_category"], "question": question.id.rpartition("-")[0]}
    return replace(question, benchmark=name, groups=groups)


def _checksum(questions: Sequence[Question]) -> str:
    """An MD5 of all that is asked: another world is other data."""
    whole = hashlib.md5(usedforsecurity=False)
    for question in questions:
        images = [image_identity(image) for image in question.example.images]
        whole.update(f"{question.id} {question.gold} {question.example.prompt} {images}\n".encode())
    return whole.hexdigest()
