"""From a recipe to a run: load, build, train; or, with `--dry-run`, say what would happen and what it would need."""

from __future__ import annotations

import math
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, PrinterCallback

from vcsd.batch import show
from vcsd.checkpoint.folder import latest_checkpoint, refuse_full_disk
from vcsd.checkpoint.lock import only_process
from vcsd.data import Skips, Source, Stream, load_examples
from vcsd.errors import ConfigError
from vcsd.evaluation.evaluate import Asking, load_questions
from vcsd.evaluation.live import Exam, LiveEvaluation
from vcsd.evaluation.local import ModelAnswerer, folder_identity
from vcsd.evaluation.marking import Marking
from vcsd.evaluation.presets import parse_sampling
from vcsd.method import NEEDS
from vcsd.models.freeze import freeze
from vcsd.models.hub import model_folder
from vcsd.models.processor import load_processor
from vcsd.monitor import Guard, Watch
from vcsd.rollout.sampling import Sampling
from vcsd.step import Rollouts
from vcsd.trainer import VCSDTrainer
from vcsd.trainer.arguments import own_arguments
from vcsd.trainer.projection import Sizes, Step, measure_speed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from transformers import PreTrainedModel, TrainerCallback, TrainingArguments

    from vcsd.batch import Shown
    from vcsd.config import Recipe
    from vcsd.models.processor import Processor


@dataclass(frozen=True, eq=False)
class Loaded:
    """A recipe with what it names: the processor and the examples, but not yet the model."""

    recipe: Recipe
    folder: Path
    arguments: TrainingArguments
    processor: Processor
    examples: Source
    exam: Exam | None = None
    """What the student is asked while it is trained."""

    @property
    def output(self) -> Path:
        """The run's folder."""
        return Path(str(self.arguments.output_dir))

    @property
    def prompt_settings(self) -> dict[str, Any]:
        """How prompts are encoded."""
        kwargs = self.recipe.model.chat_template_kwargs
        return {"max_tokens": self.recipe.data.max_prompt_tokens, "chat_template_kwargs": dict(kwargs)}


def load(recipe: Recipe) -> Loaded:
    """Open everything that is quick to open. Problems that need no model show here."""
    arguments = recipe.training_arguments()
    own_arguments(arguments, recipe.prompts_per_step)
    folder = model_folder(recipe.model.path)
    processor = load_processor(folder, min_pixels=recipe.model.min_pixels, max_pixels=recipe.model.max_pixels)
    data = recipe.data
    examples = load_examples(
        data.path,
        images=data.images,
        split=data.split,
        columns=data.columns,
        multi_image=data.multi_image,
        text_only=data.text_only,
        instruction=data.instruction,
    )
    if len(examples) < recipe.prompts_per_step:
        raise ConfigError(
            [
                f"prompts_per_step = {recipe.prompts_per_step}, but the data has {len(examples)} rows and a step takes "
                "none twice. Lower it, or give more data."
            ]
        )
    _check_columns(recipe, examples)
    return Loaded(recipe, folder, arguments, processor, examples, _exam(recipe))


def _check_columns(recipe: Recipe, examples: Source) -> None:
    """The data has the column that the teacher's view shows; that a row may lack it, the row's skip says."""
    view = recipe.method.target_view
    field = NEEDS.get(view)
    if field is not None and not examples.columns.of(field):
        raise ConfigError(
            [
                f"method.target_view = {view!r} shows the column {field!r}, but {examples.table.name} has none. "
                f"Add it, name another one as data.columns.{field}, or choose target_view: original."
            ]
        )


def _exam(recipe: Recipe) -> Exam | None:
    """The questions of `evaluation`, or None where it is off."""
    given = recipe.evaluation
    if given.every is None:
        return None
    asking = Asking(
        given.style,
        parse_sampling(given.sampling),
        limit=given.limit,
        allow_unknown_data=given.allow_unknown_data,
    )
    loaded = load_questions(given.benchmarks, given.data, asking)
    questions = [question for each in loaded for question in each.questions]
    return Exam(questions, given.every, asking.sampling, Marking(given.mode))


