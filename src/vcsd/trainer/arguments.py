"""Which TrainingArguments this trainer controls, and the models it refuses.

One `training_step` is one step of the algorithm. Prompts per step and rollouts per prompt are global numbers, and the
step forms its micro-batches by token budget. So a batch size per device or an accumulation count has no meaning.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from traceback import walk_tb
from typing import TYPE_CHECKING

import torch
from transformers import integrations
from transformers.trainer_pt_utils import AcceleratorConfig

from vcsd.errors import ConfigError, VcsdError
from vcsd.method import TRAINER_DEFAULTS
from vcsd.parallel.launch import instead_of, launch_problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from torch import nn
    from transformers import TrainingArguments

    from vcsd.types import JsonValue

_MOST_REASON = 300
"""The most characters of another package's error that a message quotes."""

_WITHOUT_EFFECT: dict[str, dict[str, JsonValue]] = {
    "Nothing is uploaded during training; use `vcsd export RUN --push ORG/NAME`.": {
        **{"push_to_hub": False, "hub_token": None, "hub_private_repo": None, "hub_model_id": None},
        **{"hub_strategy": "every_save", "hub_always_push": False, "hub_revision": None},
    },
    "It would have no effect: questions are asked as the recipe's evaluation section says.": {
        **{"eval_steps": None, "eval_delay": 0, "per_device_eval_batch_size": 8, "prediction_loss_only": False},
        **{"eval_do_concat_batches": True, "eval_use_gather_object": False, "eval_accumulation_steps": None},
        **{"include_for_metrics": [], "batch_eval_metrics": False, "bf16_full_eval": False, "fp16_full_eval": False},
        **{"do_eval": False, "do_predict": False, "label_names": None},
    },
    "It would have no effect: rows are read by the run itself, from a cursor that checkpoints hold.": {
        **{"dataloader_drop_last": False, "dataloader_num_workers": 0, "dataloader_in_order": True},
        **{"dataloader_persistent_workers": False, "dataloader_prefetch_factor": None},
        **{"dataloader_multiprocessing_context": None, "ignore_data_skip": False},
        "length_column_name": "length",
    },
    "It would have no effect on this step. Leave it out.": {
        **{"optim_args": None, "optim_target_modules": None, "average_tokens_across_devices": True},
        **{"use_cache": False, "liger_kernel_config": None, "torch_empty_cache_steps": None},
        **{"include_num_input_tokens_seen": "no", "save_on_each_node": False, "parallelism_config": None},
        "restore_callback_states_from_checkpoint": False,
    },
}
"""Advice -> the arguments that would have no effect here, with their defaults."""

REFUSED: dict[str, tuple[JsonValue, str]] = {
    **{name: (default, advice) for advice, names in _WITHOUT_EFFECT.items() for name, default in names.items()},
    "gradient_accumulation_steps": (1, "Set prompts_per_step; micro-batches are made from it by token budget."),
    "per_device_train_batch_size": (8, "Set prompts_per_step, a global number; it is divided among the ranks."),
    "auto_find_batch_size": (False, "The token budget is halved when out of memory; set token_budget to choose it."),
    "load_best_model_at_end": (False, "A run ends with its last student; export the checkpoint you want."),
    "save_only_model": (False, "A checkpoint without teacher and optimizer cannot be resumed; use `vcsd export`."),
    "fp16": (False, "Use bf16: the loss has no scaler."),
    "torch_compile": (False, "Packed rows have a different shape in every step."),
    "label_smoothing_factor": (0.0, "The target is already a distribution."),
    "neftune_noise_alpha": (None, "Noise in the embeddings would change the student's scores."),
    "use_liger_kernel": (False, "The loss has its own kernels."),
    "eval_strategy": ("no", "Set evaluation.every and evaluation.benchmarks in the recipe."),
    "eval_on_start": (False, "Set evaluation.every and evaluation.benchmarks in the recipe."),
    "enable_jit_checkpoint": (False, "`vcsd train` already saves on SIGTERM; from Python, use OnSignal."),
    "resume_from_checkpoint": (None, "resume: auto continues from the latest checkpoint in trainer.output_dir."),
    "deepspeed": (None, instead_of("DeepSpeed")),
    "train_sampling_strategy": ("random", "The order of rows depends on data_seed alone."),
}
"""Argument -> its default, and what to use instead of another value."""

OPTIMIZERS = ("adamw_torch", "adamw_torch_fused")
"""Optimizers whose two moments are budgeted for, saved and restored."""


