"""Compares scorecards: two models on the same questions, with one seed or several each, or one recipe over its seeds.

A difference is paired: both models answered the same questions, so that a hard draw is hard for both. Its interval says
whether another draw of questions could reverse the difference. With several seeds, their means are compared; the
interval then also shrinks with the noise of sampling, but it says nothing about other training seeds.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.evaluation.scoring.scorecard import CARD, Counts, Scorecard, load_scorecard
from vcsd.evaluation.scoring.uncertainty import Interval, estimate, interval_of_difference, interval_of_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.scoring.aggregate import Tally
    from vcsd.evaluation.scoring.scorecard import MadeWith


_ROUNDING = 1e-9
"""In points. Means over seeds that are mathematically equal differ by less than this."""


@dataclass(frozen=True)
class Difference:
    """The score of b minus the score of a, in points, with its paired interval.

    `num_gained` questions are right only in b, `num_lost` only in a; with several seeds, more often in one than in
    the other. `unread` is how much the share of answers that nothing could be read from has changed, in points: answers
    that are only stated more plainly raise the score too.
    """

    a: float
    b: float
    difference: float
    interval: Interval
    num_gained: int
    num_lost: int
    unread: float = 0.0

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.interval.low > 0 or self.interval.high < 0

    @property
    def is_doubtful(self) -> bool:
        """Whether the unread answers changed by more than the score, and so may explain its whole change."""
        return abs(self.unread) > abs(self.difference) + _ROUNDING


@dataclass(frozen=True)
class Comparison:
    """Two scorecards of the same questions: a difference for each benchmark and for Acc.

    `made_differently` lists the settings in which the two differ; ideally only the model. `mode` is how answers were
    read. `judge_failed` counts, for each of the two, the answers that the judge failed on.
    """

    acc: Difference
    benchmarks: Mapping[str, Difference]
    made_differently: Mapping[str, tuple[object, object]]
    mode: str = "final"
    judge_failed: tuple[int, int] = (0, 0)

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


def compare(a: Scorecard | Sequence[Scorecard], b: Scorecard | Sequence[Scorecard]) -> Comparison:
    """Subtract a from b on every benchmark and on average. Both must have answered the same questions.

    Either may be several scorecards, one for each seed: then means over seeds are compared.
    """
    before, after = _several(a), _several(b)
    _check_asked_alike(before)
    _check_asked_alike(after)
    _check_comparable([*before, *after])
    differences = {}
    for name in before[0].benchmarks:
        of_a, of_b = ([card.benchmarks[name] for card in cards] for cards in (before, after))
        tallies_a, tallies_b = ([score.tally for score in scores] for scores in (of_a, of_b))
        entry_a, entry_b = (_mean([score.entry for score in scores]) for scores in (of_a, of_b))
        limits = interval_of_difference(estimate(tallies_a), estimate(tallies_b))
        moves = moves_of(tallies_a, tallies_b)
        gained, lost = sum(move > 0 for move in moves), sum(move < 0 for move in moves)
        unread = _mean([score.share_unread for score in of_b]) - _mean([score.share_unread for score in of_a])
        differences[name] = Difference(entry_a, entry_b, entry_b - entry_a, limits, gained, lost, unread)
    changes = list(differences.values())
    acc_a, acc_b = (_mean([card.acc for card in cards]) for cards in (before, after))
    acc = Difference(
        acc_a,
        acc_b,
        acc_b - acc_a,
        interval_of_mean([change.difference for change in changes], [change.interval for change in changes]),
        sum(change.num_gained for change in changes),
        sum(change.num_lost for change in changes),
        _mean([change.unread for change in changes]),
    )
    made_differently = _made_differently(_made_with(before), _made_with(after))
    failed = (_num_judge_failed(before), _num_judge_failed(after))
    return Comparison(acc, differences, made_differently, before[0].mode, failed)


def _num_judge_failed(cards: Sequence[Scorecard]) -> int:
    return sum(score.counts.judge_failed for card in cards for score in card.benchmarks.values())


def _several(cards: Scorecard | Sequence[Scorecard]) -> list[Scorecard]:
    several = [cards] if isinstance(cards, Scorecard) else list(cards)
    if not several:
        raise ConfigError(["there are no scorecards to compare. Give one for each seed."])
    return several


def moves_of(before: Sequence[Tally], after: Sequence[Tally]) -> list[int]:
    """Return for each question a number above 0 if it is right more often after than before, below 0 if less often."""
    pairs = zip(_times_right(before), _times_right(after), strict=True)
    return [new * len(before) - old * len(after) for old, new in pairs]


def _times_right(tallies: Sequence[Tally]) -> list[int]:
    return [sum(rights) for rights in zip(*(tally.is_right for tally in tallies), strict=True)]


def load_results(path: str | PathLike[str]) -> list[Scorecard]:
    """Read the scorecard of a file or folder, or those of a folder with several seeds, in the order of the seeds."""
    path = Path(path)
    folders = [folder for folder in path.glob("seed-*") if (folder / CARD).exists()]
    if folders and (path / CARD).exists():
        raise ConfigError([
            f"{path} holds a scorecard of one seed and scorecards of several seeds, from two evaluations. Pass "
            f"{path / CARD} to use the first, or move that file away to use the others."
        ])  # fmt: skip
    if not path.is_dir() or (path / CARD).exists():
        return [load_scorecard(path / CARD if path.is_dir() else path)]
    numbered = sorted(folders, key=lambda folder: (len(folder.name), folder.name))
    return [load_scorecard(folder / CARD) for folder in numbered or [path]]


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
    """The scores of one recipe over several seeds, and the counts of all its answers that have a problem."""

    acc: Spread
    benchmarks: Mapping[str, Spread]
    counts: Mapping[str, Counts]


def over_seeds(cards: Sequence[Scorecard]) -> Seeds:
    """Compute mean and standard deviation of every entry and of Acc over scorecards of different seeds."""
    if not cards:
        raise ConfigError(["there are no scorecards to average. Give one for each seed."])
    _check_asked_alike(cards)
    _check_comparable(cards)
    entries = {name: spread([card.benchmarks[name].entry for card in cards]) for name in cards[0].benchmarks}
    counts = {name: _total([card.benchmarks[name].counts for card in cards]) for name in entries}
    return Seeds(spread([card.acc for card in cards]), entries, counts)


def _total(counts: Sequence[Counts]) -> Counts:
    return Counts(*(sum(values) for values in zip(*map(astuple, counts), strict=True)))


def spread(values: Sequence[float]) -> Spread:
    """Compute mean and standard deviation of a few numbers."""
    mean = _mean(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1) if len(values) > 1 else None
    return Spread(mean, None if variance is None else sqrt(variance), tuple(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_ASKED = ("style", "sampling", "limit", "jpeg75")
"""How a card's questions were asked. The model may differ between the seeds of a training recipe."""

