"""vLLM inside the training process: how it is started, and how it takes weights and requests."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, BatchFeature

from vcsd.errors import ConfigError, RunError, install_command
from vcsd.parallel.ranks import num_ranks
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike

    from vcsd.rollout.vllm.vllm_requests import RequestImages
    from vcsd.rollout.vllm.weight_sync import Named

BACKEND = "vcsd_in_process"
_waiting: list[Iterable[Named]] = []
"""Weights on their way from the trainer to vLLM's worker."""

VERSION = "0.30.0"
"""The release of vLLM that this package is written for and tested with."""

QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_ENVIRONMENT = {
    **QUIET,
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process, where the weights are
    "VLLM_CONFIGURE_LOGGING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the threads are the trainer's
}


class InProcess:
    """vLLM's `LLM` in this process, as a target of weight syncs."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.is_asleep = False

    @property
    def room(self) -> int | None:
        """Tokens of the longest prompt with its response that fit."""
        return int(self._llm.llm_engine.vllm_config.model_config.max_model_len)

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

    def to_input(self, ids: list[int], images: RequestImages | None, salt: str) -> object:
        """The prompt as vLLM takes it after its own processing: ids, patches and where they belong."""
        from vllm.inputs import engine as inputs

        if images is None:
            return inputs.tokens_input(ids, cache_salt=salt)
        from vllm.multimodal import inputs as modality

        ranges = [modality.PlaceholderRange(offset=span.offset, length=span.length) for span in images.spans]
        items = to_items(images)
        return inputs.mm_input(ids, items, {"image": images.names}, {"image": ranges}, cache_salt=salt)

    def generate(
        self, inputs: Sequence[object], values: Sequence[dict[str, object]], tell: Callable[[int], None]
    ) -> list[Any]:
        """Answer all requests, in their order. `tell` is called with the number of those that are done.

        `LLM.generate` would take the token ids of these inputs and silently drop their images.
        """
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind

        final = {"output_kind": RequestOutputKind.FINAL_ONLY}
        engine = self._llm.llm_engine
        replies: dict[str, Any] = {}
        try:
            settings = [SamplingParams(**value, **final) for value in values]
        except (ValueError, VLLMClientError) as error:  # the same for all prompts, so not a RequestRefusedError
            raise RunError(f"vLLM refuses the sampling values: {error}") from error
        names = [f"rollout-{place}" for place in range(len(inputs))]
        try:
            for name, request, setting in zip(names, inputs, settings, strict=True):
                try:
                    engine.add_request(name, request, setting)
                except (ValueError, VLLMClientError) as error:
                    raise RequestRefusedError(f"vLLM refuses the request: {error}") from error
            while engine.has_unfinished_requests():
                finished = [reply for reply in engine.step() if reply.finished]
                replies |= {reply.request_id: reply for reply in finished}
                if finished:
                    tell(len(replies))
        finally:
            engine.abort_request([name for name in names if name not in replies])
        return [replies[name] for name in names]

    def sleep(self) -> None:
        """Release the memory of weights and caches, on a GPU."""
        if self._llm.llm_engine.vllm_config.model_config.enable_sleep_mode:
            self._llm.sleep(level=2)
            self.is_asleep = True

    def wake(self) -> None:
        """Take memory again; the weights must be sent next."""
        if self.is_asleep:
            self._llm.wake_up()
            self.is_asleep = False


def to_items(images: RequestImages) -> Any:
    """Return a prompt's images as vLLM's own image processor would."""
    from vllm.multimodal import inputs as modality

    config = {
        "pixel_values": modality.MultiModalFieldConfig.flat_from_sizes("image", images.grid_thw.prod(-1)),
        "image_grid_thw": modality.MultiModalFieldConfig.batched("image", keep_on_cpu=True),
    }
    tensors = {"pixel_values": images.pixel_values, "image_grid_thw": images.grid_thw}
    return modality.MultiModalKwargsItems.from_hf_inputs(BatchFeature(tensors), config)


def start_in_process(
    folder: str | PathLike[str],
    dtype: torch.dtype,
    *,
    max_tokens: int | None = None,
    memory_share: float = 0.3,
    logits_processors: Sequence[str] = (),
) -> InProcess:
    """Start vLLM in this process, with random weights. With several ranks, each has its own."""
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    vllm = import_vllm()
    is_cuda = torch.cuda.is_available()
    if not is_cuda:
        keep_plain_weights()
    register()
    from vllm.config import WeightTransferConfig

    llm = vllm.LLM(
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
        hf_overrides=tied_words(folder),
        gpu_memory_utilization=memory_share,  # on a CPU, of its memory
        **({"enable_sleep_mode": True} if is_cuda else on_cpu(folder)),
        **({"distributed_executor_backend": "external_launcher"} if num_ranks() > 1 else {}),
        **({"logits_processors": list(logits_processors)} if logits_processors else {}),
    )
    return InProcess(llm)


def import_vllm() -> Any:
    """Import vLLM. Raise a ConfigError if it is missing, or of another release than this package is tested with."""
    try:
        import vllm
    except ImportError as error:
        raise ConfigError([f"rollout.engine = vllm needs vLLM: {install_command('vllm')} ({error})."]) from error
    if not str(vllm.__version__).startswith(VERSION):
        raise ConfigError(
            [f"rollout.engine = vllm needs vLLM {VERSION}, found {vllm.__version__}: {install_command('vllm')}."]
        )
    return vllm


def tied_words(folder: str | PathLike[str]) -> dict[str, Any]:
    """Return overrides that tie the head to the embeddings in the text config, if only the top-level config does.

    vLLM reads the text config of Qwen3.5. Without them it would give the model a head of its own, which no sync sends.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    is_tied, text = getattr(config, "tie_word_embeddings", False), config.get_text_config()
    return {"text_config": {"tie_word_embeddings": True}} if is_tied and text is not config else {}


