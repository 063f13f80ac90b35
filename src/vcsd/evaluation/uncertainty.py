"""How far a score may be off by the luck of the questions: bootstrap intervals over clusters of questions.

A benchmark is a sample of the questions that could have been asked. Drawing as many clusters as it has, with
replacement, again and again, shows how much its number moves with the sample. Questions about one picture, the four
rotations of one question, and a set of paired questions are drawn together: as if independent, they would make the
interval too narrow, and a unit that counts only as a whole would come apart.

Two scorecards of the same questions are compared on the same draws, so that the difficulty of a question cancels.
What the interval does not hold: the noise of sampling answers or of training. That is what seeds are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from vcsd.evaluation.aggregate import unit_matrices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.evaluation.aggregate import Tally

NUM_RESAMPLES = 2000
LEVEL = 0.95
SEED = 0


@dataclass(frozen=True)
class Interval:
    """The middle 95% of what the resamples gave.

    >>> Interval(51.0, 55.1).low
    51.0
    """

    low: float
    high: float


def interval(values_R: Any) -> Interval:
    """The middle LEVEL of resampled values."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values_R, [tail, 1 - tail])
    return Interval(float(low), float(high))


def resample(
    tally: Tally, answers: Sequence[Sequence[bool]], *, name: str, num: int = NUM_RESAMPLES, seed: int = SEED
) -> Any:
    """Entries of each row of answers on the same resamples of the tally's clusters: an array (row, resample).

    The draws depend on the seed and on the benchmark's name, not on which others are scored beside it.
    """
    num_clusters = max(tally.clusters) + 1
    rng = np.random.default_rng([seed, crc32(name.encode())])
    drawn_RC = rng.integers(num_clusters, size=(num, num_clusters))
    drawn_RC += np.arange(num)[:, None] * num_clusters
    times_RC = np.bincount(drawn_RC.ravel(), minlength=num * num_clusters).reshape(num, num_clusters)
    times_RC = times_RC.astype(np.float64)
    return np.stack([_entries(times_RC, *unit_matrices(tally, is_right)) for is_right in answers])


def _entries(times_RC: Any, right_CP: Any, units_CP: Any) -> Any:
    """The entry of every resample, in percent. A part of which nothing was drawn is left out of its mean."""
    units_RP = times_RC @ units_CP
    share_RP = np.divide(times_RC @ right_CP, units_RP, out=np.zeros_like(units_RP), where=units_RP > 0)
    return 100.0 * share_RP.sum(1) / (units_RP > 0).sum(1)
