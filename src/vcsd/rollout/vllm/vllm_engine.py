"""Rollouts from vLLM in the training process, with the student's weights of the step.

    engine = VLLMEngine(student, folder, tokenizer=tokenizer, max_tokens=4096, dtype=torch.bfloat16)
    record = engine.refresh(step, probe_prompt)     # send the weights and prove that they arrived
    rollouts = engine.sample(prompts, sampling, num_rollouts=8, seed=0, step=step).rollouts

vLLM starts with random weights, so that one that is never sent shows in the probe. Weights travel by vLLM's own
transfer protocol, through a backend of this package that hands tensors over within the process. The names under which
vLLM caches images and prefixes contain the version of the weights; old entries can never be hit. Between two rollout
phases a CUDA engine sleeps and gives its memory back.

Runs on the CPU in this project's tests. On a GPU it has not been run.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, BatchFeature

from vcsd.errors import ConfigError, RunError
from vcsd.models.family import base_model, family_of
from vcsd.rollout.engine import Sampled
from vcsd.rollout.sampling import Sampling, rollout_key
from vcsd.rollout.vllm.sync_probe import NUM_TOKENS, Gap, SyncProbe, gap_of, student_log_probs
from vcsd.rollout.vllm.vllm_requests import (
    image_spans,
    patches_of_images,
    refuse_other_prompt,
    sampling_values,
    to_rollout,
    token_log_probs,
)
from vcsd.rollout.vllm.vllm_transfer import BACKEND, hand_over, register
from vcsd.rollout.vllm.weight_sync import WeightSync, expected_shapes, refuse_other_version, student_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike

    from torch import Tensor, nn

    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.engine import ProgressCallback
    from vcsd.rollout.vllm.weight_sync import Named, SyncRecord

VERSION = "0.30.0"
"""The release of vLLM that this file is written for and tested with."""

FAMILIES = ("qwen3_vl", "qwen3_5")
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process, where the weights are
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CONFIGURE_LOGGING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the threads are the trainer's
}


class VLLMEngine:
    """Draws rollouts with vLLM in this process. `refresh` must be called before `sample`."""

    def __init__(
        self,
        student: nn.Module,
        folder: str | PathLike[str],
        *,
        tokenizer: object = None,
        dtype: torch.dtype = torch.bfloat16,
        max_tokens: int | None = None,
        memory_share: float = 0.3,
    ) -> None:
        self.student, self.dtype, self.family, self.base = student, dtype, family_of(student), base_model(student)
        model_type = self.base.config.model_type
        if model_type not in FAMILIES:
            raise ConfigError(
                [f"rollout.engine = vllm supports {' and '.join(FAMILIES)}, not {model_type}. Use transformers."]
            )
        self.compute_dtype = dtype
        self.vision_ids = sorted(self.family.vision_token_ids(student))
        self.end_ids = sorted(self.family.end_token_ids(student, tokenizer))
        self.version: str | None = None
        self._merge_size = int(self.base.config.vision_config.spatial_merge_size)
        self._sync = WeightSync(expected_shapes(self.base.config))
        self._probe = SyncProbe(dtype)
        self._target = InProcess(_start(folder, dtype, max_tokens, memory_share))

    def refresh(self, step: int, probe: Prompt) -> SyncRecord:
        """Send the student's weights, and check that vLLM answers with them. `probe` is the same in every step."""
        self._target.wake()
        record = self._sync.send(self._target, lambda: student_weights(self.student, self.dtype), step)
        self.version = record.version
        gap = self._gap(probe)
        self._probe.check(gap, record.version)
        return replace(record, probe_mean=gap.mean, probe_max=gap.max)

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
        if self.version is None:
            raise RunError("the rollout engine has no weights yet: call refresh first.")
        keys = [
            (prompt, index, rollout_key(seed, step, prompt.example_id, index))
            for prompt in prompts
            for index in range(num_rollouts)
        ]
        inputs = {id(prompt): self._input(prompt) for prompt in prompts}
        replies = self._target.generate(
            [inputs[id(prompt)] for prompt, _, _ in keys],
            [self._values(sampling, key, with_log_probs=with_log_probs) for _, _, key in keys],
            tell=lambda done: progress(done, len(keys)) if progress is not None else None,
        )
        refuse_other_version(self._target, self.version)
        rollouts = []
        for (prompt, index, _), reply in zip(keys, replies, strict=True):
            refuse_other_prompt(prompt, reply.prompt_token_ids)
            rollouts.append(
                to_rollout(
                    reply.outputs[0], prompt.example_id, index, self.end_ids, self.vision_ids, sampling.max_new_tokens
                )
            )
        logs = tuple(torch.tensor(token_log_probs(reply.outputs[0])) for reply in replies) if with_log_probs else None
        return Sampled(tuple(rollouts), logs)

    def sleep(self) -> None:
        """Give the memory of weights and caches back until the next `refresh`; does nothing on a CPU."""
        self._target.sleep()
        self.version = None if self._target.is_asleep else self.version

    def _gap(self, probe: Prompt) -> Gap:
        """Let vLLM answer the probe, and compare its log-probabilities with the student's."""
        sampling = Sampling(max_new_tokens=NUM_TOKENS)
        drawn = self.sample([probe], sampling, num_rollouts=1, seed=0, with_log_probs=True)
        assert drawn.log_probs is not None
        student = student_log_probs(self.student, probe, drawn.rollouts[0].token_ids)
        return gap_of(drawn.log_probs[0].tolist(), student)

    def _values(self, sampling: Sampling, key: str, *, with_log_probs: bool) -> dict[str, object]:
        values = sampling_values(sampling, key, self.end_ids, self.vision_ids)
        return {**values, "logprobs": 0} if with_log_probs else values

    def _input(self, prompt: Prompt) -> object:
        """The prompt as vLLM takes it after its own processing: ids, patches and where they belong."""
        assert self.version is not None
        ids, salt = prompt.input_ids.tolist(), self.version
        from vllm.inputs import engine as inputs

        if prompt.pixel_values is None or prompt.grid_thw is None:
            return inputs.tokens_input(ids, cache_salt=salt)
        spans = image_spans(prompt, self.base.config.image_token_id, self._merge_size)
        patches = patches_of_images(prompt.pixel_values, prompt.grid_thw)
        from vllm.multimodal import inputs as modality

        config = {
            "pixel_values": modality.MultiModalFieldConfig.flat_from_sizes("image", prompt.grid_thw.prod(-1)),
            "image_grid_thw": modality.MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        }
        tensors = {"pixel_values": prompt.pixel_values.to(self.dtype), "image_grid_thw": prompt.grid_thw}
        items = modality.MultiModalKwargsItems.from_hf_inputs(BatchFeature(tensors), config)
        names = [f"{salt}/{_name(patch, grid)}" for patch, grid in zip(patches, prompt.grid_thw, strict=True)]
        ranges = [modality.PlaceholderRange(offset=span.offset, length=span.length) for span in spans]
        return inputs.mm_input(ids, items, {"image": names}, {"image": ranges}, cache_salt=salt)


