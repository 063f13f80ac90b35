"""Rows of ranks that must run in step: equally many, and all with an image or all without.

FSDP2 gathers a layer's weights on all ranks at once. A rank that has fewer rows, or a row without images while others
have some, would leave the rest waiting. It gets a filler: the step's smallest prompt with an image and one token of a
response, whose position has weight zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vcsd.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.models.packed.packing import Group


def in_step(batch: Batch, rows: Sequence[Batch], num_rows: int) -> list[tuple[Batch, Batch | None]]:
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
