"""The uncertainty of a score due to the choice of questions: bootstrap intervals over clusters of questions.

A benchmark is a sample of the questions that could have been asked. Drawing as many clusters as it has, with
replacement, many times, shows how much its score varies with the sample. Questions about one image, the four rotations
of one question, and a set of paired questions are drawn together: drawn independently, they would make the interval too
narrow, and units that count only as a whole would be split.

Two scorecards of the same questions are compared on the same draws, so that the difficulty of a question cancels. The
interval does not include the noise of sampling answers or of training; use several seeds for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from vcsd.evaluation.scoring.aggregate import unit_matrices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vcsd.evaluation.scoring.aggregate import Tally

    Floats = NDArray[np.float64]

NUM_RESAMPLES = 2000
LEVEL = 0.95
SEED = 0


@dataclass(frozen=True)
class Interval:
    """The middle 95% of the resampled values."""

    low: float
    high: float


def interval(values_R: Floats) -> Interval:
    """Return the middle LEVEL of resampled values."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values_R, [tail, 1 - tail])
    return Interval(float(low), float(high))


def resample(
    tally: Tally, answers: Sequence[Sequence[bool]], *, name: str, num: int = NUM_RESAMPLES, seed: int = SEED
) -> Floats:
    """Return the entries of each row of answers on the same resamples of the clusters: an array (row, resample).

    The draws depend on the seed and the benchmark's name, not on the other benchmarks that are scored.
    """
    num_clusters = max(tally.clusters) + 1
    rng = np.random.default_rng([seed, crc32(name.encode())])
    drawn_RC = rng.integers(num_clusters, size=(num, num_clusters))
    drawn_RC += np.arange(num)[:, None] * num_clusters
    counts = np.bincount(drawn_RC.ravel(), minlength=num * num_clusters)
    times_RC = counts.reshape(num, num_clusters).astype(np.float64)
    return np.stack([_entries(times_RC, *unit_matrices(tally, is_right)) for is_right in answers])


def _entries(times_RC: Floats, right_CP: Floats, units_CP: Floats) -> Floats:
    """Compute the entry of every resample, in percent. The mean skips parts of which nothing was drawn."""
    units_RP = times_RC @ units_CP
    share_RP = np.divide(times_RC @ right_CP, units_RP, out=np.zeros_like(units_RP), where=units_RP > 0)
    entries_R: Floats = 100.0 * share_RP.sum(1) / (units_RP > 0).sum(1)
    return entries_R
