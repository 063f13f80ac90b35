"""The results of planned runs on the bases that were made for them, found by what they depend on.

A result names its base and the hash of its weights, so the bases themselves need not be there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.reproduce.cell import Cell, full_sweep
from vcsd.reproduce.cell_result import read_results
from vcsd.reproduce.pages.from_files import RecordedBase
from vcsd.reproduce.paired_runs import paired
from vcsd.reproduce.planned.run_list import SHIPPED, RunList, read_run_list
from vcsd.reproduce.results import suite as score_on
from vcsd.reproduce.results import unread_share
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.paired_runs import Paired, Run
    from vcsd.reproduce.planned.run_list import PlannedRun

LIST = "planned.json"
DOSE = "ignore_share"
AGAIN = "again"
"""A folder of results on bases that were made a second time by mistake. The first ones count."""

RUN_COMMAND = "python -m vcsd.reproduce.planned.run_planned docs/results/planned.json"


@dataclass(frozen=True, eq=False)
class PlannedResults:
    """A list of planned runs, and the results of those that are finished, on new bases and on shipped ones."""

    listed: RunList
    out: Path
    recorded: Mapping[str, RecordedBase]
    _results: dict[PlannedRun, CellResult | None] = field(default_factory=dict, repr=False)

    @property
    def runs(self) -> list[PlannedRun]:
        """The planned runs that start from a base of the list."""
        return [run for run in self.listed.runs if run.base in self.listed.bases]

    @property
    def verdict_bases(self) -> list[str]:
        """The bases of the default world, on which verdicts rest."""
        return [name for name, base in self.listed.bases.items() if not base.overrides]

    def dose(self, base: str) -> float:
        """The share of captions that ignore their picture, in the world of a base."""
        overrides = dict(each.split("=") for each in self.listed.bases[base].overrides)
        return float(overrides.get(DOSE, PARAMETERS.ignore_share))

    @property
    def doses(self) -> dict[float, list[str]]:
        """The bases of each dose, the smallest dose first."""
        found = sorted({self.dose(base) for base in self.listed.bases})
        return {dose: [base for base in self.listed.bases if self.dose(base) == dose] for dose in found}

    def result(self, run: PlannedRun) -> CellResult | None:
        """The result of a run; None if it is missing."""
        if run not in self._results:
            self._results[run] = self._stored_result(run)
        return self._results[run]

    def _stored_result(self, run: PlannedRun) -> CellResult | None:
        sweep = full_sweep(self.out)
        if run.base.startswith(SHIPPED):
            return self.listed.cell(run, self.out, sweep).result()
        base = self.recorded.get(run.base)
        return Cell(run.variant, base, run.seed, sweep).result() if base else None

    def finished(self, variant: str, bases: Iterable[str]) -> dict[Run, CellResult]:
        """The results of a variant on some bases."""
        wanted = set(bases)
        runs = [run for run in self.runs if run.variant.name == variant and run.base in wanted]
        return {(run.base, run.seed): result for run in runs if (result := self.result(run)) is not None}

    def values(
        self, variant: str, bases: Iterable[str], read: Callable[[CellResult], float | None]
    ) -> dict[Run, float]:
        """One number of each result of a variant."""
        found = {run: read(result) for run, result in self.finished(variant, bases).items()}
        return {run: value for run, value in found.items() if value is not None}

    def scores(self, variant: str, bases: Iterable[str], suite: str | None = None) -> dict[Run, float]:
        """Acc of each run of a variant, or its score on a suite."""
        return self.values(variant, bases, (lambda result: result["acc"]) if suite is None else score_on(suite))

    def unread(self, variant: str, bases: Iterable[str], suite: str | None = None) -> dict[Run, float]:
        """The share of unread answers of each run of a variant, of all suites or of one."""
        return self.values(variant, bases, lambda result: unread_share(result, suite))

    def change(
        self, before: str, after: str, bases: Iterable[str], suite: str | None = None, *, looks: int = 1
    ) -> Paired | None:
        """Points of `after` minus points of `before`, over bases; p is corrected for several looks at the results."""
        bases = list(bases)
        scores = (self.scores(before, bases, suite), self.scores(after, bases, suite))
        unread = (self.unread(before, bases, suite), self.unread(after, bases, suite))
        return paired(*scores, looks=looks, unread=unread)

    def missing(self, bases: Iterable[str]) -> list[PlannedRun]:
        """The planned runs on some bases that have no result."""
        wanted = set(bases)
        return [run for run in self.runs if run.base in wanted and self.result(run) is None]


def planned_results(out: Path, list_name: str = LIST) -> PlannedResults:
    """Read a list of planned runs and the bases that the results of a folder name."""
    if not (out / "cells").is_dir():
        raise ConfigError([f"{out} has no folder cells. Pass a folder of results, such as docs/results."])
    listed = read_run_list(out / list_name)
    return PlannedResults(listed, out, _recorded(out, listed))


def unread_cell(runs: PlannedResults, variant: str, bases: Iterable[str]) -> str:
    """Mean and range over bases of the unread answers of a variant, in percent; empty where it is not recorded."""
    shares = list(runs.values(variant, bases, unread_share).values())
    if not shares:
        return ""
    mean = f"{sum(shares) / len(shares):.1f}"
    return mean if max(shares) < 0.05 else f"{mean} ({min(shares):.1f} to {max(shares):.1f})"


def with_bases_made_again(runs: PlannedResults) -> PlannedResults | None:
    """The same results, with the second ones of bases that were made twice; None if there are none."""
    recorded = _recorded(runs.out / AGAIN, runs.listed)
    again = PlannedResults(runs.listed, runs.out / AGAIN, recorded)
    results = {run: (again if run.base in recorded else runs).result(run) for run in runs.runs}
    return PlannedResults(runs.listed, runs.out, runs.recorded, results) if recorded else None


def made_again(runs: PlannedResults) -> list[str]:
    """The bases that were made twice."""
    return list(_recorded(runs.out / AGAIN, runs.listed))


def _recorded(out: Path, listed: RunList) -> dict[str, RecordedBase]:
    """The bases of the list that results in a folder name."""
    recorded: dict[str, RecordedBase] = {}
    for cell in read_results(out):
        name = cell["base"]
        if name not in listed.bases:
            continue
        base = RecordedBase(Path(name), cell["group"], str(cell["identity"]["base"]))
        if recorded.setdefault(name, base) != base:
            raise ConfigError([f"{out / 'cells'}: {name} is the name of two bases. Keep the results of one of them."])
    return recorded


def in_words(runs: Iterable[PlannedRun]) -> str:
    """Name runs, variant by variant.

    >>> from vcsd.reproduce.experiments import VCSD
    >>> from vcsd.reproduce.planned.run_list import PlannedRun
    >>> in_words([PlannedRun(VCSD, "qwen3_vl-small-12", 212), PlannedRun(VCSD, "qwen3_vl-small-13", 213)])
    'VCSD (qwen3_vl-small-12, qwen3_vl-small-13)'
    """
    by_variant: dict[str, list[str]] = {}
    for run in runs:
        by_variant.setdefault(run.variant.name, []).append(run.base)
    variants: dict[str, list[str]] = {}
    for name, bases in by_variant.items():
        variants.setdefault(", ".join(bases), []).append(name)
    return "; ".join(f"{', '.join(names)} ({bases})" for bases, names in variants.items())
