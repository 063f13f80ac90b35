"""What of TrainingArguments is ours: values that would change the algorithm's step are refused, the rest is set.

One `training_step` is one step of the algorithm. Prompts per step and rollouts per prompt are global numbers, and
micro-batches are made inside the step by token budget, so a batch size per device or an accumulation count has no
meaning of its own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from transformers import integrations

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from transformers import TrainingArguments

REFUSED: dict[str, tuple[Any, str]] = {
    "gradient_accumulation_steps": (1, "Set prompts_per_step; micro-batches are made from it by token budget."),
    "per_device_train_batch_size": (8, "Set prompts_per_step, a global number; it is divided among the ranks."),
    "auto_find_batch_size": (False, "Out of memory halves the token budget by itself; set token_budget to choose it."),
    "load_best_model_at_end": (False, "The student at the end is the last one; export the checkpoint you want."),
    "push_to_hub": (False, "Nothing is sent anywhere; export the run and upload the folder yourself."),
    "save_only_model": (False, "A checkpoint without teacher and optimizer cannot be resumed; use `vcsd export`."),
    "fp16": (False, "Use bf16: the loss has no scaler."),
    "torch_compile": (False, "Packed rows change their shape in every step."),
    "label_smoothing_factor": (0.0, "The target is a distribution already."),
    "neftune_noise_alpha": (None, "Noise in the embeddings would change what the student is scored for."),
    "use_liger_kernel": (False, "The loss has its own kernels."),
    "eval_strategy": ("no", "Set evaluation.every and evaluation.benchmarks in the recipe."),
    "eval_on_start": (False, "Set evaluation.every and evaluation.benchmarks in the recipe."),
    "resume_from_checkpoint": (None, "resume: auto goes on from the latest checkpoint of trainer.output_dir."),
    "train_sampling_strategy": ("random", "Rows come in an order made from data_seed alone."),
}
"""Argument -> the value that leaves it alone, and what to use instead."""

OPTIMIZERS = ("adamw_torch", "adamw_torch_fused")
"""Those whose two moments are planned for in memory, saved and restored."""


def own_arguments(args: TrainingArguments, prompts_per_step: int) -> TrainingArguments:
    """A copy of the arguments with what one step needs; a ConfigError names every value that cannot be."""
    problems = [
        f"trainer.{name} = {getattr(args, name)!r} cannot be set. {advice}"
        for name, (allowed, advice) in REFUSED.items()
        if getattr(args, name, allowed) != allowed
    ]
    if args.optim not in OPTIMIZERS:
        given = str(getattr(args.optim, "value", args.optim))
        problems.append(f"trainer.optim = {given!r} cannot be resumed from. Allowed: {', '.join(OPTIMIZERS)}.")
    if args.save_strategy == "best":
        problems.append(
            "trainer.save_strategy = 'best' would save nothing. Set metric_for_best_model: the best checkpoint is kept."
        )
    problems += _reporter_problems(args)
    if args.world_size > 1 or args.n_gpu > 1:
        problems.append(
            f"{max(args.world_size, args.n_gpu)} devices were found; this version trains on one. "
            "Set CUDA_VISIBLE_DEVICES to the one to use."
        )
    if prompts_per_step < 1:
        problems.append(f"prompts_per_step = {prompts_per_step} must be at least 1.")
    if problems:
        raise ConfigError(problems)
    own = copy.copy(args)
    own.remove_unused_columns = False
    own.logging_nan_inf_filter = False  # it would show the running mean in place of a loss that is NaN
    own.data_seed = args.seed if args.data_seed is None else args.data_seed
    return own


def _reporter_problems(args: TrainingArguments) -> list[str]:
    """What keeps the integrations of `report_to` from starting: most often a package that is not installed."""
    try:
        find: Any = integrations.get_reporting_integration_callbacks  # type: ignore[attr-defined]
        for integration in find(args.report_to):
            integration()
    except (ImportError, RuntimeError, ValueError) as error:
        return [f"trainer.report_to = {args.report_to!r} cannot be used: {error}"]
    return []
