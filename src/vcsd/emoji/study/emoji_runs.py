"""Run the planned experiment on emoji bases. Resumes; several processes may share the work.

    python -m vcsd.emoji.study.emoji_runs docs/results/language_runs.json --bases bases --sprites sprites.safetensors \\
        --out runs/language --minutes 12

First the runs that settle learning rate and beta on the split `dev`, then the final ones on `test` with what was
settled. A process takes the next unfinished run that no other process has taken; runs whose base does not exist yet
wait for it. Every result is one JSON file in OUT/cells; OUT/runs keeps the metrics, samples and deciding words of each.
Nothing about accuracy is printed: the results are looked at once, by `language_page.py`.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from vcsd import run as recipe_run
from vcsd.checkpoint import lock
from vcsd.config.recipe import load_recipe
from vcsd.config.shipped import recipe_path
from vcsd.emoji.captions import Shares
from vcsd.emoji.emoji_exam import SceneExam, english_perplexity
from vcsd.emoji.emoji_scenes import ScenePainter
from vcsd.emoji.scene_files import write_prompts_file
from vcsd.emoji.seeing_model import TowerSize
from vcsd.emoji.sprites import load_sprites, sprites_identity
from vcsd.emoji.study.key_contrast import key_contrast
from vcsd.emoji.study.key_monitor import KEYS, KeyMonitor
from vcsd.emoji.study.settle import RateAndBeta, settle
from vcsd.emoji.teach import CARD, TeachingPlan, read_card
from vcsd.errors import ConfigError, VcsdError
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.method import METHODS
from vcsd.models.family import base_model
from vcsd.models.hub import load_model
from vcsd.models.processor import load_processor
from vcsd.monitor.guard import Guard
from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import hardware, versions
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.config.recipe import Recipe
    from vcsd.emoji.questions import SceneSplit
    from vcsd.emoji.study.settle import Settled
    from vcsd.trainer import DistillationTrainer

StudyStage = Literal["dev", "test"]

VARIANTS: Mapping[str, tuple[str, ...] | None] = {
    "base": None,
    "contrast decoding": None,
    "VCSD": ("method=vcsd",),
    "alpha 0": ("method=no_contrast",),
    "sharpened 2": ("method=no_contrast", "method.anchor=2"),
    "OPSD": ("method=opsd",),
}
"""Changes to the recipe; None for what needs no training. OPSD keeps its own beta, 0."""

_KEPT = ("metrics.jsonl", "samples.jsonl", KEYS, "config.json", "environment.json")
_POLL_SECONDS = 5.0


@dataclass(frozen=True)
class EmojiRun:
    """One planned run. A run of the stage `test` that trains has no setting before one is settled."""

    stage: StudyStage
    variant: str
    base: str
    seed: int
    setting: RateAndBeta | None = None

    @property
    def name(self) -> str:
        """The name of its result."""
        parts = [self.stage, self.base, self.variant.replace(" ", "_")]
        if self.setting is not None and self.stage == "dev":
            parts += [f"lr_{self.setting.rate}", f"beta_{self.setting.beta}"]
        return "-".join(parts)

    @property
    def trains(self) -> bool:
        """Whether it trains."""
        return VARIANTS[self.variant] is not None


@dataclass(frozen=True)
class StudyList:
    """The planned bases, the runs in order, the length of a run, and the numbers of questions and prompts."""

    bases: Mapping[str, TeachingPlan]
    runs: tuple[EmojiRun, ...]
    steps: int
    num_questions: int
    num_prompts: int
    digest: str

    def read_result(self, path: Path) -> dict[str, Any] | None:
        """Read a result; None if there is none. Raise an OtherListError if it belongs to another list."""
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError([f"{path} cannot be read: {error}. Remove it to repeat the run."]) from error
        if not isinstance(result, dict) or result.get("list") != self.digest:
            raise OtherListError([f"{path} is of another list. Choose another --out."])
        return result


class OtherListError(ConfigError):
    """A result belongs to another list of runs."""


def _plan(tree: dict[str, Any]) -> TeachingPlan:
    """A base's plan: what its entry does not say is as in `TeachingPlan`."""
    parts: dict[str, Any] = {}
    if "shares" in tree:
        parts["shares"] = Shares(**tree["shares"])
    if "tower" in tree:
        parts["tower"] = TowerSize(**tree["tower"])
    return TeachingPlan(**tree | parts)


