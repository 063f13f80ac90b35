"""What a recipe needs, from shapes alone: memory, time, disk, and the smallest machine that fits.

`vcsd train RECIPE --dry-run` prints these lines. Neither weights nor data nor a GPU is needed for them; what is not on
this machine is replaced by the shapes of the released model and by the lengths that the recipe allows.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from vcsd.errors import ConfigError
from vcsd.models.hub import local_folder
from vcsd.models.shapes import known_shape
from vcsd.projection.machines import MACHINES
from vcsd.projection.project import CHUNKED_LOSS, Job, Sizes, Step, project, smallest_machine
from vcsd.student import base_dtype, trained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcsd.config.recipe import Recipe
    from vcsd.projection.machines import Machine
    from vcsd.projection.project import Projection

TYPICAL_PROMPT = 1064
"""Tokens of a prompt where no data says otherwise: an image of one megapixel with a short question."""

_PIXELS_PER_TOKEN = 32 * 32


def empty_model(recipe: Recipe) -> tuple[Any, str]:
    """Build the recipe's model on the meta device, and say where its shapes come from."""
    path = recipe.model.path
    folder, shape = local_folder(path), known_shape(path)
    if folder is not None:
        config, source = AutoConfig.from_pretrained(folder, trust_remote_code=False), f"{folder / 'config.json'}"
    elif shape is not None:
        config, source = shape.config(), shape.source
    else:
        raise ConfigError(
            [f"model.path = {path!r} is neither a folder nor a model on the hub whose shapes are known here."]
        )
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    return trained(model, recipe, recipe.trainer.get("seed", 42)), source


def job_of(recipe: Recipe, model: Any, prompt_tokens: int | None = None) -> Job:
    """Describe a recipe for a projection. `prompt_tokens` is a measured length, if there is data to measure."""
    method, rollout, trainer = recipe.method, recipe.rollout, recipe.trainer
    longest = _longest_prompt(recipe, prompt_tokens)
    typical = min(prompt_tokens or TYPICAL_PROMPT, longest)
    is_half = bool(trainer.get("bf16"))
    sizes = Sizes.of(
        model,
        has_teacher=method.teacher != "current",
        has_half_copy=is_half,
        base_bytes=base_dtype(recipe, is_half=is_half).itemsize,
        is_offloaded=recipe.offload,
    )
    return Job.of(
        model,
        sizes,
        Step(recipe.prompts_per_step, rollout.num_per_prompt, typical, rollout.max_new_tokens),
        longest,
        num_looks=1 if method.contrast_view is None else 2,
        is_checkpointed=bool(trainer.get("gradient_checkpointing")),
        token_budget=recipe.token_budget,
        loss_factor=CHUNKED_LOSS if method.objective().needs_chunked else 1.0,
    )


def _longest_prompt(recipe: Recipe, prompt_tokens: int | None) -> int:
    """The longest prompt that the recipe allows; without a limit, the typical one."""
    pixels = recipe.model.max_pixels
    limits = [recipe.data.max_prompt_tokens, None if pixels is None else pixels // _PIXELS_PER_TOKEN + 200]
    known = [limit for limit in limits if limit is not None]
    return max(min(known) if known else TYPICAL_PROMPT, prompt_tokens or 0)


def from_shapes(recipe: Recipe, machine: Machine | None = None) -> Iterator[str]:
    """Yield what the run needs, without weights and data: on a machine, or on the smallest that fits."""
    model, source = empty_model(recipe)
    if local_folder(recipe.model.path) is None:
        yield f"weights: {recipe.model.path} is not on this machine; its shapes are from {source}"
    job = job_of(recipe, model)
    if not Path(recipe.data.path).exists():
        yield (
            f"data: there is no data at {recipe.data.path!r}; assuming prompts of {job.step.prompt_tokens:,} tokens, "
            f"at most {job.longest_prompt:,}"
        )
    yield from size_lines(recipe, job)
    yield from machine_lines(recipe, job, machine)


def size_lines(recipe: Recipe, job: Job) -> Iterator[str]:
    """Yield the size of a step, of the model and of a checkpoint."""
    step, sizes = job.step, job.sizes
    budget = recipe.token_budget or "measured before the first step"
    yield (
        f"steps: {recipe.trainer['max_steps']}, each with {step.num_prompts} prompts x {step.num_rollouts} rollouts "
        f"and up to {step.num_tokens:,} tokens; tokens per row: {budget}"
    )
    yield f"parameters: {sizes.num_parameters:,}, trained: {sizes.num_trained:,}"
    if sizes.host_bytes:
        yield f"host memory for teacher and moments: {sizes.host_bytes / 2**30:.2f} GiB"
    yield f"a checkpoint: {sizes.checkpoint_bytes / 2**30:.2f} GiB {_when_saved(recipe)}"


def machine_lines(recipe: Recipe, job: Job, machine: Machine | None) -> Iterator[str]:
    """Yield the projection on a machine, or on the smallest that fits."""
    found = smallest_machine(job, MACHINES) if machine is None else project(job, machine)
    if found is None:
        yield f"machine: none of those known fits, up to {MACHINES[-1].name}. See docs/scaling.md."
        return
    name = found.machine.name
    if machine is not None and not found.fits:
        yield f"machine: {name} is too small: {_gib(found.smallest_bytes)} of {found.machine.card.gib:.0f} GiB per GPU."
        better = smallest_machine(job, MACHINES)
        yield f"smallest machine that fits: {better.machine.name if better else 'none of those known'}"
        return
    label = "smallest machine that fits" if machine is None else "machine"
    yield f"{label}: {name} (projected; docs/scaling.md says how well)"
    yield (
        f"memory per GPU: {_gib(found.constant_bytes)} GiB before the first row, {_gib(found.smallest_bytes)} with the "
        f"longest prompt, of {found.machine.card.gib:.0f}; rows of about {found.budget:,} tokens"
    )
    yield time_line(recipe, job, found)


def time_line(recipe: Recipe, job: Job, found: Projection) -> str:
    """The seconds of a step by phase, and the duration of the run."""
    shown = {name: f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}" for name, seconds in found.seconds.items()}
    parts = ", ".join(f"{name} {seconds}" for name, seconds in shown.items() if float(seconds))
    total = found.step_seconds * recipe.trainer["max_steps"]
    duration = f"{total / 3600:.2g} h" if total >= 3600 else f"{total / 60:.2g} min"
    return (
        f"time, roughly: {found.step_seconds:.3g} s per step ({parts or 'all phases short'}) and {duration} in total, "
        f"if every response has {job.step.response_tokens:,} tokens"
    )


def _when_saved(recipe: Recipe) -> str:
    """When checkpoints are saved and how many are kept."""
    trainer = recipe.trainer
    kept = f"keeping {trainer.get('save_total_limit') or 'all'}"
    strategy = trainer.get("save_strategy", "steps")
    if strategy != "steps":
        return f"(trainer.save_strategy: {strategy}), {kept}"
    every = trainer.get("save_steps", 500)
    steps = every if every >= 1 else math.ceil(every * trainer["max_steps"])
    return f"every {steps:g} steps, {kept}"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f}"
