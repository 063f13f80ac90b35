"""Preview a run (`--dry-run`): what it would do and need, on this machine or another."""

from __future__ import annotations

import math
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vcsd.batch import show
from vcsd.checkpoint.disk_space import DiskNeeds, existing_folder, free_bytes, num_saves_after
from vcsd.checkpoint.folder import checkpoints_of
from vcsd.data import MIN_ROWS_SEEN, Skips, Stream, load_examples
from vcsd.data.order import Order
from vcsd.data.stream import refuse_too_few
from vcsd.errors import ConfigError, DataError, nearest_path, similar_path
from vcsd.inputs import check_count, check_fields
from vcsd.lora.attach import require_peft
from vcsd.models.encode import encode
from vcsd.models.hub import local_folder
from vcsd.models.messages.prompt_length import within_model
from vcsd.models.shapes import known_shape
from vcsd.parallel.launch import wants_shards
from vcsd.projection.changes import changes_that_fit
from vcsd.projection.machines import MACHINES, Machine, measure_card
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.outlook import CheckedRows, DiskOutlook, Outlook, ShownPrompt
from vcsd.projection.project import project, smallest_machine
from vcsd.run import checked_arguments, load, load_exam, resumed_step
from vcsd.student import base_dtype
from vcsd.views.original import original

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from transformers import PretrainedConfig, TrainingArguments

    from vcsd.batch import Shown
    from vcsd.config.recipe import Recipe
    from vcsd.data import Source
    from vcsd.evaluation.live import LiveExam
    from vcsd.projection.project import Job, Projection, Sizes, Step
    from vcsd.run import Loaded
    from vcsd.types import Example


ROWS_CHECKED = 256
"""Prepare at most this many rows: the first ones that the run would read."""

SECONDS_CHECKED = 5.0
"""After this long, no further row is prepared."""

ROWS_LISTED = 8
"""List at most this many unusable rows, besides the last one."""


def preview(recipe: Recipe, machine: Machine | None = None) -> Outlook:
    """Describe what a run would do and need, from shapes alone if weights or data are not on this machine.

    Projects the run on `machine` if it is given, else on this machine if that can run the recipe, else on the smallest
    machine that fits. Raises a ConfigError if `train` would, except for what only this machine lacks.
    """
    has_data = Path(recipe.data.path).exists()
    has_weights = local_folder(recipe.model.path) is not None or known_shape(recipe.model.path) is None
    if has_data and has_weights:
        return preview_loaded(load(recipe, is_dry=True), machine)
    if not has_data and machine is None and similar_path(recipe.data.path, wants_file=True) is not None:
        elsewhere = "To plan for a machine that has it, add --card, such as --card 24GB."
        near = nearest_path(recipe.data.path, wants_file=True)
        raise ConfigError([f"there is no data at {recipe.data.path!r}.{near} {elsewhere}"])
    arguments = checked_arguments(recipe, is_dry=True)
    model, source = empty_model(recipe)
    job = job_of(recipe, model)
    data, rows = _data_alone(recipe, arguments) if has_data else (_missing(recipe.data.path), None)
    data += f" Prompts of {job.step.prompt_tokens:,} tokens are assumed, at most {job.longest_prompt:,}"
    data += _about_budget(recipe, job.step)
    is_local = local_folder(recipe.model.path) is not None
    is_asked = machine is not None
    outlook = Outlook(recipe, job, _anywhere(job, machine), data, None if is_local else source, is_asked=is_asked)
    return with_advice(replace(outlook, rows=rows, exam=_own_questions(recipe, needs_files=has_data)))


