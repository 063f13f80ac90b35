"""How a run was launched: alone, or on several ranks with DDP or FSDP2. Other ways are refused with advice.

`accelerate launch` and `torchrun` start the processes. FSDP2 is asked for by `trainer.fsdp: true` or by accelerate's
configuration (`fsdp_version: 2`). Weights are sharded by `vcsd.parallel.sharding`, so accelerate must not do it too.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from transformers import TrainingArguments

_FSDP = "ACCELERATE_USE_FSDP"
_COMPILER = "ACCELERATE_DYNAMO_BACKEND"
_REFUSED_ENGINES = {"ACCELERATE_USE_DEEPSPEED": "DeepSpeed", "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM"}
_KNOWN_FSDP_KEYS = {
    *("version", "auto_wrap_policy", "state_dict_type", "reshard_after_forward", "cpu_ram_efficient_loading"),
    *("xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt", "min_num_params", "sync_module_states", "use_orig_params"),
}
"""Keys of `fsdp_config` that transformers fills in itself, or that change nothing here."""


def wants_shards(args: TrainingArguments) -> bool:
    """Whether the arguments or accelerate's launcher ask for FSDP."""
    return bool(args.fsdp) or _is_on(_FSDP)


@contextmanager
def without_accelerates_fsdp() -> Iterator[None]:
    """Hide accelerate's request for FSDP: transformers would load weights on one rank only, accelerate would shard."""
    value = os.environ.pop(_FSDP, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[_FSDP] = value


@contextmanager
def without_wrong_advice() -> Iterator[None]:
    """Hide one warning: with FSDP, transformers advises a setting that `launch_problems` refuses."""
    logger = logging.getLogger("transformers.training_args")
    logger.addFilter(_is_right)
    try:
        yield
    finally:
        logger.removeFilter(_is_right)


def _is_right(record: logging.LogRecord) -> bool:
    return "transformers/issues/30404" not in record.getMessage()  # its wording changes


def refused_engines() -> list[str]:
    """Describe the unsupported engines that the launcher asks for. Call it before TrainingArguments."""
    return [instead_of(name) for variable, name in _REFUSED_ENGINES.items() if _is_on(variable)]


def launch_problems(args: TrainingArguments, *, is_dry: bool = False) -> list[str]:
    """Describe what is wrong with the way a run was launched. A dry run is not launched, so it may lack ranks."""
    problems = refused_engines()
    if args.n_gpu > 1 and not is_dry:
        problems.append(
            f"one process sees {args.n_gpu} GPUs. Start one process for each, `torchrun --nproc-per-node {args.n_gpu} "
            "-m vcsd train RECIPE`, or set CUDA_VISIBLE_DEVICES to one of them."
        )
    if (compiler := os.environ.get(_COMPILER, "no")).lower() != "no" and not is_dry:
        problems.append(
            f"accelerate's dynamo_backend = {compiler} is not supported: packed rows have a different shape in every "
            "step. Set dynamo_backend: no."
        )
    if wants_shards(args):
        problems += _fsdp_problems(args, is_dry=is_dry)
    return problems


def instead_of(engine: str) -> str:
    """Say what to use instead of an engine that is not supported."""
    return (
        f"{engine} is not supported. Use FSDP2, which shards weights, gradients, moments and the teacher as well: "
        "`torchrun --nproc-per-node N -m vcsd train RECIPE trainer.fsdp=true`."
    )


def _fsdp_problems(args: TrainingArguments, *, is_dry: bool) -> list[str]:
    config: Mapping[str, object] = args.fsdp_config if args.fsdp and isinstance(args.fsdp_config, dict) else {}
    version = str(config.get("version", 2)) if args.fsdp else os.environ.get("FSDP_VERSION", "1")
    problems = []
    if version != "2":
        problems.append(f"fsdp_version = {version} is not supported. Set fsdp_version: 2.")
    if config.get("activation_checkpointing") or _is_on("FSDP_ACTIVATION_CHECKPOINTING"):
        problems.append("fsdp_activation_checkpointing is not supported. Set trainer.gradient_checkpointing: true.")
    if config.get("cpu_offload") or _is_on("FSDP_OFFLOAD_PARAMS"):
        problems.append("fsdp_offload_params is not supported. Set it to false, or use more GPUs.")
    extra = [key for key in config if key not in {*_KNOWN_FSDP_KEYS, "activation_checkpointing", "cpu_offload"}]
    if extra:
        problems.append(f"trainer.fsdp_config has {', '.join(extra)}, which would be ignored. Remove it.")
    if not is_dry and args.world_size == 1 and "RANK" not in os.environ:
        problems.append(
            "trainer.fsdp = true needs ranks to shard over. Start the run with "
            "`torchrun --nproc-per-node N -m vcsd train RECIPE`."
        )
    return problems


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("true", "1", "yes")
