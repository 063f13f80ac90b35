"""The logits processor of contrast decoding in vLLM: it tells `pair_rows.py` which rows of a batch belong to pairs.

Needs vLLM; only a vLLM engine imports it. With custom logits processors, vLLM uses its older model runner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from vcsd.rollout.fixed.pair_rows import PAIR, PairRow, read_side, shape_pairs

if TYPE_CHECKING:
    from torch import Tensor


class PairProcessor(LogitsProcessor):  # type: ignore[misc]
    """Shapes the rows of requests that carry `PAIR`, and leaves all others as they are."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a request with a side of a pair that cannot be read."""
        if values := (sampling_params.extra_args or {}).get(PAIR):
            read_side(values)

    def __init__(self, vllm_config: object, device: object, is_pin_memory: bool) -> None:
        self._rows: dict[int, PairRow] = {}

    def is_argmax_invariant(self) -> bool:
        """Shaping changes the likeliest token."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests as they enter, leave and move within the batch."""
        process_dict_updates(self._rows, batch_update, _row_of)

    def apply(self, logits: Tensor) -> Tensor:
        """Shape the rows of pairs."""
        return shape_pairs(logits, self._rows) if self._rows else logits


def _row_of(params: Any, prompt_ids: object, drawn: list[int]) -> PairRow | None:
    values = (params.extra_args or {}).get(PAIR)
    return PairRow(read_side(values), drawn) if values else None