def _own_questions(recipe: Recipe, *, needs_files: bool) -> str | None:
    """Check the files of `evaluation.tsv` and count their questions; None if there are none. Loads no benchmarks.

    A missing file may be on another machine, unless `needs_files`.
    """
    evaluation = recipe.evaluation
    missing = [path for path in evaluation.tsv or () if not Path(path).is_file()]
    if missing and evaluation.every is not None and not needs_files:
        return _missing(missing[0])
    own_only = evaluation.model_copy(update={"benchmarks": []})
    exam = load_exam(recipe.model_copy(update={"evaluation": own_only})) if evaluation.tsv else None
    return None if exam is None else _when_asked(exam, besides=evaluation.benchmarks)


def _when_asked(exam: LiveExam, besides: Sequence[str] = ()) -> str:
    """Say how many questions are asked and when. `besides` are benchmarks that are not loaded."""
    more = f" and those of {', '.join(besides)}" if besides else ""
    return f"{len(exam.questions)} questions{more} before the first step, every {exam.every} steps and at the end"


def _missing(path: str) -> str:
    """Report data that is not on this machine. The path may be mistyped, or exist on another machine only."""
    return f"{path}: not on this machine.{nearest_path(path, wants_file=True)}"


def _data_alone(recipe: Recipe, arguments: TrainingArguments) -> tuple[str, CheckedRows]:
    """Describe and check data without the model's processor: images are decoded, prompts are not encoded."""
    examples = load_examples(**recipe.data.for_loading())
    check_count(examples, recipe.prompts_per_step)
    check_fields(examples, recipe.method)
    return examples.report(), _check_first_rows(examples, arguments, recipe, original)


def preview_loaded(loaded: Loaded, machine: Machine | None = None) -> Outlook:
    """Preview a recipe whose data and processor are loaded. Raise a ConfigError if it does not fit on this machine."""
    recipe = loaded.recipe
    model, _ = empty_model(recipe)
    shown = _first(loaded, model.config)
    job = job_of(recipe, model, shown.num_prompt_tokens)
    _refuse_small_budget(recipe, job.step)
    is_ours = machine is None and (bool(loaded.arguments.bf16) or not recipe.trainer["bf16"])
    is_here = is_ours and not wants_shards(loaded.arguments)
    if is_here and recipe.lora.rank is not None:
        require_peft()
    exam = None if loaded.exam is None else _when_asked(loaded.exam)
    job, projection = _here(loaded, job) if is_here else (job, _anywhere(job, machine))
    last_step = resumed_step(loaded.output, recipe.resume) if is_ours else 0
    disk = _disk(loaded, job.sizes, last_step) if is_ours else None
    data, is_asked = loaded.examples.report(), machine is not None
    outlook = Outlook(recipe, job, projection, data, None, exam, _prompts(recipe, shown), is_here, is_asked)
    settings = _settings(loaded, model.config)
    rows = _check_first_rows(
        loaded.examples,
        loaded.arguments,
        recipe,
        lambda example: encode(loaded.processor, original(example), **settings),
    )
    return with_advice(replace(outlook, rows=rows, disk=disk, last_step=last_step), shown.num_prompt_tokens)


def _check_first_rows(
    examples: Source, arguments: TrainingArguments, recipe: Recipe, prepare: Callable[[Example], object]
) -> CheckedRows:
    """Read and prepare the rows that the run would read first, for a few seconds at most.

    Raises a ConfigError if too many are unusable for the run to finish.
    """
    order = Order(len(examples), seed=_data_seed(arguments))
    skips = Skips(max_share=recipe.data.max_skipped_share)
    skips.num_rows = len(examples)
    errors: dict[int, DataError] = {}
    start = time.monotonic()
    with _listed(errors, skips):
        for position in range(min(len(examples), ROWS_CHECKED)):
            try:
                example = examples[order.row(position)]
                recipe.method.check(example)
                prepare(example)
            except DataError as error:
                errors[order.row(position)] = error
                skips.skip(error, position=position)
            else:
                skips.use()
            if time.monotonic() - start > SECONDS_CHECKED:
                break
        num_checked = skips.num_seen
        if num_checked == len(examples):
            refuse_too_few(num_checked - skips.num_skipped, recipe.prompts_per_step, num_checked, skips)
            _read_again(skips, order, errors, arguments.max_steps * recipe.prompts_per_step)
    messages = tuple(str(error) for error in errors.values())
    return CheckedRows(len(examples), num_checked, skips.summary(), messages)


