"""Run a capsule again, and compare step by step.

On a CPU of the same kind, with the same versions and the same numbers of threads and ranks, every number and every
weight must be equal bit for bit. Elsewhere rounding differs, and sooner or later another token is sampled, so losses
are compared within a tolerance and weights are not compared. The capsule itself names its machine, and a forged one can
name another. So a replay reports what it could not compare.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from vcsd import run
from vcsd.checkpoint.check import check_checkpoint
from vcsd.checkpoint.folder import checkpoints_of
from vcsd.config.recipe import build_recipe
from vcsd.errors import ConfigError, is_file, is_folder, shown
from vcsd.evaluation.live_lines import FELL, FELL_SINCE_BEST
from vcsd.evaluation.live_lines import FILE as EVALUATIONS
from vcsd.models.hub import hub_id
from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import environment
from vcsd.publish.capsule import seal_of
from vcsd.publish.pack import checkpoint_content, repeatable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from vcsd.config.recipe import Recipe
    from vcsd.evaluation.live import LiveExam
    from vcsd.monitor.machine import Session
    from vcsd.publish.capsule import Capsule

TOLERANCE = 0.05
"""The default where bits cannot agree: the largest relative difference of a loss."""

MARKER = "replay_of.txt"
"""A file in the folder of a replay, with the seal of its capsule."""

_APPROXIMATE = ("loss", "gradient_norm")
"""The metrics that are compared within a tolerance."""

_EXACT = ("step", "is_taken", "examples")
"""The metrics that agree everywhere: which rows a step trains on does not depend on rounding."""

_DERIVED = (FELL, FELL_SINCE_BEST)
"""Keys derived from the scores of an evaluation and of earlier ones; earlier releases derived fewer."""


@dataclass(frozen=True)
class Files:
    """Where the files of a capsule are on this machine; None for those that the capsule names, such as a hub id."""

    model: Path | None = None
    data: Path | None = None
    images: Path | None = None
    questions: Path | None = None

    def overrides(self) -> list[str]:
        """Return them as overrides of the recipe."""
        named = {"model.path": self.model, "data.path": self.data, "data.images": self.images}
        named["evaluation.data"] = self.questions
        return [f"{key}={json.dumps(str(path.absolute()))}" for key, path in named.items() if path is not None]


@dataclass
class Repetition:
    """What a replay found. `differences` is empty if the capsule was repeated."""

    is_bitwise: bool
    tolerance: float
    why_not_bitwise: str
    num_steps: int = 0
    num_evaluations: int = 0
    num_weights: int = 0
    """Files of tensors that were compared."""
    has_all_steps: bool = True
    """Whether the capsule's last step was repeated. Only its weights can be compared."""
    distances: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _APPROXIMATE})
    """How far losses and gradient norms were from the capsule's at each step, relative to the larger one."""
    differences: list[str] = field(default_factory=list)


def recipe_of(capsule: Capsule, files: Files, out: Path) -> Recipe:
    """Return the recipe of a capsule with the paths of this machine. Raise a ConfigError that says what to pass."""
    own = [f"trainer.output_dir={json.dumps(str(out))}", "resume=auto", "trainer.report_to=none"]
    overrides = [*files.overrides(), *own]  # a stranger's recipe must not report to any service
    if "RANK" not in os.environ and _has_shards(capsule):
        overrides.append("trainer.fsdp=false")  # one process cannot shard; a differing number of ranks is reported
    try:
        recipe = build_recipe(capsule["recipe"], overrides)
    except ConfigError as error:
        raise ConfigError([f"the capsule's recipe cannot be used: {problem}" for problem in error.problems]) from error
    problems = []
    if files.model is None and hub_id(recipe.model.path) is None:
        start = shown(recipe.model.path)
        problems.append(f"the run started from a folder {start}. Pass --model FOLDER. The shipped base is `world`.")
    if files.data is None and not (is_file(Path(recipe.data.path)) or is_folder(Path(recipe.data.path))):
        problems.append(f"the run's data was {shown(recipe.data.path)}. Pass --data FILE.")
    problems += _foreign_places(recipe, files)
    own_files = _own_files(recipe, files)
    problems += [
        f"the run was evaluated on {shown(path)}, which is not in this folder. Pass its folder: --questions FOLDER."
        for path, place in own_files.items()
        if place is None
    ]
    if problems:
        raise ConfigError(problems)
    evaluation = recipe.evaluation.model_copy(update={"tsv": list(own_files.values()) or recipe.evaluation.tsv})
    return recipe.model_copy(update={"evaluation": evaluation})


def _own_files(recipe: Recipe, files: Files) -> dict[str, str | None]:
    """Find the files of own questions: by name in the folder that was passed, else at their paths in this folder."""
    paths = [] if recipe.evaluation.every is None else recipe.evaluation.tsv or []
    return {path: _own_file(path, files) for path in paths}


