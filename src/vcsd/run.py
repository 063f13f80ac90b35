"""Run a recipe: load what it names, then train, or report what a run would do and need (`--dry-run`)."""

from __future__ import annotations

import json
import math
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import torch
from transformers import PrinterCallback

from vcsd.batch import show
from vcsd.checkpoint.folder import latest_checkpoint, refuse_full_disk
from vcsd.checkpoint.lock import only_process
from vcsd.checkpoint.rewind import last_good_step, require_step, rewind
from vcsd.data import Skips, Source, Stream, load_examples
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.asking.model_answerer import ModelAnswerer, folder_identity
from vcsd.evaluation.asking.presets import parse_sampling
from vcsd.evaluation.evaluate import Asking, load_questions
from vcsd.evaluation.live import LiveEvaluation, LiveExam
from vcsd.evaluation.reading.marking import Marking
from vcsd.inputs import check_count, check_fields, check_rows
from vcsd.models.hub import load_model, local_folder, model_folder, require_image_model
from vcsd.models.messages.prompt_length import within_model
from vcsd.models.processor import load_processor
from vcsd.models.shapes import known_shape
from vcsd.monitor import Guard, Watch, read_lines
from vcsd.monitor.machine import ENVIRONMENT, hardware, versions
from vcsd.parallel.launch import refused_engines, wants_shards, without_accelerates_fsdp
from vcsd.parallel.ranks import entered_by_first, is_first, on_first
from vcsd.projection.machines import Machine, measure_card
from vcsd.projection.needs import empty_model, from_shapes, job_of, machine_lines, size_lines, time_line
from vcsd.projection.project import project
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.proven_rollouts import VLLMSettings
from vcsd.step import RolloutSettings
from vcsd.student import base_dtype, trained
from vcsd.trainer import VCSDTrainer
from vcsd.trainer.arguments import own_arguments, refuse_offload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from transformers import PretrainedConfig, TrainerCallback, TrainingArguments

    from vcsd.batch import Shown
    from vcsd.config.recipe import Recipe
    from vcsd.models.processor import Processor
    from vcsd.projection.project import Job, Sizes, Step


class PromptSettings(TypedDict):
    """The keywords of `vcsd.models.encode.encode`."""

    max_tokens: int | None
    chat_template_kwargs: dict[str, bool | str]


@dataclass(frozen=True, eq=False)
class Loaded:
    """A recipe with its processor and examples, but not yet its model."""

    recipe: Recipe
    folder: Path
    arguments: TrainingArguments
    processor: Processor
    examples: Source
    exam: LiveExam | None = None
    """The questions for the student during training."""

    @property
    def output(self) -> Path:
        """The run's folder."""
        return Path(str(self.arguments.output_dir))

    @property
    def prompt_settings(self) -> PromptSettings:
        """The settings for encoding prompts."""
        kwargs = self.recipe.model.chat_template_kwargs
        return {"max_tokens": self.recipe.data.max_prompt_tokens, "chat_template_kwargs": dict(kwargs)}


def load(recipe: Recipe, *, is_dry: bool = False) -> Loaded:
    """Open everything that loads quickly, and report all problems that do not involve the model.

    A dry load accepts settings that only another machine supports, such as bf16 without a GPU.
    """
    if problems := refused_engines():
        raise ConfigError(problems)
    arguments = recipe.training_arguments(on_any_machine=is_dry)
    own_arguments(arguments, recipe.prompts_per_step)
    if recipe.offload and not (is_dry and recipe.trainer["bf16"]):
        refuse_offload(arguments, has_adapters=recipe.lora.rank is not None, is_sharded=wants_shards(arguments))
    check_output(Path(str(arguments.output_dir)), recipe.resume)
    folder = model_folder(recipe.model.path)
    require_image_model(folder)
    processor = load_processor(folder, min_pixels=recipe.model.min_pixels, max_pixels=recipe.model.max_pixels)
    examples = load_examples(**recipe.data.model_dump(exclude={"max_prompt_tokens", "max_skipped_share"}))
    check_count(examples, recipe.prompts_per_step)
    check_fields(examples, recipe.method)
    loaded = Loaded(recipe, folder, arguments, processor, examples, _exam(recipe))
    skips = Skips(loaded.output / "skipped.jsonl" if is_first() else None, max_share=1.0)
    check_rows(examples, recipe.method, processor, loaded.prompt_settings, skips)
    return loaded


def _exam(recipe: Recipe) -> LiveExam | None:
    """Load the questions of the `evaluation` section; None if it is off."""
    config = recipe.evaluation
    if config.every is None:
        return None
    sampling = parse_sampling(config.sampling)
    asking = Asking(config.style, sampling, limit=config.limit, allow_unknown_data=config.allow_unknown_data)
    benchmarks = load_questions(config.benchmarks, config.data, asking)
    questions = [question for benchmark in benchmarks for question in benchmark.questions]
    return LiveExam(questions, config.every, sampling, Marking(config.mode))


