"""The memory of a packed row in training, from shapes: what the backward pass keeps per token and per image patch.

Under bfloat16 autocast with float32 weights, the residual stream is float32 in the language model, which starts from an
embedding, and bfloat16 in the vision tower, which starts from a matrix product. Without gradient checkpointing, each
layer keeps its norms' inputs and outputs and the operands of attention and of the gated product; with it, each layer
keeps only its input, and one layer at a time is recomputed. The coefficients count these tensors; docs/scaling.md
compares the result with measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vcsd.models.shapes import TextShape, VisionShape

_FLOAT, _HALF = 4, 2


@dataclass(frozen=True)
class RowMemory:
    """Bytes per token and per patch, besides the loss's tiles of logits.

    >>> RowMemory(per_token=1000.0, per_patch=10.0).bytes_of(tokens=2, patches=3)
    2030.0
    """

    per_token: float
    per_patch: float
    per_token_later: float = 0.0
    """Memory of a recomputed layer, needed only after the loss, when the tiles are free again. If the layer's weights
    are trained, their gradients and operands use the tiles' memory, and the layer counts in full."""
    LOSS_TILES: ClassVar[float] = 1.9 * 2**30
    """Bytes of the loss's tiles of logits, which do not depend on the row (`loss/row_kernel.py`)."""

    @classmethod
    def of(
        cls, config: Any, *, is_checkpointed: bool, trains_tower: bool = True, has_adapters: bool = False
    ) -> RowMemory:
        """Derive the coefficients from a model's config. An untrained tower keeps nothing for the backward pass."""
        text, vision = TextShape.of(config), VisionShape.of(config)
        # norms: six float32 tensors of the width; bfloat16 operands of attention and of the gated product, four each
        shared = 24 * text.width + 8 * text.inner
        full, linear = shared + 8 * (text.heads + text.key_values), shared + 8 * text.linear_width
        patch = 16 * vision.width + 4 * vision.inner
        if not is_checkpointed:
            return cls(text.num_full * full + text.num_linear * linear, trains_tower * vision.depth * patch)
        one_layer = max(full, linear if text.num_linear else 0)
        kept = text.num_layers * _FLOAT * text.width
        tower = trains_tower * (vision.depth * _HALF * vision.width + patch)
        return cls(kept, tower, one_layer) if has_adapters else cls(kept + one_layer, tower)

    def bytes_of(self, tokens: int, patches: int) -> float:
        """Bytes of a row."""
        later = max(0.0, tokens * self.per_token_later - self.LOSS_TILES)
        return tokens * self.per_token + patches * self.per_patch + later
