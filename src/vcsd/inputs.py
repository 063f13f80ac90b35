"""Checks and completes what a caller passes to VCSDTrainer: settings and data first, weights last.

The model may be given by name, the dataset as rows, the method by name. Arguments of TRL's trainers that this one lacks
are rejected with advice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import TrainingArguments

from vcsd.batch import show
from vcsd.checkpoint.disk_space import planned_steps
from vcsd.checkpoint.folder import checkpoints_of
from vcsd.checkpoint.whole_file import write_whole
from vcsd.data import Skips, Source, open_examples
from vcsd.errors import ConfigError, DataError, did_you_mean, shown
from vcsd.method import METHODS, NEEDS, TRAINER_DEFAULTS, Method
from vcsd.models.hub import load_model, model_folder, refuse_quantized_folder, require_image_model
from vcsd.models.processor import load_processor
from vcsd.monitor import Watch
from vcsd.parallel.launch import without_accelerates_fsdp
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.vllm.start_target import VLLMSettings
from vcsd.step import RolloutSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from peft import PeftModel
    from transformers import PreTrainedModel

    from vcsd.data.stream import ExampleSource
    from vcsd.models.processor import Processor

_INSTEAD = {
    "eval_dataset": "Score the run with `vcsd eval OUTPUT_DIR --tsv my.tsv`; a recipe's evaluation section asks "
    "questions during training.",
    "reward_funcs": "VCSD needs no rewards: the teacher's scores with and without the image are the signal.",
    "data_collator": "Rows are read and packed by the trainer; pass the rows as they are.",
    "tokenizer": "Pass the model's processor as processing_class, or leave it out.",
    "processor": "Pass it as processing_class, or leave it out.",
    "ref_model": "The teacher starts as a copy of the student; pass teacher=Teacher(...) for another one.",
    "max_length": "Set max_tokens in prompt_settings for prompts, and max_new_tokens in rollout for responses.",
    "max_prompt_length": "Pass prompt_settings={'max_tokens': N}.",
    "max_completion_length": "Pass rollout=RolloutSettings(Sampling(max_new_tokens=N), 8).",
    "compute_metrics": "Score the exported student with `vcsd eval`.",
}
"""Keywords of TRL's trainers, and what to use instead."""

_CHANGED = "dataclasses.replace(METHODS['vcsd'], {}=...)"
"""How a method of one's own is written."""


_ROWS_TRIED = 32
"""Rows that are tried before a run starts; one that can be used is enough."""

_STEPS_OF_AN_EPOCH = 1000
"""Steps for which rows of an iterable dataset are read, if the run is counted in epochs."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """The parts of a run."""

    model: PreTrainedModel
    examples: ExampleSource
    processor: Processor
    names: Mapping[str, Any]
    """Where model and data came from, under the keys of a recipe; a model without a name is left out."""


def default_arguments() -> TrainingArguments:
    """Return the paper's TrainingArguments. bfloat16 needs a GPU here: without one, the run computes in float32."""
    has_gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return TrainingArguments(**{**TRAINER_DEFAULTS, "bf16": has_gpu})  # type: ignore[arg-type]


def check_arguments(args: object) -> TrainingArguments:
    """Return the arguments, or the paper's if there are none. Raise a ConfigError for fields that would be ignored."""
    if args is None:
        return default_arguments()
    if not isinstance(args, TrainingArguments):
        raise ConfigError(
            [f"args is {type(args).__name__}. Pass transformers.TrainingArguments('runs/first'), or leave it out."]
        )
    own = {field.name for field in fields(TrainingArguments)}
    others = [field.name for field in fields(args) if field.name not in own]
    if others:
        listed = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise ConfigError(
            [
                f"args is {type(args).__name__}, whose fields {listed} would be ignored. Pass "
                "transformers.TrainingArguments, and rollout=RolloutSettings(...) for the sampling of rollouts."
            ]
        )
    refuse_file(Path(str(args.output_dir)))
    return args


def refuse_file(output: Path) -> None:
    """Raise a ConfigError if the run's folder, or a folder above it, is a file."""
    taken = next((path for path in (output, *output.parents) if path.exists()), output)
    if taken.exists() and not taken.is_dir():
        raise ConfigError([f"{taken} is not a folder. Choose another trainer.output_dir."])