def _name(patches: Tensor, grid: Tensor) -> str:
    """Name an image by its patches."""
    digest = hashlib.blake2b(repr(grid.tolist()).encode(), digest_size=16)
    digest.update(patches.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class InProcess:
    """vLLM's `LLM` in this process, as a target of weight syncs."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.is_asleep = False

    def start_weight_update(self) -> None:
        """Begin an update."""
        self._llm.start_weight_update()

    def load(self, weights: Iterable[Named]) -> None:
        """Hand the weights over to vLLM's worker."""
        hand_over(self._llm, weights)

    def finish_weight_update(self, version: str) -> None:
        """End an update under a version."""
        self._llm.finish_weight_update(version)

    def weight_version(self) -> str:
        """Return the version of the weights in use."""
        return str(self._llm.get_weight_version())

    def clear_caches(self) -> None:
        """Forget prefixes, images and encoder outputs. vLLM forgets none of them when weights change."""
        self._llm.reset_mm_cache()
        self._llm.llm_engine.reset_encoder_cache()
        if not self._llm.reset_prefix_cache():
            raise RunError("vLLM did not clear its prefix cache: requests are still running.")

    def generate(
        self, inputs: Sequence[object], values: Sequence[dict[str, object]], tell: Callable[[int], None]
    ) -> list[Any]:
        """Answer all requests, in their order. `tell` is called with the number of those that are done.

        `LLM.generate` would take the token ids of these inputs and silently drop their images.
        """
        from vllm import SamplingParams

        engine = self._llm.llm_engine
        replies: dict[str, Any] = {}
        names = [f"rollout-{place}" for place in range(len(inputs))]
        try:
            for name, request, value in zip(names, inputs, values, strict=True):
                engine.add_request(name, request, SamplingParams(**value))
            while engine.has_unfinished_requests():
                finished = [reply for reply in engine.step() if reply.finished]
                replies |= {reply.request_id: reply for reply in finished}
                if finished:
                    tell(len(replies))
        finally:
            engine.abort_request([name for name in names if name not in replies])
        return [replies[name] for name in names]

    def sleep(self) -> None:
        """Give the memory of weights and caches back, on a GPU."""
        if self._llm.llm_engine.vllm_config.model_config.enable_sleep_mode:
            self._llm.sleep(level=2)
            self.is_asleep = True

    def wake(self) -> None:
        """Take memory again; the weights must be sent next."""
        if self.is_asleep:
            self._llm.wake_up()
            self.is_asleep = False


def _start(folder: str | PathLike[str], dtype: torch.dtype, max_tokens: int | None, memory_share: float) -> Any:
    """Start vLLM with random weights."""
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    try:
        import vllm
    except ImportError as error:
        raise ConfigError([f"rollout.engine = vllm needs vLLM: pip install 'vcsd[vllm]' ({error})."]) from error
    if not str(vllm.__version__).startswith(VERSION):
        raise ConfigError([f"rollout.engine = vllm needs vLLM {VERSION}, found {vllm.__version__}."])
    is_cuda = torch.cuda.is_available()
    if not is_cuda:
        _keep_plain_weights()
    register()
    from vllm.config import WeightTransferConfig

    return vllm.LLM(
        str(folder),
        dtype=str(dtype).removeprefix("torch."),
        load_format="dummy",
        generation_config="vllm",  # the model folder's sampling values must not change an experiment
        logprobs_mode="raw_logprobs",
        max_model_len=max_tokens,
        limit_mm_per_prompt={"video": 0},
        mm_processor_cache_gb=0,  # prompts are processed by the trainer
        trust_remote_code=False,
        enforce_eager=not is_cuda,
        weight_transfer_config=WeightTransferConfig(backend=BACKEND),
        **(_on_cuda(memory_share) if is_cuda else _on_cpu(folder)),
    )


def _on_cuda(memory_share: float) -> dict[str, object]:
    return {"gpu_memory_utilization": memory_share, "enable_sleep_mode": True}


def _on_cpu(folder: str | PathLike[str]) -> dict[str, object]:
    """Never read a prompt in two parts: such a prompt cannot be sampled with a seed (vLLM 0.30, CPU only).

    Delta nets can share prefixes only if prompts may be cut, so they share none.
    """
    model_type = AutoConfig.from_pretrained(folder, trust_remote_code=False).model_type
    return {"enable_chunked_prefill": False, "enable_prefix_caching": not model_type.startswith("qwen3_5")}


def _keep_plain_weights() -> None:
    """Make vLLM's CPU layers keep their weights. Idempotent.

    They pack them when a model is loaded: later updates would raise, or be ignored silently.
    """
    name = "dispatch_cpu_unquantized_gemm"
    from vllm.model_executor.layers import utils as layers

    packed = getattr(layers, name)
    if getattr(packed, "keeps_plain_weights", False):
        return

    def plain(layer: Any, remove_weight: bool = False) -> None:
        if layer.weight.ndim == 2:
            layer.cpu_linear = torch.nn.functional.linear
        else:
            packed(layer, remove_weight)

    plain.keeps_plain_weights = True  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("vllm.") and getattr(module, name, None) is packed:
            setattr(module, name, plain)
