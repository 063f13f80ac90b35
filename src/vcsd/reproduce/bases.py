"""Base models to start from, as folders: their family, their size, and a hash that stands for their weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from vcsd.errors import ConfigError
from vcsd.evaluation.local import folder_identity

if TYPE_CHECKING:
    from collections.abc import Sequence

FAMILY_TITLES = {"qwen3_vl": "Qwen3-VL", "qwen3_5": "Qwen3.5"}


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

    @property
    def group(self) -> str:
        """Bases of one architecture and size, which differ by their seed.

        They are compared with each other and with nobody else.
        """
        return f"{FAMILY_TITLES.get(self.family, self.family)} {self.num_parameters / 1e6:.1f}M"


def grouped(folders: Sequence[str | Path]) -> dict[str, list[Base]]:
    """Bases by architecture and size: Qwen3-VL first, the smaller before the larger, each in the given order.

    A folder that is no model but holds some stands for all of them, by name.
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

    def order(base: Base) -> tuple[int, int]:
        rank = families.index(base.family) if base.family in families else len(families)
        return rank, base.num_parameters

    groups: dict[str, list[Base]] = {}
    for base in sorted((Base(folder) for folder in found), key=order):
        groups.setdefault(base.group, []).append(base)
    return groups


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()
