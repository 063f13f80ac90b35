"""Rollouts from vLLM, in the training process or on a server, with the student's weights of the step.

    target = start_in_process(folder, torch.bfloat16, max_tokens=4096)     # or ServerTarget(url, ...)
    engine = VLLMEngine(student, target, tokenizer=tokenizer, dtype=torch.bfloat16)
    record = engine.refresh(step, probe_prompt)     # send the weights and prove that they arrived
    rollouts = engine.sample(prompts, sampling, num_rollouts=8, seed=0, step=step).rollouts

vLLM starts with random weights, so that one that is never sent shows in the probe. Weights travel by vLLM's own
transfer protocol. The names under which vLLM caches images and prefixes contain the version of the weights; old entries
can never be hit. Between two rollout phases a CUDA engine in this process sleeps and gives its memory back.

The tests run it on a CPU. It has not been run on a GPU.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch

from vcsd.errors import ConfigError, RunError
from vcsd.models.family import base_model, family_of
from vcsd.models.qwen.weight_names import refuse_renamed
from vcsd.parallel.ranks import is_first, num_ranks, on_every, on_every_local
from vcsd.rollout.engine import Sampled
from vcsd.rollout.sampling import Sampling, rollout_key
from vcsd.rollout.vllm.sync_probe import NUM_TOKENS, Gap, SyncProbe, gap_of, student_log_probs
from vcsd.rollout.vllm.vllm_requests import (
    RequestImages,
    image_spans,
    patches_of_images,
    refuse_other_prompt,
    refuse_unknown_tokens,
    sampling_values,
    to_rollout,
    token_log_probs,
)
from vcsd.rollout.vllm.weight_sync import SyncTarget, WeightSync, expected_shapes, refuse_other_version, student_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.engine import ProgressCallback
    from vcsd.rollout.vllm.weight_sync import SyncRecord
    from vcsd.types import Rollout

FAMILIES = ("qwen3_vl", "qwen3_5")

PER_REQUEST = 16
"""Rollouts of one prompt that share a request, and so the images in it. vLLM adds their index to the seed."""


class RolloutTarget(SyncTarget, Protocol):
    """A running vLLM: takes weights and answers requests."""

    is_asleep: bool

    @property
    def room(self) -> int | None:
        """Tokens of the longest prompt with its response that fit; None if that is not known."""

    def to_input(self, ids: list[int], images: RequestImages | None, salt: str) -> object:
        """Return a prompt in the form that `generate` takes."""

    def generate(
        self, inputs: Sequence[object], values: Sequence[dict[str, object]], tell: Callable[[int], None]
    ) -> list[Any]:
        """Answer all requests, in their order. `tell` is called with the number of those that are done."""

    def sleep(self) -> None:
        """Release memory, if that is possible."""

    def wake(self) -> None:
        """Take memory again."""


class VLLMEngine:
    """Draws rollouts with vLLM. `refresh` must be called before `sample`.

    With `keeps_cut`, for evaluation, a response that vLLM has no room for becomes a rollout with stop "cut". Otherwise
    it raises, because nothing may be trained on it.
    """

    def __init__(
        self,
        student: nn.Module,
        target: RolloutTarget,
        *,
        tokenizer: object = None,
        dtype: torch.dtype = torch.bfloat16,
        probe_dtype: torch.dtype | None = None,
        keeps_cut: bool = False,
    ) -> None:
        self.student, self.dtype, self.family, self.base = student, dtype, family_of(student), base_model(student)
        refuse_other_family(student)
        self.vision_ids = sorted(self.family.vision_token_ids(student))
        self.end_ids = sorted(self.family.end_token_ids(student, tokenizer))
        self._version: str | None = None
        self._merge_size = int(self.base.config.vision_config.spatial_merge_size)
        self._num_tokens = int(self.base.config.get_text_config().vocab_size)
        expected = expected_shapes(self.base.config)
        refuse_renamed(self.base.config.model_type, expected)
        self._sync = WeightSync(expected)
        self._probe = SyncProbe(probe_dtype or dtype)
        self._target, self._keeps_cut = target, keeps_cut

    @property
    def version(self) -> str | None:
        """The version of the weights in use; None if there are none yet, or if vLLM may have been restarted."""
        return self._version

    @version.setter
    def version(self, version: str | None) -> None:
        self._version = version
        if version is None:
            self.__dict__.pop("room", None)  # after a restart, another limit may hold

    @cached_property
    def room(self) -> int | None:
        """Tokens of the longest prompt with its response, if responses may be cut; None if unlimited or not known."""
        return self._target.room if self._keeps_cut else None

    def refresh(self, step: int, probe: Prompt) -> SyncRecord:
        """Send the student's weights, and check that vLLM answers with them. `probe` is the same in every step.

        Collective: if it fails on one rank, it raises on all.
        """
        on_every(self._target.wake)
        self.version = None
        record = on_every_local(lambda: self._send(step))
        self.version = record.version
        with self._on_trial():
            drawn = on_every_local(lambda: self._answer(probe))
            gap = on_every_local(lambda: self._compare(probe, drawn))  # all ranks compute with a sharded student
        sent = getattr(self._target, "sent_bytes", None)
        return replace(record, probe_mean=gap.mean, probe_max=gap.max, sent_bytes=sent)

    def adopt(self, probe: Prompt) -> Gap:
        """Use the weights that vLLM has, without sending any, after checking that they are the student's."""
        self.version = self._target.weight_version()
        with self._on_trial():
            return self._compare(probe, self._answer(probe))

    @contextmanager
    def _on_trial(self) -> Iterator[None]:
        """Forget the version if a probe inside fails for any reason: the weights are not proven then."""
        try:
            yield
        except BaseException:
            self.version = None
            raise

    def _send(self, step: int) -> SyncRecord:
        """Send the weights, or take part in gathering them while rank 0 sends them to the server of all."""
        if num_ranks() == 1:
            return self._sync.send(self._target, lambda: student_weights(self.student, self.dtype), step)
        weights = student_weights(self.student, self.dtype)
        try:
            if is_first() or not getattr(self._target, "is_shared", False):
                return self._sync.send(self._target, lambda: weights, step)
            return self._sync.noted(weights, step)
        finally:
            for _ in weights:  # other ranks wait for this one in every gather
                pass

    def sample(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        num_rollouts: int,
        seed: int,
        step: int = 0,
        with_log_probs: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Sampled:
        """Draw `num_rollouts` rollouts of every prompt, in the order of prompts, then of rollout index."""
        version = self.version
        if version is None:
            raise RunError("the rollout engine has no weights yet: call refresh first.")
        asked = [
            (prompt, start, min(PER_REQUEST, num_rollouts - start))
            for prompt in prompts
            for start in range(0, num_rollouts, PER_REQUEST)
        ]
        inputs = {id(prompt): self._input(prompt) for prompt in prompts}
        values = [
            {
                **self._values(sampling, rollout_key(seed, step, prompt.example_id, start), with_log_probs),
                **{"n": count, "max_tokens": self._most(prompt, sampling)},
            }
            for prompt, start, count in asked
        ]
        replies = self._target.generate(
            [inputs[id(prompt)] for prompt, _, _ in asked],
            values,
            tell=lambda done: (
                progress(sum(count for _, _, count in asked[:done]), num_rollouts * len(prompts))
                if progress is not None
                else None
            ),
        )
        refuse_other_version(self._target, version)
        rollouts, logs = [], []
        for (prompt, start, count), reply in zip(asked, replies, strict=True):
            refuse_other_prompt(prompt, reply.prompt_token_ids)
            if len(reply.outputs) != count:
                raise RunError(f"vLLM gave {len(reply.outputs)} of {count} rollouts of example {prompt.example_id!r}.")
            for index, output in enumerate(reply.outputs, start=start):
                rollouts.append(self._to_rollout(output, prompt.example_id, index, sampling))
                refuse_unknown_tokens(rollouts[-1], self._num_tokens)
                logs.append(torch.tensor(token_log_probs(output)) if with_log_probs else None)
        kept = tuple(log for log in logs if log is not None) if with_log_probs else None
        return Sampled(tuple(rollouts), kept, version)

    def sleep(self) -> None:
        """Release the memory of weights and caches until the next `refresh`; does nothing on a CPU."""
        self._target.sleep()
        self.version = None if self._target.is_asleep else self.version

    def _answer(self, probe: Prompt) -> Sampled:
        """Let vLLM answer the probe."""
        return self.sample([probe], Sampling(max_new_tokens=NUM_TOKENS), num_rollouts=1, seed=0, with_log_probs=True)

    def _compare(self, probe: Prompt, drawn: Sampled) -> Gap:
        """Compare vLLM's log-probabilities of its answer with the student's."""
        assert drawn.log_probs is not None
        assert self.version is not None
        student = student_log_probs(self.student, probe, drawn.rollouts[0].token_ids)
        gap = gap_of(drawn.log_probs[0].tolist(), student)
        self._probe.check(gap, self.version)
        return gap

    def _most(self, prompt: Prompt, sampling: Sampling) -> int:
        """Tokens that a response to a prompt may have: as many as asked for, or as fit."""
        if self.room is None:
            return sampling.max_new_tokens
        return max(1, min(sampling.max_new_tokens, self.room - len(prompt.input_ids)))

    def _to_rollout(self, output: Any, example_id: str, index: int, sampling: Sampling) -> Rollout:
        ids = (self.end_ids, self.vision_ids)
        return to_rollout(output, example_id, index, *ids, sampling.max_new_tokens, keeps_cut=self._keeps_cut)

    def _values(self, sampling: Sampling, key: str, with_log_probs: bool) -> dict[str, object]:
        values = sampling_values(sampling, key, self.end_ids, self.vision_ids)
        return {**values, "logprobs": 0} if with_log_probs else values

    def _input(self, prompt: Prompt) -> object:
        """The prompt as vLLM takes it after its own processing: ids, patches and where they belong."""
        assert self.version is not None
        ids = prompt.input_ids.tolist()
        if prompt.pixel_values is None or prompt.grid_thw is None:
            return self._target.to_input(ids, None, self.version)
        spans = image_spans(prompt, self.base.config.image_token_id, self._merge_size)
        patches = patches_of_images(prompt.pixel_values, prompt.grid_thw)
        names = [f"{self.version}/{_name(patch, grid)}" for patch, grid in zip(patches, prompt.grid_thw, strict=True)]
        images = RequestImages(prompt.pixel_values.to(self.dtype), prompt.grid_thw, names, spans)
        return self._target.to_input(ids, images, self.version)


def refuse_other_family(student: nn.Module) -> None:
    """Raise a ConfigError unless vLLM rollouts support the student's family."""
    model_type = base_model(student).config.model_type
    if model_type not in FAMILIES:
        raise ConfigError(
            [f"rollout.engine = vllm supports {' and '.join(FAMILIES)}, not {model_type}. Use transformers."]
        )


def _name(patches: Tensor, grid: Tensor) -> str:
    """Name an image by its patches."""
    digest = hashlib.blake2b(repr(grid.tolist()).encode(), digest_size=16)
    digest.update(patches.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