def own_arguments(args: TrainingArguments, prompts_per_step: int, *, is_dry: bool = False) -> TrainingArguments:
    """Copy the arguments and set what a step needs. A ConfigError names every value that is not allowed.

    A dry run does not need the ranks that a run needs.
    """
    problems = [
        f"trainer.{name} = {_as_given(name, getattr(args, name))} cannot be set. {advice}"
        for name, (allowed, advice) in REFUSED.items()
        if getattr(args, name, allowed) != allowed
    ]
    problems += [
        f"trainer.{name} = True cannot be set. The trainer sets it to False."
        for name in ("ddp_find_unused_parameters", "ddp_broadcast_buffers")
        if getattr(args, name, None)
    ]
    accelerator: object = args.accelerator_config
    if accelerator is not None and accelerator != AcceleratorConfig():
        problems.append("trainer.accelerator_config cannot be set. Batches are made from prompts_per_step alone.")
    if args.optim not in OPTIMIZERS:
        name = str(getattr(args.optim, "value", args.optim))
        problems.append(f"trainer.optim = {name!r} cannot be resumed from. Allowed: {', '.join(OPTIMIZERS)}.")
    if args.save_strategy == "best":
        problems.append(
            "trainer.save_strategy = 'best' would save nothing. Set metric_for_best_model: the best checkpoint is kept."
        )
    problems += _range_problems(args)
    problems += _reporter_problems(args)
    problems += launch_problems(args, is_dry=is_dry)
    if prompts_per_step < 1:
        problems.append(f"prompts_per_step = {prompts_per_step} must be at least 1.")
    if problems:
        raise ConfigError(problems)
    own = copy.copy(args)
    own.remove_unused_columns = False
    own.logging_nan_inf_filter = False  # it would log the running mean in place of a NaN loss
    own.data_seed = args.seed if args.data_seed is None else args.data_seed
    own.mixed_precision = "bf16" if args.bf16 else "no"  # accelerate's launcher may ask for another one
    own.fsdp = own.fsdp_plugin_args = None  # the trainer shards by itself
    own.ddp_find_unused_parameters = False  # the last pass of a step touches all of them
    own.ddp_broadcast_buffers = False  # they are the same on all ranks
    return own


def too_rare(args: TrainingArguments, num_steps: int) -> str | None:
    """Say what a run would not do before its end, because it has fewer steps; None if there is nothing.

    TrainingArguments log and save every 500 steps by default, and the paper's runs have 90.
    """
    effects = {}
    if args.report_to and args.logging_strategy == "steps" and args.logging_steps > num_steps:
        effects["logging_steps"] = f"{', '.join(args.report_to)} would get no metrics"
    if args.save_strategy == "steps" and args.save_steps >= num_steps > int(TRAINER_DEFAULTS["save_steps"]):
        effects["save_steps"] = "no checkpoint would be saved before the end"
    if not effects:
        return None
    given = " and ".join(f"{name} = {getattr(args, name):g}" for name in effects)
    ours = " and ".join(f"{TRAINER_DEFAULTS[name]}" for name in effects)
    return (
        f"{given}, but the run has {num_steps} steps: {', and '.join(effects.values())}. "
        f"The value in vcsd.method.TRAINER_DEFAULTS is {ours}."
    )


def _as_given(name: str, value: object) -> str:
    """Show a value in a message, but not a secret one.

    >>> _as_given("hub_token", "hf_abc"), _as_given("fp16", True)
    ('***', 'True')
    """
    return "***" if name.endswith("token") else repr(getattr(value, "value", value))


def _range_problems(args: TrainingArguments) -> list[str]:
    """Report numbers that transformers accepts, but that would make a run increase its loss or never save."""
    problems = []
    for name in ("seed", "data_seed"):
        seed = getattr(args, name)
        if seed is not None and not 0 <= seed < 2**32:
            problems.append(f"trainer.{name} = {seed} is not a seed. Give a number from 0 to 2**32 - 1.")
    if args.save_total_limit is not None and args.save_total_limit < 1:
        problems.append(
            f"trainer.save_total_limit = {args.save_total_limit} must be at least 1. Leave it out to keep all."
        )
    if args.max_grad_norm is not None and not args.max_grad_norm >= 0:
        problems.append(f"trainer.max_grad_norm = {args.max_grad_norm:g} must be at least 0, which clips nothing.")
    if not args.learning_rate >= 0:
        problems.append(f"trainer.learning_rate = {args.learning_rate:g} must be at least 0. The paper's is 2e-6.")
    if args.save_strategy == "steps" and not args.save_steps > 0:
        problems.append(
            f"trainer.save_steps = {args.save_steps:g} would never save. Set trainer.save_strategy=no if you mean that."
        )
    return problems


