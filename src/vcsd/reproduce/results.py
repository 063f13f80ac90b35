"""Results by experiment: which cells it has, and the results of those that have been run.

A run is a base and a seed. Seeds are spread over the bases of a group, the first seed on the first base; with `cross`,
every seed starts from every base. Two variants are compared run by run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.reproduce.cell import Cell, Sweep
from vcsd.reproduce.experiments import Experiment, Variant, references_of
from vcsd.reproduce.paired_runs import paired
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vcsd.reproduce.base_folders import Base
    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.paired_runs import Paired, Run

LOOKS_AT_GROUPS = "looks_at_groups.json"
"""In a results folder, the groups that got more bases after their results were known, with the number of looks."""


@dataclass(frozen=True, eq=False)
class Results:
    """The cells of a command by group, variant and run."""

    sweep: Sweep
    groups: Mapping[str, Sequence[Base]]
    seeds: Sequence[int]
    cross: bool = False
    _cells: dict[tuple[Variant, str], dict[Run, Cell]] = field(default_factory=dict, repr=False)

    @property
    def ordinary(self) -> list[str]:
        """The groups of the default world, on which the paper's claims are judged."""
        return [group for group, bases in self.groups.items() if not bases[0].changes]

    @property
    def smallest(self) -> str:
        """The smallest Qwen3-VL of the default world; empty if all bases are of other worlds."""
        return next(iter(self.ordinary), "")

    @property
    def never_black(self) -> list[str]:
        """The groups whose bases never saw a black picture."""
        return [group for group, bases in self.groups.items() if bases[0].changes.get("black_share") == 0]

    @property
    def doses(self) -> list[str]:
        """The groups of the smallest Qwen3-VL that differ only in the share of captions that ignore their picture."""
        shares = {
            group: float(bases[0].changes.get("ignore_share", PARAMETERS.ignore_share))  # type: ignore[arg-type]
            for group, bases in self.groups.items()
            if group.startswith(self.smallest) and set(bases[0].changes) <= {"ignore_share"}
        }
        return sorted(shares, key=shares.__getitem__) if len(shares) > 1 else []

    def looks(self, group: str) -> int:
        """How often results of a group were looked at before its number of bases was settled, by that file."""
        path = self.sweep.out / LOOKS_AT_GROUPS
        return int(json.loads(path.read_bytes()).get(group, 1)) if path.is_file() else 1

    def groups_of(self, experiment: Experiment) -> list[str]:
        """The groups that an experiment runs on."""
        groups = {"smallest": self.ordinary[:1], "ordinary": self.ordinary, "never black": self.never_black}
        return self.doses if experiment.on == "doses" else groups[experiment.on]

    def cells(self, experiment: Experiment) -> Iterator[Cell]:
        """Every cell that an experiment needs, its references included."""
        variants = dict.fromkeys((*references_of(experiment), *experiment.variants))
        for group in self.groups_of(experiment):
            for variant in variants:
                yield from self.cells_of(variant, group).values()

    def pairs(self, group: str) -> list[tuple[Base, int]]:
        """Which seed starts from which base."""
        bases = self.groups.get(group, ())
        return [
            (base, seed)
            for index, seed in enumerate(self.seeds)
            for base in (bases if self.cross or not bases else [bases[index % len(bases)]])
        ]

    def bases_used(self, group: str) -> list[str]:
        """The names of the bases that are used: not all of them if there are fewer seeds than bases."""
        return list(dict.fromkeys(base.folder.name for base, _ in self.pairs(group)))

    def cells_of(self, variant: Variant, group: str) -> dict[Run, Cell]:
        """The cells of one variant, run by run."""
        key = (variant, group)
        if key not in self._cells:  # a cell's name needs its resolved recipe, so cells are kept
            self._cells[key] = {
                (base.folder.name, seed): Cell(variant, base, seed, self.sweep) for base, seed in self.pairs(group)
            }
        return self._cells[key]

    def finished(self, variant: Variant, group: str) -> dict[Run, CellResult]:
        """The results of the finished runs of one variant."""
        results = {run: cell.result() for run, cell in self.cells_of(variant, group).items()}
        return {run: result for run, result in results.items() if result is not None}

    def num_missing(self, experiment: Experiment) -> int:
        """The number of runs of an experiment's own variants that have no result."""
        return sum(
            cell.result() is None
            for group in self.groups_of(experiment)
            for variant in experiment.variants
            for cell in self.cells_of(variant, group).values()
        )

    def values(self, variant: Variant, group: str, read: Callable[[CellResult], float | None]) -> dict[Run, float]:
        """One number of each result; results without it are left out."""
        values = {run: read(result) for run, result in self.finished(variant, group).items()}
        return {run: float(value) for run, value in values.items() if value is not None}

    def acc(self, variant: Variant, group: str) -> dict[Run, float]:
        """Acc of every run: the mean over the seven suites."""
        return self.values(variant, group, lambda result: result.get("acc"))


