"""One cell: a base model, a variant and a seed; what was done and what came of it, as one JSON file.

A cell is named by a hash of everything that its numbers depend on: the resolved recipe, the base's weights, the world's
parameters, the questions. So a finished cell is never run again, a changed one never taken for the old, and a cell that
several experiments share is run once. The rules that read answers are not among them: when they learn to read more, a
result with hardly an unread answer stays, and one with more is run again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.checkpoint import lock
from vcsd.config import load_recipe
from vcsd.errors import RunError
from vcsd.evaluation.answers import READER
from vcsd.reproduce.machine import hardware, versions
from vcsd.reproduce.prompts import FILE, prompts_folder
from vcsd.reproduce.runners import RUNNERS
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.config import Recipe
    from vcsd.reproduce.bases import Base
    from vcsd.reproduce.experiments import Variant

_NOT_PART = (("model", "path"), ("data", "path"), ("trainer", "output_dir"), ("trainer", "logging_dir"))
"""Places of the resolved recipe that only say where files lie."""

_FIRST_READER = 1
"""Of results that do not say it."""

_FEW_UNREAD = 0.002
"""The share of unread answers up to which earlier rules will do: were all of them right, Acc would gain 0.2 points."""

_DELETE = "Delete the file, and the same command runs this cell again."


@dataclass(frozen=True)
class Plan:
    """What all cells of a command share: the recipe, changes to it, how many questions and prompts, where to write."""

    recipe: Path
    out: Path
    num_questions: int
    num_prompts: int
    overrides: tuple[str, ...] = ()
    command: str = ""
    curve_every: int | None = None
    """In place of every variant's own, where it has one."""
    split: str = "test"


@dataclass(frozen=True)
class Cell:
    """One run. `seed` counts for nothing where nothing is drawn: such cells are the same for every seed."""

    variant: Variant
    base: Base
    seed: int
    plan: Plan = field(repr=False)

    @property
    def title(self) -> str:
        """For people: what runs."""
        return f"{self.base.group}, {self.base.folder.name}, {self.variant.name}, seed {self.seed}"

    @property
    def curve_every(self) -> int | None:
        """Steps between two exams while training; None for one at the end alone."""
        own = self.variant.curve_every
        return own if own is None or self.plan.curve_every is None else self.plan.curve_every

    @cached_property
    def length(self) -> tuple[int, int]:
        """What makes one run longer than another: steps of training, then the size of the model."""
        steps = int(self.recipe().trainer["max_steps"]) if self.variant.kind == "train" else 0
        return steps, self.base.num_parameters

    def num_measured(self, most: int) -> int:
        """Prompts whose answers are looked at word by word: fewer where few questions are asked."""
        return min(most, 4 * self.plan.num_questions)

    def prompts(self, work: Path) -> Path:
        """The folder of the training prompts, beside `work`: one for every number of them and every world."""
        return prompts_folder(work.parent, self.plan.num_prompts)

    def recipe(self, work: Path | None = None) -> Recipe:
        """The variant's recipe. `work` is where it reads its data and writes its run."""
        work = Path("work") if work is None else work
        places = [f"model.path={self.base.folder}", f"data.path={self.prompts(work) / FILE}"]
        own = [f"trainer.output_dir={work}", f"trainer.seed={self.seed}"]
        merged: dict[str, str] = {}
        for override in (*self.variant.overrides, *self.plan.overrides, *places, *own):
            path, _, value = override.partition("=")
            merged[path] = value
        ordered = sorted(merged.items(), key=lambda item: item[0].count("."))  # method=opsd before method.alpha=...
        return load_recipe(self.plan.recipe, [f"{path}={value}" for path, value in ordered])

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        kind = self.variant.kind
        tree = json.loads(self.recipe().to_json())
        for group, key in _NOT_PART:
            tree[group].pop(key, None)
        known = {
            "kind": kind,
            "base": self.base.digest,
            "world": PARAMETERS.digest(),
            "num_questions": self.plan.num_questions,
            "split": self.plan.split,
        }
        if kind == "train":
            known |= {"recipe": tree, "num_prompts": self.plan.num_prompts, "curve_every": self.curve_every}
        elif kind != "base":
            known |= {"method": tree["method"], "seed": self.seed if kind == "pmi" else None}
        return known

    @cached_property
    def key(self) -> str:
        """The cell's name among results."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def path(self) -> Path:
        """Where its result is, or will be."""
        return self.plan.out / "cells" / f"{self.key}.json"

    def result(self) -> dict[str, Any] | None:
        """The result, if the cell has been run, and not read by rules that have learnt to read more since."""
        if not self.path.is_file():
            return None
        try:
            result = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"the result {self.path} is damaged: {error}. {_DELETE}") from None
        if not isinstance(result, dict):
            raise RunError(f"{self.path} is not the result of a run. {_DELETE}")
        return None if _could_be_read_better(result) else result


def _could_be_read_better(result: Mapping[str, Any]) -> bool:
    """Whether more answers than a few went unread by earlier rules.

    >>> [_could_be_read_better({"unresolved": num, "num_questions": 3588}) for num in (3, 30)]
    [False, True]
    >>> _could_be_read_better({"unresolved": 30, "num_questions": 3588, "reader": READER})
    False
    """
    is_earlier = result.get("reader", _FIRST_READER) < READER
    return bool(is_earlier and result.get("unresolved", 0) > _FEW_UNREAD * result.get("num_questions", 0))


def as_lines(result: Mapping[str, Any]) -> str:
    """A result as JSON with one line for each of its entries: short, and still read by people and by diff.

    >>> print(as_lines({"acc": 50.0, "series": {"loss": [0.5, 0.25]}}), end="")
    {
     "acc": 50.0,
     "series": {"loss":[0.5,0.25]}
    }
    """
    entries = (f' "{name}": {json.dumps(value, separators=(",", ":"))}' for name, value in result.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _empty(work: Path) -> None:
    """Remove what a killed run left: nothing of it is gone on with, and its metrics are not those of the next run."""
    work.mkdir(parents=True, exist_ok=True)
    for left in work.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        elif left.name != lock.NAME:
            left.unlink()


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run a cell unless it has been run, write its result, and return it."""
    known = cell.result()
    if known is not None:
        return known
    start = time.monotonic()
    work = cell.plan.out / "work" / cell.key
    with lock.only_process(work):
        _empty(work)
        found = RUNNERS[cell.variant.kind](cell, work)
    result = {
        "key": cell.key,
        "variant": cell.variant.name,
        "group": cell.base.group,
        "base": cell.base.folder.name,
        "seed": cell.seed,
        **found,
        "seconds": round(time.monotonic() - start, 1),
        "command": cell.plan.command,
        "hardware": hardware(),
        "versions": versions(),
        "reader": READER,
        "identity": cell.identity,
    }
    cell.path.parent.mkdir(parents=True, exist_ok=True)
    beside = cell.path.with_suffix(".partial")
    beside.write_text(as_lines(result), encoding="utf-8")
    beside.replace(cell.path)
    shutil.rmtree(work, ignore_errors=True)
    return result
