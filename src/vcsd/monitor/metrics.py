"""The metrics of a step, added up as (total, weight) and divided once, at the end.

Sums can be added in any order and over any split into micro-batches: the result is the mean over the whole step.

Per response token, means over all of them:
    kl_target_original   nats; how much the contrast changed the distribution
    argmax_changed       share of tokens whose most likely candidate the contrast changed
    support_size         plausible candidates
    realised_contrast    nats; how much the image raised the token that the student sampled
    student_entropy      nats, at the distillation temperature
    divergence           nats; the loss before scaling

Per rollout, means over all of them:
    length               tokens, the end token included
    truncated            share that reached the length limit
    repetition           share that repeats itself (`vcsd.monitor.response_text`)
    language_drift       share with letters of a script that its prompt lacks, among those whose prompt has letters
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from vcsd.monitor.response_text import has_drifted, is_repetitive

if TYPE_CHECKING:
    from collections.abc import Collection

    from vcsd.loss.statistics import Statistics
    from vcsd.types import Rollout

PER_TOKEN = (
    *("kl_target_original", "argmax_changed", "support_size"),
    *("realised_contrast", "student_entropy", "divergence"),
)


class Sums:
    """Weighted sums by name.

    >>> sums = Sums()
    >>> sums.add("length", total=30, weight=2)         # two rollouts of 10 and 20 tokens
    >>> sums.add("length", total=60, weight=1)
    >>> sums.means()
    {'length': 30.0}
    """

    def __init__(self) -> None:
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._weights: defaultdict[str, float] = defaultdict(float)

    def add(self, name: str, *, total: float, weight: float) -> None:
        """Add a sum over `weight` items."""
        self._totals[name] += total
        self._weights[name] += weight

    def add_statistics(self, statistics: Statistics) -> None:
        """Add the positions of one micro-batch, with a single transfer from the device."""
        columns = {name: getattr(statistics, name) for name in PER_TOKEN}
        present = {name: column for name, column in columns.items() if column is not None}
        totals = torch.stack([column.sum(dtype=torch.float64) for column in present.values()]).tolist()
        for name, total in zip(present, totals, strict=True):
            self.add(name, total=total, weight=len(present[name]))

    def add_rollout(self, rollout: Rollout, text: str, prompt_scripts: Collection[str]) -> None:
        """Add one rollout, with its text and the scripts of its prompt."""
        self.add("length", total=len(rollout.token_ids), weight=1)
        self.add("truncated", total=rollout.stop == "length", weight=1)
        self.add("repetition", total=is_repetitive(rollout.token_ids), weight=1)
        self.add("language_drift", total=has_drifted(text, prompt_scripts), weight=bool(prompt_scripts))

    def means(self) -> dict[str, float]:
        """Return the mean of every metric with a positive weight."""
        return {name: total / self._weights[name] for name, total in self._totals.items() if self._weights[name]}
