"""Results by experiment: which cells there are, and what was found in those that have been run.

A run is a base and a seed. Seeds are spread over the bases of a group, the first seed on the first base; with `cross`
every seed starts from every base. Two variants are compared run by run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError
from vcsd.reproduce.cell import Cell, Plan
from vcsd.reproduce.experiments import MAKE_NEVER_BLACK, Experiment, Variant, references_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vcsd.reproduce.bases import Base
    from vcsd.reproduce.statistics import Run


@dataclass(frozen=True, eq=False)
class Results:
    """The cells of a command by group, variant and run."""

    plan: Plan
    groups: Mapping[str, Sequence[Base]]
    seeds: Sequence[int]
    cross: bool = False
    _cells: dict[tuple[Variant, str], dict[Run, Cell]] = field(default_factory=dict, repr=False)

    @property
    def ordinary(self) -> list[str]:
        """The groups of the committed world, on which the paper's claims are judged."""
        return [group for group, bases in self.groups.items() if not bases[0].changes]

    @property
    def smallest(self) -> str:
        """The smallest Qwen3-VL of the committed world; no name where only bases of other worlds are given."""
        return next(iter(self.ordinary), "")

    @property
    def never_black(self) -> list[str]:
        """The groups whose bases never saw a black picture."""
        return [group for group, bases in self.groups.items() if bases[0].changes.get("black_share") == 0]

    def groups_of(self, experiment: Experiment) -> list[str]:
        """The groups that an experiment runs on."""
        groups = {"smallest": self.ordinary[:1], "ordinary": self.ordinary, "never black": self.never_black}
        return groups[experiment.on]

    def cells(self, experiment: Experiment) -> Iterator[Cell]:
        """Every cell that an experiment needs, its references included."""
        variants = dict.fromkeys((*references_of(experiment), *experiment.variants))
        for group in self.groups_of(experiment):
            for variant in variants:
                yield from self.cells_of(variant, group).values()

    def pairs(self, group: str) -> list[tuple[Base, int]]:
        """Which seeds start from which bases."""
        bases = self.groups.get(group, ())
        return [
            (base, seed)
            for place, seed in enumerate(self.seeds)
            for base in (bases if self.cross or not bases else [bases[place % len(bases)]])
        ]

    def bases_used(self, group: str) -> list[str]:
        """The names of the bases that a seed starts from: with fewer seeds than bases, not all of them."""
        return list(dict.fromkeys(base.folder.name for base, _ in self.pairs(group)))

    def cells_of(self, variant: Variant, group: str) -> dict[Run, Cell]:
        """The cells of one variant, run by run."""
        key = (variant, group)
        if key not in self._cells:  # a cell resolves its recipe to know its name: once is enough
            self._cells[key] = {
                (base.folder.name, seed): Cell(variant, base, seed, self.plan) for base, seed in self.pairs(group)
            }
        return self._cells[key]

    def found(self, variant: Variant, group: str) -> dict[Run, dict[str, Any]]:
        """The results that are there, run by run."""
        results = {run: cell.result() for run, cell in self.cells_of(variant, group).items()}
        return {run: result for run, result in results.items() if result is not None}

    def num_missing(self, experiment: Experiment) -> int:
        """How many runs of an experiment's own variants have no result."""
        return sum(
            cell.result() is None
            for group in self.groups_of(experiment)
            for variant in experiment.variants
            for cell in self.cells_of(variant, group).values()
        )

    def is_whole(self, experiment: Experiment) -> bool:
        """Whether every run of an experiment's own variants has a result."""
        return self.num_missing(experiment) == 0

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


def why_not(experiment: Experiment) -> str:
    """Why an experiment has no base to start from, and what to do."""
    if experiment.on == "never black":
        return (
            f"{experiment.name} needs bases that never saw a black picture, and none is given. "
            f"Make some: `{MAKE_NEVER_BLACK}`."
        )
    return (
        f"{experiment.name} needs bases of the world as it is committed, and none is given. "
        "Make some: `vcsd world pretrain --seed 1 --out FOLDER`."
    )


def runnable(asked: Sequence[Experiment], results: Results) -> list[Experiment]:
    """Those of some experiments that have bases to start from; it is an error if none has."""
    found = [each for each in asked if results.groups_of(each)]
    if not found:
        raise ConfigError([why_not(each) for each in asked])
    return found
