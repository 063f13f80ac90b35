"""Base models to start from, as folders: their family, their size, and a hash that stands for their weights."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from vcsd.errors import ConfigError
from vcsd.evaluation.local import folder_identity
from vcsd.world.card import CARD, read_card
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FAMILY_TITLES = {"qwen3_vl": "Qwen3-VL", "qwen3_5": "Qwen3.5"}

CONFIG = "config.json"

HOW_LONG = ("_steps", "learning_rate")
"""Endings of the parameters that say how long and how fast a base was taught, not what: they make no other world."""


@dataclass(frozen=True)
class Base:
    """A model folder."""

    folder: Path

    @cached_property
    def family(self) -> str:
        """The model type that its configuration names."""
        path = self.folder / CONFIG
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError([f"{path} cannot be read: {error}. Make the base again."]) from None
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise ConfigError([f"{path} names no model_type. Give the folder of a model."])
        return str(config["model_type"])

    @cached_property
    def num_parameters(self) -> int:
        """Numbers in its weight files."""
        paths = sorted(self.folder.glob("*.safetensors"))
        if not paths:
            raise ConfigError([f"{self.folder} holds no weights (*.safetensors). Give the folder of a model."])
        return sum(_count(path) for path in paths)

    @cached_property
    def digest(self) -> str:
        """A hash of weights, configuration and processor."""
        return folder_identity(self.folder)

    @cached_property
    def changes(self) -> dict[str, Any]:
        """Parameters of the world in which it was taught that are not the committed ones, by its card.

        How long it was taught does not count. A base without a card is taken for an ordinary one.
        """
        return {name: value for name, value in self._others.items() if not name.endswith(HOW_LONG)}

    @cached_property
    def _others(self) -> dict[str, Any]:
        """All parameters on its card that are not the committed ones."""
        return dict(_changes(read_card(self.folder).get("world", {}))) if (self.folder / CARD).exists() else {}

    @property
    def title(self) -> str:
        """Its folder's name and, where it was taught longer, shorter or at other rates than the world says, these."""
        taught = [f"{name}={_plain(value)}" for name, value in self._others.items() if name.endswith(HOW_LONG)]
        return self.folder.name + (f" ({', '.join(taught)})" if taught else "")

    @property
    def group(self) -> str:
        """Bases of one architecture, size and world, which differ by their seed.

        They are compared with each other and with nobody else.
        """
        name = f"{FAMILY_TITLES.get(self.family, self.family)} {self.num_parameters / 1e6:.1f}M"
        return ", ".join([name, *(f"{key}={_plain(value)}" for key, value in self.changes.items())])


def _count(path: Path) -> int:
    """Numbers in a weight file, by its head."""
    try:
        with safe_open(path, "pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118  no mapping
    except (OSError, SafetensorError) as error:
        raise ConfigError([f"{path} cannot be read: {error}. Make the base again."]) from None


def _changes(world: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    committed = json.loads(json.dumps(asdict(PARAMETERS)))  # tuples as a card has them: as lists
    for name, value in sorted(world.items()):
        if name not in committed or value != committed[name]:
            yield name, value


def _plain(value: Any) -> str:
    """A value as `--set` takes it.

    >>> _plain(0.0), _plain([3, 4, 5])
    ('0', '3,4,5')
    """
    if isinstance(value, list):
        return ",".join(_plain(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def grouped(folders: Sequence[str | Path]) -> dict[str, list[Base]]:
    """Bases by architecture, size and world: Qwen3-VL first, the smaller before the larger, each in the given order.

    Bases of changed worlds come after all others. A folder that is no model but holds some stands for all of them, by
    name.
    """
    found = [(folder, _models(Path(folder))) for folder in folders]
    without = [folder for folder, models in found if not models] if found else ["nothing"]
    if without:
        how = "Name folders with --bases, made by `vcsd world pretrain`."
        raise ConfigError([f"no base model in {name}. {how}" for name in without])
    families = list(FAMILY_TITLES)

    def order(base: Base) -> tuple[bool, int, int, str]:
        rank = families.index(base.family) if base.family in families else len(families)
        return bool(base.changes), rank, base.num_parameters, base.group

    groups: dict[str, list[Base]] = {}
    for base in sorted((Base(folder) for _, models in found for folder in models), key=order):
        groups.setdefault(base.group, []).append(base)
    _refuse_equal_names(groups)
    return groups


def _refuse_equal_names(groups: Mapping[str, Iterable[Base]]) -> None:
    """Runs are told apart by the folder's name: a base given twice, or two of one name, would be one run."""
    problems = []
    for group, bases in groups.items():
        names = [base.folder.name for base in bases]
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.append(f"{group}: two bases are called {name!r}. Give each once, under a name of its own.")
    if problems:
        raise ConfigError(problems)


def _models(folder: Path) -> list[Path]:
    """The folder if it is a model, or those in it that are."""
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
