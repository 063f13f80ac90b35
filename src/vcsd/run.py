"""Run a recipe: load what it names, then train, or report what a run would do and need (`--dry-run`)."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from transformers import PrinterCallback

from vcsd.checkpoint.folder import checkpoints_of, latest_checkpoint
from vcsd.checkpoint.lock import only_process, refuse_in_use
from vcsd.checkpoint.rewind import last_good_step, require_step, rewind
from vcsd.data import Skips, Source, load_examples
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.asking.model_answerer import ModelAnswerer, folder_identity
from vcsd.evaluation.asking.presets import parse_sampling
from vcsd.evaluation.benchmarks.own_tsv import load_own_tsvs
from vcsd.evaluation.evaluate import Asking, load_questions
from vcsd.evaluation.live import LiveEvaluation, LiveExam
from vcsd.evaluation.reading.marking import Marking
from vcsd.inputs import check_count, check_fields, check_rows, of_new_run, refuse_file, write_run_file
from vcsd.models.hub import load_model, model_folder, refuse_quantized_folder, require_image_model
from vcsd.models.processor import load_processor
from vcsd.monitor import Guard, Watch, read_lines
from vcsd.monitor.machine import ENVIRONMENT, SESSIONS, environment, sessions_of, with_session
from vcsd.parallel.launch import wants_shards, without_accelerates_fsdp
from vcsd.parallel.ranks import entered_by_first, is_first, on_first
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.start_target import ServerSettings, VLLMSettings
from vcsd.step import RolloutSettings
from vcsd.student import base_dtype, trained
from vcsd.trainer import DistillationTrainer
from vcsd.trainer.arguments import own_arguments, refuse_dither, refuse_offload, refuse_reentrant
from vcsd.trainer.sample_tables import SampleTables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transformers import TrainerCallback, TrainingArguments

    from vcsd.config.recipe import Recipe
    from vcsd.models.processor import Processor


log = logging.getLogger(__name__)


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
    arguments = checked_arguments(recipe, is_dry=is_dry)
    check_output(Path(str(arguments.output_dir)), recipe.resume)
    if not is_dry:
        on_first(lambda: refuse_in_use(Path(str(arguments.output_dir))))
    folder = model_folder(recipe.model.path)
    require_image_model(folder)
    refuse_quantized_folder(folder)
    processor = load_processor(folder, min_pixels=recipe.model.min_pixels, max_pixels=recipe.model.max_pixels)
    examples = load_examples(**recipe.data.for_loading())
    check_count(examples, recipe.prompts_per_step)
    check_fields(examples, recipe.method)
    loaded = Loaded(recipe, folder, arguments, processor, examples, load_exam(recipe))
    listed = loaded.output / "skipped.jsonl" if is_first() and not is_dry else None
    skips = of_new_run(Skips(listed, max_share=1.0), loaded.output)
    check_rows(examples, recipe.method, processor, loaded.prompt_settings, skips)
    return loaded


def checked_arguments(recipe: Recipe, *, is_dry: bool = False) -> TrainingArguments:
    """Build transformers' arguments of a recipe. Raise a ConfigError for what the trainer would refuse."""
    arguments = recipe.training_arguments(on_any_machine=is_dry)
    own_arguments(arguments, recipe.prompts_per_step, is_dry=is_dry)
    refuse_reentrant(arguments, adapts_vision=recipe.lora.vision)
    is_half = bool(recipe.trainer["bf16"] if is_dry else arguments.bf16)
    has_adapters = recipe.lora.rank is not None
    if recipe.offload:
        refuse_offload(is_half=is_half, has_adapters=has_adapters, is_sharded=wants_shards(arguments))
    if recipe.model.dither:
        refuse_dither(is_half=is_half, has_adapters=has_adapters)
    return arguments


def load_exam(recipe: Recipe) -> LiveExam | None:
    """Load the questions of the `evaluation` section; None if it is off."""
    config = recipe.evaluation
    if config.every is None:
        return None
    sampling = parse_sampling(config.sampling)
    asking = Asking(config.style, sampling, limit=config.limit, allow_unknown_data=config.allow_unknown_data)
    try:
        loaded, suites = load_own_tsvs(config.tsv or (), style=config.style, limit=config.limit)
    except ConfigError as error:
        raise ConfigError([f"evaluation.tsv: {problem}" for problem in error.problems]) from error
    for own in loaded:
        log.info("%s", own.report.line())
    if config.benchmarks:
        allowed_by = "evaluation.allow_unknown_data=true"
        loaded += load_questions(config.benchmarks, config.data, asking, allowed_by=allowed_by)
    questions = [question for benchmark in loaded for question in benchmark.questions]
    return LiveExam(questions, config.every, sampling, Marking(config.mode), suites)