def _own_file(path: str, files: Files) -> str | None:
    named = None if files.questions is None else files.questions / PurePath(path).name
    if named is not None and is_file(named):
        return str(named.absolute())
    return path if not _is_outside(path) and is_file(Path(path)) else None


def _is_outside(path: str) -> bool:
    """Whether a stranger's path leads out of this folder."""
    return PurePath(path).is_absolute() or ".." in PurePath(path).parts


def _has_shards(capsule: Capsule) -> bool:
    trainer = capsule["recipe"].get("trainer")
    return isinstance(trainer, dict) and bool(trainer.get("fsdp"))


def _foreign_places(recipe: Recipe, files: Files) -> Iterator[str]:
    """Yield what a stranger's recipe would read outside this folder or send to a server without the user's consent."""
    named = {
        "--data": (files.data, recipe.data.path),
        "--images": (files.images, recipe.data.images),
        "--questions": (files.questions, recipe.evaluation.data),
    }
    for option, (own, theirs) in named.items():
        if own is None and theirs is not None and _is_outside(theirs):
            yield f"the capsule names {shown(str(theirs))}, which is outside this folder. Pass {option} PATH."
    fsdp_config = recipe.trainer.get("fsdp_config")
    if isinstance(fsdp_config, str) and _is_outside(fsdp_config):
        yield f"the capsule names {shown(fsdp_config)} as trainer.fsdp_config, which is outside this folder."
    if recipe.rollout.engine == "vllm_server":
        yield (
            f"the run drew its rollouts from a server, and the capsule would send the prompts to "
            f"{shown(str(recipe.rollout.server_url))}. Such a run cannot be replayed."
        )


