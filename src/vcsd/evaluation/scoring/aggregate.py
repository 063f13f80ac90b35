"""How right and wrong answers become one number, and which answers are not independent.

Every aggregation has the same form. It has one or more parts; a part groups questions into units; a unit is right if
all its questions are; a part's value is its share of right units; and the reported number, the entry, is the plain mean
of the parts' values.

micro    one part, each question its own unit                                         BLINK, MMStar, V*, MathVista
cycles   one part per rotation of the options, each question its own unit             HRBench
paired   aAcc: each question; fAcc: all questions on a figure; qAcc: a question on all its figures   HallusionBench
circular one part, all rotations of a question a unit                                 MMBench
f1       one ratio instead of a share: F1 of "yes"                                    POPE

Because of this form, one jackknife works for all: it leaves out whole clusters and never splits a unit
(`uncertainty.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from vcsd.errors import ConfigError, DataError, did_you_mean
from vcsd.evaluation.benchmarks.benchmark import rotation_of
from vcsd.evaluation.benchmarks.files.python_lists import read_list

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.types import Question

T = TypeVar("T")

AggregatePart = list[int]
"""The unit of each question, a number from 0; -1 for a question outside the part."""

NOT_IN_PART = -1


@dataclass(frozen=True)
class Tally:
    """The questions of a benchmark, which of them were answered correctly, their clusters and units.

    >>> tally = Tally(("a", "b", "c"), (True, False, True), clusters=(0, 0, 1), parts={"fAcc": (0, 0, 1)})
    >>> entry_of(tally), metrics_of(tally)
    (50.0, {'fAcc': 50.0})
    """

    ids: tuple[str, ...]
    is_right: tuple[bool, ...]
    clusters: tuple[int, ...]
    parts: Mapping[str, tuple[int, ...]]
    ratios: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Parts that are ratios, not shares of units: what each question adds to the numerator and to the denominator."""


def tally(
    benchmark: Benchmark,
    questions: Sequence[Question],
    is_right: Sequence[bool],
    answers: Sequence[str | None] | None = None,
) -> Tally:
    """Group the answers to a benchmark's questions into its units and clusters. `answers` is what was read."""
    parts = _named(AGGREGATIONS, benchmark, "aggregation")(benchmark, questions)
    clusters = number([_named(CLUSTERS, benchmark, "cluster")(benchmark, question) for question in questions])
    for name, units in parts.items():
        num_pairs = len({(unit, cluster) for unit, cluster in zip(units, clusters, strict=True) if unit >= 0})
        if num_pairs != len(set(units) - {NOT_IN_PART}):
            raise ConfigError([
                f"benchmark {benchmark.name!r}: {name} has units that span several clusters of {benchmark.cluster!r}, "
                "so leaving out a cluster would split them. Choose a wider cluster."
            ])  # fmt: skip
    ids = tuple(question.id for question in questions)
    units_of = {name: tuple(units) for name, units in parts.items()}
    ratios = {"F1": f1_ratios(questions, answers)["F1"]} if benchmark.aggregation == "f1" else {}
    return Tally(ids, tuple(is_right), tuple(clusters), units_of, ratios)