def train(
    loaded: Loaded,
    callbacks: Sequence[TrainerCallback] = (),
    before: Callable[[DistillationTrainer], None] = lambda trainer: None,
) -> DistillationTrainer:
    """Run a recipe to its end, from the start or from its latest checkpoint.

    `callbacks` are transformers' own. `before` is called with the trainer before the first step, and may raise.
    """
    output, resume = loaded.output, loaded.recipe.resume
    with ExitStack() as stack:
        stack.enter_context(entered_by_first(lambda: only_process(output)))  # also shows that the folder is writable
        trainer, watch = _trainer(loaded, callbacks), stack.enter_context(_watch(loaded))
        trainer.remove_callback(PrinterCallback)  # the watch shows and records every step
        trainer.monitors = [watch]
        trainer.add_callback(SampleTables(trainer, watch, output))
        if loaded.exam is not None:
            LiveEvaluation(trainer, loaded.exam, partial(_student, loaded, trainer)).attach()
        before(trainer)
        on_first(lambda: _go_back(output, resume))
        trainer.check_resume(resume != "never")
        on_first(lambda: _describe(loaded))
        trainer.train("auto" if resume != "never" else None)
    _refuse_idle(trainer)
    return trainer


def _trainer(loaded: Loaded, callbacks: Sequence[TrainerCallback]) -> DistillationTrainer:
    """Load the weights, and build the trainer of a recipe."""
    recipe, rollout, seed = loaded.recipe, loaded.recipe.rollout, loaded.arguments.seed
    with without_accelerates_fsdp():
        model = load_model(loaded.folder, base_dtype(recipe, is_half=bool(loaded.arguments.bf16)))
    model.name_or_path = recipe.model.path  # a hub id, unlike a folder of the cache, names the model anywhere
    sampling = Sampling(rollout.max_new_tokens, rollout.temperature, rollout.top_p, rollout.top_k)
    return DistillationTrainer(
        trained(model, recipe, seed),
        loaded.arguments,
        train_dataset=loaded.examples,
        processing_class=loaded.processor,
        method=recipe.method,
        rollout=RolloutSettings(sampling, rollout.num_per_prompt, seed, rollout.steps_ahead),
        prompts_per_step=recipe.prompts_per_step,
        token_budget=recipe.token_budget,
        offload=recipe.offload,
        dither=recipe.model.dither,
        prompt_settings=loaded.prompt_settings,
        skips=Skips(loaded.output / "skipped.jsonl", max_share=recipe.data.max_skipped_share),
        callbacks=list(callbacks),
        vllm=_vllm(loaded),
    )


def _watch(loaded: Loaded) -> Watch:
    """Build the monitor of a recipe. Its guard is silent, warns, or stops the run."""
    guard, max_steps = loaded.recipe.guard, loaded.arguments.max_steps
    signals = Guard(()) if guard == "off" else Guard()
    tokenizer = loaded.processor.tokenizer
    return Watch(loaded.output, tokenizer, max_steps=max_steps, guard=signals, stops=guard == "stop")