def _reporter_problems(args: TrainingArguments) -> list[str]:
    """Report why an integration of `report_to` cannot start, most often because a package is missing."""
    find = getattr(integrations, "get_reporting_integration_callbacks")  # noqa: B009  untyped in transformers
    try:
        for integration in find(args.report_to):
            integration()
    except (ImportError, RuntimeError, ValueError) as error:
        return [f"trainer.report_to = {args.report_to!r} cannot be used: {error}"]
    return []


@contextmanager
def explained_services() -> Iterator[None]:
    """Turn the error of a service of `report_to` that cannot start, such as W&B without a login, into a ConfigError."""
    try:
        yield
    except Exception as error:
        service = next(filter(None, map(_starting_service, walk_tb(error.__traceback__))), None)
        if service is None or isinstance(error, VcsdError):
            raise
        why = " ".join(str(error).split())[:_MOST_REASON].rstrip(".")
        raise ConfigError(
            [f"trainer.report_to: {service} cannot start: {why}. Fix that, or set trainer.report_to to none."]
        ) from error


def _starting_service(place: tuple[FrameType, int]) -> str | None:
    """Return the class of the callback of transformers that a frame of a traceback sets up, such as WandbCallback."""
    frame, _ = place
    callback = type(frame.f_locals.get("self"))
    is_service = callback.__module__.startswith(integrations.__name__) and frame.f_code.co_name == "setup"
    return callback.__name__ if is_service else None


def refuse_offload(*, is_half: bool, has_adapters: bool, is_sharded: bool) -> None:
    """Raise a ConfigError if a run cannot keep its moments and its teacher in host memory, or has no reason to."""
    if has_adapters:
        raise ConfigError(
            ["offload = true has no use with LoRA: adapters and their moments are small. Set offload: false."]
        )
    if is_sharded:
        raise ConfigError(["offload = true works with whole weights. With FSDP2, use more ranks instead."])
    if not is_half:
        raise ConfigError(
            [
                "offload = true keeps a bfloat16 teacher on the device, but trainer.bf16 is false. "
                "Set trainer.bf16: true, or offload: false."
            ]
        )


def refuse_dither(*, is_half: bool, has_adapters: bool, has_teacher: bool = False) -> None:
    """Raise a ConfigError if a run rounds no weights that it trains, or has a teacher that lacks the offsets."""
    if has_adapters:
        raise ConfigError(
            ["model.dither = true has no effect with LoRA: the model itself is frozen. Set model.dither: false."]
        )
    if not is_half:
        raise ConfigError(
            [
                "model.dither = true has no effect, because trainer.bf16 is false: no weight is rounded. "
                "Set trainer.bf16: true, or model.dither: false."
            ]
        )
    if has_teacher:
        raise ConfigError(["a teacher was built without the offsets of model.dither. Leave the teacher out."])


def refuse_reentrant(args: TrainingArguments, *, adapts_vision: bool) -> None:
    """Raise a ConfigError for checkpointing under which adapters of the vision tower would get no gradient.

    A reentrant checkpoint passes a gradient only if its input needs one, and embedded patches of a frozen base do not.
    """
    settings = args.gradient_checkpointing_kwargs
    is_reentrant = isinstance(settings, dict) and bool(settings.get("use_reentrant"))
    if args.gradient_checkpointing and is_reentrant and adapts_vision:
        raise ConfigError(
            [
                "trainer.gradient_checkpointing_kwargs.use_reentrant = true would leave the adapters of the vision "
                "tower untrained. Leave it out, or set it to false."
            ]
        )


def refuse_half_precision(model: nn.Module) -> None:
    """Raise a ConfigError if a trained weight is in half precision: updates at a learning rate of 2e-6 would vanish."""
    half = {
        str(p.dtype).removeprefix("torch.")
        for p in model.parameters()
        if p.requires_grad and p.dtype.itemsize < torch.float32.itemsize
    }
    if half:
        raise ConfigError(
            [
                f"trained weights are in {' and '.join(sorted(half))}, where updates at a learning rate of 2e-6 "
                "round to zero. Load the model with dtype=torch.float32 and set bf16=True to compute in bfloat16."
            ]
        )
