"""A benchmark as data: how many questions it has, how they become one number, and what else is reported of it.

The seven of the paper's table are rows here; any other suite, such as those of the synthetic world, is one more row.

aggregation   how right and wrong answers become the reported number, by name: AGGREGATIONS in `aggregate.py`
cluster       which questions share a picture and so stand or fall together, by name: CLUSTERS in `aggregate.py`
breakdown     the group keys of a question for which the number is also reported value by value
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Numbers = Literal["official", "vlmevalkit"]
"""How answers of MathVista's kind are compared: as its authors do, or as VLMEvalKit does."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. `num_questions` is what a whole one has; None where any number will do.

    `numbers` None takes what the scoring mode takes: `final` compares officially, the others as VLMEvalKit.

    >>> Benchmark("spot_the_colour", aggregation="micro", breakdown=("shape",)).cluster
    'image'
    """

    name: str
    title: str = ""
    num_questions: int | None = None
    aggregation: str = "micro"
    cluster: str = "image"
    breakdown: tuple[str, ...] = ("category",)
    set_keys: tuple[str, ...] = ("l2-category", "set")
    """Group keys that together name a set of paired questions; only `paired` reads them."""
    numbers: Numbers | None = None
    is_read_twice: bool = False
    """Whether VLMEvalKit's exact route reads an option twice, as in MathVista: `mathvista.py` says what comes of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)


def _table(*rows: Benchmark) -> Mapping[str, Benchmark]:
    return MappingProxyType({row.name: row for row in rows})


BENCHMARKS = _table(
    Benchmark("BLINK", num_questions=1901),
    Benchmark("MMStar", num_questions=1500, breakdown=("category", "l2-category")),
    Benchmark("VStarBench", "V*Bench", num_questions=191),
    Benchmark(
        "MathVista_MINI",
        "MathVista",
        num_questions=1000,
        breakdown=("answer_type", "task", "skills"),
        is_read_twice=True,
    ),
    Benchmark("HRBench4K", num_questions=800, aggregation="cycles", cluster="rotation"),
    Benchmark("HRBench8K", num_questions=800, aggregation="cycles", cluster="rotation"),
    Benchmark(
        "HallusionBench",
        num_questions=951,
        aggregation="paired",
        cluster="set",
        breakdown=("category", "l2-category"),
    ),
)
"""The seven of the paper's table, by the names VLMEvalKit gives them, in the table's order."""
