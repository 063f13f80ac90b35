"""How right and wrong answers become one number, and which of them are not independent.

Every aggregation here has one form. It names one or more parts; a part gathers questions into units; a unit counts as
right when all of its questions are; a part's value is its share of right units; and the number reported, the entry, is
the plain mean of the parts' values.

micro    one part, each question its own unit                                         BLINK, MMStar, V*, MathVista
cycles   one part per rotation of the options, each question its own unit             HRBench
paired   aAcc: each question; fAcc: all questions on a figure; qAcc: a question on all its figures   HallusionBench

One form means one bootstrap: clusters of questions are drawn, never single questions of a unit (`uncertainty.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from vcsd.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vcsd.evaluation.benchmark import Benchmark
    from vcsd.evaluation.question import Question

Part = list[int]
"""The unit of each question, a number from 0 on; -1 for a question that the part leaves out."""

NOT_IN_PART = -1


@dataclass(frozen=True)
class Tally:
    """The questions of a benchmark, which were answered rightly, and how they hang together.

    >>> tally = Tally(("a", "b", "c"), (True, False, True), clusters=(0, 0, 1), parts={"fAcc": (0, 0, 1)})
    >>> entry_of(tally), metrics_of(tally)
    (50.0, {'fAcc': 50.0})
    """

    ids: tuple[str, ...]
    is_right: tuple[bool, ...]
    clusters: tuple[int, ...]
    parts: Mapping[str, tuple[int, ...]]


def tally(benchmark: Benchmark, questions: Sequence[Question], is_right: Sequence[bool]) -> Tally:
    """The answers to a benchmark's questions, gathered into its units and clusters."""
    parts = _named(AGGREGATIONS, benchmark, "aggregation")(benchmark, questions)
    clusters = number([_named(CLUSTERS, benchmark, "cluster")(benchmark, question) for question in questions])
    for name, units in parts.items():
        num_pairs = len({(unit, cluster) for unit, cluster in zip(units, clusters, strict=True) if unit >= 0})
        if num_pairs != len(set(units) - {NOT_IN_PART}):
            raise ConfigError([
                f"benchmark {benchmark.name!r}: {name} has units that reach over several clusters of "
                f"{benchmark.cluster!r}, so that no resample would keep them whole. Choose a wider cluster."
            ])  # fmt: skip
    ids = tuple(question.id for question in questions)
    return Tally(ids, tuple(is_right), tuple(clusters), {name: tuple(units) for name, units in parts.items()})


def unit_matrices(tally: Tally, is_right: Sequence[bool] | None = None) -> tuple[Any, Any]:
    """How many units of each part are right, and how many there are, by cluster: two arrays (cluster, part)."""
    right_N = np.asarray(tally.is_right if is_right is None else is_right, dtype=bool)
    cluster_N = np.asarray(tally.clusters, dtype=np.int64)
    num_clusters = int(cluster_N.max()) + 1
    num_right, num_units = [], []
    for units in tally.parts.values():
        unit_N = np.asarray(units, dtype=np.int64)
        in_part = unit_N >= 0
        unit_M, right_M = unit_N[in_part], right_N[in_part]
        size_U = np.bincount(unit_M)
        is_right_U = (np.bincount(unit_M, weights=right_M) == size_U) & (size_U > 0)
        cluster_U = np.zeros(len(size_U), dtype=np.int64)
        cluster_U[unit_M] = cluster_N[in_part]
        num_right.append(np.bincount(cluster_U, weights=is_right_U, minlength=num_clusters))
        num_units.append(np.bincount(cluster_U, weights=size_U > 0, minlength=num_clusters))
    return np.stack(num_right, axis=1), np.stack(num_units, axis=1)


def metrics_of(tally: Tally) -> dict[str, float]:
    """The value of each part, in percent."""
    right_CP, units_CP = unit_matrices(tally)
    values = 100.0 * right_CP.sum(0) / units_CP.sum(0)
    return {name: float(value) for name, value in zip(tally.parts, values, strict=True)}


def entry_of(tally: Tally) -> float:
    """The number that is reported, in percent: the mean of the parts."""
    metrics = metrics_of(tally)
    return sum(metrics.values()) / len(metrics)


def number(keys: Sequence[Any]) -> list[int]:
    """Equal keys get equal numbers, from 0 on in the order in which they appear.

    >>> number(["red", "blue", "red"])
    [0, 1, 0]
    """
    seen: dict[Any, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def micro(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, Part]:
    """The share of right answers."""
    return {"accuracy": list(range(len(questions)))}


def cycles(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, Part]:
    """The share of right answers in each cycle of rotated options, then the mean of the cycles."""
    parts: dict[str, Part] = {}
    for place, question in enumerate(questions):
        units = parts.setdefault(f"cycle {group(question, 'cycle')}", [NOT_IN_PART] * len(questions))
        units[place] = place
    return {name: parts[name] for name in sorted(parts)}


def paired(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, Part]:
    """Right answers, figures with every question right, questions right on every figure; then the mean of the three."""
    sets = [_set(benchmark, question) for question in questions]

    def of(key: str) -> Part:
        return number([(*name, group(question, key)) for name, question in zip(sets, questions, strict=True)])

    return {"aAcc": list(range(len(questions))), "fAcc": of("figure"), "qAcc": of("question")}


AGGREGATIONS: dict[str, Callable[[Benchmark, Sequence[Question]], dict[str, Part]]] = {
    "micro": micro,
    "cycles": cycles,
    "paired": paired,
}


def _alone(benchmark: Benchmark, question: Question) -> Any:
    return question.id


def _image(benchmark: Benchmark, question: Question) -> Any:
    """The pictures a question is asked about, where they can be told apart; else the question itself."""
    if "image" in question.groups:
        return ("image", question.groups["image"])
    images = question.example.images
    if images and all(isinstance(image, str | PathLike) for image in images):
        return ("paths", *(fspath(image) for image in images))  # type: ignore[arg-type]
    return question.id


def _set(benchmark: Benchmark, question: Question) -> tuple[str, ...]:
    return tuple(group(question, key) for key in benchmark.set_keys)


def _rotation(benchmark: Benchmark, question: Question) -> Any:
    """A question whatever the order of its options: HRBench asks each four times and gives no name to what it asks."""
    texts = tuple(part.get("text") for part in _text_parts(question)) if "question" not in question.fields else ()
    asked = question.fields.get("question", question.groups.get("question", texts))
    return (asked, question.groups.get("category"), tuple(sorted(question.options.values())))


def _text_parts(question: Question) -> list[Mapping[str, Any]]:
    content = question.example.prompt[-1]["content"]
    return [{"text": content}] if isinstance(content, str) else list(content)


CLUSTERS: dict[str, Callable[[Benchmark, Question], Any]] = {
    "question": _alone,
    "image": _image,
    "set": _set,
    "rotation": _rotation,
}


def group(question: Question, key: str) -> str:
    """The question's group under a key that its benchmark cannot do without."""
    if key not in question.groups:
        given = ", ".join(question.groups) or "none"
        raise DataError(
            question.id, f"{question.benchmark} is averaged by the group {key!r}; the question's groups are: {given}."
        )
    return question.groups[key]


def _named(table: Mapping[str, Any], benchmark: Benchmark, key: str) -> Any:
    name = getattr(benchmark, key)
    if name not in table:
        raise ConfigError([f"benchmark {benchmark.name!r}: {key} = {name!r} is unknown. {did_you_mean(name, table)}"])
    return table[name]
