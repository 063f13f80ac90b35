"""One cell: a run of one variant from one base model with one seed. Its result is one JSON file.

A cell is named by a hash of everything that its numbers depend on: the resolved recipe, the base's weights, the world's
parameters, the questions. So a finished cell is never run again, a changed cell is never confused with the old one,
and a cell that several experiments share is run once. The rules that read answers are not part of the hash: when they
improve, results with hardly any unread answers are kept, and the others are run again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vcsd.checkpoint import lock
from vcsd.checkpoint.whole_file import write_whole
from vcsd.config.recipe import load_recipe
from vcsd.config.shipped import recipe_path
from vcsd.errors import RunError
from vcsd.evaluation.reading.final_answer import READER
from vcsd.monitor.machine import hardware, versions
from vcsd.reproduce.abilities.measure_abilities import ABILITIES_VERSION, NUM_PER_KIND
from vcsd.reproduce.exam import GREEDY
from vcsd.reproduce.experiments import NUM_PROMPTS, NUM_QUESTIONS, ORDINARY
from vcsd.reproduce.runners import NUM_VOTES, RUNNERS
from vcsd.reproduce.training_prompts import FILE, PROMPT_SETS, prompts_folder
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.config.recipe import Recipe
    from vcsd.reproduce.base_folders import Base
    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.experiments import Variant
    from vcsd.rollout.sampling import Sampling
    from vcsd.types import JsonValue
    from vcsd.world.parameters import Parameters
    from vcsd.world.scenes import Split

_NOT_PART = (("model", "path"), ("data", "path"), ("trainer", "output_dir"), ("trainer", "logging_dir"))
"""Recipe keys that only say where files are."""

_ADDED = {"student_top_k": None, "importance_clip": None}
"""Later additions to methods, and the value that means as before. Older results lack them."""

_WHOLE_ANCHORS = {2.0: 2, 3.0: 3}
"""Results with these anchors were named when recipes kept `method.anchor=2` as a whole number."""

_READS_THE_WORLD = 2
"""The reader's version since which it reads every phrase of the world.

