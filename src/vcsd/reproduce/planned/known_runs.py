"""Runs that need not be repeated, even where the bases that they started from are no longer there.

A result names its base and the hash of its weights. A base made again has other weights, so a base with results is
never made again: its missing runs wait until the base itself is put back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.reproduce.base_folders import Base
from vcsd.reproduce.cell import Cell
from vcsd.reproduce.pages.from_files import RecordedBase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.reproduce.cell import Sweep
    from vcsd.reproduce.planned.run_list import PlannedRun, RunList


@dataclass(frozen=True, eq=False)
class KnownRuns:
    """The results in some folders: their keys, and the bases of a list that they started from."""

    keys: frozenset[str] = frozenset()
    bases: Mapping[str, RecordedBase] = field(default_factory=dict)

    def has_result(self, run: PlannedRun, sweep: Sweep) -> bool:
        """Whether a run on a base of the list has a result, whether or not the base is there."""
        base = self.bases.get(run.base)
        return base is not None and Cell(run.variant, base, run.seed, sweep).key in self.keys

    def refuse_other_weights(self, bases: Path) -> None:
        """Raise if a folder holds a base of the same name as one with results, but with other weights."""
        others = [
            name
            for name, recorded in self.bases.items()
            if (bases / name).is_dir() and Base(bases / name).digest != recorded.digest
        ]
        if others:
            raise ConfigError([
                f"{bases / name} has other weights than the base of the finished runs. Put that base there instead."
                for name in others
            ])  # fmt: skip


def known_runs(listed: RunList, folders: Sequence[Path]) -> KnownRuns:
    """Read the results in some folders, each of which may be missing."""
    keys: set[str] = set()
    bases: dict[str, RecordedBase] = {}
    for path in (path for folder in folders for path in sorted((folder / "cells").glob("*.json"))):
        result = json.loads(path.read_bytes())
        keys.add(path.stem)
        name = result.get("base")
        if name in listed.bases:
            bases.setdefault(name, RecordedBase(Path(name), result["group"], result["identity"]["base"]))
    return KnownRuns(frozenset(keys), bases)