def unread_share(result: CellResult, suite: str | None = None) -> float | None:
    """The share of unread answers, in percent: of all suites or of one; None if unknown.

    Earlier results do not record it suite by suite; but if all answers of a result were read, it is 0 for each suite.

    >>> earlier = {"unresolved": 2, "num_questions": 200}
    >>> unread_share(earlier), unread_share(earlier, "small"), unread_share({**earlier, "unresolved": 0}, "small")
    (1.0, None, 0.0)
    >>> unread_share({**earlier, "unread_shares": {"small": 1.5}}, "small")
    1.5
    """
    if "unresolved" not in result or "num_questions" not in result:
        return None
    if suite is None or result["unresolved"] == 0:
        return 100 * result["unresolved"] / result["num_questions"]
    return result.get("unread_shares", {}).get(suite)


def acc_change(results: Results, before: Variant, after: Variant, *groups: str) -> Paired | None:
    """The difference in Acc over the bases of some groups, with the change in unread answers."""

    def both(read: Callable[[CellResult], float | None]) -> tuple[dict[Run, float], dict[Run, float]]:
        values = [
            {run: value for group in groups for run, value in results.values(variant, group, read).items()}
            for variant in (before, after)
        ]
        return values[0], values[1]

    looks = max((results.looks(group) for group in groups), default=1)
    return paired(*both(lambda result: result.get("acc")), looks=looks, unread=both(unread_share))


def curves_of(results: Results, variant: Variant, group: str, name: str = "acc") -> dict[Run, dict[int, float]]:
    """The learning curve of every run, by step: Acc, or the score of the suite `name`. Some runs have an empty one."""
    curves = {run: result.get("curve", ()) for run, result in results.finished(variant, group).items()}
    return {
        run: {point["step"]: point["acc"] if name == "acc" else point["scores"][name] for point in curve}
        for run, curve in curves.items()
    }


def unread_curves_of(results: Results, variant: Variant, group: str, name: str = "acc") -> dict[Run, dict[int, float]]:
    """The share of unread answers along the curve of every run, in percent; empty for a single suite."""
    if name != "acc":
        return {}
    return {
        run: {
            point["step"]: 100 * point["unresolved"] / result["num_questions"]
            for point in result.get("curve", ())
            if "unresolved" in point
        }
        for run, result in results.finished(variant, group).items()
    }


def at_step(curves: Mapping[Run, Mapping[int, float]], step: int) -> dict[Run, float]:
    """The values of those curves that have a step."""
    return {run: curve[step] for run, curve in curves.items() if step in curve}


def suite(name: str) -> Callable[[CellResult], float | None]:
    """Reads one suite's score from a result."""
    return lambda result: result.get("scores", {}).get(name)


def why_not(experiment: Experiment) -> str:
    """Why an experiment has no base to start from, and what to do."""
    if experiment.on == "never black":
        needs, option = "that never saw a black picture", " --set black_share=0"
    elif experiment.on == "doses":
        needs, option = "of several values of ignore_share", " --set ignore_share=0.2"
    else:
        needs, option = "of the default world", ""
    command = f"vcsd world pretrain{option} --seed 1 --out FOLDER"
    return f"{experiment.name} needs bases {needs}, but none was given. Make some with `{command}`."


def runnable(requested: Sequence[Experiment], results: Results) -> list[Experiment]:
    """The requested experiments that have bases to start from. Raise if none has."""
    experiments = [experiment for experiment in requested if results.groups_of(experiment)]
    if not experiments:
        raise ConfigError([why_not(experiment) for experiment in requested])
    return experiments
