"""Runs that need not be repeated, even if the bases that they started from no longer exist.

A result names its base and the hash of its weights. A base made again has other weights, so a base with results is
not made again automatically: its missing runs wait until the base is put back. If its weights are lost for good, it
can be made again under the same name, and all its runs are repeated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.evaluation.reading.final_answer import READER
from vcsd.reproduce.base_folders import Base
from vcsd.reproduce.cell import Cell
from vcsd.reproduce.pages.from_files import RecordedBase

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from vcsd.reproduce.cell import Sweep
    from vcsd.reproduce.planned.run_list import PlannedRun, RunList


@dataclass(frozen=True, eq=False)
class KnownRuns:
    """The results in some folders: their keys, and the bases of a list that they started from."""

    keys: frozenset[str] = frozenset()
    bases: Mapping[str, RecordedBase] = field(default_factory=dict)
    readers: Mapping[str, int] = field(default_factory=dict)
    """The version of the reader that read the answers of a base's results, where they record it."""

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

    def refuse_other_reader(self, listed: RunList, sweep: Sweep) -> None:
        """Raise if the missing runs of a base would be read by another version of the reader than its finished ones."""
        unfinished = dict.fromkeys(run.base for run in listed.runs if not self.has_result(run, sweep))
        others = [name for name in unfinished if self.readers.get(name, READER) != READER]
        if others:
            raise ConfigError([
                f"Answers on {name} were read by version {self.readers[name]} of the reader, and this is version "
                f"{READER}. Its scores would not compare: finish it with the version of vcsd that began it."
                for name in others
            ])  # fmt: skip


def known_runs(listed: RunList, folders: Sequence[Path], lost: Collection[str] = ()) -> KnownRuns:
    """Read the results in some folders, each of which may be missing.

    The results of `lost` bases count only in the first folder, which has those of the bases that were made again.
    """
    keys: set[str] = set()
    bases: dict[str, RecordedBase] = {}
    readers: dict[str, int] = {}
    paths = [
        (place, path) for place, folder in enumerate(folders) for path in sorted((folder / "cells").glob("*.json"))
    ]
    for place, path in paths:
        result = json.loads(path.read_bytes())
        name = result.get("base")
        if place and name in lost:
            continue
        keys.add(path.stem)
        if name in listed.bases:
            bases.setdefault(name, RecordedBase(Path(name), result["group"], result["identity"]["base"]))
            readers.setdefault(name, result.get("reader", READER))
    return KnownRuns(frozenset(keys), bases, readers)