def unit_matrices(tally: Tally) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Count the right units and all units of each part, by cluster: two arrays (cluster, part)."""
    right_N = np.asarray(tally.is_right, dtype=bool)
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
    for pairs in tally.ratios.values():
        above_N, below_N = np.asarray(pairs, dtype=np.float64).T
        num_right.append(np.bincount(cluster_N, weights=above_N, minlength=num_clusters))
        num_units.append(np.bincount(cluster_N, weights=below_N, minlength=num_clusters))
    return np.stack(num_right, axis=1), np.stack(num_units, axis=1)


def metrics_of(tally: Tally) -> dict[str, float]:
    """Return the value of each part, in percent."""
    right_CP, units_CP = unit_matrices(tally)
    values = 100.0 * right_CP.sum(0) / np.maximum(units_CP.sum(0), 1)  # the denominator of a ratio may be 0
    return {name: float(value) for name, value in zip([*tally.parts, *tally.ratios], values, strict=True)}


def entry_of(tally: Tally) -> float:
    """Return the reported number, in percent: the mean of the parts."""
    metrics = metrics_of(tally)
    return sum(metrics.values()) / len(metrics)


def number(keys: Sequence[Hashable]) -> list[int]:
    """Number the distinct keys from 0, in order of appearance.

    >>> number(["red", "blue", "red"])
    [0, 1, 0]
    """
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def micro(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, AggregatePart]:
    """Use the share of right answers."""
    return {"accuracy": list(range(len(questions)))}


def cycles(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, AggregatePart]:
    """Use the mean over cycles of rotated options of the share of right answers."""
    parts: dict[str, AggregatePart] = {}
    for index, question in enumerate(questions):
        units = parts.setdefault(f"cycle {group(question, 'cycle')}", [NOT_IN_PART] * len(questions))
        units[index] = index
    return {name: parts[name] for name in sorted(parts)}


def paired(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, AggregatePart]:
    """Use the mean of three shares: right answers, figures with all questions right, questions right on all figures."""
    sets = [_set(benchmark, question) for question in questions]

    def of(key: str) -> AggregatePart:
        return number([(*name, group(question, key)) for name, question in zip(sets, questions, strict=True)])

    return {"aAcc": list(range(len(questions))), "fAcc": of("figure"), "qAcc": of("question")}


def circular(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, AggregatePart]:
    """Use the share of questions that are right in every rotation of their options."""
    return {"accuracy": number([group(question, "circle") for question in questions])}


def f1(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, AggregatePart]:
    """Use no shares: the entry is a ratio (`f1_ratios`)."""
    return {}


def f1_ratios(
    questions: Sequence[Question], answers: Sequence[str | None] | None
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return F1 of "yes", accuracy, precision and recall as ratios. What is not a yes counts as a no.

    A question in several categories counts once for each, as in VLMEvalKit. A ratio with denominator 0 is 0, also as in
    VLMEvalKit: F1 is 0 if all gold answers and readings are "no".
    """
    assert answers is not None, "F1 needs what was read, not only whether it is right"
    pairs: dict[str, list[tuple[int, int]]] = {name: [] for name in ("F1", "acc", "precision", "recall")}
    for question, word in zip(questions, answers, strict=True):
        times, is_yes, says_yes = len(group_names(question, "category")), question.gold == "Yes", word == "Yes"
        both = times * (is_yes and says_yes)
        pairs["F1"].append((2 * both, times * (is_yes + says_yes)))
        pairs["acc"].append((times * (word == question.gold), times))
        pairs["precision"].append((both, times * says_yes))
        pairs["recall"].append((both, times * is_yes))
    return {name: tuple(several) for name, several in pairs.items()}


def group_names(question: Question, key: str) -> list[str]:
    """Return the groups of a question under a key; several if the cell is a list, such as MathVista's skills."""
    cell = question.groups.get(key)
    if cell is None:
        return []
    try:
        return [str(name) for name in read_list(cell)] if cell.startswith("[") else [cell]
    except ValueError:
        return [cell]


AGGREGATIONS: dict[str, Callable[[Benchmark, Sequence[Question]], dict[str, AggregatePart]]] = {
    "micro": micro,
    "cycles": cycles,
    "paired": paired,
    "circular": circular,
    "f1": f1,
}


def _image(benchmark: Benchmark, question: Question) -> Hashable:
    """Identify the images of a question; if that is impossible, the question itself."""
    if "image" in question.groups:
        return ("image", question.groups["image"])
    images = question.example.images
    if images and all(isinstance(image, str | PathLike) for image in images):
        return ("paths", *(fspath(image) for image in images))  # type: ignore[arg-type]
    return question.id


def _set(benchmark: Benchmark, question: Question) -> tuple[str, ...]:
    return tuple(group(question, key) for key in benchmark.set_keys)


CLUSTERS: dict[str, Callable[[Benchmark, Question], Hashable]] = {
    "question": lambda benchmark, question: question.id,
    "image": _image,
    "set": _set,
    "rotation": lambda benchmark, question: rotation_of(question),
}


def group(question: Question, key: str) -> str:
    """Return the question's group under a key that its benchmark requires."""
    if key not in question.groups:
        groups = ", ".join(question.groups) or "none"
        raise DataError(
            question.id, f"{question.benchmark} is averaged by the group {key!r}; the question's groups are: {groups}."
        )
    return question.groups[key]


def _named(table: Mapping[str, T], benchmark: Benchmark, key: str) -> T:
    name = getattr(benchmark, key)
    if name not in table:
        raise ConfigError([f"benchmark {benchmark.name!r}: {key} = {name!r} is unknown. {did_you_mean(name, table)}"])
    return table[name]
