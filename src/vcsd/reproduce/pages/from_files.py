"""The results of a folder from its files alone: the bases need not be there.

A result names its base, its group and the hash of its weights, which is all that finding the other results takes.
`bases.json` keeps what only the cards of bases say: unusual numbers of steps in pre-training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.reproduce.base_folders import FAMILY_TITLES, Base
from vcsd.reproduce.cell import full_sweep
from vcsd.reproduce.cell_result import read_results
from vcsd.reproduce.results import Results

if TYPE_CHECKING:
    from vcsd.types import JsonValue

SEEDS = (101, 102, 103, 104, 105)
"""The seeds of the committed results."""

RUN_LISTS = ("planned.json", "failure_runs.json", "power_runs.json", "paper_dose_runs.json", "qwen3_5_runs.json")
"""Lists of runs on bases of their own, which other pages leave out."""


@dataclass(frozen=True)
class RecordedBase(Base):
    """A base as its results describe it. Its folder is only a name."""

    recorded_group: str
    recorded_digest: str
    taught: str = ""

    @property
    def group(self) -> str:
        """Architecture, size and world."""
        return self.recorded_group

    @property
    def title(self) -> str:
        """Its name, followed by any unusual numbers of steps in pre-training."""
        return self.folder.name + (f" ({self.taught})" if self.taught else "")

    @property
    def digest(self) -> str:
        """The hash of its weights, configuration and processor."""
        return self.recorded_digest

    @property
    def changes(self) -> dict[str, JsonValue]:
        """The parameters of its world that differ from the defaults, as its group names them."""
        named = (part.partition("=") for part in self.recorded_group.split(", ")[1:])
        return {name: json.loads(value) for name, _, value in named}


def recorded_results(out: Path, leave_out: frozenset[str] = frozenset()) -> Results:
    """The results in a folder, with the bases that they name, except those to leave out."""
    cells = read_results(out)
    if not cells:
        raise ConfigError([f"{out} holds no results. Pass a folder of results, such as docs/results."])
    notes = out / "bases.json"
    taught = json.loads(notes.read_bytes()) if notes.is_file() else {}
    bases = {
        RecordedBase(Path(cell["base"]), cell["group"], str(cell["identity"]["base"]), taught.get(cell["base"], ""))
        for cell in cells
        if cell["base"] not in leave_out
    }
    groups: dict[str, list[Base]] = {}
    for base in sorted(bases, key=_order):
        groups.setdefault(base.group, []).append(base)
    return Results(full_sweep(out), groups, SEEDS)


def _order(base: RecordedBase) -> tuple[bool, int, float, str]:
    """Qwen3-VL first, small before large, changed worlds last, as in `vcsd reproduce`."""
    title, size = base.recorded_group.partition(", ")[0].rsplit(" ", 1)
    return (
        bool(base.changes),
        list(FAMILY_TITLES.values()).index(title),
        float(size.removesuffix("M")),
        str(base.folder),
    )


def planned_bases(out: Path) -> frozenset[str]:
    """The bases of the planned runs, which are read once and have a page of their own."""
    lists = [json.loads((out / name).read_bytes()) for name in RUN_LISTS if (out / name).is_file()]
    return frozenset(base for listed in lists for base in listed["bases"])
