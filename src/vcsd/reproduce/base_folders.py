"""Base models to start from, as folders: their family, their size, and a hash of their weights."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from vcsd.bases.card import CARD, read_card
from vcsd.errors import ConfigError
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.world.parameters import PARAMETERS, Parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vcsd.types import JsonValue

FAMILY_TITLES = {"qwen3_vl": "Qwen3-VL", "qwen3_5": "Qwen3.5"}

CONFIG = "config.json"

HOW_LONG = ("_steps", "learning_rate")
"""Suffixes of the parameters that say how long and how fast a base was taught. They do not change the world."""


@dataclass(frozen=True)
class Base:
    """A model folder."""

    folder: Path

    @cached_property
    def family(self) -> str:
        """The model type in its configuration."""
        path = self.folder / CONFIG
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError([f"{path} cannot be read: {error}. Make the base again."]) from None
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise ConfigError([f"{path} has no model_type. Pass the folder of a model."])
        return str(config["model_type"])

    @cached_property
    def num_parameters(self) -> int:
        """The number of parameters in its weight files."""
        paths = sorted(self.folder.glob("*.safetensors"))
        if not paths:
            raise ConfigError([f"{self.folder} holds no weights (*.safetensors). Pass the folder of a model."])
        return sum(_count(path) for path in paths)

    @cached_property
    def digest(self) -> str:
        """A hash of weights, configuration and processor."""
        return folder_identity(self.folder)

    @cached_property
    def changes(self) -> dict[str, JsonValue]:
        """The parameters of its world that differ from the defaults, according to its card.

        Parameters for how long it was taught do not count. A base without a card counts as an ordinary one.
        """
        return {name: value for name, value in self._others.items() if not name.endswith(HOW_LONG)}

    @cached_property
    def world(self) -> Parameters:
        """The world that it was taught in, with sharp pictures: blur is how it was taught, not what is asked."""
        return Parameters.from_json({**asdict(PARAMETERS), **self.changes, "blur": PARAMETERS.blur})

    @cached_property
    def _others(self) -> dict[str, JsonValue]:
        """All parameters on its card that differ from the defaults."""
        world = read_card(self.folder).get("world", {}) if (self.folder / CARD).exists() else {}
        defaults = json.loads(json.dumps(asdict(PARAMETERS)))  # tuples become lists, as on a card
        return {name: world[name] for name in sorted(world) if name not in defaults or world[name] != defaults[name]}

    @property
    def title(self) -> str:
        """The folder's name, followed by any unusual numbers of steps or learning rates in pre-training."""
        taught = [f"{name}={_plain(value)}" for name, value in self._others.items() if name.endswith(HOW_LONG)]
        return self.folder.name + (f" ({', '.join(taught)})" if taught else "")

    @property
    def group(self) -> str:
        """Architecture, size and world. Bases of a group differ by their seed, and only they are compared."""
        name = f"{FAMILY_TITLES.get(self.family, self.family)} {self.num_parameters / 1e6:.1f}M"
        return ", ".join([name, *(f"{key}={_plain(value)}" for key, value in self.changes.items())])


def _count(path: Path) -> int:
    """The number of parameters in a weight file, from its header."""
    try:
        with safe_open(path, "pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118  no mapping
    except (OSError, SafetensorError) as error:
        raise ConfigError([f"{path} cannot be read: {error}. Make the base again."]) from None


def _plain(value: JsonValue) -> str:
    """Format a value as `--set` takes it.

    >>> _plain(0.0), _plain([3, 4, 5])
    ('0', '3,4,5')
    """
    if isinstance(value, list):
        return ",".join(_plain(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def grouped(folders: Sequence[str | Path]) -> dict[str, list[Base]]:
    """Group bases by architecture, size and world: Qwen3-VL first, small before large, changed worlds last.

    A folder may be a model, or contain models, which are taken in the order of their names.
    """
    models_in = [(folder, _models(Path(folder))) for folder in folders]
    without = [folder for folder, models in models_in if not models] if models_in else ["nothing"]
    if without:
        how = "Pass folders made by `vcsd world pretrain` with --bases."
        raise ConfigError([f"no base model in {name}. {how}" for name in without])
    families = list(FAMILY_TITLES)

    def order(base: Base) -> tuple[bool, int, int, str]:
        rank = families.index(base.family) if base.family in families else len(families)
        return bool(base.changes), rank, base.num_parameters, base.group

    groups: dict[str, list[Base]] = {}
    for base in sorted((Base(folder) for _, models in models_in for folder in models), key=order):
        groups.setdefault(base.group, []).append(base)
    _refuse_equal_names(groups)
    return groups


def _refuse_equal_names(groups: Mapping[str, Iterable[Base]]) -> None:
    """Raise if two bases of a group have the same folder name, since runs are identified by it."""
    problems = []
    for group, bases in groups.items():
        names = [base.folder.name for base in bases]
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.append(f"{group}: two bases are called {name!r}. Pass each base once, with a unique folder name.")
    if problems:
        raise ConfigError(problems)


def _models(folder: Path) -> list[Path]:
    """The folder itself if it is a model, else the models in it."""
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
