"""Recipes: read a YAML file and `a.b=c` overrides into one typed tree, or raise one error that names every problem.

    model:   {path: Qwen/Qwen3-VL-2B-Instruct}
    data:    {path: data/virl39k}
    method:  {name: vcsd, alpha: 0.5}
    trainer: {max_steps: 90, output_dir: runs/first}

The defaults are the paper's. `trainer` is passed to `transformers.TrainingArguments`, and its keys are checked against
that class instead of being declared again. A file may start from another recipe (`inherit.py`). The resolved tree is
written as JSON, which is itself a valid recipe.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, fields, replace
from enum import Enum, EnumMeta
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from vcsd.config.inherit import BASE, read_tree
from vcsd.config.sections import (
    UNSUPPORTED,
    AdapterConfig,
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    RolloutConfig,
    Section,
)
from vcsd.config.shipped import recipe_path
from vcsd.config.yaml_text import parse_yaml
from vcsd.errors import ConfigError, did_you_mean, shown
from vcsd.method import METHODS, PRESETS, TRAINER_DEFAULTS, Method
from vcsd.types import HALF_PAIR

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails
    from transformers import TrainingArguments

    from vcsd.types import JsonValue

TrainerValues = dict[str, Any]
"""The `trainer` section. Its values have the types of transformers.TrainingArguments."""

ADAPTER_LEARNING_RATE = "6e-5"
"""The learning rate that an error proposes for adapters: see docs/lora.md."""

MOST_STEPS = 10**9
"""More steps are taken for a typo."""

_MAX_KEY = 60
"""Longer keys are cut in messages."""

ALIASES: Mapping[str, str] = {
    **{"lr": "trainer.learning_rate", "steps": "trainer.max_steps", "output": "trainer.output_dir"},
    **{"epochs": "trainer.max_steps", "batch_size": "prompts_per_step", "train_batch_size": "prompts_per_step"},
    **{"model_name_or_path": "model.path", "model_name": "model.path", "model_id": "model.path", "name": "model.path"},
    **{"dataset": "data.path", "dataset_name": "data.path", "train_file": "data.path", "image_folder": "data.images"},
    **{"num_generations": "rollout.num_per_prompt", "n": "rollout.num_per_prompt"},
    **{"max_completion_length": "rollout.max_new_tokens", "max_tokens": "rollout.max_new_tokens"},
    **{"max_prompt_length": "data.max_prompt_tokens", "max_length": "data.max_prompt_tokens"},
    **{"lora_r": "lora.rank", "r": "lora.rank", "lora_alpha": "lora.scale"},
}
"""Settings of other trainers, and the key that each corresponds to here."""

TRAINER_OWNED = ("gradient_accumulation_steps", "num_train_epochs", "per_device_train_batch_size")
"""TrainingArguments that no recipe may set to any value. `vcsd.trainer.arguments` says what to use instead."""


def _build_method(values: object) -> Method:
    """Build a Method from a name, or from a mapping with a name, a preset and fields to change."""
    section = {"name": values} if isinstance(values, str) else values
    if not isinstance(section, Mapping):
        raise ConfigError([f"method = {shown(section)} is not a method. Allowed: {', '.join(METHODS)}."])
    known = {field.name for field in fields(Method)}
    problems = [_unknown_key("method", key, [*known, "preset"]) for key in section if key not in {*known, "preset"}]
    base, changes = METHODS["vcsd"], dict[str, Any]()
    if (name := section.get("name")) in list(METHODS):
        base = METHODS[name]
    elif name is not None:
        problems.append(_unknown_word("method.name", name, METHODS))
    if (preset := section.get("preset")) in list(PRESETS):
        changes, preset_problems = _preset_changes(base, str(preset))
        problems += preset_problems
    elif preset is not None:
        problems.append(_unknown_word("method.preset", preset, PRESETS))
    changes |= {key: value for key, value in section.items() if key in known and key != "name"}
    try:
        method = replace(base, **changes)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return method


def _preset_changes(base: Method, preset: str) -> tuple[dict[str, Any], list[str]]:
    """The values that a preset sets, or why this method cannot take it."""
    try:
        base.preset(preset)
    except ConfigError as error:
        return {}, list(error.problems)
    return dict(PRESETS[preset]), []


def _check_trainer(values: object) -> TrainerValues:
    """Merge the user's TrainingArguments into the defaults, and check keys and types against the dataclass."""
    if not isinstance(values, Mapping):
        raise ConfigError([f"trainer = {shown(values)} is not a section. See transformers.TrainingArguments."])
    hints = _training_argument_types() if values else {}
    refused = _refused_arguments() if values else {}
    problems = []
    for key, value in values.items():
        if key in TRAINER_OWNED or (key in refused and value != refused[key][0]):
            given = "***" if key.endswith("token") else shown(value)
            problems.append(f"trainer.{key} = {given} cannot be set. {refused[key][1]}")
        elif key not in hints:
            problems.append(_unknown_key("trainer", key, list(hints)) + " See transformers.TrainingArguments.")
        elif not _is_finite(value):
            problems.append(f"trainer.{key} = {shown(value)} is not finite.")
        elif (words := _words(hints[key])) and isinstance(value, str) and value not in words:
            problems.append(_unknown_word(f"trainer.{key}", value, words))
        elif not _fits(value, hints[key]):
            problems.append(f"trainer.{key} = {shown(value)} {_wrong_type(hints[key])}")
        elif key == "max_steps" and not 1 <= value <= MOST_STEPS:
            least, most = "at least 1; a run is not counted in epochs", f"at most {MOST_STEPS}; the paper uses 90"
            problems.append(f"trainer.max_steps = {shown(value)} must be {least if value < 1 else most}.")
    if problems:
        raise ConfigError(problems)
    return {**TRAINER_DEFAULTS, **{key: _in_its_type(key, value, hints[key]) for key, value in values.items()}}


