"""A fixed model in vLLM in this process, for evaluation: weights are sent once and checked on the first prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from vcsd.models.family import family_of
from vcsd.rollout.fixed.paired_engine import PROCESSOR, PairedEngine
from vcsd.rollout.vllm.in_process import start_in_process
from vcsd.rollout.vllm.sync_probe import probe_prompt
from vcsd.rollout.vllm.vllm_engine import VLLMEngine, refuse_other_family

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import torch
    from transformers import PreTrainedModel

    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.engine import Sampled, SampleKeywords
    from vcsd.rollout.sampling import Sampling

AS_FITS = -1
"""vLLM's value for the longest prompt with its response that fits into memory."""


class ProvenAnswers:
    """A model in vLLM. The model itself stays in memory beside vLLM, because it scores the probe.

    With `contrast`, pairs of views can be sampled too: `for_pairs` returns the same engine for pairs.
    """

    label = "vllm"
    """The engine's name in the key of stored answers."""

    method: Method | None = None

    def __init__(
        self,
        model: PreTrainedModel,
        folder: str | PathLike[str],
        dtype: torch.dtype,
        *,
        tokenizer: object = None,
        contrast: Method | None = None,
    ) -> None:
        refuse_other_family(model)
        family_of(model).prepare(model)
        self.base, self.compute_dtype = model, dtype
        processors = [PROCESSOR] if contrast is not None else []
        target = start_in_process(folder, dtype, max_tokens=AS_FITS, logits_processors=processors)
        options: dict[str, Any] = {"tokenizer": tokenizer, "dtype": dtype, "keeps_cut": True}
        if contrast is None:
            self.engine = VLLMEngine(model, target, **options)
        else:
            self.engine = PairedEngine(model, target, method=contrast, **options)

    @property
    def room(self) -> int | None:
        """Tokens of the longest prompt with its response that fit."""
        return self.engine.room

    def for_pairs(self) -> PairAnswers:
        """Return the engine of contrast decoding."""
        assert isinstance(self.engine, PairedEngine), "start it with `contrast`"
        return PairAnswers(self, self.engine.method)

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling, **keywords: Unpack[SampleKeywords]) -> Sampled:
        """Draw rollouts. Before the first ones, send the weights and compare a probe."""
        if self.engine.version is None:
            self._send(prompts)
        return self.engine.sample(prompts, sampling, **keywords)

    def _send(self, prompts: Sequence[Prompt]) -> None:
        """Send the weights, and compare a probe: the shortest prompt, which fits into vLLM's memory if any does."""
        self.engine.refresh(1, probe_prompt(sorted(prompts, key=lambda prompt: len(prompt.input_ids))))


class PairAnswers:
    """Contrast decoding by a `ProvenAnswers`: it samples pairs, by the method given at its start."""

    label = ProvenAnswers.label

    def __init__(self, answers: ProvenAnswers, method: Method) -> None:
        self.base, self.compute_dtype, self.method = answers.base, answers.compute_dtype, method
        self.sample, self.room = answers.sample, answers.room