def as_method(method: Method | str) -> Method:
    """Return a method, given as such or by name."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str) or method not in METHODS:
        changed = "" if isinstance(method, str) else f" For other values: {_CHANGED.format('alpha')}."
        raise ConfigError([f"method = {shown(method)} is not a method. {did_you_mean(method, METHODS)}{changed}"])
    return METHODS[method]


def check_parts(given: Mapping[str, object]) -> None:
    """Raise a ConfigError for parts of a run, by the names of VCSDTrainer's arguments, that are of the wrong kind."""
    problems = []
    for name in ("prompts_per_step", "token_budget"):
        number = given[name]
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            problems.append(f"{name} = {shown(number)} must be a whole number of at least 1.")
    for name in ("offload", "dither"):
        if not isinstance(given[name], bool):
            problems.append(f"{name} = {shown(given[name])} must be True or False.")
    for name, (fits, example) in _KINDS.items():
        if given[name] is not None and not fits(given[name]):
            problems.append(f"{name} is {type(given[name]).__name__}. Pass {example}, or leave it out.")
    monitors, settings = given["monitors"], given["prompt_settings"]
    problems += [
        f"monitors holds {type(monitor).__name__}, which has no method observe."
        for monitor in (monitors if isinstance(monitors, list | tuple) else ())
        if not callable(getattr(monitor, "observe", None))
    ]
    problems += [
        f"prompt_settings has no {name!r}. {did_you_mean(name, _PROMPT_SETTINGS)}"
        for name in (settings if isinstance(settings, Mapping) else ())
        if name not in _PROMPT_SETTINGS
    ]
    if problems:
        raise ConfigError(problems)


_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "skips": (lambda part: isinstance(part, Skips), "vcsd.data.Skips(FILE)"),
    "teacher": (lambda part: not isinstance(part, str | PathLike | nn.Module), "vcsd.teacher.Teacher(...)"),
    "vllm": (lambda part: isinstance(part, VLLMSettings), "vcsd.rollout.vllm.start_target.VLLMSettings(...)"),
    "peft_config": (lambda part: hasattr(part, "peft_type"), "peft.LoraConfig(r=32)"),
    "monitors": (lambda part: isinstance(part, list | tuple), "a list of monitors"),
    "callbacks": (lambda part: isinstance(part, list | tuple), "a list of callbacks"),
    "prompt_settings": (lambda part: isinstance(part, Mapping), "a dictionary such as {'max_tokens': 4096}"),
}
"""Argument -> whether a value fits, and what to pass."""

_PROMPT_SETTINGS = ("max_tokens", "chat_template_kwargs")
"""The keywords of `vcsd.models.encode.encode` that a run may set."""


def rollout_settings(rollout: RolloutSettings | None, num_generations: int | None, *, seed: int) -> RolloutSettings:
    """Return how rollouts are sampled. `num_generations` is TRL's name for rollouts per prompt."""
    if rollout is not None and not isinstance(rollout, RolloutSettings):
        raise ConfigError([f"rollout is {type(rollout).__name__}. Pass vcsd.step.RolloutSettings(Sampling(...), 8)."])
    if rollout is not None and num_generations is not None:
        raise ConfigError(["num_generations and rollout are both given. Set num_per_prompt in RolloutSettings alone."])
    if rollout is not None:
        return rollout
    if num_generations is None:
        return RolloutSettings(Sampling(), seed=seed)
    if not isinstance(num_generations, int) or isinstance(num_generations, bool) or num_generations < 1:
        raise ConfigError([f"num_generations = {num_generations!r} must be a whole number of at least 1."])
    return RolloutSettings(Sampling(), num_generations, seed=seed)