Version 3 reads whole phrases alike, but about 1 in 100 of those that break off or contradict themselves differently.
Version 4 read 25,344 phrases, whole, broken off and contradictory, exactly as version 3 did; so does version 5, but for
1,347 that name two letters ("The answer is A D."), which it leaves undecided. Version 6 reads all of them as version 5.
"""

_FEW_UNREAD = 0.002
"""Results of earlier rules are kept up to this share of unread answers: they could raise Acc by 0.2 points at most."""

_DELETE = "Delete the file and run the same command again."


@dataclass(frozen=True)
class Sweep:
    """What all cells of a command share: recipe, overrides, numbers of questions and prompts, output folder."""

    recipe: Path
    out: Path
    num_questions: int
    num_prompts: int
    overrides: tuple[str, ...] = ()
    command: str = ""
    curve_every: int | None = None
    """Replaces `curve_every` of the variants that have one."""
    split: Split = "test"


def full_sweep(out: Path, overrides: tuple[str, ...] = ()) -> Sweep:
    """What the cells of the committed results share; with the same, a cell finds its result in `out`."""
    return Sweep(recipe_path("world/reproduce"), out, NUM_QUESTIONS, NUM_PROMPTS, overrides)


@dataclass(frozen=True)
class Cell:
    """One run. Where nothing is random, `seed` has no effect and all seeds share one cell."""

    variant: Variant
    base: Base
    seed: int
    sweep: Sweep = field(repr=False)

    @property
    def title(self) -> str:
        """A description for people."""
        return f"{self.base.group}, {self.base.folder.name}, {self.variant.name}, seed {self.seed}"

    @property
    def curve_every(self) -> int | None:
        """Training steps between two exams; None for a single exam at the end."""
        own = self.variant.curve_every
        return own if own is None or self.sweep.curve_every is None else self.sweep.curve_every

    @cached_property
    def length(self) -> tuple[int, int]:
        """A sort key for run time: training steps, then model size."""
        steps = int(self.recipe().trainer["max_steps"]) if self.variant.kind == "train" else 0
        return steps, self.base.num_parameters

    def num_measured(self, most: int) -> int:
        """The number of prompts whose answers are analysed word by word: fewer if few questions are asked."""
        return min(most, 4 * self.sweep.num_questions)

    def prompts(self, work: Path) -> Path:
        """The folder of the training prompts, next to `work`; it depends on their number, set and world."""
        return prompts_folder(work.parent, self.sweep.num_prompts, self.variant.prompts, self.prompt_world)

    @property
    def prompt_world(self) -> Parameters:
        """The world of the training prompts: that of the base, if they are as skewed as its prior."""
        return self.base.world if PROMPT_SETS[self.variant.prompts].is_usual else PARAMETERS

    @property
    def num_per_kind(self) -> int:
        """Questions of each kind that measure a model's abilities."""
        return min(NUM_PER_KIND, self.sweep.num_questions)

    @property
    def greedy(self) -> Sampling:
        """How the exam is answered: with room for what the base has learnt to say."""
        return replace(GREEDY, max_new_tokens=max(GREEDY.max_new_tokens, self.base.world.longest_answer))

    def recipe(self, work: Path = Path("work")) -> Recipe:
        """The variant's recipe, with its run in the folder `work`."""
        paths = [f"model.path={self.base.folder}", f"data.path={self.prompts(work) / FILE}"]
        own = [f"trainer.output_dir={work}", f"trainer.seed={self.seed}"]
        overrides = (*self.variant.overrides, *self.sweep.overrides, *paths, *own)
        merged = {path: value for path, _, value in (override.partition("=") for override in overrides)}
        ordered = sorted(merged.items(), key=lambda item: item[0].count("."))  # method=opsd before method.alpha=...
        return load_recipe(self.sweep.recipe, [f"{path}={value}" for path, value in ordered])

    @cached_property
    def identity(self) -> dict[str, JsonValue]:
        """Everything that the numbers depend on."""
        kind = self.variant.kind
        tree = json.loads(self.recipe().to_json())
        for group, key in _NOT_PART:
            tree[group].pop(key, None)
        _write_as_before(tree)
        identity: dict[str, JsonValue] = {
            "kind": kind,
            "base": self.base.digest,
            "world": PARAMETERS.digest(),
            "num_questions": self.sweep.num_questions,
            "split": self.sweep.split,
        }
        if kind == "train":
            identity |= {"recipe": tree, "num_prompts": self.sweep.num_prompts, "curve_every": self.curve_every}
            if self.variant.chosen_on_dev:
                identity |= {"chosen_on_dev": True}
        elif kind == "vote":
            identity |= {"num_votes": NUM_VOTES, "seed": self.seed}
        elif kind != "base":
            identity |= {"method": tree["method"], "seed": self.seed if kind == "pmi" else None}
        return {**identity, **self._additions()}

    def _additions(self) -> dict[str, JsonValue]:
        """Later additions to variants, where they change something, so that finished cells keep their names."""
        variant = self.variant
        additions: dict[str, JsonValue] = {}
        if variant.has_abilities:
            additions["abilities"] = [ABILITIES_VERSION, self.num_per_kind]
        if variant.prompts != ORDINARY:
            additions["prompts"] = [variant.prompts, self.prompt_world.digest()]
        return additions

    @cached_property
    def key(self) -> str:
        """The cell's name: a hash of its identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def path(self) -> Path:
        """The file of its result."""
        return self.sweep.out / "cells" / f"{self.key}.json"

    def result(self) -> CellResult | None:
        """The result, or None if the cell has not been run or earlier reading rules left too many answers unread."""
        if not self.path.is_file():
            return None
        try:
            result: CellResult = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"the result {self.path} is damaged: {error}. {_DELETE}") from None
        if not isinstance(result, dict):
            raise RunError(f"{self.path} is not the result of a run. {_DELETE}")
        return None if _could_be_read_better(result) else result

    def run(self) -> CellResult:
        """Run the cell unless it has been run, write its result, and return it."""
        known = self.result()
        if known is not None:
            return known
        start = time.monotonic()
        work = self.sweep.out / "work" / self.key
        with lock.only_process(work):
            lock.empty(work)  # a killed run may have left metrics, and cells do not resume
            measured = RUNNERS[self.variant.kind](self, work)
        result: CellResult = {
            "key": self.key,
            "variant": self.variant.name,
            "group": self.base.group,
            "base": self.base.folder.name,
            "seed": self.seed,
            **measured,
            "seconds": round(time.monotonic() - start, 1),
            "command": self.sweep.command,
            "hardware": hardware(),
            "versions": versions(),
            "reader": READER,
            "identity": self.identity,
        }
        write_whole(self.path, as_lines(result))
        shutil.rmtree(work, ignore_errors=True)
        return result


def _could_be_read_better(result: CellResult) -> bool:
    """Whether earlier reading rules left more than a few answers unread.

    >>> [_could_be_read_better({"unresolved": num, "num_questions": 3588}) for num in (3, 30)]
    [False, True]
    >>> _could_be_read_better({"unresolved": 30, "num_questions": 3588, "reader": READER})
    False
    """
    is_earlier = result.get("reader", 1) < _READS_THE_WORLD  # results of the first rules do not record a version
    return is_earlier and result.get("unresolved", 0) > _FEW_UNREAD * result.get("num_questions", 0)


def as_lines(result: Mapping[str, object]) -> str:
    """Format a result as JSON with one line per entry: compact, and still readable in a diff.

    >>> print(as_lines({"acc": 50.0, "series": {"loss": [0.5, 0.25]}}), end="")
    {
     "acc": 50.0,
     "series": {"loss":[0.5,0.25]}
    }
    """
    entries = (f' "{name}": {json.dumps(value, separators=(",", ":"))}' for name, value in result.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _write_as_before(tree: dict[str, JsonValue]) -> None:
    """Remove keys that recipes got later and that change nothing, so that finished cells keep their names."""
    names = ("method", "lora", "rollout", "model", "evaluation")
    method, lora, rollout, model, evaluation = (cast("dict[str, JsonValue]", tree[name]) for name in names)
    for key, before in _ADDED.items():
        if method[key] == before:
            del method[key]
    method["anchor"] = _WHOLE_ANCHORS.get(cast("float", method["anchor"]), method["anchor"])
    if lora["rank"] is None:
        del tree["lora"]
    if not tree["offload"]:
        del tree["offload"]
    if not model["dither"]:
        del model["dither"]
    if evaluation["tsv"] is None:
        del evaluation["tsv"]
    if not rollout["steps_ahead"]:
        del rollout["steps_ahead"]
    if rollout["engine"] == "transformers":
        for key in [key for key in rollout if key == "engine" or key.startswith(("vllm_", "server_"))]:
            del rollout[key]
