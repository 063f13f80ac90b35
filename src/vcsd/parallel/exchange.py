"""What ranks exchange in a step: the rollouts they sampled, and the statistics of the positions they scored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import torch

from vcsd.errors import RunError
from vcsd.loss.statistics import Statistics
from vcsd.parallel.ranks import gathered, gathered_tensors, num_ranks
from vcsd.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor


LogProbs = Sequence[Sequence[float]]
"""The log-probabilities of the tokens of each rollout."""


def all_rollouts(
    own: Sequence[Rollout], log_probs: LogProbs | None, example_ids: Sequence[str]
) -> tuple[list[Rollout], LogProbs | None]:
    """Return the rollouts of all ranks in the order of `example_ids`, the prompts of the step, then of their index.

    `log_probs` are those of this rank's rollouts, if recorded. Raise a RunError if the ranks read different prompts, or
    two prompts with one id.
    """
    if num_ranks() == 1:
        return list(own), log_probs
    prompts = hashlib.sha256("\n".join(example_ids).encode()).hexdigest()
    logs = log_probs or [()] * len(own)
    records = [(r.example_id, r.index, list(r.token_ids), r.stop, list(p)) for r, p in zip(own, logs, strict=True)]
    parts = gathered((prompts, records))
    if len({name for name, _ in parts}) > 1:
        raise RunError(
            "the ranks read different prompts for the same step. All machines must see the same data files; a file "
            "that only some of them can read is skipped by the others."
        )
    place = {name: number for number, name in enumerate(example_ids)}
    if repeated := [name for number, name in enumerate(example_ids) if place[name] != number]:
        raise RunError(
            f"two examples of this step have the id {repeated[0]!r}. Make ids unique: ranks match rollouts by id."
        )
    records = sorted((record for _, part in parts for record in part), key=lambda record: (place[record[0]], record[1]))
    rollouts = [Rollout(name, index, tuple(ids), stop) for name, index, ids, stop, _ in records]
    return rollouts, None if log_probs is None else [record[-1] for record in records]


def all_statistics(own: Sequence[Statistics], *, has_realised: bool) -> list[Statistics]:
    """Return the statistics of all ranks. `has_realised`: whether they contain `realised_contrast`."""
    if num_ranks() == 1:
        return list(own)
    names = [field.name for field in fields(Statistics) if has_realised or field.name != "realised_contrast"]
    columns = [[getattr(rows, name).float() for name in names] for rows in own]
    table_NC = torch.cat([torch.stack(row, 1) for row in columns]) if columns else torch.zeros(0, len(names))
    return [_statistics(names, part) for part in gathered_tensors(table_NC) if len(part)]


def _statistics(names: Sequence[str], table_NC: Tensor) -> Statistics:
    filled = Statistics.empty(len(table_NC), table_NC, has_realised="realised_contrast" in names)
    for name, column_N in zip(names, table_NC.unbind(1), strict=True):
        getattr(filled, name).copy_(column_N)
    return filled