def _in_its_type(key: str, value: object, kind: object) -> object:
    """Return a valid number as TrainingArguments declares it, so that 1 and 1.0 are the same setting.

    Numbers of steps are declared as float because they may be shares of the run.
    """
    if not isinstance(value, int | float) or float not in (kind, *get_args(kind)):
        return value
    is_whole_count = key.endswith("_steps") and value == int(value)
    return int(value) if is_whole_count else float(value)


RESUMES = ("auto", "never", "last_good")


def _check_resume(value: object) -> int | str:
    """Check a step, or one of the words."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, str) and value in RESUMES:
        return value
    advice, meaning = did_you_mean(value, RESUMES), Recipe.model_fields["resume"].description
    raise ConfigError([f"resume = {shown(value)} is neither a step, counted from 1, nor a choice. {advice} {meaning}"])


class Recipe(Section):
    """A resolved recipe. Its JSON has the fields in this order."""

    model: ModelConfig
    data: DataConfig
    lora: AdapterConfig = AdapterConfig()
    method: Annotated[Method, PlainValidator(_build_method), PlainSerializer(asdict)] = METHODS["vcsd"]
    rollout: RolloutConfig = RolloutConfig()
    prompts_per_step: int = Field(32, ge=1, le=65_536, description="Prompts per step; the paper uses 32.")
    token_budget: int | None = Field(
        None, ge=1, le=2**24, description="Tokens per packed row; null measures it before the first step."
    )
    offload: bool = Field(
        False,
        description="true keeps Adam's moments and the float32 teacher in host memory: slower, less on the device.",
    )
    evaluation: EvaluationConfig = EvaluationConfig()
    guard: Literal["stop", "warn", "off"] = Field(
        "stop", description="What to do when a run collapses: stop, warn or off."
    )
    resume: Annotated[int | str, PlainValidator(_check_resume)] = Field(
        "auto",
        description="auto resumes from the latest checkpoint, if any; a number from that step; last_good from the last "
        "one before an alarm; never refuses a folder that has one.",
    )
    trainer: Annotated[TrainerValues, PlainValidator(_check_trainer)] = Field(
        default_factory=lambda: _check_trainer({})
    )

    def training_arguments(self, *, on_any_machine: bool = False) -> TrainingArguments:
        """Build transformers' own object from the `trainer` section. Raise a ConfigError if it refuses the values.

        `on_any_machine` leaves out what this machine lacks: bf16 needs a GPU that supports it, or `use_cpu`.
        """
        from transformers.utils.import_utils import is_torch_bf16_gpu_available

        from vcsd.parallel.launch import refused_engines, without_wrong_advice

        if problems := refused_engines():  # transformers would ask to install the engine
            raise ConfigError(problems)
        values = dict(self.trainer)
        if on_any_machine and not is_torch_bf16_gpu_available() and not values.get("use_cpu"):
            values |= {"bf16": False, "tf32": None, "use_cpu": True}
        try:
            with without_wrong_advice():
                return _training_arguments(values)
        except _REFUSALS as error:
            reason = " ".join(str(error).split()).rstrip(".")
            name = _refused_argument(values)
            if name == "bf16" and not is_torch_bf16_gpu_available():
                problem = (
                    "trainer.bf16 = true needs a GPU that computes in bfloat16, and torch finds none here. Set "
                    "trainer.bf16=false to train on the CPU; vcsd doctor shows what torch finds."
                )
            elif name is None:
                problem = f"trainer: transformers refuses this combination of values: {reason}. Change one of them."
            else:
                value = shown(values[name])
                problem = f"trainer.{name} = {value} is refused by transformers: {reason}. Correct it, or leave it out."
            raise ConfigError([problem]) from error

    def to_json(self) -> str:
        """Return the resolved tree as JSON, which `load_recipe` reads back to an equal Recipe."""
        return self.model_dump_json(indent=2) + "\n"


_REFUSALS = (ValueError, TypeError, ImportError, OSError, RuntimeError)
"""What TrainingArguments raises for values that it refuses."""


_NEW_NAMES = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Arguments that transformers 5.23 renamed. Recipes use the first name, whatever is installed."""


