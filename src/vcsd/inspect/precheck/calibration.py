"""How well statistics of a base predict what training gains, measured over the bases of the offline world.

The results of `vcsd reproduce` hold, for every base, its accuracy before and after training and what was measured
before it. `calibrate` compares them, each base predicted from the others. The verdict uses the gain of contrast
decoding: it is measured in points of accuracy, like the gain of training. `calibrated.json` holds what the verdict
needs: the bases that it is calibrated on, and those that were held out to test it. `python -m
vcsd.reproduce.every_page docs/results` writes the same file next to the page about it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from vcsd.evaluation.scoring.student_t import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

DECODING_GAIN = "gain of contrast decoding"
FILE = "calibrated.json"
FIRST_STEPS = "first_steps.json"
"""Values of first steps, measured again because finished runs did not record them; next to the folder of results."""

LEFT_OUT = ("paper_dose_runs.json", "qwen3_5_runs.json")
"""Lists of runs next to the folder of results. Their bases never enter the calibration: those of the first test it, and
results of the second are read once, on a page of their own."""

CHANGED_CHOICES = "changed choices in the first step"
FEWEST_BASES = 5
"""A statistic that is known for fewer bases is left out."""

LARGE_GAIN = 20.0
"""In points. Bases that gained more are also correlated on their own, because the others differ in their captions."""

PAPER_GAINS = (1.86, 4.77)
"""The smallest and the largest gain of the paper, in points: a typical miss of this size hides such a gain."""

Pair = tuple[float, float]
"""A statistic of a base, and the points that training gained."""

StoredCell = dict[str, Any]
"""A result as its file stores it."""


@cache
def calibrated() -> Mapping[str, Pair]:
    """Points gained by contrast decoding and by training, for each base on which both were measured."""
    return _pairs(_shipped()["bases"])


@cache
def unseen() -> UnseenBases | None:
    """The test on bases that are not among the calibrated ones; None if the package ships none."""
    test = _shipped().get("test")
    if test is None:
        return None
    return UnseenBases(_pairs(test["bases"]), mean(calibrated()[name][1] for name in test["earlier"]), test["earlier"])


def _shipped() -> StoredCell:
    shipped: StoredCell = json.loads(Path(__file__).with_name(FILE).read_text(encoding="utf-8"))
    return shipped


def _pairs(bases: Mapping[str, Mapping[str, float]]) -> dict[str, Pair]:
    return {name: (own["contrast decoding"], own["training"]) for name, own in bases.items()}


@dataclass(frozen=True)
class UnseenBases:
    """Bases that the calibration has not seen: their gains, and the constant that was known before they were trained.

    The constant is the mean gain of `earlier` bases of the same dose. Predicting it every time needs no pre-check.
    """

    pairs: Mapping[str, Pair]
    constant: float
    earlier: Sequence[str]

    @property
    def misses(self) -> list[tuple[str, float, float, float]]:
        """Each base with its predicted gain, its measured gain, and the miss, the largest miss first."""
        beyond = median(beyond_decoding(calibrated()))
        rows = [(name, own + beyond, gain, gain - own - beyond) for name, (own, gain) in self.pairs.items()]
        return sorted(rows, key=lambda row: -abs(row[3]))

    @property
    def typical_miss(self) -> float:
        """The root mean square of the misses, in points."""
        return root_mean_square([miss for *_, miss in self.misses])

    @property
    def typical_miss_of_constant(self) -> float:
        """The same if the constant is predicted for every base."""
        return root_mean_square([gain - self.constant for _, gain in self.pairs.values()])

    @property
    def correlation(self) -> float:
        """Pearson's correlation of predicted and measured gains."""
        return _correlation(list(self.pairs.values()))

    @property
    def is_better(self) -> bool:
        """Whether the pre-check is closer than the constant."""
        return self.typical_miss < self.typical_miss_of_constant