def _describe(loaded: Loaded) -> None:
    """Write the recipe and the machine that runs it. Leave a finished run that is only opened again unchanged."""
    output, latest = loaded.output, latest_checkpoint(loaded.output)
    step = 0 if latest is None else int(latest.name.rpartition("-")[2])
    is_finished = step > 0 and step >= loaded.arguments.max_steps > 0
    if not is_finished or not (output / "config.json").is_file():
        write_run_file(output / "config.json", loaded.recipe.to_json())
    if is_finished:
        return
    try:
        before = sessions_of(output)
    except ValueError:
        log.warning("%s is damaged: the machines of the first %d steps are not known.", output / SESSIONS, step)
        before = []
    sessions = with_session(before, step, settings_digest(loaded))
    write_run_file(output / SESSIONS, json.dumps(sessions, indent=2) + "\n")
    write_run_file(output / ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")


_NOT_NUMBERS = ("max_steps", "output_dir", "run_name", "report_to", "logging_", "save_", "metric_for_best", "disable_")
"""Prefixes of trainer settings that do not affect the numbers of a step."""


def settings_digest(loaded: Loaded) -> str:
    """Return a hash of the settings that metrics and evaluations depend on, besides weights, data and machine.

    Files of own questions count by their content, not by their paths.
    """
    tree = json.loads(loaded.recipe.to_json())
    kept = {name: value for name, value in tree.items() if name not in {"resume", "guard"}}
    for section, names in (("model", ("path",)), ("data", ("path", "images")), ("evaluation", ("data", "tsv"))):
        kept[section] = {name: value for name, value in tree[section].items() if name not in names}
    if loaded.exam is not None and loaded.exam.own:
        kept["evaluation"]["tsv"] = loaded.exam.own
    kept["trainer"] = {name: value for name, value in tree["trainer"].items() if not name.startswith(_NOT_NUMBERS)}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _vllm(loaded: Loaded) -> VLLMSettings | None:
    """Return how to start vLLM; None if transformers draws the rollouts."""
    rollout, longest = loaded.recipe.rollout, loaded.prompt_settings["max_tokens"]
    if rollout.engine == "transformers":
        return None
    max_tokens = None if longest is None else longest + rollout.max_new_tokens
    server = None
    if rollout.engine == "vllm_server":
        url, transfer, changes = rollout.server_url, rollout.server_transfer, rollout.server_sends_changes
        server = ServerSettings(url, transfer, changes, loaded.output)
    return VLLMSettings(loaded.folder, max_tokens, rollout.vllm_memory_share, server)


def check_output(output: Path, resume: int | str) -> None:
    """Raise a ConfigError if the run's folder is a file, lacks the checkpoint to go back to, or must have none."""
    refuse_file(output)
    _step_to_resume(output, resume)
    if resume == "never" and (latest := latest_checkpoint(output)) is not None:
        raise ConfigError(
            [
                f"{output} already holds {latest.name}, but resume = never. Set resume=auto to resume from it, or "
                "choose another trainer.output_dir."
            ]
        )


def _step_to_resume(output: Path, resume: int | str) -> int | None:
    """Return the step to go back to; None to resume from the latest checkpoint."""
    if resume == "last_good":
        return last_good_step(output, read_lines(output / "metrics.jsonl"))
    if isinstance(resume, int):
        require_step(output, resume)
        return resume
    return None


def resumed_step(output: Path, resume: int | str) -> int:
    """Return the step of the checkpoint from which a run would resume; 0 without one."""
    step = _step_to_resume(output, resume)
    return max(checkpoints_of(output), default=0) if step is None else step


def _go_back(output: Path, resume: int | str) -> None:
    """Make the checkpoint of a step, or the last good one, the latest of the run."""
    if (step := _step_to_resume(output, resume)) is not None:
        rewind(output, step)


def _refuse_idle(trainer: DistillationTrainer) -> None:
    """Raise a RunError for a run that ended without training anything."""
    progress, num_steps = trainer.progress, trainer.state.global_step
    max_steps = trainer.args.max_steps if trainer.args.max_steps > 0 else trainer.state.max_steps
    if num_steps >= max_steps and not trainer.num_steps_taken:
        raise RunError(
            f"none of the {num_steps} steps was taken: {progress.num_empty_steps} had no response to train on and "
            f"{progress.num_nonfinite_steps} no finite loss and gradient. The student is unchanged. "
            f"See {trainer.args.output_dir}/samples.jsonl."
        )


def how_to_resume(loaded: Loaded) -> str:
    """Return a sentence about what the same command would do after an interruption."""
    latest = latest_checkpoint(loaded.output)
    if latest is None:
        return "There is no checkpoint yet: the same command starts over."
    condition = "With resume=auto, the" if loaded.recipe.resume == "never" else "The"
    return f"{condition} same command resumes from {latest}."


def _student(loaded: Loaded, trainer: DistillationTrainer, step: int) -> ModelAnswerer:
    """Return the student after a step. Before the first step it is the model in its folder, in every run."""
    if trainer.half is not None:
        trainer.half.refresh()
    name = f"{loaded.output.resolve()} step {step}" if step else folder_identity(loaded.folder)
    switches = loaded.prompt_settings["chat_template_kwargs"]
    return ModelAnswerer(trainer.engine, loaded.processor, name=name, chat_template_kwargs=switches)