def _training_arguments(values: Mapping[str, Any]) -> TrainingArguments:
    """Call TrainingArguments with the names that the installed transformers prefers."""
    from transformers import TrainingArguments

    fields = TrainingArguments.__dataclass_fields__
    return TrainingArguments(
        **{new if (new := _NEW_NAMES.get(key, key)) in fields else key: value for key, value in values.items()}
    )


def _refused_argument(values: Mapping[str, Any]) -> str | None:
    """Return the argument without which TrainingArguments accepts the others; None if there is no such argument."""
    for name in values:
        with suppress(*_REFUSALS):
            _training_arguments({other: value for other, value in values.items() if other != name})
            return name
    return None


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe, given as a path or by the name of a shipped one, and apply overrides such as `method.alpha=0.5`.

    Raises a ConfigError with all problems in the file and the overrides.
    """
    return build_recipe(read_tree(recipe_path(path), Recipe.model_fields), overrides)


def build_recipe(tree: object, overrides: Iterable[str] = ()) -> Recipe:
    """Build a Recipe from a tree of plain values, and check it.

    >>> build_recipe({"model": {"path": "m"}, "data": {"path": "d"}}, ["method.alpha=0.5"]).method.alpha
    0.5
    """
    tree = {} if tree is None else tree
    if not isinstance(tree, Mapping):
        raise ConfigError([f"a recipe has sections, but this one is {shown(tree)}. Start with 'model:' and 'data:'."])
    tree, problems = _apply_overrides(tree, overrides)
    if not_text := next(_not_text(tree), None):
        raise ConfigError([*problems, not_text])
    if tree.pop(BASE, None) is not None:
        problems.append(f"{BASE} is read from a file only. Give the path or name of that recipe instead.")
    problems += _adapter_problems(tree)
    try:
        recipe = Recipe.model_validate(tree)
    except ValidationError as error:
        problems += [problem for details in error.errors() for problem in _explain(details)]
    if problems:
        raise ConfigError(problems)
    return recipe


def build_data(path: str, overrides: Iterable[str]) -> DataConfig:
    """Return the data section of a recipe, for commands that read data without a recipe.

    >>> build_data("train.jsonl", ["data.columns.prompt=Question"]).columns
    {'prompt': 'Question'}
    """
    overrides = list(overrides)
    if others := [override for override in overrides if not override.strip().startswith("data.")]:
        raise ConfigError(
            [
                f"override {shown(other)} is not a data key. This command takes keys such as "
                "data.columns.prompt=COLUMN and data.images=FOLDER."
                for other in others
            ]
        )
    return build_recipe({"model": {"path": "none"}, "data": {"path": path}}, overrides).data


def _adapter_problems(tree: Mapping[str, object]) -> list[str]:
    """Report settings that contradict LoRA, or that it needs."""
    lora, trainer, model = (
        section if isinstance(section := tree.get(name), Mapping) else {} for name in ("lora", "trainer", "model")
    )
    if not isinstance(lora.get("rank"), int) or not lora["rank"] > 0:
        return []  # no adapters, or a rank that is a problem of its own
    problems = [
        f"model.{key} = true has no effect with lora.rank: the whole model is frozen, and lora.vision says where "
        "adapters are. Leave it out."
        for key in ("freeze_vision", "freeze_projector", "freeze_language")
        if model.get(key) is True
    ]
    if "learning_rate" not in trainer:
        problems.append(
            f"lora.rank = {shown(lora['rank'])} needs trainer.learning_rate: the default, "
            f"{TRAINER_DEFAULTS['learning_rate']}, is the paper's for whole weights and hardly moves adapters. "
            f"Start with {ADAPTER_LEARNING_RATE}; docs/lora.md has the reasons."
        )
    return problems


def _not_text(value: object, path: str = "") -> Iterator[str]:
    """Yield the problems of keys that are not text, and of keys and texts with half a surrogate pair."""
    if isinstance(value, str) and HALF_PAIR.search(value):
        yield f"{path.lstrip('.') or 'the recipe'} = {shown(value)} contains half a surrogate pair, which is not text."
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str) or HALF_PAIR.search(key):
                yield f"{path.lstrip('.') or 'the recipe'} has the key {shown(key)}, which is not text."
            yield from _not_text(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _not_text(inner, path)


def _apply_overrides(tree: Mapping[str, object], overrides: Iterable[str]) -> tuple[dict[str, object], list[str]]:
    """Copy the tree and apply each `a.b=c`, whole sections first. Return it with the problems of invalid overrides."""
    copy = dict(deepcopy(tree))
    problems, seen = [], set()
    for override in sorted(overrides, key=_depth):  # a section must not replace a key that was set in it
        path, equals, text = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not text.strip() or not all(keys):
            problems.append(
                f"override {shown(override)} is not of the form key.key=value, without spaces. Write null for no value."
            )
            continue
        if path.strip() in seen:
            problems.append(f"override {shown(override)}: {path.strip()} is overridden twice.")
        seen.add(path.strip())
        try:
            value = parse_yaml(text, source=f"override {shown(override)}")
        except ConfigError as error:
            problems += error.problems
            continue
        node: object = copy
        for key in keys[:-1]:
            node = _section_at(node, key)
        if isinstance(node, dict):
            node[keys[-1]] = value
        else:
            problems.append(f"override {shown(override)}: {path.rpartition('.')[0]} is a value, not a section.")
    return copy, problems


def _depth(override: str) -> int:
    """How deep in the tree an override sets a value."""
    return override.partition("=")[0].count(".")


def _section_at(node: object, key: str) -> object:
    """Return the section under a key, and create it if it is missing. A plain method name becomes a section."""
    if not isinstance(node, dict):
        return None
    if node.get(key) is None:
        node[key] = {}
    elif key == "method" and isinstance(node[key], str):
        node[key] = {"name": node[key]}
    return node[key]


_PHRASES = {
    "missing": "is missing.",
    "string_type": "is not text.",
    "string_too_short": "is empty.",
    "int_type": "is not a whole number.",
    "float_type": "is not a number.",
    "finite_number": "is not finite.",
    "greater_than": "must be greater than {gt}.",
    "greater_than_equal": "must be at least {ge}.",
    "less_than_equal": "must be at most {le}.",
    "model_type": "is not a section.",
    "bool_type": "is not true or false.",
    "literal_error": "is not a choice. Allowed: {expected}.",
}
"""Plain words for pydantic's error types. A test checks that no field of the tree produces another."""


