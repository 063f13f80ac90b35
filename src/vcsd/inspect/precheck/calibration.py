"""How well statistics of a base predict what training gains, measured over the bases of the offline world.

The results of `vcsd reproduce` hold, for every base, its accuracy before and after training and what was measured
before it. `calibrate` compares them. The best predictor is the gain of contrast decoding: it is measured in points of
accuracy, like the gain of training, and the two are nearly equal. It is known for few bases, all of them small, all but
one of one family, and all of them gained: the calibration says nothing about bases that training would harm.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CALIBRATED: Mapping[str, tuple[float, float]] = {
    "qwen3_5-small-1": (34.7153, 30.6131),
    "qwen3_vl-small-1": (36.3202, 36.8128),
    "qwen3_vl-small-11": (35.8445, 37.6835),
    "qwen3_vl-small-2": (14.7821, 14.5309),
    "qwen3_vl-small-3": (39.9183, 42.9302),
    "qwen3_vl-small-4": (36.7982, 38.0070),
    "qwen3_vl-small-5": (31.6851, 26.1112),
}
"""Points gained by contrast decoding and by training, for each base on which both were measured."""

T_TWO_SIDED = 2.447
"""Student's t for 95% with six degrees of freedom: one less than there are bases."""


@dataclass(frozen=True)
class Predictor:
    """A statistic of bases, and its correlation with the gain of training."""

    name: str
    num_bases: int
    correlation: float
    low: float
    high: float


@dataclass(frozen=True)
class ExpectedGain:
    """Points that training is expected to gain, with the 95% interval for one more base like the calibrated ones."""

    value: float
    low: float
    high: float


def expected_gain(decoding_gain: float, half_width: float = 0.0) -> ExpectedGain:
    """Predict the gain of training from that of contrast decoding, which is known up to `half_width` points.

    >>> expected_gain(20.0).value < 21, expected_gain(20.0).low < 20 < expected_gain(20.0).high
    (True, True)
    """
    rest = [training - decoding for decoding, training in CALIBRATED.values()]
    half = math.hypot(T_TWO_SIDED * stdev(rest) * math.sqrt(1 + 1 / len(rest)), half_width)
    value = decoding_gain + mean(rest)
    return ExpectedGain(value, value - half, value + half)


def best_predictor() -> Predictor:
    """Return the statistic that the verdict uses, with its correlation over the calibrated bases."""
    return _predictor("gain of contrast decoding", list(CALIBRATED.values()))


def misses() -> list[tuple[str, float, float, float]]:
    """Return each calibrated base with its predicted gain, its measured gain, and the miss, the largest miss first.

    A base is predicted from the other bases alone, as a new one would be.
    """
    found = []
    for name, (decoding, training) in CALIBRATED.items():
        others = [pair for other, pair in CALIBRATED.items() if other != name]
        predicted = decoding + mean(own_training - own_decoding for own_decoding, own_training in others)
        found.append((name, predicted, training, training - predicted))
    return sorted(found, key=lambda row: -abs(row[3]))


def calibrate(folder: Path) -> list[Predictor]:
    """Correlate every statistic in a folder of results with the gain of training, the strongest first."""
    bases = base_statistics(folder)
    names = dict.fromkeys(name for own in bases.values() for name in own if name != "gain")
    predictors = []
    for name in names:
        pairs = [(own[name], own["gain"]) for own in bases.values() if name in own]
        if len(pairs) >= 4:
            predictors.append(_predictor(name, pairs))
    return sorted(predictors, key=lambda one: -abs(one.correlation))


def base_statistics(folder: Path) -> dict[str, dict[str, float]]:
    """Return the gain of training and the statistics of every base on which VCSD was trained.

    Results with `abilities` belong to lists of runs that are read once, on pages of their own.
    """
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    cells = [cell for cell in cells if "abilities" not in cell]
    bases: dict[str, dict[str, float]] = {}
    for name in sorted({cell["base"] for cell in cells}):
        own = [cell for cell in cells if cell["base"] == name]
        before = [cell for cell in own if cell["variant"] == "base"]
        trained = [cell for cell in own if cell["variant"] == "VCSD"]
        if before and trained:
            decoded = [cell["acc"] for cell in own if cell["variant"] == "contrast decoding"]
            bases[name] = _of_base(before[0], trained, decoded)
    return bases


def _of_base(
    before: Mapping[str, object], trained: Sequence[Mapping[str, object]], decoded: Sequence[float]
) -> dict[str, float]:
    acc = float(str(before["acc"]))
    found = {"gain": mean(float(str(cell["acc"])) for cell in trained) - acc, "accuracy of the base": acc}
    if decoded:
        found["gain of contrast decoding"] = mean(decoded) - acc
    for title, key in (("right", "profile"), ("wrong", "profile_of_wrong")):
        own = before.get(key)
        if isinstance(own, dict) and "seen" in own:
            found[f"contrast of visual words in {title} answers"] = float(own["seen"])
    for title, metric in _FIRST_STEP.items():
        firsts = [series[metric][0] for cell in trained if isinstance(series := cell.get("series"), dict)]
        if firsts:
            found[title] = mean(firsts)
    return found


_FIRST_STEP = {
    "KL(target || image) in the first step": "kl_target_original",
    "contrast in the first step": "realised_contrast",
    "support in the first step": "support_size",
    "entropy in the first step": "student_entropy",
}


def _predictor(name: str, pairs: Sequence[tuple[float, float]]) -> Predictor:
    """Pearson's correlation with its 95% interval by Fisher's transformation."""
    xs, ys = ([pair[side] for pair in pairs] for side in (0, 1))
    across, up = mean(xs), mean(ys)
    product = math.fsum((x - across) * (y - up) for x, y in pairs)
    r = product / math.sqrt(math.fsum((x - across) ** 2 for x in xs) * math.fsum((y - up) ** 2 for y in ys))
    half = 1.96 / math.sqrt(len(pairs) - 3)
    low, high = (math.tanh(math.atanh(r) + side * half) for side in (-1, 1))
    return Predictor(name, len(pairs), r, low, high)
