"""Contrast decoding inside transformers' `generate`, for code that already uses it.

    inputs, contrast = contrast_inputs(model, processor, examples)
    model.generate(**inputs, logits_processor=[contrast], max_new_tokens=64)

At every token, `generate` computes the view with the image, and the processor the view with the control; the shaped
target of `vcsd.rollout.contrast_engine` replaces the logits. Decoding costs twice as much per token; a trained student
needs only one pass. Batches and sampling work; beam search is refused as soon as it reorders rows.

Shape legend: R rows of the batch, P prompt tokens, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessor

from vcsd.errors import ConfigError, RunError
from vcsd.method import METHODS
from vcsd.models.family import base_model
from vcsd.rollout.contrast_engine import ContrastEngine, pair
from vcsd.rollout.decoder import prefill
from vcsd.views import SAME_LAYOUT, VIEWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.models.processor import Processor
    from vcsd.rollout.decoder import Decoder
    from vcsd.types import Example

MAX_NEW_TOKENS = 4096
"""The longest response. The cache of the control grows with the response, so a large limit costs nothing."""


class ContrastLogits(LogitsProcessor):
    """Replaces a batch's logits by log q*, given each row's prompt with the control. Serves one call of `generate`."""

    def __init__(
        self,
        model: nn.Module,
        controls: Sequence[Prompt],
        *,
        method: Method = METHODS["vcsd"],
        tokenizer: object = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
    ) -> None:
        self._engine = ContrastEngine(model, method=method, tokenizer=tokenizer)
        self._controls, self._max_new_tokens = list(controls), max_new_tokens
        self._decoder: Decoder | None = None
        self._written: Tensor | None = None

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return log q* of the next token (R, V), given the tokens so far (R, ...) and the logits with the image."""
        if self._decoder is None:
            logits_control_RV = self._begin(len(input_ids))
        else:
            self._refuse_reordered(input_ids)
            logits_control_RV = self._decoder.step(input_ids[:, -1])
        self._written = input_ids
        return self._engine.shape(scores, logits_control_RV.to(scores.device))

    def _begin(self, num_rows: int) -> Tensor:
        """Compute the control of every prompt once; `generate` repeats a prompt for several responses to it."""
        per_prompt, rest = divmod(num_rows, len(self._controls))
        if rest or not per_prompt:
            raise ConfigError([f"generate has {num_rows} rows, but {len(self._controls)} control prompts are given."])
        self._decoder = prefill(self._engine.model, self._controls)
        prompt_R = torch.arange(num_rows, device=self._engine.base.device) // per_prompt
        self._decoder.fork(prompt_R, self._max_new_tokens)
        return self._decoder.logits

    def _refuse_reordered(self, input_ids: Tensor) -> None:
        """Raise if the rows are not those of the step before, with one more token each."""
        before = self._written
        if before is None or input_ids.shape[1] != before.shape[1] + 1 or not torch.equal(input_ids[:, :-1], before):
            raise RunError(
                "the rows are not those of the step before: this processor serves one call of generate, without beam "
                "search. Build a new one for each call, and use num_beams=1."
            )


def contrast_inputs(
    model: nn.Module,
    processor: Processor,
    examples: Sequence[Example],
    *,
    method: Method = METHODS["vcsd"],
    chat_template_kwargs: dict[str, object] | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> tuple[dict[str, Any], ContrastLogits]:
    """Return the inputs of `generate` for some examples, left padded, and the processor that belongs to them."""
    if method.contrast_view not in SAME_LAYOUT:
        allowed = ", ".join(SAME_LAYOUT)
        raise ConfigError([f"contrast_view = {method.contrast_view!r}: decoding needs one of {allowed}."])
    pairs = [pair(example, method, processor, chat_template_kwargs=chat_template_kwargs) for example in examples]
    images = [list(VIEWS[method.target_view](VIEWS["original"](example)).images) for example in examples]
    texts = [own.original.text for own in pairs]  # type: ignore[attr-defined]
    padding = {"padding": True, "padding_side": "left", "truncation": False}
    batch = processor(text=texts, images=images, return_tensors="pt", **padding)
    device = base_model(model).device
    inputs = {name: value.to(device) for name, value in batch.items()}
    contrast = ContrastLogits(
        model,
        [own.control for own in pairs],
        method=method,
        tokenizer=processor.tokenizer,
        max_new_tokens=max_new_tokens,
    )
    return inputs, contrast