def _explain(details: ErrorDetails) -> tuple[str, ...]:
    """Turn one of pydantic's errors into lines that say what is wrong, what is allowed and what to do."""
    kind, path = details["type"], ".".join(str(key) for key in details["loc"])
    if kind == "value_error":
        cause = details["ctx"]["error"]
        return cause.problems if isinstance(cause, ConfigError) else (f"{path}: {cause}",)
    section, meaning = _find(details["loc"])
    if kind == "extra_forbidden":
        return (_unknown_key(path.rpartition(".")[0], details["loc"][-1], list(section.model_fields)),)
    phrase = _PHRASES.get(kind, details["msg"] + ".").format(**details.get("ctx", {}))
    if kind == "model_type":
        phrase = f"{phrase} Its keys: {', '.join(_keys_at(details['loc']))}."
    value = "" if kind == "missing" else f" = {shown(details['input'])}"
    return (f"{path}{value} {phrase} {meaning}".rstrip(),)


def _find(loc: tuple[int | str, ...]) -> tuple[type[Section], str]:
    """Return the section that holds the key at this path, and the meaning of the key."""
    section: type[Section] = Recipe
    for key in loc[:-1]:
        inner = section.model_fields[str(key)].annotation
        assert isinstance(inner, type), f"{key} of {loc} is not a section"
        assert issubclass(inner, Section), f"{key} of {loc} is not a section"
        section = inner
    field = section.model_fields.get(str(loc[-1]))
    if field is None:
        return section, ""
    meaning = field.description or (field.annotation.__doc__ if isinstance(field.annotation, type) else "")
    return section, meaning or ""