def refuse_others(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise a ConfigError for keywords of TRL's trainers that have no meaning here, and for unknown ones."""
    problems = [
        f"{name} cannot be used. {_INSTEAD[name]}"
        if name in _INSTEAD
        else f"VCSDTrainer has no argument {name!r}. {_where(name) or did_you_mean(name, known)}"
        for name, value in given.items()
        if value is not None or name not in _INSTEAD
    ]
    if problems:
        raise ConfigError(problems)


def _where(name: str) -> str:
    """Say which argument has this setting; empty if none has.

    >>> _where("alpha"), _where("learning_rate"), _where("num_generation")
    ("Pass method=dataclasses.replace(METHODS['vcsd'], alpha=...).", 'Pass it in args=TrainingArguments(...).', '')
    """
    if name in {field.name for field in fields(Method)}:
        return f"Pass method={_CHANGED.format(name)}."
    return (
        "Pass it in args=TrainingArguments(...)." if name in {field.name for field in fields(TrainingArguments)} else ""
    )


def open_inputs(
    model: PreTrainedModel | PeftModel | str | PathLike[str],
    train_dataset: object,
    processing_class: Processor | None,
    method: Method,
    prompts_per_step: int,
    args: TrainingArguments,
    prompt_settings: Mapping[str, Any],
    skips: Skips,
) -> Inputs:
    """Open data and processor, check that rows can be used, and load the weights last."""
    folder = model_folder(str(model), key="model") if isinstance(model, str | PathLike) else None
    if folder is not None:
        require_image_model(folder)
        refuse_quantized_folder(folder)
    elif not isinstance(model, nn.Module):
        raise ConfigError([f"model is {type(model).__name__}. Give a folder, a hub id or a loaded model."])
    num_steps = args.max_steps if args.max_steps > 0 else _STEPS_OF_AN_EPOCH
    examples = open_examples(train_dataset, max_rows=num_steps * prompts_per_step)
    check_fields(examples, method)
    check_count(examples, prompts_per_step)
    processor = _processor(processing_class, folder, model)
    lists = of_new_run(skips, Path(str(args.output_dir)))
    check_rows(examples, method, processor, prompt_settings, lists)
    with without_accelerates_fsdp():  # every rank needs the weights
        loaded: Any = model if folder is None else load_model(folder, torch.float32)
    return Inputs(loaded, examples, processor, _names(model, train_dataset, examples))


def _names(model: object, train_dataset: object, examples: ExampleSource) -> dict[str, Any]:
    """Name the model by what was given or by where it was loaded from, and the data by its path or kind."""
    is_named = isinstance(model, str | PathLike)
    base = str(model) if is_named else str(getattr(getattr(model, "config", None), "_name_or_path", ""))
    is_path = isinstance(train_dataset, str | PathLike)
    kind = f"{type(train_dataset).__name__} in memory"
    data = {"path": str(train_dataset)} if is_path else {"kind": kind, "num_rows": len(examples)}
    return {**({"model": {"path": base}} if base else {}), "data": data}


def check_count(examples: ExampleSource, prompts_per_step: int) -> None:
    """Raise a ConfigError if there are fewer rows than a step needs."""
    if len(examples) < prompts_per_step:
        raise ConfigError(
            [
                f"prompts_per_step = {prompts_per_step}, but the data has only {len(examples)} rows, and a step uses "
                "each at most once. Lower it, or add data."
            ]
        )


def check_fields(examples: ExampleSource, method: Method) -> None:
    """Check that the data has the fields that the teacher's views show. Rows without a value are skipped later."""
    for key, view, usual in (
        ("target_view", method.target_view, "original"),
        ("contrast_view", method.contrast_view, "black"),
    ):
        field = NEEDS.get(view or "")
        if field is not None and isinstance(examples, Source) and not examples.provides(field):
            raise ConfigError(
                [
                    f"method.{key} = {view!r} shows the column {field!r}, but {examples.table.name} "
                    f"lacks it. Add it, set data.columns.{field} to another column, or choose {key}: {usual}."
                ]
            )


def of_new_run(skips: Skips, output: Path) -> Skips:
    """Return skips that list nothing if the folder holds a run with a checkpoint: the file has that run's rows."""
    return skips.without_file() if checkpoints_of(output) else skips


def check_rows(
    examples: ExampleSource, method: Method, processor: Processor, settings: Mapping[str, Any], skips: Skips
) -> None:
    """Raise a ConfigError if none of the first rows can be used. They are then listed in the file of `skips`."""
    errors = []
    for row in range(min(len(examples), _ROWS_TRIED)):
        try:
            show(examples[row], method, processor, **settings)
        except DataError as error:
            errors.append(error)
        else:
            return
    name = examples.table.name if isinstance(examples, Source) else "the data"
    raise ConfigError([skips.none_usable(errors, name)])


def _processor(given: Processor | None, folder: Path | None, model: object) -> Processor:
    """Return the given processor, or load the one in the model's folder."""
    if given is None:
        name = str(getattr(getattr(model, "config", None), "_name_or_path", "")) if folder is None else ""
        if folder is None and not name:
            raise ConfigError(["processing_class is missing. Pass load_processor(FOLDER), or the model by its name."])
        return load_processor(folder if folder is not None else model_folder(name, key="model"))
    if isinstance(given, str | PathLike):
        return load_processor(model_folder(str(given), key="processing_class"))
    if getattr(given, "tokenizer", None) is None or getattr(given, "image_processor", None) is None:
        raise ConfigError(
            [
                f"processing_class is {type(given).__name__}, which cannot read images. Pass the model's processor "
                "(vcsd.models.processor.load_processor), or leave it out."
            ]
        )
    return given


def watch_of(args: TrainingArguments, inputs: Inputs, prompts_per_step: int) -> Watch:
    """Return the default monitor of a run: metrics, samples, a progress bar and the guard."""
    max_steps = planned_steps(args, max(1, len(inputs.examples) // prompts_per_step))
    return Watch(Path(str(args.output_dir)), inputs.processor.tokenizer, max_steps=max_steps)


def write_settings(
    folder: Path,
    args: TrainingArguments,
    method: Method,
    rollout: RolloutSettings,
    prompts_per_step: int,
    names: Mapping[str, Any],
    num_steps: int,
) -> None:
    """Write a run's settings next to its metrics. `names` holds the names of its model and data.

    `num_steps` is how many steps are planned, also where they are counted in epochs: pages show how far a run is.
    """
    settings = {
        **names,
        "method": asdict(method),
        "rollout": asdict(rollout),
        "prompts_per_step": prompts_per_step,
        "trainer": {**args.to_dict(), "max_steps": num_steps},  # type: ignore[no-untyped-call]
    }
    write_run_file(folder / "config.json", json.dumps(settings, indent=2, default=str) + "\n")


def write_run_file(path: Path, content: str) -> None:
    """Write a file of a run. A kill while writing leaves the previous one."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise ConfigError([f"{path} cannot be written: {error}. Choose another trainer.output_dir."]) from error