@dataclass(frozen=True)
class Correlation:
    """Pearson's correlation of a statistic with the gain of training, with its 95% interval."""

    value: float
    low: float
    high: float
    num_bases: int

    def __str__(self) -> str:
        return f"{self.value:+.2f} ({self.num_bases}; {self.low:+.2f} to {self.high:+.2f})"


@dataclass(frozen=True)
class Predictor:
    """A statistic of bases, its correlation with the gain of training, and its misses in points.

    A miss is the measured gain minus that of a line through the other bases. `error` is the root of the mean square,
    `error_of_mean` the same if the mean gain of the other bases is predicted instead.
    """

    name: str
    num_bases: int
    correlation: float
    low: float
    high: float
    error: float
    error_of_mean: float
    worst: tuple[str, float]


@dataclass(frozen=True)
class ExpectedGain:
    """Points that training is expected to gain, with the 95% interval for one more base like the calibrated ones."""

    value: float
    low: float
    high: float


def expected_gain(
    decoding_gain: float, half_width: float = 0.0, bases: Mapping[str, Pair] | None = None
) -> ExpectedGain:
    """Predict the gain of training from that of contrast decoding, which is known up to `half_width` points.

    What training gained beyond contrast decoding is added, as the median over bases: a few bases with a strong prior
    gained so much more that their mean would promise a gain where decoding has none. The interval has the spread of
    all bases around the median. The bases are the calibrated ones, unless others are given.

    >>> expected_gain(20.0).value < 21, expected_gain(20.0).low < 20 < expected_gain(20.0).high
    (True, True)
    """
    rest = beyond_decoding(calibrated() if bases is None else bases)
    middle, freedom = median(rest), len(rest) - 1
    spread = math.sqrt(math.fsum((value - middle) ** 2 for value in rest) / freedom)
    half = math.hypot(quantile(0.95, freedom) * spread * math.sqrt(1 + 1 / len(rest)), half_width)
    value = decoding_gain + middle
    return ExpectedGain(value, value - half, value + half)


def beyond_decoding(bases: Mapping[str, Pair]) -> list[float]:
    """Return the points that training gained beyond contrast decoding, for each base.

    >>> beyond_decoding({"a": (30.0, 32.0), "b": (1.0, 0.0)})
    [2.0, -1.0]
    """
    return [training - decoding for decoding, training in bases.values()]


def best_predictor() -> Predictor:
    """Return the statistic that the verdict uses, with its correlation over the calibrated bases."""
    return _predictor(DECODING_GAIN, calibrated())


def among_large_gains(bases: Mapping[str, Pair] | None = None) -> Predictor | None:
    """Return the same statistic over the bases that gained much; None if they are too few."""
    bases = calibrated() if bases is None else bases
    large = {name: pair for name, pair in bases.items() if pair[1] > LARGE_GAIN}
    return _predictor(DECODING_GAIN, large) if len(large) >= FEWEST_BASES else None


def typical_miss(bases: Mapping[str, Pair] | None = None) -> float:
    """Return the root mean square of the misses, in points."""
    return root_mean_square([miss for *_, miss in misses(bases)])


def misses(
    bases: Mapping[str, Pair] | None = None, middle: Callable[[list[float]], float] = median
) -> list[tuple[str, float, float, float]]:
    """Return each base with its predicted gain, its measured gain, and the miss, the largest miss first.

    A base is predicted from the other bases alone, as a new one would be: its gain of contrast decoding plus the
    `middle` of what training gained beyond it. The bases are the calibrated ones, unless others are given.
    """
    bases, rows = calibrated() if bases is None else bases, []
    for name, (decoding, training) in bases.items():
        others = {other: pair for other, pair in bases.items() if other != name}
        predicted = decoding + middle(beyond_decoding(others))
        rows.append((name, predicted, training, training - predicted))
    return sorted(rows, key=lambda row: -abs(row[3]))


def calibrate(folder: Path) -> list[Predictor]:
    """Correlate every statistic in a folder of results with the gain of training, the strongest first."""
    return predictors(base_statistics(folder))


