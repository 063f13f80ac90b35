"""The vision tower: batched attention over images, and features that are computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def install(model: PreTrainedModel) -> None:
    """Nothing yet."""