def refuse_other_run(folder: Path, capsule: Capsule) -> None:
    """Raise a ConfigError if a folder holds a run that is not a replay of this capsule; otherwise mark it as one.

    For example, the run that was packed would only be compared with itself.
    """
    marker, seal = folder / MARKER, seal_of(capsule)
    known = marker.read_text(encoding="utf-8").strip() if marker.is_file() else None
    has_run = (folder / "metrics.jsonl").exists() or bool(checkpoints_of(folder))
    if known is None and has_run:
        raise ConfigError(
            [f"{folder} holds a run that is not a replay, so it would be compared with itself. Choose another --out."]
        )
    if known is not None and known != seal:
        raise ConfigError([f"{folder} holds the replay of another capsule. Choose another --out."])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        marker.write_text(seal + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{folder} cannot be written to: {error}. Choose another --out."]) from error


def replay(
    capsule: Capsule, recipe: Recipe, *, tolerance: float | None = None, num_steps: int | None = None
) -> Repetition:
    """Train by the capsule's recipe up to its last step or `num_steps`, and compare. Resumes if interrupted.

    Training stops within ten steps after the first difference. Raises a ConfigError before the first step if model,
    data, tokenizer or chat template differ from the capsule's.
    """
    last = min(capsule["last_step"], num_steps or capsule["last_step"])
    loaded = run.load(recipe)  # before anything asks how many ranks there are
    repetition = _expectation(
        capsule, tolerance, uses_gpu=torch.cuda.is_available() and not recipe.trainer.get("use_cpu")
    )
    repetition.has_all_steps = last == capsule["last_step"]
    if loaded.exam is not None:  # an extended run was also evaluated after its earlier last step
        _require_questions(capsule, loaded.exam)
        asked = frozenset(line["step"] for line in capsule["evaluations"])
        loaded = replace(loaded, exam=replace(loaded.exam, also_after=asked))
    refuse_other_run(loaded.output, capsule)
    comparison = _Comparison(capsule, repetition, loaded.output, last)
    if (done := checkpoints_of(loaded.output).get(last)) is None:
        run.train(loaded, callbacks=[comparison], before=lambda trainer: _require_content(capsule, trainer.content))
    else:  # training another step could remove the checkpoint that is compared
        _require_content(capsule, checkpoint_content(done))
    comparison.compare_new_lines()
    if not repetition.differences and repetition.num_steps < last:
        repetition.differences.append(f"the run ended after step {repetition.num_steps}, the capsule's has step {last}")
    if not repetition.differences:
        _compare_results(capsule, loaded.output, last, repetition)
    return repetition


def _expectation(capsule: Capsule, tolerance: float | None, *, uses_gpu: bool) -> Repetition:
    """Return an empty Repetition with its tolerance: whether bits must agree on this machine, and if not, why."""
    sessions = sessions_in(capsule)
    reasons = []
    for session in sessions:
        there: dict[str, str | int] = {"ranks": 1, **session["environment"]}  # earlier versions did not record ranks
        after = session["after_step"]
        here = environment()
        if "processor" not in there:  # earlier versions did not record it
            del here["processor"]
        other = {name: value for name, value in here.items() if there.get(name) != value}
        since = f" after step {after}" if after else ""
        reasons += [
            f"{name} is {shown(value)} here, {shown(there.get(name))} there{since}" for name, value in other.items()
        ]
    if len({session["settings"] for session in sessions if session["settings"]}) > 1:
        reasons.append("the run was resumed with other settings")
    if uses_gpu and not reasons:
        reasons = ["a GPU may add numbers in a different order each time"]
    if tolerance is None:
        tolerance = TOLERANCE if reasons else 0.0
    return Repetition(tolerance == 0, tolerance, "; ".join(reasons))


def sessions_in(capsule: Capsule) -> list[Session]:
    """The machines of a capsule's run."""
    sessions: list[Session] = capsule["environment"]["sessions"]
    return sessions


def _require_content(capsule: Capsule, here: Mapping[str, Any]) -> None:
    """Raise a ConfigError if the run's weights, data or other inputs differ from the capsule's."""
    names = {"weights": "the model's weights (--model)", "data": "the rows of the data (--data)"}
    names["images"] = "the images (--images)"
    problems = [
        f"{names.get(name, name.replace('_', ' '))} differ from the capsule's. Pass the files that it was made with."
        for name, value in capsule["content"].items()
        if here.get(name) != value
    ]
    if problems:
        raise ConfigError(problems)


def _require_questions(capsule: Capsule, exam: LiveExam) -> None:
    """Raise a ConfigError if the user's own questions differ from those of the capsule's evaluations."""
    if exam.own and exam.own not in [line.get("tsv", {}) for line in capsule["evaluations"]]:
        names = ", ".join(f"{name}.tsv" for name in exam.own)
        raise ConfigError([f"the questions of {names} differ from the capsule's. Pass the files of the run."])


class _Comparison(TrainerCallback):
    """Compares the lines of metrics as they are written, and ends training at a difference or after the last step."""

    def __init__(self, capsule: Capsule, repetition: Repetition, folder: Path, last: int) -> None:
        self.capsule, self.repetition, self.folder, self.last = capsule, repetition, folder, last

    def compare_new_lines(self) -> None:
        lines = list(read_lines(self.folder / "metrics.jsonl"))[self.repetition.num_steps : self.last]
        for line in lines:
            expected = self.capsule["steps"][self.repetition.num_steps]
            differences = list(_differences(expected, repeatable(line), self.repetition.tolerance))
            for name, distances in self.repetition.distances.items():
                distances.append(_distance(expected.get(name), line.get(name)))
            self.repetition.differences += [f"step {expected['step']}: {difference}" for difference in differences]
            self.repetition.num_steps += 1
            if differences:
                return

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """End the run when there is nothing more to compare."""
        if state.global_step % 10 == 0:
            self.compare_new_lines()
        if self.repetition.differences or state.global_step >= self.last:
            control.should_save = control.should_training_stop = True


def _differences(expected: Mapping[str, Any], repeated: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    """Yield what differs between two lines, beyond the tolerance."""
    # with tolerance 0, a metric that only one of the lines has is also a difference
    names: Sequence[str] = list({**expected, **repeated}) if tolerance == 0 else [*_EXACT, *_APPROXIMATE]
    for name in names:
        one, other = expected.get(name), repeated.get(name)
        is_near = one == other
        if name in _APPROXIMATE:
            is_near = is_near or _distance(one, other) <= tolerance
        if not is_near:
            yield f"{name} was {shown(one)}, now {shown(other)}"


def _distance(one: object, other: object) -> float:
    """How far two numbers are apart, relative to the larger one.

    >>> _distance(0.75, 1.0), _distance(None, None), _distance(None, 1.0)
    (0.25, 0.0, inf)
    """
    if one == other:
        return 0.0
    if not isinstance(one, float) or not isinstance(other, float):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


def _compare_results(capsule: Capsule, folder: Path, last: int, repetition: Repetition) -> None:
    """Compare the scores that the run measured, and the weights after the last step."""
    now = {line["step"]: _scores(repeatable(line)) for line in read_lines(folder / EVALUATIONS)}
    before = [_scores(line) for line in capsule["evaluations"] if line["step"] <= last]
    repetition.num_evaluations = len(before)
    if repetition.is_bitwise:
        known = {line["step"] for line in before}
        repetition.differences += [
            f"evaluation after step {step}: the capsule has none" for step in now if step <= last and step not in known
        ]
        repetition.differences += [
            f"evaluation after step {one['step']}: Acc was {shown(one.get('acc'))}, now {shown(other.get('acc'))}"
            for one in before
            if one != (other := now.get(one["step"], {}))
        ]
    if not repetition.is_bitwise or last < capsule["last_step"]:
        return
    checkpoint = checkpoints_of(folder).get(last)
    files = {} if checkpoint is None else check_checkpoint(checkpoint)["files"]
    repetition.num_weights = len(capsule["weights"])
    repetition.differences += [
        f"{name} after step {last} has other values"
        for name in dict.fromkeys([*capsule["weights"], *(name for name in files if name.endswith(".safetensors"))])
        if name not in files or files[name]["sha256"] != capsule["weights"].get(name)
    ]


def _scores(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of evaluation.jsonl without what is derived from its scores."""
    return {name: value for name, value in line.items() if name not in _DERIVED}
