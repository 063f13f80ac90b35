"""Rows of ranks that must run in step: the same number on each, and each row with an image on all ranks or on none.

FSDP2 gathers a layer's weights on all ranks at once. A rank that has fewer rows, or a row without images while others
have some, would leave the rest waiting. It gets a filler: the step's smallest prompt with an image and one token of a
response, whose position has weight zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from vcsd.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from vcsd.models.packed.packing import Group, PackingPlan


def own_rows(
    batch: Batch, plans: Sequence[PackingPlan], rank: int, *, in_step: bool
) -> list[tuple[Batch, Batch | None]]:
    """Return a rank's rows, each with the filler it needs if all ranks must run in step."""
    rows = list(batch.rows(plans[rank]))
    if not in_step:
        return [(row, None) for row in rows]
    return filled(batch, rows, max(len(plan.rows) for plan in plans))


def with_filler(weights_N: Tensor, filler: Batch | None) -> Tensor:
    """Append a weight of zero for each position of a filler."""
    return weights_N if filler is None else torch.cat([weights_N, weights_N.new_zeros(filler.num_tokens)])


def filled(batch: Batch, rows: Sequence[Batch], num_rows: int) -> list[tuple[Batch, Batch | None]]:
    """Return `num_rows` pairs of a row, empty beyond this rank's own rows, and the filler that it needs, if any."""
    missing = [batch.part([])] * (num_rows - len(rows))
    filler = _filler(batch)
    is_needed = [not row.num_responses or (_has_image(filler) and not _has_image(row)) for row in (*rows, *missing)]
    return [(row, filler if needs else None) for row, needs in zip((*rows, *missing), is_needed, strict=True)]


def _filler(batch: Batch) -> Batch:
    """The smallest prompt, one with an image if there is any, with the first token of a response."""
    sizes = [len(group.prompt.input_ids) for group in batch.student]
    best = min(range(len(sizes)), key=lambda index: (not _shows(batch.student[index]), sizes[index], index))
    return _cut(batch.part([best]))


def _cut(batch: Batch) -> Batch:
    def cut(groups: Sequence[Group]) -> list[Group]:
        return [replace(group, responses=[group.responses[0][:1]], log_probs=_first(group)) for group in groups]

    return Batch(cut(batch.student), cut(batch.target), None if batch.contrast is None else cut(batch.contrast))


def _first(group: Group) -> list[Sequence[float]] | None:
    return None if group.log_probs is None else [group.log_probs[0][:1]]


def _has_image(batch: Batch) -> bool:
    return any(map(_shows, batch.student))


def _shows(group: Group) -> bool:
    return group.prompt.pixel_values is not None