def predictors(bases: Mapping[str, Mapping[str, float]]) -> list[Predictor]:
    """Correlate every statistic of some bases with their gain of training, the strongest first."""
    several = []
    for name in statistic_names(bases):
        pairs = {base: (own[name], own["gain"]) for base, own in bases.items() if name in own}
        if len(pairs) >= FEWEST_BASES:
            several.append(_predictor(name, pairs))
    return sorted(several, key=lambda one: -abs(one.correlation))


def statistic_names(bases: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the names of all statistics that some base has."""
    return list(dict.fromkeys(name for own in bases.values() for name in own if name != "gain"))


@dataclass(frozen=True)
class BaseRuns:
    """The results of a base: before training, after it for each seed, and of contrast decoding."""

    before: StoredCell
    trained: Sequence[StoredCell]
    decoded: Sequence[StoredCell]


def runs_of_bases(folder: Path, only: Collection[str] | None = None) -> dict[str, BaseRuns]:
    """Return the results of every base on which VCSD was trained.

    Results with `abilities` belong to lists of runs that are read once, on pages of their own. So do results on the
    bases of LEFT_OUT. Both are left out unless `only` names the bases.
    """
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    if only is None:
        left_out = set().union(*(_listed_bases(folder.parent / name) for name in LEFT_OUT))
        cells = [cell for cell in cells if "abilities" not in cell and cell["base"] not in left_out]
    runs = {}
    for name in sorted({cell["base"] for cell in cells} if only is None else only):
        by_variant = {
            variant: [cell for cell in cells if cell["base"] == name and cell["variant"] == variant]
            for variant in ("base", "VCSD", "contrast decoding")
        }
        before, trained, decoded = by_variant.values()
        if before and trained:
            runs[name] = BaseRuns(before[0], _one_per_seed(trained), decoded)
    return runs


def base_statistics(folder: Path, only: Collection[str] | None = None) -> dict[str, dict[str, float]]:
    """Return the gain of training and the statistics of the same bases."""
    again = _first_steps(folder.parent / FIRST_STEPS)
    bases: dict[str, dict[str, float]] = {}
    for name, own in runs_of_bases(folder, only).items():
        bases[name] = _of_base(own.before, own.trained, [cell["acc"] for cell in own.decoded])
        changed = [again[run] for cell in own.trained if (run := (cell["identity"]["base"], cell["seed"])) in again]
        if changed:
            bases[name].setdefault(CHANGED_CHOICES, mean(changed))
    return bases


def _one_per_seed(cells: Sequence[StoredCell]) -> list[StoredCell]:
    """Keep one result for each seed: a run that was asked along the way repeats another one, and must not count twice.

    >>> cells = [{"seed": 1, "acc": 50.0}, {"seed": 1, "acc": 50.0, "curve": [{}]}, {"seed": 4, "acc": 52.0}]
    >>> [cell["seed"] for cell in _one_per_seed(cells)]
    [1, 4]
    """
    plain_last = sorted(cells, key=lambda cell: not cell.get("curve"))
    by_seed = {cell["seed"]: cell for cell in plain_last}
    return [by_seed[seed] for seed in sorted(by_seed)]


def _listed_bases(path: Path) -> set[str]:
    """The bases of a list of runs; none if there is no list."""
    return set(json.loads(path.read_text(encoding="utf-8"))["bases"]) if path.is_file() else set()


def _first_steps(path: Path) -> dict[tuple[str, int], float]:
    """Changed choices in first steps that were made again, by the hash of the base and the seed."""
    steps = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {(step["digest"], step["seed"]): step["metrics"]["argmax_changed"] for step in steps}


def _of_base(
    before: Mapping[str, object], trained: Sequence[Mapping[str, object]], decoded: Sequence[float]
) -> dict[str, float]:
    acc = float(str(before["acc"]))
    numbers = {"gain": mean(float(str(cell["acc"])) for cell in trained) - acc, "accuracy of the base": acc}
    if decoded:
        numbers[DECODING_GAIN] = mean(decoded) - acc
    for title, key in (("right", "profile"), ("wrong", "profile_of_wrong")):
        own = before.get(key)
        if isinstance(own, dict) and "seen" in own:
            numbers[f"contrast of visual words in {title} answers"] = float(own["seen"])
    for title, metric in _FIRST_STEP.items():
        kept = [series for cell in trained if isinstance(series := cell.get("series"), dict)]
        firsts = [series[metric][0] for series in kept if metric in series]
        if firsts:
            numbers[title] = mean(firsts)
    return numbers


_FIRST_STEP = {
    "KL(target || image) in the first step": "kl_target_original",
    "contrast in the first step": "realised_contrast",
    CHANGED_CHOICES: "argmax_changed",
    "support in the first step": "support_size",
    "entropy in the first step": "student_entropy",
}


def correlated(pairs: Sequence[Pair], num_groups: int = 1) -> Correlation | None:
    """Pearson's correlation with its 95% interval by Fisher's transformation; None for too few bases.

    Pairs that are deviations from the means of several groups lose a degree of freedom for each group.
    """
    return _with_interval(pairs, num_groups) if len(pairs) >= max(FEWEST_BASES, num_groups + 3) else None


def _with_interval(pairs: Sequence[Pair], num_groups: int = 1) -> Correlation:
    r, half = _correlation(pairs), 1.96 / math.sqrt(len(pairs) - num_groups - 2)
    return Correlation(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half), len(pairs))


def within_groups(pairs_by_group: Sequence[Sequence[Pair]]) -> Correlation | None:
    """Correlate the deviations from the means of the groups, so that differences between groups have no effect.

    >>> apart = [[(0.0, 0.0), (1.0, -1.0), (2.0, -1.5)], [(100.0, 100.0), (101.0, 99.0), (102.0, 98.5)]]
    >>> round(within_groups(apart).value, 2)
    -0.98
    """
    deviations, several = list[Pair](), [pairs for pairs in pairs_by_group if len(pairs) > 1]
    for pairs in several:
        across, up = mean(x for x, _ in pairs), mean(y for _, y in pairs)
        deviations += [(x - across, y - up) for x, y in pairs]
    return correlated(deviations, len(several)) if several else None


def _predictor(name: str, bases: Mapping[str, Pair]) -> Predictor:
    """Return the correlation with its interval, and the misses of lines through the other bases."""
    own = _with_interval(list(bases.values()))
    off, off_of_mean = dict[str, float](), list[float]()
    for base, (x, y) in bases.items():
        others = [pair for other, pair in bases.items() if other != base]
        slope, start = line_through(others)
        off[base] = y - (start + slope * x)
        off_of_mean.append(y - mean(gain for _, gain in others))
    worst = max(off.items(), key=lambda item: abs(item[1]))
    errors = [root_mean_square(values) for values in (list(off.values()), off_of_mean)]
    return Predictor(name, own.num_bases, own.value, own.low, own.high, errors[0], errors[1], worst)


def line_through(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return slope and intercept of the least-squares line.

    >>> line_through([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    (2.0, 1.0)
    """
    across, up = mean(x for x, _ in pairs), mean(y for _, y in pairs)
    slope = math.fsum((x - across) * (y - up) for x, y in pairs) / math.fsum((x - across) ** 2 for x, _ in pairs)
    return slope, up - slope * across


def _correlation(pairs: Sequence[Pair]) -> float:
    xs, ys = ([pair[side] for pair in pairs] for side in (0, 1))
    across, up = mean(xs), mean(ys)
    product = math.fsum((x - across) * (y - up) for x, y in pairs)
    return product / math.sqrt(math.fsum((x - across) ** 2 for x in xs) * math.fsum((y - up) ** 2 for y in ys))


def root_mean_square(values: Sequence[float]) -> float:
    """Return the root mean square.

    >>> root_mean_square([3.0, -3.0])
    3.0
    """
    return math.sqrt(mean(value**2 for value in values))