def _keys_at(loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section at a path, such as data.path."""
    parent, _ = _find(loc)
    inner = parent.model_fields[str(loc[-1])].annotation
    assert isinstance(inner, type), f"{loc} is not a section"
    assert issubclass(inner, Section), f"{loc} is not a section"
    return [".".join(map(str, (*loc, key))) for key in inner.model_fields]


def _unknown_key(parent: str, key: object, allowed: list[str]) -> str:
    """Report an unknown key, with the section that has a key of this name, or the nearest key of its own section."""
    name = str(key) if len(str(key)) <= _MAX_KEY else str(key)[: _MAX_KEY - 3] + "..."
    path = f"{parent}.{name}" if parent else name
    if (reason := UNSUPPORTED.get(str(key))) is not None:
        return f"{path} is not supported. {reason}"
    elsewhere = [f"'{section}.{key}'" for section, names in _keys_of_sections().items() if str(key) in names]
    if (meant := ALIASES.get(f"{parent}_{key}", None if elsewhere else ALIASES.get(str(key)))) is not None:
        elsewhere = [f"'{meant}'"]  # lora.alpha is PEFT's lora_alpha, and not the alpha of a method
    if not elsewhere and not parent and str(key) in _training_argument_types():
        elsewhere = [f"'trainer.{key}'"]
    advice = f"Did you mean {' or '.join(elsewhere)}?" if elsewhere else did_you_mean(key, sorted(allowed))
    note = " It is lora_alpha / r." if elsewhere == ["'lora.scale'"] else ""
    return f"{path} is not a key. {advice}{note}"


def _keys_of_sections() -> dict[str, list[str]]:
    sections: dict[str, type[Section]] = {"model": ModelConfig, "data": DataConfig, "rollout": RolloutConfig}
    sections |= {"evaluation": EvaluationConfig, "lora": AdapterConfig}
    keys = {name: list(section.model_fields) for name, section in sections.items()}
    return {"method": [field.name for field in fields(Method)], **keys, "trainer": list(TRAINER_DEFAULTS)}


def _unknown_word(path: str, value: object, allowed: Iterable[str]) -> str:
    return f"{path} = {shown(value)} is not a choice. {did_you_mean(value, allowed)}"


@cache
def _training_argument_types() -> dict[str, object]:
    """Return the names and types of TrainingArguments' fields. The import is here because it takes seconds."""
    from transformers import TrainingArguments

    hints = get_type_hints(TrainingArguments) | {"fsdp": bool | None}  # transformers also accepts a string
    return {field.name: hints[field.name] for field in fields(TrainingArguments) if field.init}


def _words(kind: object) -> list[str]:
    """Return the allowed values of a field of type "enumeration or text"."""
    enumerations: list[Iterable[Enum]] = [option for option in get_args(kind) if isinstance(option, EnumMeta)]
    return [word.value for enumeration in enumerations for word in enumeration]


def _is_finite(value: object) -> bool:
    """Whether a value can be written as JSON, which has neither NaN nor infinity."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError):
        return False
    return True


def _refused_arguments() -> Mapping[str, tuple[JsonValue, str]]:
    """Return the arguments that the trainer refuses. The import is here because it loads transformers."""
    from vcsd.trainer.arguments import REFUSED

    epochs, batches = "Set trainer.max_steps, which would override it.", "Set prompts_per_step: it makes the batches."
    renamed = {new: (None, f"Set trainer.{name}, as before transformers 5.23.") for name, new in _NEW_NAMES.items()}
    return {**REFUSED, **renamed, "num_train_epochs": (None, epochs), "accelerator_config": (None, batches)}


def _fits(value: object, kind: Any) -> bool:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _wrong_type(kind: object) -> str:
    """Say that a value is not of a type, in plain words for the usual types.

    >>> _wrong_type(int), _wrong_type(bool | None), _wrong_type(list[str])
    ('is not a whole number.', 'is neither true nor false.', 'is not of type list[str].')
    """
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    kinds = [option for option in options if option is not type(None)]
    if len(kinds) == 1 and kinds[0] in _TYPES:
        return _TYPES[kinds[0]]
    return f"is not of type {_type_name(kind)}."


_TYPES = {
    int: "is not a whole number.",
    float: "is not a number.",
    bool: "is neither true nor false.",
    str: "is not text.",
}


def _type_name(kind: object) -> str:
    return getattr(kind, "__name__", str(kind)) if isinstance(kind, type) else str(kind).replace("typing.", "")
