"""Base models to start from, as folders: their family, their size, and a hash that stands for their weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from vcsd.errors import ConfigError
from vcsd.evaluation.local import folder_identity
from vcsd.world.card import CARD
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FAMILY_TITLES = {"qwen3_vl": "Qwen3-VL", "qwen3_5": "Qwen3.5"}

HOW_LONG = ("_steps", "learning_rate")
"""Endings of the parameters that say how long and how fast a base was taught, not what: they make no other world."""


@dataclass(frozen=True)
class Base:
    """A model folder."""

    folder: Path

    @cached_property
    def family(self) -> str:
        """The model type that its configuration names."""
        text = (self.folder / "config.json").read_text(encoding="utf-8")
        return str(json.loads(text)["model_type"])

    @cached_property
    def num_parameters(self) -> int:
        """Numbers in its weight files."""
        total = 0
        for path in sorted(self.folder.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118  a safetensors file is no mapping
                    shape = file.get_slice(name).get_shape()
                    count = 1
                    for side in shape:
                        count *= side
                    total += count
        return total

    @cached_property
    def digest(self) -> str:
        """A hash of weights, configuration and processor."""
        return folder_identity(self.folder)

    @cached_property
    def changes(self) -> dict[str, Any]:
        """Parameters of the world in which it was taught that are not the committed ones, by its card.

        How long it was taught does not count. A base without a card is taken for an ordinary one.
        """
        card = self.folder / CARD
        if not card.is_file():
            return {}
        try:
            world = json.loads(card.read_text(encoding="utf-8")).get("world", {})
        except ValueError as error:
            raise ConfigError([f"{card} is not JSON: {error}. Make the base again, or remove the card."]) from None
        return dict(_changes(world))

    @property
    def group(self) -> str:
        """Bases of one architecture, size and world, which differ by their seed.

        They are compared with each other and with nobody else.
        """
        name = f"{FAMILY_TITLES.get(self.family, self.family)} {self.num_parameters / 1e6:.1f}M"
        return ", ".join([name, *(f"{key}={_plain(value)}" for key, value in self.changes.items())])


def _changes(world: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    committed = json.loads(json.dumps(asdict(PARAMETERS)))  # tuples as a card has them: as lists
    for name, value in sorted(world.items()):
        if not name.endswith(HOW_LONG) and (name not in committed or value != committed[name]):
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
    given = [Path(folder) for folder in folders]
    found = [
        each
        for folder in given
        for each in ([folder] if _is_model(folder) else sorted(path.parent for path in folder.glob("*/config.json")))
    ]
    if not found:
        names = ", ".join(str(folder) for folder in given) or "nothing"
        raise ConfigError([f"no base model in {names}. Name folders with --bases, made by `vcsd world pretrain`."])
    families = list(FAMILY_TITLES)

    def order(base: Base) -> tuple[bool, int, int, str]:
        rank = families.index(base.family) if base.family in families else len(families)
        return bool(base.changes), rank, base.num_parameters, base.group

    groups: dict[str, list[Base]] = {}
    for base in sorted((Base(folder) for folder in found), key=order):
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


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()
