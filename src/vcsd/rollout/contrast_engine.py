"""Contrast decoding: sample from the method's target directly, without training, at twice the cost per token.

At every token the model looks twice, with the image and with the control, after the same tokens. `core.shape_target`
combines both distributions into the target that training would use, and the token is drawn from it. Distributions are
at temperature 1; T_KD belongs to the loss. A distilled student needs one pass for what takes two here.

    pairs = [pair(example, method, processor) for example in examples]
    ContrastEngine(model, method=method).sample(pairs, Sampling(temperature=0), num_rollouts=1, seed=0)

Everything but the distribution is as in `rollout/engine.py`: batches, keyed randomness, banned tokens, dropped rows.
Adaptive strengths and other published variants are not implemented.

Shape legend: R rows (live rollouts), V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vcsd.batch import show
from vcsd.core import log_probs
from vcsd.errors import ConfigError
from vcsd.loss.reference import target
from vcsd.method import METHODS, Method
from vcsd.rollout.decoder import Decoder, Decoding, prefill
from vcsd.rollout.engine import TransformersEngine, ids_to_ban
from vcsd.rollout.memory import CacheCost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from vcsd.loss.objective import Objective
    from vcsd.models.packed.packing import Prompt
    from vcsd.models.processor import Processor
    from vcsd.types import Example


@dataclass(frozen=True, eq=False)
class Pair:
    """A prompt with the image and the same prompt with the control. The engine treats it like the first."""

    original: Prompt
    control: Prompt

    def __post_init__(self) -> None:
        names = (self.original.example_id, self.control.example_id)
        assert names[0] == names[1], f"a pair needs two views of one example, not {names[0]!r} and {names[1]!r}"

    @property
    def example_id(self) -> str:
        """The id of the example."""
        return self.original.example_id

    @property
    def input_ids(self) -> Tensor:
        """Token ids (P,) of the longer view, which determines the memory of the pair."""
        return max(self.original.input_ids, self.control.input_ids, key=len)

    @property
    def pixel_values(self) -> Tensor | None:
        """The patches of the original."""
        return self.original.pixel_values

    @property
    def grid_thw(self) -> Tensor | None:
        """The grid of the original."""
        return self.original.grid_thw

    @property
    def extra(self) -> Mapping[str, Tensor]:
        """Other tensors that the processor returned for the original."""
        return self.original.extra


def pair(example: Example, method: Method, processor: Processor, **prompt_settings: Any) -> Pair:
    """Encode an example under both views of the method's teacher. Raises a DataError if it cannot be used."""
    shown = show(example, method, processor, **prompt_settings)
    if shown.contrast is None:
        raise ConfigError(
            [f"method {method.name!r} has no contrast view: contrast decoding needs one. Set contrast_view."]
        )
    return Pair(shown.target, shown.contrast)


class ContrastEngine(TransformersEngine):
    """Draws rollouts for `Pair`s from the target that a method's alpha, beta and anchor define."""

    def __init__(self, model: nn.Module, *, method: Method = METHODS["vcsd"], **options: Any) -> None:
        super().__init__(model, **options)
        self.method, self.objective = method, method.objective(self.end_ids)

    def begin(self, prompts: Sequence[Prompt]) -> Decoding:
        """Compute both views of every pair, each once."""
        pairs = [prompt for prompt in prompts if isinstance(prompt, Pair)]
        assert len(pairs) == len(prompts), "contrast decoding needs pairs; make them with `pair`"
        original = prefill(self.model, [pair.original for pair in pairs])
        return _TwoViews(original, prefill(self.model, [pair.control for pair in pairs]), self.shape)

    def cache_cost(self) -> CacheCost:
        """Two caches for every rollout, and both views' logits."""
        one = super().cache_cost()
        return CacheCost(2 * one.per_token, 2 * one.per_rollout)

    def shape(self, logits_original_RV: Tensor, logits_control_RV: Tensor) -> Tensor:
        """log q* of the next token."""
        return shaped_log_probs(logits_original_RV, logits_control_RV, self.objective, self.vision_ids)


def shaped_log_probs(
    logits_original_RV: Tensor, logits_control_RV: Tensor, objective: Objective, banned: Sequence[int]
) -> Tensor:
    """log q* of the next token. Banned tokens are removed first: otherwise they could be part of the support."""
    ids = ids_to_ban(banned, logits_original_RV)
    original_RV, control_RV = (
        log_probs(logits_RV.index_fill(1, ids, -torch.inf)) for logits_RV in (logits_original_RV, logits_control_RV)
    )
    return target(original_RV, control_RV, objective)


class _TwoViews:
    """Two decoders that append the same tokens; the logits are the logarithms of the shaped target."""

    def __init__(self, original: Decoder, control: Decoder, shape: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._original, self._control, self._shape = original, control, shape
        self.logits = shape(original.logits, control.logits)

    def fork(self, prompt_R: Tensor, max_new_tokens: int, *, use_graph: bool = False) -> None:
        for decoder in (self._original, self._control):
            decoder.fork(prompt_R, max_new_tokens, use_graph=use_graph)
        self.logits = self.logits[prompt_R]

    def step(self, token_R: Tensor) -> Tensor:
        return self._shape(self._original.step(token_R), self._control.step(token_R))

    def keep(self, rows: Tensor) -> None:
        self._original.keep(rows)
        self._control.keep(rows)
