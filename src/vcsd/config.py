"""Recipes: a YAML file and `a.b=c` overrides become one small typed tree, or one error that names every problem.

    model:   {path: Qwen/Qwen3-VL-2B-Instruct}
    data:    {path: data/virl39k}
    method:  {name: vcsd, alpha: 0.5}
    trainer: {max_steps: 90, output_dir: runs/first}

The defaults are the paper's. `trainer` is handed to `transformers.TrainingArguments`; its keys are not declared here
again, only checked against it. The resolved tree is written back as JSON, which is itself a valid recipe.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, fields, replace
from enum import EnumMeta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from vcsd.errors import ConfigError, did_you_mean
from vcsd.method import METHODS, PRESETS, Method
from vcsd.recipe_groups import DataConfig, EvaluationConfig, Group, ModelConfig, RolloutConfig
from vcsd.recipe_text import parse_yaml, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from transformers import TrainingArguments

TRAINER_DEFAULTS: Mapping[str, Any] = {
    "output_dir": "runs/vcsd",
    "max_steps": 90,
    "learning_rate": 2e-6,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 10,
    "max_grad_norm": 1.0,
    "bf16": True,
    "logging_steps": 1,
    "save_steps": 10,
    "save_total_limit": 2,
    "report_to": "none",
    "disable_tqdm": True,
}
"""The paper's training configuration (Section 4.1), as TrainingArguments; clipping is the authors' code's. Then how we
compute and log."""

TRAINER_OWNED = ("gradient_accumulation_steps", "num_train_epochs", "per_device_train_batch_size")
"""TrainingArguments that no recipe may name, whatever the value. `vcsd.trainer.arguments` says what to use instead."""


def _build_method(values: object) -> Method:
    """A Method from a name, or from a mapping of a name, a preset and fields to change."""
    given = {"name": values} if isinstance(values, str) else values
    if not isinstance(given, Mapping):
        raise ConfigError([f"method = {shown(given)} is not a method. Allowed: {', '.join(METHODS)}."])
    known = {field.name for field in fields(Method)}
    problems = [_unknown_key("method", key, [*known, "preset"]) for key in given if key not in {*known, "preset"}]
    base = METHODS["vcsd"]
    preset: Mapping[str, Any] = {}
    if (name := given.get("name")) in list(METHODS):
        base = METHODS[name]
    elif name is not None:
        problems.append(_unknown_word("method.name", name, METHODS))
    if (preset_name := given.get("preset")) in list(PRESETS):
        preset = PRESETS[preset_name]
    elif preset_name is not None:
        problems.append(_unknown_word("method.preset", preset_name, PRESETS))
    changes = {key: value for key, value in given.items() if key in known and key != "name"}
    try:
        method = replace(base, **{**preset, **changes})
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return method


def _check_trainer(values: object) -> dict[str, Any]:
    """The user's TrainingArguments over the paper's; keys and types are checked against the dataclass itself."""
    if not isinstance(values, Mapping):
        raise ConfigError([f"trainer = {shown(values)} is not a group of keys. See transformers.TrainingArguments."])
    hints = _training_argument_types() if values else {}
    refused = _refused_arguments() if values else {}
    problems = []
    for key, value in values.items():
        if key in TRAINER_OWNED or (key in refused and value != refused[key][0]):
            problems.append(f"trainer.{key} = {shown(value)} cannot be set. {refused[key][1]}")
        elif key not in hints:
            problems.append(_unknown_key("trainer", key, list(hints)) + " See transformers.TrainingArguments.")
        elif not _is_finite(value):
            problems.append(f"trainer.{key} = {shown(value)} is not finite.")
        elif (words := _words(hints[key])) and isinstance(value, str) and value not in words:
            problems.append(_unknown_word(f"trainer.{key}", value, words))
        elif not _fits(value, hints[key]):
            problems.append(f"trainer.{key} = {shown(value)} is not of type {_type_name(hints[key])}.")
        elif key == "max_steps" and value < 1:
            problems.append(f"trainer.max_steps = {shown(value)} must be at least 1: a run has no epochs to count by.")
    if problems:
        raise ConfigError(problems)
    return {**TRAINER_DEFAULTS, **values}


class Recipe(Group):
    """One run, resolved. Field order is the order of the written JSON."""

    model: ModelConfig
    data: DataConfig
    method: Annotated[Method, PlainValidator(_build_method), PlainSerializer(asdict)] = METHODS["vcsd"]
    rollout: RolloutConfig = RolloutConfig()
    prompts_per_step: int = Field(32, ge=1, description="Prompts per step over all ranks; the paper uses 32.")
    token_budget: int | None = Field(None, ge=1, description="Tokens per row; null measures it before the first step.")
    evaluation: EvaluationConfig = EvaluationConfig()
    guard: Literal["stop", "warn", "off"] = Field("stop", description="What to do when a run collapses.")
    resume: Literal["auto", "never"] = Field("auto", description="auto goes on from the latest checkpoint, if any.")
    trainer: Annotated[dict[str, Any], PlainValidator(_check_trainer)] = Field(
        default_factory=lambda: _check_trainer({})
    )

    def training_arguments(self) -> TrainingArguments:
        """The `trainer` group as transformers' own object; what it refuses is a ConfigError."""
        from transformers import TrainingArguments

        try:
            return TrainingArguments(**self.trainer)
        except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
            raise ConfigError([f"trainer: transformers refuses these arguments: {error}"]) from error

    def to_json(self) -> str:
        """The resolved tree, which `load_recipe` reads back to an equal Recipe."""
        return self.model_dump_json(indent=2) + "\n"


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe file and apply overrides such as `method.alpha=0.5`.

    Raises ConfigError, with all problems of file and overrides together.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError([f"recipe {str(path)!r} cannot be read: {error}."]) from error
    return build_recipe(parse_yaml(text, source=str(path)), overrides)


