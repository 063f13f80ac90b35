"""`vcsd init`: writes a short recipe that runs; `vcsd recipes`: lists the shipped ones."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from vcsd.cli.eval_command import name_of
from vcsd.errors import ConfigError, did_you_mean, install_command
from vcsd.terminal import plain, say

if TYPE_CHECKING:
    from vcsd.config.sections import DataConfig

DATA_KEYS = "Settings of the data, such as data.columns.prompt=Question or data.images=FOLDER."
"""Help on the overrides of commands that read data without a recipe."""

_DEVICES = ("gpu", "cpu")

_TEMPLATE = """\
# {title}. Written by vcsd init.
# vcsd train {file} --dry-run shows prompts, memory and time; vcsd train {file} trains, and resumes.
# Every key that is not here has the paper's value: vcsd config {file} prints them all.
{after}model:
  path: {model}
data:
  path: {data}  # {rows:,} rows
{data_keys}method: vcsd  # vcsd methods lists the others
prompts_per_step: {prompts}  # the paper uses 32
rollout:
  num_per_prompt: 8  # responses to each prompt
  max_new_tokens: {max_new_tokens}  # the longest response
trainer:
  output_dir: {output}
  max_steps: {max_steps}
{trainer_keys}  bf16: {bf16}  # bfloat16 needs a GPU
"""

_RECIPE = Path("recipe.yaml")
_WORLD_PROMPTS = 1024
_WORLD_KEYS = """\
  learning_rate: 1e-4  # a tiny model learns at a higher rate than the paper's
  warmup_steps: 5
  use_cpu: {use_cpu}
"""
_AFTER_WORLD = """\
# Then compare: vcsd eval world --benchmarks world --limit 64; vcsd eval {output} --benchmarks world --limit 64;
# vcsd eval --compare runs/eval/world {scores}
"""


def init(
    model: Annotated[
        str | None, typer.Option(help="A model folder, a hub id, or world for the shipped base. Asked for if omitted.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A file, folder or hub dataset of prompts with images. Default for world: its own data."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="gpu or cpu. Default: cpu for world, otherwise gpu if there is one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The recipe to write; also names its run.")] = _RECIPE,
    overrides: Annotated[list[str] | None, typer.Argument(help=DATA_KEYS)] = None,
) -> None:
    """Check your model and data, and write a short recipe for them. Asks for missing options.

    Example: `vcsd init --model Qwen/Qwen3-VL-2B-Instruct --data train.jsonl`

    Other columns: `vcsd init --model MODEL --data FILE data.columns.prompt=Question data.columns.images=picture`

    To try everything on a CPU, with a tiny model and pictures of its own: `vcsd init --model world`
    """
    from vcsd.config.recipe import build_data, load_recipe
    from vcsd.inspect.opened import WORLD

    if out.exists():
        raise ConfigError([f"{out} exists already. Choose another name (--out), or remove it."])
    model = _asked("model", model, "Model folder or hub id", "Qwen/Qwen3-VL-2B-Instruct")
    wants_gpu = None if device is None else _is_gpu(device)
    if model == WORLD and data is None:
        data = _world_prompts(out)
    data = _asked("data", data, "File of prompts with images", None)
    config = build_data(data, overrides or ())
    _refuse_unusable(model)
    rows = _num_rows(config)
    run = _run_of(out, "tiny" if model == WORLD else name_of(model))
    values = _world_values(run, rows, wants_gpu) if model == WORLD else _values(model, run, rows, wants_gpu)
    values |= {"file": shlex.quote(out.name), "data": json.dumps(config.path), "data_keys": _data_keys(config)}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(_TEMPLATE.format(rows=rows, **values), encoding="utf-8")
    except OSError as error:
        raise _unwritable(out, error) from error
    load_recipe(out)
    if model != WORLD and wants_gpu is None and not _has_gpu():
        say("This machine has no GPU, so trainer.bf16 is false. Set it to true to train on a GPU, which is faster.")
    say(f"Wrote {out}. Next: vcsd train {shlex.quote(str(out))} --dry-run")


def _run_of(recipe: Path, model: str) -> str:
    """Name a run after its recipe, so that two recipes do not share a folder, or after its model.

    Never `world`: vcsd eval stores scores by model name, and the base has that name.
    """
    from vcsd.inspect.opened import WORLD

    return model if recipe.name == _RECIPE.name or recipe.stem == WORLD else recipe.stem


def _values(model: str, run: str, rows: int, wants_gpu: bool | None) -> dict[str, object]:
    """Return the template's values for the user's model."""
    return {
        "title": f"VCSD on {' '.join(model.split())}",
        "after": "",
        "model": json.dumps(model),
        "prompts": min(32, rows),
        "max_new_tokens": 1024,
        "output": json.dumps(f"runs/{run}"),
        "max_steps": 90,
        "trainer_keys": "",
        "bf16": str(_has_gpu() if wants_gpu is None else wants_gpu).lower(),
    }


def _world_values(run: str, rows: int, wants_gpu: bool | None) -> dict[str, object]:
    """Return the template's values for the shipped base: the sizes of `vcsd demo`."""
    from vcsd.bases.shipped_bases import shipped_base

    output = f"runs/{run}"
    return {
        "title": "VCSD on the tiny model that ships with vcsd",
        "after": _AFTER_WORLD.format(output=shlex.quote(output), scores=shlex.quote(f"runs/eval/{run}")),
        "model": json.dumps(str(shipped_base())),
        "prompts": min(12, rows),
        "max_new_tokens": 40,
        "output": json.dumps(output),
        "max_steps": 60,
        "trainer_keys": _WORLD_KEYS.format(use_cpu=str(not wants_gpu).lower()),
        "bf16": "false",
    }


