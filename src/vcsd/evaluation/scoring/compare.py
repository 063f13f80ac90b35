"""Compares scorecards: two models on the same questions, or one recipe over several seeds.

A difference is paired: both models answer the questions of each resample, so that a hard draw is hard for both. Its
interval says whether another draw of questions could reverse the difference; it says nothing about other seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from vcsd.errors import ConfigError
from vcsd.evaluation.scoring.uncertainty import Interval, interval, resample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vcsd.evaluation.scoring.scorecard import Scorecard


@dataclass(frozen=True)
class Difference:
    """The score of b minus the score of a, in points, with its paired interval.

    `num_gained` questions are right in b alone, `num_lost` in a alone.
    """

    a: float
    b: float
    difference: float
    interval: Interval
    num_gained: int
    num_lost: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True)
class Comparison:
    """Two scorecards of the same questions: a difference for each benchmark and for Acc.

    `made_differently` lists the settings in which the two differ; ideally only the model.
    """

    acc: Difference
    benchmarks: Mapping[str, Difference]
    made_differently: Mapping[str, tuple[object, object]]

    def settings(self) -> dict[str, tuple[str, str]]:
        """Return every single value in which the two differ, as short texts."""
        return {name: (_brief(a), _brief(b)) for name, (a, b) in _leaves(self.made_differently)}


_LABELS = {"asker.model": "weights"}
_LONGEST_VALUE = 40


def _leaves(pairs: Mapping[str, tuple[object, object]], path: str = "") -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield the values that differ inside nested settings, each under a short name."""
    for key, (a, b) in pairs.items():
        name = f"{path}{key}"
        if isinstance(a, dict) and isinstance(b, dict):
            inner = {word: (a.get(word), b.get(word)) for word in [*a, *(word for word in b if word not in a)]}
            yield from _leaves(inner, f"{name}.")
        elif a != b:
            label = name.removeprefix("sampling.").removeprefix("asker.").replace(".", " ")
            yield _LABELS.get(name, label), (a, b)


def _brief(value: object) -> str:
    """Write a value in a few characters.

    >>> _brief(None), _brief("f3d33bc65e6fc837f90fe219d9560b38")
    ('none', 'f3d33bc6')
    """
    text = "none" if value is None else str(value)
    if len(text) == 32 and set(text) <= set("0123456789abcdef"):  # a hash
        return text[:8]
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def compare(a: Scorecard, b: Scorecard) -> Comparison:
    """Subtract a from b on every benchmark and on average. Both must have answered the same questions."""
    _check_comparable([a, b])
    differences, resampled = {}, []
    for name, score in a.benchmarks.items():
        other = b.benchmarks[name]
        rights = (score.tally.is_right, other.tally.is_right)
        entries_a, entries_b = resample(score.tally, rights, name=name)
        resampled.append(entries_b - entries_a)
        gained = sum(right and not was for was, right in zip(*rights, strict=True))
        lost = sum(was and not right for was, right in zip(*rights, strict=True))
        change = other.entry - score.entry
        differences[name] = Difference(score.entry, other.entry, change, interval(resampled[-1]), gained, lost)
    acc = Difference(
        a.acc,
        b.acc,
        b.acc - a.acc,
        interval(np.mean(resampled, axis=0)),
        sum(difference.num_gained for difference in differences.values()),
        sum(difference.num_lost for difference in differences.values()),
    )
    return Comparison(acc, differences, _made_differently(a, b))


@dataclass(frozen=True)
class Spread:
    """The mean over seeds and their standard deviation (n - 1), which is None for a single seed.

    >>> spread([60.0, 62.0, 64.0])
    Spread(mean=62.0, sd=2.0, values=(60.0, 62.0, 64.0))
    """

    mean: float
    sd: float | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class Seeds:
    """The scores of one recipe over several seeds."""

    acc: Spread
    benchmarks: Mapping[str, Spread]


def over_seeds(cards: Sequence[Scorecard]) -> Seeds:
    """Compute mean and standard deviation of every entry and of Acc over scorecards of different seeds."""
    if not cards:
        raise ConfigError(["there are no scorecards to average. Give one for each seed."])
    _check_comparable(cards)
    entries = {name: spread([card.benchmarks[name].entry for card in cards]) for name in cards[0].benchmarks}
    return Seeds(spread([card.acc for card in cards]), entries)


def spread(values: Sequence[float]) -> Spread:
    """Compute mean and standard deviation of a few numbers."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1) if len(values) > 1 else None
    return Spread(mean, None if variance is None else sqrt(variance), tuple(values))


def _check_comparable(cards: Sequence[Scorecard]) -> None:
    """Raise unless the scorecards are of the same questions, read by the same rules."""
    first, problems = cards[0], []
    for card in cards[1:]:
        for key in ("mode", "rules"):
            mine, theirs = getattr(first, key), getattr(card, key)
            if mine != theirs:
                problems.append(
                    f"one scorecard was made with {key} {mine!r}, another with {theirs!r}. Score both the same way."
                )
        if set(first.benchmarks) != set(card.benchmarks):
            odd = ", ".join(sorted(set(first.benchmarks) ^ set(card.benchmarks)))
            problems.append(f"not all scorecards have the benchmarks {odd}. Score the same ones.")
            continue
        for name, score in first.benchmarks.items():
            other = card.benchmarks[name]
            same = (score.tally.ids, score.tally.clusters, dict(score.tally.parts))
            if same != (other.tally.ids, other.tally.clusters, dict(other.tally.parts)):
                problems.append(f"{name}: the scorecards are of different questions. Score both on the same data.")
            elif first.mode == card.mode and score.numbers != other.numbers:
                problems.append(
                    f"{name}: numbers were compared by {score.numbers!r} in one scorecard and by {other.numbers!r} in "
                    "another. Score both the same way."
                )
    if problems:
        raise ConfigError(problems)


def _made_differently(a: Scorecard, b: Scorecard) -> dict[str, tuple[object, object]]:
    keys = [*a.made_with, *(key for key in b.made_with if key not in a.made_with)]
    pairs = {key: (a.made_with.get(key), b.made_with.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