def build_recipe(tree: object, overrides: Iterable[str] = ()) -> Recipe:
    """Check a tree of plain values and turn it into a Recipe.

    >>> build_recipe({"model": {"path": "m"}, "data": {"path": "d"}}, ["method.alpha=0.5"]).method.alpha
    0.5
    """
    tree = {} if tree is None else tree
    if not isinstance(tree, Mapping):
        raise ConfigError([f"a recipe is a group of keys, not {shown(tree)}. Start with 'model:' and 'data:'."])
    tree, problems = _apply_overrides(tree, overrides)
    try:
        recipe = Recipe.model_validate(tree)
    except ValidationError as error:
        problems += [problem for details in error.errors() for problem in _explain(details)]
    if problems:
        raise ConfigError(problems)
    return recipe


def _apply_overrides(tree: Mapping[str, Any], overrides: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """A copy of the tree with each `a.b=c` set, and what is wrong with those that cannot be."""
    copy = dict(deepcopy(tree))
    problems, seen = [], set()
    for override in overrides:
        path, equals, text = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not text.strip() or not all(keys):
            problems.append(f"override {override!r} is not of the form key.key=value. For nothing, write null.")
            continue
        if path.strip() in seen:
            problems.append(f"override {override!r}: {path.strip()} is overridden twice.")
        seen.add(path.strip())
        try:
            value = parse_yaml(text, source=f"override {override!r}")
        except ConfigError as error:
            problems += error.problems
            continue
        node: Any = copy
        for key in keys[:-1]:
            node = _group_at(node, key)
        if isinstance(node, dict):
            node[keys[-1]] = value
        else:
            problems.append(f"override {override!r}: {path.rpartition('.')[0]} is a value, not a group of keys.")
    return copy, problems


def _group_at(node: Any, key: str) -> Any:
    """The group under a key, made if there is none yet; a method named in one word becomes a group with that name."""
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
    "model_type": "is not a group of keys.",
    "bool_type": "is not true or false.",
    "literal_error": "is not a choice. Allowed: {expected}.",
}
"""pydantic's error types in our words; tests hold that no field of the tree can produce another."""