_ASKER = ("contrast", "chat_template_kwargs", "switches", "image_size")
"""What answers depend on besides the model: contrast decoding, thinking, the size of images."""


def _how_asked(made: MadeWith) -> dict[str, object]:
    """Return how a card's questions were asked: its settings, those of its answerer, and checksums of its data."""
    asker, data = made.get("asker") or {}, made.get("data") or {}
    own = {key: asker.get(key) for key in _ASKER}
    sums = {name: report.get("md5") for name, report in data.items()}
    return {**{key: made.get(key) for key in _ASKED}, "asker": own, "data": sums}


def _check_asked_alike(cards: Sequence[Scorecard]) -> None:
    """Raise if the seeds of one result were asked differently, for example because an older one is in the folder."""
    first, how = cards[0].made_with, _how_asked(cards[0].made_with)
    for made in (card.made_with for card in cards[1:]):
        if pairs := _made_differently(how, _how_asked(made)):
            settings = ", ".join(f"{name} {_brief(a)} and {_brief(b)}" for name, (a, b) in _leaves(pairs))
            raise ConfigError([
                f"seeds {first.get('seed')} and {made.get('seed')} were asked differently: {settings}. Ask both the "
                "same way, or move the older one out of the folder."
            ])  # fmt: skip


def _check_comparable(cards: Sequence[Scorecard]) -> None:
    """Raise unless the scorecards are of the same questions, read by the same rules."""
    first, problems = cards[0], []
    for card in cards[1:]:
        for key in ("mode",) if first.mode == card.mode == "final" else ("mode", "rules"):
            mine, theirs = getattr(first, key), getattr(card, key)
            if mine != theirs:
                problems.append(
                    f"one scorecard was made with {key} {mine!r}, another with {theirs!r}. Score both the same way: "
                    f"vcsd score FOLDER --{key} {mine}"
                )
        problems += _read_differently(first, card)
        if set(first.benchmarks) != set(card.benchmarks):
            odd = ", ".join(sorted(set(first.benchmarks) ^ set(card.benchmarks)))
            problems.append(f"not all scorecards have the benchmarks {odd}. Score the same ones.")
            continue
        for name, score in first.benchmarks.items():
            other = card.benchmarks[name]
            same = (score.tally.ids, score.tally.clusters, dict(score.tally.parts))
            if same != (other.tally.ids, other.tally.clusters, dict(other.tally.parts)):
                problems.append(
                    f"{name}: the scorecards are of different questions. Ask both with the same data, --limit and "
                    "version of vcsd."
                )
            elif first.mode == card.mode and score.numbers != other.numbers:
                problems.append(
                    f"{name}: numbers were compared by {score.numbers!r} in one scorecard and by {other.numbers!r} in "
                    "another. Score both the same way."
                )
    if problems:
        raise ConfigError([*dict.fromkeys(problems)])  # several seeds have the same problem


def _read_differently(first: Scorecard, second: Scorecard) -> list[str]:
    """Name what makes two readings of the same mode incomparable: the reader's version, or the judge."""
    if first.mode != second.mode:
        return []
    if first.mode == "final":
        versions = [card.made_with.get("reader") for card in (first, second)]
        if versions[0] != versions[1]:
            names = ["an unrecorded version" if version is None else f"version {version}" for version in versions]
            return [
                f"one scorecard was read by {names[0]} of the reader, another by {names[1]}. Score both again with one "
                "release: vcsd score RUN."
            ]
    judges = [card.made_with.get("judge") or {} for card in (first, second)]
    pairs = {key: (judges[0].get(key), judges[1].get(key)) for key in ("model", "preset")}
    return [
        f"one scorecard has the judge's {key} {pair[0]!r}, another {pair[1]!r}. Score both with the same judge: "
        "vcsd score RUN."
        for key, pair in pairs.items()
        if pair[0] != pair[1]
    ]


def _made_with(cards: Sequence[Scorecard]) -> MadeWith:
    """Return how scorecards were made: as the first of them, but with all seeds."""
    made = cards[0].made_with
    if len(cards) == 1 or "seed" not in made:
        return made
    return {**made, "seed": ", ".join(str(card.made_with.get("seed")) for card in cards)}


def _made_differently(a: MadeWith, b: MadeWith) -> dict[str, tuple[object, object]]:
    pairs = {key: (a.get(key), b.get(key)) for key in [*a, *(key for key in b if key not in a)]}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