def train(loaded: Loaded, callbacks: Sequence[TrainerCallback] = ()) -> VCSDTrainer:
    """Run a recipe to its end, or from its latest checkpoint to its end. Callbacks are transformers' own."""
    recipe, output = loaded.recipe, loaded.output
    model = AutoModelForImageTextToText.from_pretrained(loaded.folder, dtype=torch.float32)
    _freeze(model, recipe)
    with ExitStack() as stack:
        stack.enter_context(only_process(output))
        trainer = VCSDTrainer(
            model,
            loaded.arguments,
            train_dataset=loaded.examples,
            processing_class=loaded.processor,
            method=recipe.method,
            rollout=_rollouts(loaded),
            prompts_per_step=recipe.prompts_per_step,
            token_budget=recipe.token_budget,
            prompt_settings=loaded.prompt_settings,
            skips=Skips(output / "skipped.jsonl", max_share=recipe.data.max_skipped_share),
            callbacks=list(callbacks),
        )
        guard = Guard(()) if recipe.guard == "off" else Guard()
        tokenizer, max_steps = loaded.processor.tokenizer, loaded.arguments.max_steps
        watch = Watch(output, tokenizer, max_steps=max_steps, guard=guard, stops=recipe.guard == "stop")
        trainer.remove_callback(PrinterCallback)  # the watch shows and writes every step
        trainer.monitors = [stack.enter_context(watch)]
        if loaded.exam is not None:
            LiveEvaluation(trainer, loaded.exam, partial(_student, loaded, trainer)).attach()
        trainer.check_resume(recipe.resume == "auto")
        (output / "config.json").write_text(recipe.to_json(), encoding="utf-8")
        trainer.train("auto" if recipe.resume == "auto" else None)
    return trainer


def how_to_go_on(loaded: Loaded) -> str:
    """What the same command would do after a run was interrupted."""
    latest = latest_checkpoint(loaded.output)
    if latest is None:
        return "There is no checkpoint yet: the same command begins anew."
    if loaded.recipe.resume == "never":
        return f"With resume=auto, the same command goes on from {latest}."
    return f"The same command goes on from {latest}."


def _student(loaded: Loaded, trainer: VCSDTrainer, step: int) -> ModelAnswerer:
    """The student as it is after a step. Before the first it is the model in its folder, by whatever run."""
    if trainer.half is not None:
        trainer.half.refresh()
    name = f"{loaded.output.resolve()} step {step}" if step else folder_identity(loaded.folder)
    switches = loaded.prompt_settings["chat_template_kwargs"]
    return ModelAnswerer(trainer.engine, loaded.processor, name=name, chat_template_kwargs=switches)


def dry_run(loaded: Loaded) -> Iterator[str]:
    """Say what `train` would do, line by line. Raises ConfigError for what cannot fit."""
    recipe, arguments = loaded.recipe, loaded.arguments
    yield recipe.to_json()
    yield loaded.examples.report()
    if loaded.exam is not None:
        yield f"{len(loaded.exam.questions)} questions before the first step, every {loaded.exam.every} and at the end"
    shown = _first(loaded)
    for view, encoded in {"student": shown.student, "target": shown.target, "contrast": shown.contrast}.items():
        if encoded is not None:
            name = {"student": "original", "target": recipe.method.target_view}.get(view, shown.contrast_view)
            yield f"--- {view} ({name}), {len(encoded)} tokens, example {shown.example.id!r} ---\n{encoded.text}"
    with torch.device("meta"):
        make: Any = AutoModelForImageTextToText.from_config
        model = make(AutoConfig.from_pretrained(loaded.folder))
    _freeze(model, recipe)
    is_cuda, has_teacher = arguments.device.type == "cuda", recipe.method.teacher != "current"
    sizes = Sizes.of(model, has_teacher=has_teacher, has_half_copy=is_cuda and bool(arguments.bf16))
    step = Step(
        recipe.prompts_per_step,
        recipe.rollout.num_per_prompt,
        shown.num_prompt_tokens,
        recipe.rollout.max_new_tokens,
    )
    yield from _needs(loaded, sizes, step)