def on_cpu(folder: str | PathLike[str]) -> dict[str, object]:
    """Return options against splitting prompts: a split one cannot be sampled with a seed (vLLM 0.30, CPU only).

    Delta nets can share prefixes only if prompts may be split, so they share none.
    """
    model_type = AutoConfig.from_pretrained(folder, trust_remote_code=False).model_type
    return {"enable_chunked_prefill": False, "enable_prefix_caching": not model_type.startswith("qwen3_5")}


def keep_plain_weights() -> None:
    """Make vLLM's CPU layers keep their weights. Idempotent.

    By default they pack them when a model is loaded: later updates would raise, or be ignored silently.
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


def hand_over(llm: Any, weights: Iterable[Named]) -> None:
    """Send weights to an engine in this process, between the start and the end of an update."""
    _waiting[:] = [weights]
    try:
        llm.update_weights({"update_info": {}})
    finally:
        _waiting.clear()


def register() -> None:
    """Register the backend with vLLM. Idempotent."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory as factory  # noqa: N813

    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, _worker_side())


def _worker_side() -> type:
    """Define the worker's side. It is defined here because its base classes are vLLM's."""
    from vllm.distributed.weight_transfer import base
    from vllm.model_executor.model_loader import reload

    @dataclass
    class NoInit(base.WeightTransferInitInfo):  # type: ignore[misc]
        """There is no connection to open."""

    @dataclass
    class NoUpdate(base.WeightTransferUpdateInfo):  # type: ignore[misc]
        """The weights are already in this process."""

    class HandOver(base.WeightTransferEngine):  # type: ignore[misc]
        """Loads the waiting weights, with vLLM's own steps before and after, as its NCCL backend does."""

        init_info_cls, update_info_cls = NoInit, NoUpdate

        def init_transfer_engine(self, init_info: object) -> None:
            """Do nothing: there is no connection."""

        def start_weight_update(self) -> None:
            """Bring the layers back into the layout of a checkpoint."""
            reload.initialize_layerwise_reload(self.model)

        def receive_weights(self, update_info: object) -> None:
            """Load the weights, one tensor at a time."""
            self.model.load_weights(iter(_waiting.pop()))

        def finish_weight_update(self) -> None:
            """Bring the layers into the layout of the kernels."""
            reload.finalize_layerwise_reload(self.model, self.model_config)

        def shutdown(self) -> None:
            """Do nothing: there is no connection."""

    return HandOver
