"""Contrast decoding: the method's target drawn from directly, with no training, at twice the cost of an answer.

At every token the model looks twice, with the image and with the control, after the same words; `core.shape_target`
makes of the two what training would pull the student towards, and the token is drawn from that. Distributions are
those of temperature 1, as the model would use them; T_KD belongs to the loss. What a distilled student does in one
pass, this does in two, on every answer.

    pairs = [pair(example, method, processor) for example in examples]
    ContrastEngine(model, method=method).sample(pairs, Sampling(temperature=0), num_rollouts=1, seed=0)

It is the engine of `rollout/transformers.py` in all but the distribution: batches, keyed randomness, what is never
drawn and when a row is dropped are the same. Left out: adaptive strengths and other published variants.

Shape legend: R rows (live rollouts), V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vcsd.batch import show
from vcsd.core import log_probs, shape_target
from vcsd.errors import ConfigError
from vcsd.method import METHODS, Method
from vcsd.rollout.decoder import Decoder, Decoding, prefill
from vcsd.rollout.memory import CacheCost
from vcsd.rollout.transformers import Sampled, TransformersEngine, ids_to_ban

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from vcsd.models.packing import Prompt
    from vcsd.models.processor import Processor
    from vcsd.rollout.sampling import Sampling
    from vcsd.types import Example


@dataclass(frozen=True, eq=False)
class Pair:
    """A prompt with the image and the same prompt with the control. To the engine it is one prompt, the first."""

    original: Prompt
    control: Prompt

    def __post_init__(self) -> None:
        names = (self.original.example_id, self.control.example_id)
        assert names[0] == names[1], f"a pair shows one example twice, not {names[0]!r} and {names[1]!r}"

    @property
    def example_id(self) -> str:
        """Whose prompt it is."""
        return self.original.example_id

    @property
    def input_ids(self) -> Tensor:
        """Token ids (P,) of the longer view: it decides how much memory the pair needs."""
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
    def extra(self) -> Mapping[str, Any]:
        """Whatever else the processor returned for the original."""
        return self.original.extra


def pair(example: Example, method: Method, processor: Processor, **prompt_settings: Any) -> Pair:
    """An example as the method's teacher sees it twice. Raises DataError for an example that cannot be used."""
    shown = show(example, method, processor, **prompt_settings)
    if shown.contrast is None:
        raise ConfigError(
            [f"method {method.name!r} has no contrast view: there is nothing to decode against. Set contrast_view."]
        )
    return Pair(shown.target, shown.contrast)


def contrast_decode(
    model: nn.Module,
    originals: Sequence[Prompt],
    controls: Sequence[Prompt],
    sampling: Sampling,
    *,
    method: Method = METHODS["vcsd"],
    num_rollouts: int = 1,
    seed: int = 0,
    **engine: Any,
) -> Sampled:
    """Answer prompts from the contrast-shaped target. `engine` holds options of `TransformersEngine`."""
    pairs = [Pair(*views) for views in zip(originals, controls, strict=True)]
    return ContrastEngine(model, method=method, **engine).sample(pairs, sampling, num_rollouts=num_rollouts, seed=seed)


class ContrastEngine(TransformersEngine):
    """Draws answers to `Pair`s from the target that a method's alpha, beta and anchor shape."""

    def __init__(self, model: nn.Module, *, method: Method = METHODS["vcsd"], **options: Any) -> None:
        super().__init__(model, **options)
        self.method = method

    def begin(self, prompts: Sequence[Prompt]) -> Decoding:
        """Compute both views of every pair, each once."""
        pairs = [each for each in prompts if isinstance(each, Pair)]
        assert len(pairs) == len(prompts), "contrast decoding needs pairs; make them with `pair`"
        views = prefill(self.model, [each.original for each in pairs]), prefill(self.model, [e.control for e in pairs])
        return _TwoViews(*views, self.shape)

    def cache_cost(self) -> CacheCost:
        """Two caches for every rollout, and both views' logits."""
        one = super().cache_cost()
        return CacheCost(2 * one.per_token, 2 * one.per_rollout)

    def shape(self, logits_original_RV: Tensor, logits_control_RV: Tensor) -> Tensor:
        """log q* of the next token. What may never be drawn is ruled out first: it would be in, or be, the support."""
        banned = ids_to_ban(self.vision_ids, logits_original_RV)
        original_RV, control_RV = (
            log_probs(logits_RV.index_fill(1, banned, -torch.inf))
            for logits_RV in (logits_original_RV, logits_control_RV)
        )
        return shape_target(
            original_RV,
            control_RV,
            alpha=self.method.alpha,
            beta=self.method.beta,
            anchor=self.method.anchor,
            end_token_ids=self.end_ids,
            end_tokens_keep_anchor=self.method.end_tokens_keep_anchor,
        )


class _TwoViews:
    """Two decoders that write the same words, and whose logits are the shaped target's logarithms."""

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
