"""The list of planned runs: a JSON file with bases to make, and runs in the order of their importance.

    {"bases": {"qwen3_vl-small-11": {"family": "qwen3_vl", "size": "small", "seed": 11, "set": []}},
     "runs": [{"experiment": "sharpening", "variants": ["VCSD"], "on": {"qwen3_vl-small-11": [211]}}]}

`on` maps a base to its seeds; `shipped:qwen3_vl` is the base that is shipped with the package. When time runs out, the
end of the list is missing, not runs that somebody left out after a look at the results.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vcsd.bases.branch import LAST_STAGE
from vcsd.bases.shipped_bases import shipped_base
from vcsd.errors import ConfigError
from vcsd.reproduce.base_folders import Base
from vcsd.reproduce.cell import Cell
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, STUDIES, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vcsd.bases.tokenizer import FamilyName
    from vcsd.reproduce.cell import Sweep

SHIPPED = "shipped:"


@dataclass(frozen=True)
class PlannedBase:
    """A base to make. Bases that differ only in the last stage of pre-training share a stem."""

    name: str
    family: FamilyName
    size: str
    seed: int
    overrides: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The name of its stem."""
        return "-".join([self.family, self.size, str(self.seed), *self.shared])

    @property
    def shared(self) -> list[str]:
        """The changes to the world that it shares with its stem."""
        return [each for each in self.overrides if each.partition("=")[0] not in LAST_STAGE]


@dataclass(frozen=True)
class PlannedRun:
    """A run before its base exists."""

    variant: Variant
    base: str
    seed: int


@dataclass(frozen=True)
class RunList:
    """What is planned, in order, and the hash of the file that says so."""

    bases: Mapping[str, PlannedBase]
    runs: tuple[PlannedRun, ...]
    experiments: tuple[str, ...]
    digest: str
    commands: Mapping[PlannedRun, str] = field(default_factory=dict)
    """The command that a result names, if it is not that of the sweep: several lists may be run together."""

    def cell(self, run: PlannedRun, folder: Path, sweep: Sweep) -> Cell:
        """The cell of a run, whose base must exist: shipped, or in `folder`."""
        sweep = replace(sweep, command=self.commands.get(run, sweep.command))
        is_shipped = run.base.startswith(SHIPPED)
        base = shipped_base(run.base.removeprefix(SHIPPED)) if is_shipped else folder / run.base
        return Cell(run.variant, Base(base), run.seed, sweep)

    def quick(self, size: str, overrides: tuple[str, ...]) -> RunList:
        """The first run of each setting, on small bases: a smoke test of the list."""
        settings: dict[object, PlannedRun] = {}
        for run in self.runs:
            base = self.bases.get(run.base)
            world = run.base if base is None else (base.family, base.overrides)
            settings.setdefault((run.variant, world), run)
        used = {run.base for run in settings.values()}
        bases = {
            name: replace(base, size=size, overrides=(*base.overrides, *overrides))
            for name, base in self.bases.items()
            if name in used
        }
        return replace(self, bases=bases, runs=tuple(settings.values()))


def together(lists: Mapping[str, RunList]) -> RunList:
    """Several lists as one, in their order, by the command that the results of each name.

    A run that is on two lists belongs to the first. Raise a ConfigError if two lists mean different bases by one name.
    """
    bases: dict[str, PlannedBase] = {}
    commands: dict[PlannedRun, str] = {}
    for command, listed in lists.items():
        others = [name for name, base in listed.bases.items() if bases.get(name, base) != base]
        if others:
            raise ConfigError([f"{', '.join(others)}: the lists mean different bases. Run them one after the other."])
        bases.update(listed.bases)
        commands |= {run: command for run in listed.runs if run not in commands}
    runs = tuple(dict.fromkeys(run for listed in lists.values() for run in listed.runs))
    experiments = tuple(dict.fromkeys(name for listed in lists.values() for name in listed.experiments))
    return RunList(bases, runs, experiments, " ".join(listed.digest for listed in lists.values()), commands)


def read_run_list(path: Path) -> RunList:
    """Read a list of planned runs. Raise a ConfigError that names what is wrong with it."""
    try:
        text = path.read_bytes()
        tree = json.loads(text)
        bases = {
            name: PlannedBase(name, each["family"], each["size"], int(each["seed"]), tuple(each["set"]))
            for name, each in tree["bases"].items()
        }
        runs = tuple(dict.fromkeys(_runs(tree["runs"], bases)))
        experiments = tuple(dict.fromkeys(each["experiment"] for each in tree["runs"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError([f"{path} is not a list of planned runs: {type(error).__name__}: {error}."]) from None
    return RunList(bases, runs, experiments, hashlib.sha256(text).hexdigest()[:16])


def _runs(entries: list[dict[str, object]], bases: Mapping[str, PlannedBase]) -> Iterator[PlannedRun]:
    for entry in entries:
        experiment, names, places = entry["experiment"], entry["variants"], entry["on"]
        assert isinstance(experiment, str)
        assert isinstance(names, list)
        assert isinstance(places, dict)
        for name in names:
            variant = _variant(experiment, name)
            for base, seeds in places.items():
                if not base.startswith(SHIPPED) and base not in bases:
                    raise ValueError(f"the base {base!r} is not among its bases")
                yield from (PlannedRun(variant, base, int(seed)) for seed in seeds)


def _variant(experiment: str, name: str) -> Variant:
    experiments = {**EXPERIMENTS, **STUDIES}
    if experiment not in experiments:
        raise ValueError(f"{experiment!r} is not an experiment")
    by_name = {variant.name: variant for variant in (BASE, OPSD, *experiments[experiment].variants)}
    if name not in by_name:
        raise ValueError(f"{name!r} is not a variant of {experiment}")
    return by_name[name]