def _world_prompts(out: Path) -> str:
    """Write the world's training prompts next to the recipe, and return the path of their table."""
    from vcsd.reproduce.training_prompts import prompts_folder, write_prompts

    try:
        table = write_prompts(prompts_folder(out.parent / "world_data", _WORLD_PROMPTS), _WORLD_PROMPTS)
    except OSError as error:
        raise _unwritable(out, error) from error
    say(f"Drew {_WORLD_PROMPTS:,} pictures with questions: {table.parent}.")
    return str(table)


def _unwritable(out: Path, error: OSError) -> ConfigError:
    return ConfigError([f"{out} cannot be written: {error}. Choose another place (--out)."])


def _asked(name: str, given: str | None, question: str, default: str | None) -> str:
    """Return an option, or ask for it on a terminal."""
    if given is not None and given.strip():
        return given
    if given is not None or not sys.stdin.isatty():
        raise ConfigError([f"--{name} is missing. Pass it: vcsd init --model MODEL --data FILE."])
    return str(typer.prompt(question, default=default))


def _data_keys(config: DataConfig) -> str:
    """Return the lines of the data keys that differ from their defaults, with a hint on `images` if it is not set."""
    values = config.model_dump(exclude={"path"}, exclude_defaults=True)
    if "images" not in values:
        hint = "  # images: FOLDER  # where relative image paths start; default: the folder of the file\n"
    else:
        hint = ""
    return "".join(f"  {name}: {json.dumps(value)}\n" for name, value in values.items()) + hint


def _refuse_unusable(model: str) -> None:
    """Raise a ConfigError if a model cannot be trained. Neither loads weights nor asks the hub."""
    from vcsd.inspect.opened import WORLD
    from vcsd.models.hub import refuse_missing_path, refuse_quantized_folder, require_image_model

    if model == WORLD:
        return
    folder = Path(model).expanduser()
    if folder.is_dir():
        require_image_model(folder)
        refuse_quantized_folder(folder)
    else:
        refuse_missing_path(model, key="--model")


def _num_rows(data: DataConfig) -> int:
    """Check the data, and count its rows."""
    from vcsd.data import load_examples

    source = load_examples(**data.for_loading())
    say(source.report(), style="dim")
    return len(source)


def _is_gpu(device: str) -> bool:
    if device not in _DEVICES:
        raise ConfigError([f"--device {device!r} is not a choice. {did_you_mean(device, _DEVICES)}"])
    return device == "gpu"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def recipes() -> None:
    """List the shipped recipes with the smallest machine, the memory and the time that each needs (projected).

    `vcsd train` accepts these names in place of a path. For your own machine, see `vcsd train --dry-run --card`.

    Example: `vcsd recipes`
    """
    from itertools import groupby

    from vcsd.config.shipped import folder_titles, shipped_names
    from vcsd.lora.attach import has_peft

    titles, projections = folder_titles(), _Projections()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("recipe", "memory per GPU", "time", "smallest machine"):
        table.add_column(column, no_wrap=True, justify="right" if "memory" in column else "left")
    for folder, names in groupby(shipped_names(), lambda name: name.partition("/")[0]):
        table.add_section()
        for name in names:
            table.add_row(plain(name), *map(plain, projections.cells(name)))
        say(f"{folder + '/':16}{titles[folder]}")
    say("")
    if not has_peft():
        say(f"The recipes in lora/ need the package peft, which is missing here: {install_command('peft')}")
        say("")
    Console().print(table)
    say("Projected from shapes, with responses of full length; -: runs on a CPU, in the offline world.", style="dim")
    say("On a card with more memory, a run packs longer rows, which is faster.", style="dim")
    say(
        "vcsd train NAME --dry-run --card 24GB plans for another machine; vcsd config NAME prints all keys.",
        style="dim",
    )


class _Projections:
    """Projects shipped recipes on the smallest machine that fits; recipes with one model share its shapes."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}

    def cells(self, name: str) -> tuple[str, str, str]:
        """Memory per GPU, time and machine in words; dashes for a recipe whose model is not released."""
        from vcsd.config.recipe import load_recipe
        from vcsd.models.shapes import known_shape
        from vcsd.projection.machines import MACHINES
        from vcsd.projection.needs import empty_model, job_of
        from vcsd.projection.project import smallest_machine
        from vcsd.projection.spoken import duration, memory

        recipe = load_recipe(name)
        if known_shape(recipe.model.path) is None:
            return ("-", "-", "-")
        key = recipe.model.model_dump_json() + recipe.lora.model_dump_json()
        if key not in self.models:
            self.models[key] = empty_model(recipe)[0]
        projection = smallest_machine(job_of(recipe, self.models[key]), MACHINES)
        if projection is None:
            return ("?", "?", "none known")
        seconds = projection.step_seconds * recipe.trainer["max_steps"]
        return (memory(projection.needed_bytes), duration(seconds), projection.machine.name)