@contextmanager
def _listed(errors: Mapping[int, DataError], skips: Skips) -> Iterator[None]:
    """Add the other unusable rows to an error that names only the last: a dry run writes no skipped.jsonl."""
    try:
        yield
    except ConfigError as error:
        others = [str(each) for each in errors.values() if each is not skips.last]
        more = [f"... and {len(others) - ROWS_LISTED:,} more"] if len(others) > ROWS_LISTED else []
        listed = "\n  ".join(["The others:", *others[:ROWS_LISTED], *more]) if others else ""
        *problems, last = error.problems
        raise ConfigError([*problems, f"{last}\n{listed}".rstrip()]) from error


def _read_again(skips: Skips, order: Order, errors: dict[int, DataError], num_prompts: int) -> None:
    """Count the rows of a short file again, once per epoch, as a run does.

    Raises a ConfigError if too many are unusable for the run to finish.
    """
    num_rows = skips.num_seen
    for position in range(num_rows, MIN_ROWS_SEEN + num_rows):
        if skips.num_seen - skips.num_skipped >= num_prompts:
            return
        if (error := errors.get(order.row(position))) is not None:
            skips.skip(error, position=position)
        else:
            skips.use()


def _data_seed(arguments: TrainingArguments) -> int:
    """Return the seed of the order of the rows."""
    return arguments.seed if arguments.data_seed is None else arguments.data_seed


def _settings(loaded: Loaded, config: PretrainedConfig) -> dict[str, Any]:
    """Return the settings for encoding prompts, within the positions of the model."""
    return within_model(loaded.prompt_settings, config, loaded.recipe.rollout.max_new_tokens)


def with_advice(outlook: Outlook, prompt_tokens: int | None = None) -> Outlook:
    """If the recipe does not fit on the machine, add changes and a machine with which it would."""
    if outlook.fits:
        return outlook
    changes = changes_that_fit(outlook.recipe, outlook.projection.machine, prompt_tokens)
    return replace(outlook, changes=tuple(changes), elsewhere=smallest_machine(outlook.job, MACHINES))


def _anywhere(job: Job, machine: Machine | None) -> Projection:
    """Project a run on a machine; without one, on the smallest that fits, or else on the largest known."""
    if machine is not None:
        return project(job, machine)
    return smallest_machine(job, MACHINES) or project(job, MACHINES[-1])


def _prompts(recipe: Recipe, shown: Shown) -> tuple[ShownPrompt, ...]:
    """Return the first prompt as student and teacher see it."""
    views = {
        "student": ("original", shown.student),
        "target": (recipe.method.target_view, shown.target),
        "contrast": (shown.contrast_view or "", shown.contrast),
    }
    return tuple(
        ShownPrompt(role, view, len(encoded), encoded.text)
        for role, (view, encoded) in views.items()
        if encoded is not None
    )


def _here(loaded: Loaded, job: Job) -> tuple[Job, Projection]:
    """Project a run in this machine's precision, after timing it. Raise a ConfigError if the run does not fit."""
    device, is_half = loaded.arguments.device, bool(loaded.arguments.bf16)
    is_cuda = device.type == "cuda"
    base_bytes = base_dtype(loaded.recipe, is_half=is_half).itemsize
    sizes = replace(job.sizes, has_half_copy=is_cuda and is_half, base_bytes=base_bytes)
    _refuse_misfits(loaded, sizes)
    dtype = torch.bfloat16 if is_half and is_cuda else torch.float32
    job = replace(job, sizes=sizes)
    return job, project(job, Machine(measure_card(device, dtype, _memory_of(device))))