def _explain(details: ErrorDetails) -> tuple[str, ...]:
    """One of pydantic's findings as lines that say what was given, what is allowed and what to do."""
    kind, path = details["type"], ".".join(str(key) for key in details["loc"])
    if kind == "value_error":
        cause = details["ctx"]["error"]
        return cause.problems if isinstance(cause, ConfigError) else (f"{path}: {cause}",)
    group, field = _find(details["loc"])
    if kind == "extra_forbidden":
        return (_unknown_key(path.rpartition(".")[0], details["loc"][-1], list(group.model_fields)),)
    phrase = _PHRASES.get(kind, details["msg"] + ".").format(**details.get("ctx", {}))
    given = "" if kind == "missing" else f" = {shown(details['input'])}"
    return (f"{path}{given} {phrase} {field}".rstrip(),)


def _find(loc: tuple[int | str, ...]) -> tuple[type[Group], str]:
    """The group that holds the key at this path, and what the key means."""
    group: type[Group] = Recipe
    for key in loc[:-1]:
        inner = group.model_fields[str(key)].annotation
        assert isinstance(inner, type), f"{key} of {loc} is not a group"
        assert issubclass(inner, Group), f"{key} of {loc} is not a group"
        group = inner
    field = group.model_fields.get(str(loc[-1]))
    if field is None:
        return group, ""
    meaning = field.description or (field.annotation.__doc__ if isinstance(field.annotation, type) else "")
    return group, meaning or ""


def _unknown_key(parent: str, key: object, allowed: list[str]) -> str:
    """An unknown key, with the place where a key of that name belongs, or the nearest one of its group."""
    path = f"{parent}.{key}" if parent else str(key)
    homes = [f"'{group}.{key}'" for group, names in _keys_of_groups().items() if str(key) in names]
    advice = f"Did you mean {' or '.join(homes)}?" if homes else did_you_mean(key, sorted(allowed))
    return f"{path} is not a key. {advice}"


def _keys_of_groups() -> dict[str, list[str]]:
    groups: dict[str, type[Group]] = {"model": ModelConfig, "data": DataConfig, "rollout": RolloutConfig}
    groups["evaluation"] = EvaluationConfig
    keys = {name: list(group.model_fields) for name, group in groups.items()}
    return {"method": [field.name for field in fields(Method)], **keys, "trainer": list(TRAINER_DEFAULTS)}


def _unknown_word(path: str, value: object, allowed: Iterable[str]) -> str:
    return f"{path} = {shown(value)} is not a choice. {did_you_mean(value, allowed)}"


def _training_argument_types() -> dict[str, Any]:
    """The names and types of TrainingArguments' fields. Imported here: it takes seconds."""
    from transformers import TrainingArguments

    hints = get_type_hints(TrainingArguments)
    return {field.name: hints[field.name] for field in fields(TrainingArguments) if field.init}


def _words(kind: Any) -> list[str]:
    """What a field that is an enumeration (written as "enumeration or text") may say."""
    enumerations: list[Iterable[Any]] = [each for each in get_args(kind) if isinstance(each, EnumMeta)]
    return [word.value for enumeration in enumerations for word in enumeration]


def _is_finite(value: object) -> bool:
    """Whether a value can be written as JSON, which knows neither NaN nor infinity."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError):
        return False
    return True


def _refused_arguments() -> Mapping[str, tuple[Any, str]]:
    """What the trainer refuses, and epochs, which max_steps decides. Imported here: it loads transformers."""
    from vcsd.trainer.arguments import REFUSED

    return {**REFUSED, "num_train_epochs": (None, "Set trainer.max_steps, which would win over it.")}


def _fits(value: object, kind: Any) -> bool:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _type_name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind)) if isinstance(kind, type) else str(kind).replace("typing.", "")