def train(loaded: Loaded, callbacks: Sequence[TrainerCallback] = ()) -> VCSDTrainer:
    """Run a recipe to its end, from the start or from its latest checkpoint. Callbacks are those of transformers."""
    recipe, output, rollout = loaded.recipe, loaded.output, loaded.recipe.rollout
    sampling = Sampling(rollout.max_new_tokens, rollout.temperature, rollout.top_p, rollout.top_k)
    with without_accelerates_fsdp():
        model = load_model(loaded.folder, base_dtype(recipe, is_half=bool(loaded.arguments.bf16)))
    model.name_or_path = recipe.model.path  # a hub id means more than a folder of the cache
    model = trained(model, recipe, loaded.arguments.seed)
    with ExitStack() as stack:
        stack.enter_context(entered_by_first(lambda: only_process(output)))
        trainer = VCSDTrainer(
            model,
            loaded.arguments,
            train_dataset=loaded.examples,
            processing_class=loaded.processor,
            method=recipe.method,
            rollout=RolloutSettings(sampling, rollout.num_per_prompt, seed=loaded.arguments.seed),
            prompts_per_step=recipe.prompts_per_step,
            token_budget=recipe.token_budget,
            offload=recipe.offload,
            prompt_settings=loaded.prompt_settings,
            skips=Skips(output / "skipped.jsonl", max_share=recipe.data.max_skipped_share),
            monitors=(),
            callbacks=list(callbacks),
            vllm=_vllm(loaded),
        )
        guard = Guard(()) if recipe.guard == "off" else Guard()
        tokenizer, max_steps = loaded.processor.tokenizer, loaded.arguments.max_steps
        watch = Watch(output, tokenizer, max_steps=max_steps, guard=guard, stops=recipe.guard == "stop")
        trainer.remove_callback(PrinterCallback)  # the watch shows and records every step
        trainer.monitors = [stack.enter_context(watch)]
        if loaded.exam is not None:
            LiveEvaluation(trainer, loaded.exam, partial(_student, loaded, trainer)).attach()
        on_first(lambda: _go_back(output, recipe.resume))
        trainer.check_resume(recipe.resume != "never")
        on_first(lambda: _describe(output, recipe))
        trainer.train("auto" if recipe.resume != "never" else None)
    _refuse_idle(trainer)
    return trainer


def _describe(output: Path, recipe: Recipe) -> None:
    """Write what was asked for, and where it runs."""
    _write(output / "config.json", recipe.to_json())
    _write(output / ENVIRONMENT, json.dumps({"hardware": hardware(), **versions()}, indent=2) + "\n")


def _vllm(loaded: Loaded) -> VLLMSettings | None:
    """Return how to start vLLM; None if transformers draws the rollouts."""
    rollout, longest = loaded.recipe.rollout, loaded.prompt_settings["max_tokens"]
    if rollout.engine == "transformers":
        return None
    max_tokens = None if longest is None else longest + rollout.max_new_tokens
    return VLLMSettings(loaded.folder, max_tokens, rollout.vllm_memory_share)


def check_output(output: Path, resume: int | str) -> None:
    """Raise a ConfigError if the run's folder is a file, or lacks the checkpoint to go back to."""
    taken = next((path for path in (output, *output.parents) if path.exists()), output)
    if taken.exists() and not taken.is_dir():
        raise ConfigError([f"{taken} is not a folder. Choose another trainer.output_dir."])
    _step_to_resume(output, resume)


def _step_to_resume(output: Path, resume: int | str) -> int | None:
    """Return the step to go back to; None to resume from the latest checkpoint."""
    if resume == "last_good":
        return last_good_step(output, read_lines(output / "metrics.jsonl"))
    if isinstance(resume, int):
        require_step(output, resume)
        return resume
    return None


def _go_back(output: Path, resume: int | str) -> None:
    """Make the checkpoint of a step, or the last good one, the latest of the run."""
    if (step := _step_to_resume(output, resume)) is not None:
        rewind(output, step)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path} cannot be written: {error}. Choose another trainer.output_dir."]) from error


def _refuse_idle(trainer: VCSDTrainer) -> None:
    """Raise a RunError for a run that ended without training anything."""
    progress, num_steps = trainer.progress, trainer.state.global_step
    max_steps = trainer.args.max_steps if trainer.args.max_steps > 0 else trainer.state.max_steps
    if num_steps >= max_steps and not trainer.num_steps_taken:
        raise RunError(
            f"none of the {num_steps} steps was taken: {progress.num_empty_steps} had no response to train on and "
            f"{progress.num_nonfinite_steps} no finite loss and gradient. The student is that of the start. "
            f"See {trainer.args.output_dir}/samples.jsonl."
        )


def how_to_resume(loaded: Loaded) -> str:
    """Say what the same command would do after an interruption."""
    latest = latest_checkpoint(loaded.output)
    if latest is None:
        return "There is no checkpoint yet: the same command starts over."
    condition = "With resume=auto, the" if loaded.recipe.resume == "never" else "The"
    return f"{condition} same command resumes from {latest}."


