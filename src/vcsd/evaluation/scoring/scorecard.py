"""The scorecard: the results of an evaluation, their uncertainty, and counts of answers that make them less reliable.

entry   the number that a table reports for a benchmark, 0 to 100
Acc     the plain mean of the entries
counts  of N questions: failed (no answer), unresolved (no rule could read the answer), truncated (stopped by the length
        limit), empty, repeated (the answer ends in a loop). All of them are part of N.

A benchmark with failed questions is not averaged unless allowed: a dead server must not look like a bad model.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vcsd.checkpoint.whole_file import write_whole
from vcsd.errors import ConfigError, nearest_path, shown
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.uncertainty import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    MadeWith = Mapping[str, Any]
    """How a scorecard was made: the model, the prompt style, the sampling, the data; JSON values by name."""

CARD = "scorecard.json"

FORMAT = 1
"""Increased when a scorecard's JSON changes in a way that older readers would misread."""


@dataclass(frozen=True)
class Counts:
    """How many answers of a benchmark have a problem."""

    failed: int
    unresolved: int
    truncated: int
    empty: int
    repeated: int
    judged: int = 0
    """Answers that a judge read. This is not a problem, but rules alone cannot reproduce the score."""
    judge_failed: int = 0
    """Answers to which the judge gave no useful reply. They are also unresolved."""


@dataclass(frozen=True)
class GroupScore:
    """The score of a benchmark on the questions of one group."""

    entry: float
    num_questions: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class BenchmarkScore:
    """The result on one benchmark. `num_expected` None: the benchmark has no fixed number of questions."""

    name: str
    title: str
    entry: float
    interval: Interval
    num_questions: int
    num_expected: int | None
    counts: Counts
    metrics: Mapping[str, float]
    """The parts that the entry averages, such as aAcc, fAcc and qAcc."""
    groups: Mapping[str, Mapping[str, GroupScore]]
    """Scores by group key, then by group."""
    numbers: str
    """How MathVista-style answers were compared: official, nearest or vlmevalkit."""
    tally: Tally = field(repr=False)
    mean_tokens: float | None = None
    """The mean length of the answers, if it is known."""

    @property
    def is_whole(self) -> bool:
        """Whether every question of the benchmark was asked. A score on some of them is not comparable."""
        return self.num_expected is None or self.num_questions == self.num_expected

    @property
    def share_unread(self) -> float:
        """The share of answers that nothing could be read from, in percent."""
        return 100 * self.counts.unresolved / self.num_questions


@dataclass(frozen=True)
class Scorecard:
    """The scores of one model, and how they were made."""

    mode: str
    rules: str
    acc: float
    interval: Interval
    benchmarks: Mapping[str, BenchmarkScore]
    made_with: MadeWith = field(default_factory=dict)

    @property
    def share_unread(self) -> float:
        """The mean over the benchmarks of the share of answers that nothing could be read from, in percent."""
        return sum(score.share_unread for score in self.benchmarks.values()) / len(self.benchmarks)

    def marks(self) -> dict[tuple[str, str], bool]:
        """Return whether each answer is right, by benchmark and question."""
        return {
            (name, question): is_right
            for name, score in self.benchmarks.items()
            for question, is_right in zip(score.tally.ids, score.tally.is_right, strict=True)
        }

    def to_json(self) -> str:
        """Return the scorecard as JSON text, without loss."""
        content = {"format": FORMAT, **asdict(self)}
        for name, benchmark in content["benchmarks"].items():
            benchmark["tally"] = _packed(self.benchmarks[name].tally)
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        try:
            content = json.loads(text, parse_constant=_refuse_constant)
            if content["format"] != FORMAT:
                raise ConfigError([f"the scorecard has format {content['format']!r}; this release reads {FORMAT}."])
            card = cls(
                content["mode"],
                content["rules"],
                content["acc"],
                _checked(Interval(**content["interval"])),
                {name: _benchmark(values) for name, values in content["benchmarks"].items()},
                content["made_with"],
            )
            if not card.benchmarks:
                raise ValueError("it has no benchmark")
            _check_made_with(card.made_with)
            return _checked(card)
        except ConfigError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(
                [f"this is not a scorecard: {shown(error, 200)}. Pass the scorecard.json of an evaluation."]
            ) from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write the scorecard. A kill while writing leaves the previous file."""
        write_whole(Path(path), self.to_json())


def cards_in(folder: Path) -> list[Path]:
    """The scorecards of an evaluation: its own, and those of its seeds."""
    return [*folder.glob(CARD), *sorted(folder.glob(f"seed-*/{CARD}"))]


def folder_of_seed(folder: Path, seeds: Sequence[int], seed: int) -> Path:
    """The folder of a seed's scorecard: that of the evaluation if it has a single seed."""
    return folder if len(seeds) == 1 else folder / f"seed-{seed}"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def load_scorecard(path: str | PathLike[str]) -> Scorecard:
    """Read a scorecard from a file."""
    if not Path(path).is_file():
        hint = nearest_path(os.fspath(path), wants_file=True)
        raise ConfigError(
            [f"there is no scorecard at {path}. Pass the folder of an evaluation, or its scorecard.json.{hint}"]
        )
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError([f"the scorecard {path} cannot be read: {error}."]) from error
    try:
        return Scorecard.from_json(text)
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from error