def _about_budget(recipe: Recipe, step: Step) -> str:
    """Return a warning if a row cannot hold a prompt of the assumed length. Raise an error if it cannot hold any."""
    budget, response = recipe.token_budget, step.response_tokens
    if budget is None or budget >= step.prompt_tokens + response:
        return ""
    if budget <= response:
        raise ConfigError(
            [
                f"token_budget = {budget} leaves no room for a prompt besides one full response ({response} tokens). "
                "Raise it, or lower rollout.max_new_tokens."
            ]
        )
    return f". With one full response they are longer than token_budget ({budget:,}): check it against your data"


def _refuse_small_budget(recipe: Recipe, step: Step) -> None:
    """Raise an error if a row cannot hold the first prompt with one response."""
    budget = recipe.token_budget
    longest = step.prompt_tokens + step.response_tokens
    if budget is not None and budget < longest:
        raise ConfigError(
            [
                f"token_budget = {budget} is less than the first prompt with one full response ({longest} tokens). "
                "Raise it, or lower model.max_pixels or rollout.max_new_tokens."
            ]
        )


def _refuse_misfits(loaded: Loaded, sizes: Sizes) -> None:
    """Raise an error if memory is too small for the run."""
    device = loaded.arguments.device
    if sizes.memory_bytes > (total := _memory_of(device)):
        can_offload = device.type == "cuda" and not loaded.recipe.offload
        advice = f"Train LoRA adapters (lora.rank: 32), {'set offload: true, ' if can_offload else ''}freeze"
        raise ConfigError(
            [
                f"weights, teacher, gradients and moments need {sizes.memory_bytes / 2**30:.1f} GiB, {device} has "
                f"{total / 2**30:.1f} GiB. {advice} a part of the model, or choose a smaller one."
            ]
        )
    if sizes.host_bytes > (total := _memory_of(torch.device("cpu"))):
        raise ConfigError(
            [
                f"offload = true needs {sizes.host_bytes / 2**30:.1f} GiB of host memory for teacher and moments, this "
                f"machine has {total / 2**30:.1f} GiB. Train LoRA adapters (lora.rank: 32) instead, freeze a part of "
                "the model, or choose a smaller one."
            ]
        )


def _disk(loaded: Loaded, sizes: Sizes, last_step: int) -> DiskOutlook:
    """Compare what the run will save with what is free. Raise an error if not even one checkpoint can be written."""
    output, arguments, recipe = loaded.output, loaded.arguments, loaded.recipe
    existing = existing_folder(output)
    if not os.access(existing, os.W_OK):
        raise ConfigError([f"trainer.output_dir = {str(output)!r}: {existing} cannot be written to. Choose another."])
    steps_per_epoch = max(1, len(loaded.examples) // recipe.prompts_per_step)
    needs = DiskNeeds(
        checkpoint_bytes=sizes.checkpoint_bytes,
        export_bytes=sizes.export_bytes,
        num_there=len(checkpoints_of(output)),
        num_saves=num_saves_after(last_step, arguments, steps_per_epoch),
        limit=arguments.save_total_limit,
        num_protected=(arguments.metric_for_best_model is not None) + (recipe.guard != "off"),
        saves_if_stopped=arguments.save_strategy == "no",
    )
    needs.refuse(output)
    return DiskOutlook(needs.num_bytes, free_bytes(output), needs.warning(output))


def _memory_of(device: torch.device) -> float:
    """Return the total memory of a device or of the machine, in bytes; infinity if it is unknown."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return math.inf


def _first(loaded: Loaded, config: PretrainedConfig) -> Shown:
    """Return the first example of the run under every view."""
    stream = Stream(loaded.examples, seed=_data_seed(loaded.arguments), skips=Skips(max_share=1.0))
    method, settings = loaded.recipe.method, _settings(loaded, config)
    return stream.take_prepared(0, 1, lambda example: show(example, method, loaded.processor, **settings)).items[0]
