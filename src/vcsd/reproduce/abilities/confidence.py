"""Calibration: does a model know how sure it may be?

The confidence of a greedy answer is the share of sampled answers that agree with it. The probability of the answer's
own token would not do: the answers state their evidence first, and after that the letter is certain.

The expected calibration error (ECE) is the mean distance between confidence and accuracy over the answers with the same
confidence. With n samples there are n + 1 confidences, so that no bins have to be chosen. It is never below what the
scatter of n samples causes: compare models with the same n only.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Calibration:
    """In percent. A confidence is None if there is no such answer."""

    ece: float
    confidence_right: float | None
    confidence_wrong: float | None


def calibration(
    greedy: Sequence[str | None], samples: Sequence[Sequence[str | None]], is_right: Sequence[bool]
) -> Calibration:
    """Compare the confidence of greedy answers with how often they are right. An unread answer has no confidence.

    >>> calibration(["A", "B"], [["A", "A"], ["A", "B"]], [True, False])
    Calibration(ece=25.0, confidence_right=100.0, confidence_wrong=50.0)
    """
    confidences = [
        sum(answer == one for one in own) / len(own) if answer is not None else 0.0
        for answer, own in zip(greedy, samples, strict=True)
    ]
    by_confidence: dict[float, list[bool]] = defaultdict(list)
    for confidence, right in zip(confidences, is_right, strict=True):
        by_confidence[confidence].append(right)
    error = sum(abs(sum(rights) - confidence * len(rights)) for confidence, rights in by_confidence.items())
    return Calibration(
        ece=round(100 * error / len(confidences), 2),
        confidence_right=_mean_percent([c for c, right in zip(confidences, is_right, strict=True) if right]),
        confidence_wrong=_mean_percent([c for c, right in zip(confidences, is_right, strict=True) if not right]),
    )


def _mean_percent(values: Sequence[float]) -> float | None:
    return round(100 * sum(values) / len(values), 2) if values else None