def read_study(path: Path) -> StudyList:
    """Read the list of planned runs. Raise a ConfigError that names what is wrong with it."""
    try:
        text = path.read_bytes()
        tree = json.loads(text)
        first, final = tree["settle"], tree["final"]
        bases = {name: _plan(entry) for name, entry in tree["bases"].items()}
        settings = [RateAndBeta(rate, beta) for beta in first["betas"] for rate in first["rates"]]
        runs = [EmojiRun("dev", "base", first["base"], first["seed"])]
        runs += [EmojiRun("dev", v, first["base"], first["seed"], s) for s in settings for v in first["variants"]]
        runs += [EmojiRun("test", v, base, seed) for v in final["variants"] for base, seed in final["seeds"].items()]
        if unknown := [run.variant for run in runs if run.variant not in VARIANTS]:
            raise ValueError(f"{unknown[0]!r} is not a variant")
        if unplanned := [run.base for run in runs if run.base not in bases]:
            raise ValueError(f"{unplanned[0]!r} is not among its bases")
        steps, questions, prompts = (int(tree[name]) for name in ("steps", "questions", "prompts"))
        digest = hashlib.sha256(text).hexdigest()[:16]
        return StudyList(bases, tuple(dict.fromkeys(runs)), steps, questions, prompts, digest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError([f"{path} is not a list of emoji runs: {type(error).__name__}: {error}."]) from None


class EmojiStudy:
    """The work of one process: exams are drawn and encoded once, and shared by its runs."""

    def __init__(self, listed: StudyList, bases: Path, sprites: Path, out: Path, overrides: Sequence[str] = ()) -> None:
        self.listed, self.bases, self.out, self.overrides = listed, bases, out, tuple(overrides)
        self.painter = ScenePainter(load_sprites(sprites))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._exams: dict[SceneSplit, SceneExam] = {}
        self._checked: dict[str, object] = {}

    def result_path(self, run: EmojiRun) -> Path:
        """The file of a run's result."""
        return self.out / "cells" / f"{run.name}.json"

    def result(self, run: EmojiRun) -> dict[str, Any] | None:
        """A run's result; None before it is made. Raise an OtherListError if it belongs to another list."""
        return self.listed.read_result(self.result_path(run))

    def has_base(self, name: str) -> bool:
        """Whether a base is there. Raise a ConfigError if it is not the planned one."""
        folder = self.bases / name
        if name not in self._checked and (folder / CARD).is_file():
            card = read_card(folder)
            wanted = {
                "plan": asdict(self.listed.bases[name]),
                "sprites": sprites_identity(self.painter.sprites),
                "language": next(iter(self._checked.values()), card.get("language", "")),
            }
            if other := [part for part, value in wanted.items() if card.get(part) != value]:
                words = f"another {' and another '.join(other)}"
                raise ConfigError([f"{folder} is not the planned base: it has {words}. Teach it again."])
            self._checked[name] = card.get("language")
        return name in self._checked

    def settled(self) -> Settled | None:
        """What the finished runs on `dev` settle; None before all of them are finished."""
        results = {run: self.result(run) for run in self.listed.runs if run.stage == "dev"}
        read = {run: result["scores"] for run, result in results.items() if result is not None}
        if len(read) < len(results):
            return None
        (base,) = (scores for run, scores in read.items() if run.variant == "base")
        vcsd = {run.setting: scores for run, scores in read.items() if run.variant == "VCSD" and run.setting}
        return settle(base, vcsd)

    def next_run(self, failed: Sequence[str] = ()) -> EmojiRun | None:
        """Return the first run that can be made now and has no result."""
        is_settled = self.settled() is not None
        for run in self.listed.runs:
            waits = run.stage == "test" and run.trains and not is_settled
            if self.result(run) is None and run.name not in failed and not waits and self.has_base(run.base):
                return run
        return None

    def make(self, run: EmojiRun) -> None:
        """Make a run and write its result. Raise an InUseError if another process is at it."""
        work = self.out / "work" / run.name
        with lock.only_process(work):
            if self.result(run) is not None:
                return
            if not self.has_base(run.base):
                raise ConfigError([f"there is no base {self.bases / run.base}. Teach it first."])
            for path in work.iterdir():  # what a killed run left behind: runs do not resume
                if path.name != lock.NAME:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            started = time.monotonic()
            measured = self._train(run, work) if run.trains else self._measure(run)
            entry = {
                **{"name": run.name, "stage": run.stage, "variant": run.variant, "base": run.base, "seed": run.seed},
                **measured,
                "seconds": round(time.monotonic() - started, 1),
                "list": self.listed.digest,
                "language": self._checked[run.base],
                "base_weights": folder_identity(self.bases / run.base),
                "hardware": hardware(),
                "versions": versions(),
            }
            path = self.result_path(run)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")
            partial.replace(path)
        shutil.rmtree(work, ignore_errors=True)

    def _exam(self, run: EmojiRun) -> SceneExam:
        """The exam of a split. All bases have the same processor, so that questions are encoded once."""
        if run.stage not in self._exams:
            processor = load_processor(self.bases / run.base)
            self._exams[run.stage] = SceneExam(self.painter, processor, run.stage, self.listed.num_questions)
        return self._exams[run.stage]

    def _scores(self, run: EmojiRun, model: torch.nn.Module) -> dict[str, object]:
        exam = self._exam(run)
        num = min(128, self.listed.num_questions)
        return {
            "scores": exam.take(model),
            "english_perplexity": english_perplexity(model, exam.processor.tokenizer),
            "key_contrast": key_contrast(model, exam.processor, self.painter, METHODS["vcsd"], run.stage, num),
        }

    def _measure(self, run: EmojiRun) -> dict[str, object]:
        model = load_model(self.bases / run.base, torch.float32).to(self.device).eval()
        if run.variant == "base":
            return self._scores(run, model)
        return {"scores": self._exam(run).take(model, METHODS["vcsd"])}

    def _train(self, run: EmojiRun, work: Path) -> dict[str, object]:
        setting = run.setting
        settled = self.settled() if setting is None else None
        if setting is None:
            assert settled is not None, "the final runs wait for those on dev"
            setting = settled.setting
        loaded = recipe_run.load(self.recipe(run, setting, work))
        monitor = KeyMonitor(work, loaded.processor.tokenizer)

        def watched(trainer: DistillationTrainer) -> None:
            trainer.monitors = [*trainer.monitors, monitor]

        started = time.monotonic()
        trainer = recipe_run.train(loaded, before=watched)
        seconds = time.monotonic() - started
        assert trainer.model is not None
        student = load_model(self.bases / run.base, torch.float32)
        student.load_state_dict(base_model(trainer.model).state_dict())  # the trained module computes in bfloat16
        student.to(self.device).eval()
        del trainer
        kept = self.out / "runs" / run.name
        kept.mkdir(parents=True, exist_ok=True)
        for name in _KEPT:
            if (work / name).is_file():
                shutil.copyfile(work / name, kept / name)
        return {
            "setting": {"rate": setting.rate, "beta": setting.beta},
            **({} if settled is None else {"passed_gates_on_dev": settled.has_passed}),
            **self._scores(run, student),
            "alarms": {"run": first_alarms(work / "metrics.jsonl"), **alarms_by_suite(work / KEYS)},
            "training_seconds": round(seconds, 1),
        }

    def recipe(self, run: EmojiRun, setting: RateAndBeta, work: Path) -> Recipe:
        """The recipe of a run: that of `vcsd reproduce`, with this base, these prompts, and the setting."""
        table = write_prompts_file(
            self.painter, self.out / f"prompts-{self.listed.num_prompts}", self.listed.num_prompts
        )
        own = setting.overrides() if run.variant != "OPSD" else setting.overrides()[:1]
        changes = [
            *(VARIANTS[run.variant] or ()),
            *own,
            f"model.path={self.bases / run.base}",
            f"data.path={table}",
            f"trainer.output_dir={work}",
            f"trainer.seed={run.seed}",
            f"trainer.max_steps={self.listed.steps}",
            f"trainer.bf16={str(self.device == 'cuda').lower()}",
            "rollout.max_new_tokens=24",
            "token_budget=12288",  # so that several runs fit on one GPU
            *self.overrides,
        ]
        return load_recipe(recipe_path("world/reproduce"), changes)


def first_alarms(metrics: Path) -> dict[str, int | None]:
    """Return the first steps at which the run's own guard warned, and would have stopped the run."""
    first: dict[str, int | None] = {"warn": None, "stop": None}
    for line in read_lines(metrics):
        action = line.get("guard")
        if action in first and first[str(action)] is None:
            first[str(action)] = int(str(line["step"]))
    return first


def alarms_by_suite(keys: Path) -> dict[str, dict[str, int | None]]:
    """Return the same for a guard that would watch each suite alone, by what needs no labels."""
    guards: dict[str, Guard] = {}
    first: dict[str, dict[str, int | None]] = {}
    for line in read_lines(keys):
        suite, step, seen = str(line["suite"]), int(str(line["step"])), line["all"]
        assert isinstance(seen, dict)
        alarm = guards.setdefault(suite, Guard()).judge(step, seen)
        own = first.setdefault(suite, {"warn": None, "stop": None})
        if alarm.action in own and own[alarm.action] is None:
            own[alarm.action] = step
    return first


def work_through(study: EmojiStudy, seconds: float) -> tuple[int, list[str]]:
    """Make runs until none is left or no more may be started; return how many were made, and which failed."""
    end, made, failed = time.monotonic() + seconds, 0, list[str]()
    busy: list[str] = []
    while time.monotonic() < end:
        run = study.next_run([*failed, *busy])
        if run is None and not busy and study.next_run(failed) is None and not _may_come(study, failed):
            break
        if run is None:
            busy = []
            time.sleep(min(_POLL_SECONDS, max(0.0, end - time.monotonic())))
            continue
        try:
            started = time.monotonic()
            study.make(run)
            made += 1
            _say(f"{run.name}: {time.monotonic() - started:.0f} s")
        except lock.InUseError:
            busy.append(run.name)
        except (VcsdError, torch.OutOfMemoryError) as error:
            failed.append(run.name)
            _say(f"FAILED {run.name}: {error}")
        gc.collect()
        torch.cuda.empty_cache()
    return made, failed


def _may_come(study: EmojiStudy, failed: Sequence[str]) -> bool:
    """Whether a run may become possible: its base is being made, or other processes settle what it waits for."""
    left = [run for run in study.listed.runs if study.result(run) is None and run.name not in failed]
    is_settling = any(run.stage == "dev" and run.name in failed for run in study.listed.runs)
    return bool(left) and not is_settling


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.emoji_runs", description="Run the emoji study.")
    parser.add_argument("list", type=Path)
    for name in ("--bases", "--sprites", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0, help="No run is started after this time.")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    try:
        torch.set_float32_matmul_precision("high")
        listed = read_study(options.list)
        study = EmojiStudy(listed, options.bases, options.sprites, options.out, options.overrides)
        made, failed = work_through(study, 60 * options.minutes)
        missing = [run.name for run in listed.runs if study.result(run) is None]
        _say(f"{made} runs made, {len(failed)} failed, {len(missing)} of {len(listed.runs)} missing.")
        sys.exit(1 if failed else 0)
    except VcsdError as error:
        sys.stderr.write(visible(f"error: {type(error).__name__}: {error}\n"))
        sys.exit(2)


if __name__ == "__main__":
    main()