def _student(loaded: Loaded, trainer: VCSDTrainer, step: int) -> ModelAnswerer:
    """Return the student after a step. Before the first step it is the model in its folder, in every run."""
    if trainer.half is not None:
        trainer.half.refresh()
    name = f"{loaded.output.resolve()} step {step}" if step else folder_identity(loaded.folder)
    switches = loaded.prompt_settings["chat_template_kwargs"]
    return ModelAnswerer(trainer.engine, loaded.processor, name=name, chat_template_kwargs=switches)


def preview(recipe: Recipe, machine: Machine | None = None) -> Iterator[str]:
    """Yield lines about what a run would do and need; from shapes alone if weights or data are not on this machine.

    With a machine, the projection is for it instead of for the smallest that fits.
    """
    has_data = Path(recipe.data.path).exists()
    has_weights = local_folder(recipe.model.path) is not None or known_shape(recipe.model.path) is None
    if has_data and has_weights:
        yield from dry_run(load(recipe, is_dry=True), machine)
        return
    own_arguments(recipe.training_arguments(on_any_machine=True), recipe.prompts_per_step)
    yield recipe.to_json()
    yield from from_shapes(recipe, machine)


def dry_run(loaded: Loaded, machine: Machine | None = None) -> Iterator[str]:
    """Yield lines about what `train` would do. Raise a ConfigError if it does not fit."""
    recipe, arguments = loaded.recipe, loaded.arguments
    yield recipe.to_json()
    yield loaded.examples.report()
    if loaded.exam is not None:
        when = f"before the first step, every {loaded.exam.every} steps and at the end"
        yield f"evaluation: {len(loaded.exam.questions)} questions {when}"
    model, _ = empty_model(recipe)
    shown = _first(loaded, model.config)
    for view, encoded in {"student": shown.student, "target": shown.target, "contrast": shown.contrast}.items():
        if encoded is not None:
            name = {"student": "original", "target": recipe.method.target_view}.get(view, shown.contrast_view)
            yield f"--- {view} ({name}), {len(encoded)} tokens, example {shown.example.id!r} ---\n{encoded.text}"
    job = job_of(recipe, model, shown.num_prompt_tokens)
    yield from size_lines(recipe, job)
    _refuse_small_budget(loaded, job.step)
    is_for_another_machine = machine is not None or (recipe.trainer["bf16"] and not arguments.bf16)
    if not is_for_another_machine:
        yield from _needs_here(loaded, job)
    yield from machine_lines(recipe, job, machine)


def _needs_here(loaded: Loaded, job: Job) -> Iterator[str]:
    """Yield memory and time on this machine. Raise a ConfigError if the run does not fit."""
    device, is_half = loaded.arguments.device, bool(loaded.arguments.bf16)
    is_cuda = device.type == "cuda"
    base_bytes = base_dtype(loaded.recipe, is_half=is_half).itemsize
    sizes = replace(job.sizes, has_half_copy=is_cuda and is_half, base_bytes=base_bytes)
    yield f"memory before the first row: {sizes.memory_bytes / 2**30:.2f} GiB on {device}"
    _refuse_misfits(loaded, sizes)
    dtype = torch.bfloat16 if is_half and is_cuda else torch.float32
    here = Machine(measure_card(device, dtype, _memory_of(device)))
    yield f"on this machine, {time_line(loaded.recipe, job, project(job, here))}"


def _refuse_small_budget(loaded: Loaded, step: Step) -> None:
    """Raise an error if a row cannot hold the first prompt with one response."""
    budget = loaded.recipe.token_budget
    longest = step.prompt_tokens + step.response_tokens
    if budget is not None and budget < longest:
        raise ConfigError(
            [
                f"token_budget = {budget} is less than the first prompt with one full response ({longest} tokens). "
                "Raise it, or lower model.max_pixels or rollout.max_new_tokens."
            ]
        )


def _refuse_misfits(loaded: Loaded, sizes: Sizes) -> None:
    """Raise an error if memory or disk is too small for the run."""
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
    existing = next(folder for folder in (loaded.output, *loaded.output.resolve().parents) if folder.is_dir())
    limit = loaded.arguments.save_total_limit
    kept = max(limit, 2) + 1 if limit else 2  # with a limit of 1, the one before the last is kept as well
    if shutil.disk_usage(existing).free < kept * sizes.checkpoint_bytes:
        refuse_full_disk(existing, kept * sizes.checkpoint_bytes)


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
    seed = loaded.arguments.data_seed if loaded.arguments.data_seed is not None else loaded.arguments.seed
    stream = Stream(loaded.examples, seed=seed, skips=Skips(max_share=1.0))
    method, max_new_tokens = loaded.recipe.method, loaded.recipe.rollout.max_new_tokens
    settings = within_model(loaded.prompt_settings, config, max_new_tokens)
    return stream.take_prepared(0, 1, lambda example: show(example, method, loaded.processor, **settings)).items[0]