def _needs(loaded: Loaded, sizes: Sizes, step: Step) -> Iterator[str]:
    recipe, arguments = loaded.recipe, loaded.arguments
    budget = recipe.token_budget or "measured before the first step"
    yield (
        f"{arguments.max_steps} steps of {step.num_prompts} prompts x {step.num_rollouts} rollouts, "
        f"up to {step.num_tokens:,} tokens each; tokens per row: {budget}"
    )
    yield f"parameters: {sizes.num_parameters:,}, trained: {sizes.num_trained:,}"
    yield f"memory before the first row: {sizes.memory_bytes / 2**30:.2f} GiB on {arguments.device}"
    yield f"a checkpoint: {sizes.checkpoint_bytes / 2**30:.2f} GiB {_when_saved(arguments)}"
    dtype = torch.bfloat16 if arguments.bf16 and arguments.device.type == "cuda" else torch.float32
    seconds = step.seconds(sizes.num_parameters, measure_speed(arguments.device, dtype))
    hours = seconds * arguments.max_steps / 3600
    yield f"time, roughly: {seconds:.3g} s per step and {hours:.2g} h in all, if every response is as long as it may be"
    _refuse_misfits(loaded, sizes, step)


def _when_saved(arguments: TrainingArguments) -> str:
    kept = f"{arguments.save_total_limit} are kept" if arguments.save_total_limit else "all are kept"
    if arguments.save_strategy != "steps":
        return f"(trainer.save_strategy: {getattr(arguments.save_strategy, 'value', arguments.save_strategy)}), {kept}"
    steps = arguments.save_steps if arguments.save_steps >= 1 else math.ceil(arguments.save_steps * arguments.max_steps)
    return f"every {steps:g} steps, {kept}"


def _refuse_misfits(loaded: Loaded, sizes: Sizes, step: Step) -> None:
    """Raise for a run that memory or disk cannot hold."""
    device, budget = loaded.arguments.device, loaded.recipe.token_budget
    if sizes.memory_bytes > (total := _memory_of(device)):
        raise ConfigError(
            [
                f"weights, teacher, gradients and moments need {sizes.memory_bytes / 2**30:.1f} GiB, {device} has "
                f"{total / 2**30:.1f} GiB. Freeze a part of the model, or choose a smaller one."
            ]
        )
    longest = step.prompt_tokens + step.response_tokens
    if budget is not None and budget < longest:
        raise ConfigError(
            [
                f"token_budget = {budget} is less than the first prompt with one full response ({longest} tokens). "
                "Raise it, or lower model.max_pixels or rollout.max_new_tokens."
            ]
        )
    existing = next(folder for folder in (loaded.output, *loaded.output.resolve().parents) if folder.is_dir())
    kept = (loaded.arguments.save_total_limit or 1) + 1
    if shutil.disk_usage(existing).free < kept * sizes.checkpoint_bytes:
        refuse_full_disk(existing, kept * sizes.checkpoint_bytes)


def _memory_of(device: torch.device) -> float:
    """Bytes of a device, or of the machine; without end where neither can be asked."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return math.inf


def _first(loaded: Loaded) -> Shown:
    """The first example of the run, as every pass will see it."""
    seed = loaded.arguments.data_seed if loaded.arguments.data_seed is not None else loaded.arguments.seed
    stream = Stream(loaded.examples, seed=seed, skips=Skips(max_share=1.0))
    method, settings = loaded.recipe.method, loaded.prompt_settings
    return stream.take_prepared(0, 1, lambda example: show(example, method, loaded.processor, **settings)).items[0]


def _rollouts(loaded: Loaded) -> Rollouts:
    given = loaded.recipe.rollout
    sampling = Sampling(
        max_new_tokens=given.max_new_tokens, temperature=given.temperature, top_p=given.top_p, top_k=given.top_k
    )
    return Rollouts(sampling, given.num_per_prompt, seed=loaded.arguments.seed)


def _freeze(model: PreTrainedModel, recipe: Recipe) -> None:
    frozen = [part for part in ("vision", "projector", "language") if getattr(recipe.model, f"freeze_{part}")]
    freeze(model, *frozen)