def _packed(tally: Tally) -> dict[str, object]:
    """Write a tally in few characters: a part in which each question is its own unit is null."""
    own = tuple(range(len(tally.ids)))
    return {
        "ids": json.dumps(tally.ids, ensure_ascii=False),
        "is_right": "".join("01"[right] for right in tally.is_right),
        "clusters": None if tally.clusters == own else json.dumps(tally.clusters),
        "parts": {name: None if units == own else json.dumps(units) for name, units in tally.parts.items()},
        **({"ratios": {name: json.dumps(pairs) for name, pairs in tally.ratios.items()}} if tally.ratios else {}),
    }


def _unpacked(values: Mapping[str, Any]) -> Tally:
    ids = tuple(json.loads(values["ids"]))

    def units(packed: str | None) -> tuple[int, ...]:
        return tuple(range(len(ids)) if packed is None else json.loads(packed))

    parts = {name: units(packed) for name, packed in values["parts"].items()}
    packed = values.get("ratios", {})
    ratios = {name: tuple((above, below) for above, below in json.loads(pairs)) for name, pairs in packed.items()}
    tally = Tally(ids, tuple(right == "1" for right in values["is_right"]), units(values["clusters"]), parts, ratios)
    numbers = [unit for part in (tally.clusters, *parts.values()) for unit in part]
    lengths = {len(ids), len(tally.is_right), len(tally.clusters), *map(len, [*parts.values(), *ratios.values()])}
    is_whole = len(lengths) == 1 and len(ids) > 0 and all(isinstance(name, str) for name in ids)
    is_whole = is_whole and all(
        type(end) is int and end >= 0 for pairs in ratios.values() for pair in pairs for end in pair
    )
    is_whole = is_whole and all(type(number) is int and -1 <= number < len(ids) for number in numbers)
    has_units = bool(parts or ratios) and all(max(part) >= 0 for part in parts.values())
    if not is_whole or not has_units or min(tally.clusters) < 0:
        raise ValueError("its questions, their answers and their units do not fit together")
    return tally


T = TypeVar("T")

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "MadeWith": (dict,),
    "Mapping[str, float]": (dict,),
}
"""Annotation -> the types that JSON has for it. Fields of other types are checked where they are built."""


_LARGEST = 1e9
"""No score, count or length is larger."""


def _checked(record: T) -> T:
    """Raise unless the fields of a dataclass have their types and its numbers are within `_LARGEST`."""
    for slot in fields(record):  # type: ignore[arg-type]
        value = getattr(record, slot.name)
        kinds = _TYPES.get(str(slot.type))
        if kinds is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise TypeError(f"{slot.name} = {shown(value)} is not of type {slot.type}")
        for number in value.values() if slot.name == "metrics" else [value]:
            if (slot.name == "metrics" or isinstance(number, int | float)) and not abs(number) <= _LARGEST:
                raise ValueError(f"{slot.name} = {shown(number)} is not a score, count or length")
    return record


def _check_made_with(made: MadeWith) -> None:
    """Raise TypeError unless the parts of `made_with` that are read again are as an evaluation writes them."""
    asker, data, judge = (made.get(name) or {} for name in ("asker", "data", "judge"))
    objects = all(isinstance(part, dict) for part in (asker, data, judge))
    if not objects or not all(isinstance(report, dict) for report in data.values()):
        raise TypeError("its made_with is not as an evaluation writes it")
    words = [judge.get("model"), judge.get("preset", "")] if judge else []  # earlier versions had no presets
    servers = judge.get("servers", [])
    if not isinstance(servers, list) or not all(isinstance(word, str) for word in [*words, *servers]):
        raise TypeError(f"its judge is {shown(judge)}")


def _benchmark(values: Mapping[str, Any]) -> BenchmarkScore:
    groups = {
        key: {name: _checked(GroupScore(**score)) for name, score in scores.items()}
        for key, scores in values["groups"].items()
    }
    built = {
        "interval": _checked(Interval(**values["interval"])),
        "counts": _checked(Counts(**values["counts"])),
        "groups": groups,
        "tally": _unpacked(values["tally"]),
    }
    score = _checked(BenchmarkScore(**{**values, **built}))
    if score.num_questions != len(score.tally.ids):
        raise ValueError(f"{score.num_questions} questions, but {len(score.tally.ids)} answers")
    return score
