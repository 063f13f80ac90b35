"""Results by experiment: which cells there are, and what was found in those that have been run.

A run is a base and a seed. Seeds are spread over the bases of a group, the first seed on the first base; with `cross`
every seed starts from every base. Two variants are compared run by run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsd.reproduce.cell import Cell, Plan
from vcsd.reproduce.experiments import REFERENCES, Experiment, Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vcsd.reproduce.bases import Base

Run = tuple[str, int]
"""The base's folder name and the seed."""


@dataclass(frozen=True, eq=False)
class Results:
    """The cells of a command by group, variant and run."""

    plan: Plan
    groups: Mapping[str, Sequence[Base]]
    seeds: Sequence[int]
    cross: bool = False

    def groups_of(self, experiment: Experiment) -> list[str]:
        """The groups that an experiment runs on."""
        return list(self.groups) if experiment.on_all_bases else list(self.groups)[:1]

    def cells(self, experiment: Experiment) -> Iterator[Cell]:
        """Every cell that an experiment needs, its references included."""
        variants = dict.fromkeys((*REFERENCES, *experiment.variants))
        for group in self.groups_of(experiment):
            for variant in variants:
                yield from self.cells_of(variant, group).values()

    def cells_of(self, variant: Variant, group: str) -> dict[Run, Cell]:
        """The cells of one variant, run by run."""
        bases = self.groups[group]
        pairs = [
            (base, seed)
            for place, seed in enumerate(self.seeds)
            for base in (bases if self.cross else [bases[place % len(bases)]])
        ]
        return {(base.folder.name, seed): Cell(variant, base, seed, self.plan) for base, seed in pairs}

    def found(self, variant: Variant, group: str) -> dict[Run, dict[str, Any]]:
        """The results that are there, run by run."""
        results = {run: cell.result() for run, cell in self.cells_of(variant, group).items()}
        return {run: result for run, result in results.items() if result is not None}

    def values(self, variant: Variant, group: str, read: Callable[[dict[str, Any]], Any]) -> dict[Run, float]:
        """One number of each result; results without it are left out."""
        read_out = {run: read(result) for run, result in self.found(variant, group).items()}
        return {run: float(value) for run, value in read_out.items() if value is not None}

    def acc(self, variant: Variant, group: str) -> dict[Run, float]:
        """The aggregate of every run."""
        return self.values(variant, group, lambda result: result.get("acc"))


def suite(name: str) -> Callable[[dict[str, Any]], Any]:
    """Reads one suite's entry off a result."""
    return lambda result: result.get("scores", {}).get(name)
