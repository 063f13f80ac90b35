"""Run the planned experiment on emoji bases. Resumes; several processes may share the work.

    python -m vcsd.emoji.study.emoji_runs docs/results/language_runs.json --bases bases --sprites sprites.safetensors \\
        --out runs/language --minutes 12

First the runs that settle learning rate, beta and steps on the split `dev`, then the final ones on `test` with what was
settled. A process takes the next unfinished run that no other process has taken. Runs whose base does not exist yet
wait for it; meanwhile the process draws and encodes the questions. Every result is one JSON file in OUT/cells; OUT/runs
keeps the metrics, samples and deciding words of each. All results of a base must come from the same weights. Nothing
about accuracy is printed: the results are looked at once, by `language_page.py`.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from vcsd import run as recipe_run
from vcsd.checkpoint import lock
from vcsd.checkpoint.whole_file import write_whole
from vcsd.config.recipe import load_recipe
from vcsd.config.shipped import recipe_path
from vcsd.emoji.emoji_exam import SceneExam, english_perplexity
from vcsd.emoji.emoji_scenes import ScenePainter
from vcsd.emoji.scene_files import write_prompts_file
from vcsd.emoji.seeing_model import HAS_PROCESSOR
from vcsd.emoji.sprites import load_sprites, sprites_identity
from vcsd.emoji.study.key_contrast import KeyCases
from vcsd.emoji.study.key_monitor import KEYS, KeyMonitor
from vcsd.emoji.study.sections.seen_by_training import MEASURED, UNROUNDED_AT
from vcsd.emoji.study.study_list import VARIANTS, EmojiRun, StudyList, StudyStage, read_study
from vcsd.emoji.teach import CARD, read_card
from vcsd.errors import ConfigError, VcsdError
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.method import METHODS
from vcsd.models.family import base_model
from vcsd.models.hub import load_to_answer
from vcsd.models.processor import load_processor
from vcsd.monitor.guard import Guard, first_step
from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import hardware, versions
from vcsd.rollout.vllm.serve import end_with_parent
from vcsd.terminal import exit_on_error

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from vcsd.config.recipe import Recipe
    from vcsd.emoji.study.settle import RunSetting, Settled
    from vcsd.models.processor import Processor
    from vcsd.trainer import DistillationTrainer

_KEPT = ("metrics.jsonl", "samples.jsonl", KEYS, "config.json", "environment.json")
_POLL_SECONDS = 5.0


class Snapshots(TrainerCallback):
    """Keeps copies of the student's weights after certain steps, in the computer's own memory."""

    def __init__(self, steps: Collection[int]) -> None:
        self._steps = set(steps)
        self.weights: dict[int, dict[str, torch.Tensor]] = {}

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **passed: torch.nn.Module
    ) -> None:
        """Copy the weights if this is one of the steps."""
        if state.global_step in self._steps:
            weights = base_model(passed["model"]).state_dict()
            self.weights[state.global_step] = {name: tensor.to("cpu", copy=True) for name, tensor in weights.items()}


class EmojiStudy:
    """The work of one process: questions are drawn and encoded once, and shared by its runs."""

    def __init__(self, listed: StudyList, bases: Path, sprites: Path, out: Path, overrides: Sequence[str] = ()) -> None:
        self.listed, self.bases, self.out, self.overrides = listed, bases, out, tuple(overrides)
        self.painter = ScenePainter(load_sprites(sprites))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if (own := sprites_identity(self.painter.sprites)) != listed.sprites:
            raise ConfigError([f"{sprites} are not the planned sprites: their hash is {own}, not {listed.sprites}."])
        self._exams: dict[StudyStage, SceneExam] = {}
        self._cases: dict[StudyStage, KeyCases] = {}
        self._weights: dict[str, str] = {}

    def result_path(self, run: EmojiRun) -> Path:
        """The file of a run's result."""
        return self.out / "cells" / f"{run.name}.json"

    def result(self, run: EmojiRun) -> dict[str, Any] | None:
        """A run's result; None before it is made. Raise an OtherListError if it belongs to another list."""
        return self.listed.read_result(self.result_path(run))

    def results(self) -> dict[EmojiRun, dict[str, Any]]:
        """The results of all finished runs."""
        read = {run: self.result(run) for run in self.listed.runs}
        return {run: result for run, result in read.items() if result is not None}

    def has_base(self, name: str) -> bool:
        """Whether a base is there. Raise a ConfigError if it is not the planned one, or not that of earlier results."""
        folder = self.bases / name
        if name not in self._weights and (folder / CARD).is_file():
            card = read_card(folder)
            wanted = {
                "plan": asdict(self.listed.bases[name]),
                "sprites": self.listed.sprites,
                "language": self.listed.language,
            }
            if other := [part for part, value in wanted.items() if card.get(part) != value]:
                words = f"another {' and another '.join(other)}"
                raise ConfigError([f"{folder} is not the planned base: it has {words}. Teach it again."])
            weights = folder_identity(folder)
            self._check_weights(name, weights)
            self._weights[name] = weights
        return name in self._weights

    def _check_weights(self, name: str, weights: str) -> None:
        """Refuse a base whose earlier results come from other weights: a second teaching never gives the same."""
        for run, result in self.results().items():
            if run.base == name and result["base_weights"] != weights:
                raise ConfigError(
                    [
                        f"{self.result_path(run)} comes from other weights than {self.bases / name}, and results of "
                        f"two bases are never mixed. Remove all results of {name} to run it again."
                    ]
                )

    def settled(self) -> dict[str, Settled] | None:
        """What the finished runs on `dev` settle, by method; None before all of them are finished."""
        return self.listed.settled(self.results())

    def next_run(self, passed_over: Sequence[str] = ()) -> EmojiRun | None:
        """Return the first run that can be made now and has no result."""
        results = self.results()
        is_settled = self.listed.settled(results) is not None
        for run in self.listed.runs:
            waits = run.stage == "test" and run.trains and not is_settled
            if run not in results and run.name not in passed_over and not waits and self.has_base(run.base):
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
            lock.empty(work)  # a killed run may have left files, and runs do not resume
            started = time.monotonic()
            measured = self._train(run, work) if run.trains else self._measure(run)
            entry = {
                **{"name": run.name, "stage": run.stage, "variant": run.variant, "base": run.base, "seed": run.seed},
                **measured,
                "seconds": round(time.monotonic() - started, 1),
                "list": self.listed.digest,
                "base_weights": self._weights[run.base],
                "hardware": hardware(),
                "versions": versions(),
            }
            write_whole(self.result_path(run), json.dumps(entry, indent=1) + "\n")
        shutil.rmtree(work, ignore_errors=True)

    def prepare(self) -> bool:
        """Draw and encode what runs need besides a base, one part at a call. Return False if nothing is left to do.

        The processor of a base exists before the base does.
        """
        folders = [self.bases / name for name in self.listed.bases if (self.bases / name / HAS_PROCESSOR).is_file()]
        if not folders:
            return False
        stages: tuple[StudyStage, ...] = ("dev", "test")
        left = [stage for stage in stages if stage not in self._cases]
        if not left:
            return False
        self._prompts()
        processor = load_processor(folders[0])
        self._exam(left[0], processor).encode()
        self._key_cases(left[0], processor)
        return True

    def _prompts(self) -> Path:
        folder = self.out / f"prompts-{self.listed.num_prompts}"
        return write_prompts_file(self.painter, folder, self.listed.num_prompts)

    def _exam(self, stage: StudyStage, processor: Processor) -> SceneExam:
        """The exam of a split. All bases have the same processor, so that questions are encoded once."""
        if stage not in self._exams:
            self._exams[stage] = SceneExam(self.painter, processor, stage, self.listed.num_questions)
        return self._exams[stage]

    def _key_cases(self, stage: StudyStage, processor: Processor) -> KeyCases:
        if stage not in self._cases:
            num = min(128, self.listed.num_questions)
            self._cases[stage] = KeyCases(processor, self.painter, METHODS["vcsd"], stage, num)
        return self._cases[stage]

    def _scores(self, run: EmojiRun, model: torch.nn.Module) -> dict[str, object]:
        processor = load_processor(self.bases / run.base)
        return {
            "scores": self._exam(run.stage, processor).take(model),
            "english_perplexity": english_perplexity(model, processor.tokenizer),
            "key_contrast": self._key_cases(run.stage, processor).measure(model),
        }

    def _measure(self, run: EmojiRun) -> dict[str, object]:
        model = load_to_answer(self.bases / run.base, dtype=torch.float32)
        if run.variant == "base":
            return self._scores(run, model)
        processor = load_processor(self.bases / run.base)
        return {"scores": self._exam(run.stage, processor).take(model, METHODS["vcsd"])}

    def _train(self, run: EmojiRun, work: Path) -> dict[str, object]:
        setting, how = self._setting(run)
        loaded = recipe_run.load(self.recipe(run, setting, work))
        monitor = KeyMonitor(work, loaded.processor.tokenizer)
        lengths = self.listed.steps if run.stage == "dev" else (setting.steps,)
        snapshots = Snapshots(lengths)

        def watched(trainer: DistillationTrainer) -> None:
            trainer.monitors = [*trainer.monitors, monitor]

        started = time.monotonic()
        recipe_run.train(loaded, callbacks=[snapshots], before=watched)
        seconds = time.monotonic() - started
        gc.collect()
        self._keep(run, work)
        student = load_to_answer(self.bases / run.base, dtype=torch.float32)
        measured: dict[str, object] = {}
        scores_at: dict[str, object] = {}
        unrounded_at: dict[str, object] = {}
        for steps in lengths:
            weights = snapshots.weights.pop(steps)
            student.load_state_dict(weights)
            unrounded_at[str(steps)] = self._exam(run.stage, loaded.processor).take(student)
            student.load_state_dict(rounded(weights))
            if steps == lengths[-1]:
                measured = self._scores(run, student)
                scores_at[str(steps)] = measured["scores"]
            else:
                scores_at[str(steps)] = self._exam(run.stage, loaded.processor).take(student)
        lines = list(read_lines(work / "metrics.jsonl"))
        first_alarms = {action: first_step(lines, action) for action in ("warn", "stop")}
        return {
            "setting": asdict(setting),
            **how,
            **measured,
            **({"scores_at": scores_at} if run.stage == "dev" else {}),
            **{"measured": MEASURED, UNROUNDED_AT: unrounded_at},
            "alarms": {"run": first_alarms, **alarms_by_suite(work / KEYS)},
            "training_seconds": round(seconds, 1),
        }

    def _setting(self, run: EmojiRun) -> tuple[RunSetting, dict[str, object]]:
        """The setting of a run; for a final one also whether it passed on `dev`. OPSD has VCSD's rate and steps."""
        if run.setting is not None:
            return run.setting, {}
        settled = self.settled()
        assert settled is not None, "the final runs wait for those on dev"
        own = settled[run.variant if run.variant in settled else "VCSD"]
        return own.setting, {"passed_gates_on_dev": own.has_passed}

    def _keep(self, run: EmojiRun, work: Path) -> None:
        """Copy the small files of a run."""
        kept = self.out / "runs" / run.name
        kept.mkdir(parents=True, exist_ok=True)
        for name in _KEPT:
            if (work / name).is_file():
                shutil.copyfile(work / name, kept / name)

    def recipe(self, run: EmojiRun, setting: RunSetting, work: Path) -> Recipe:
        """The recipe of a run: that of `vcsd reproduce`, with this base, these prompts, and the setting."""
        own = [change for change in setting.overrides() if run.variant != "OPSD" or "beta" not in change]
        changes = [
            *(VARIANTS[run.variant] or ()),
            *own,
            f"model.path={self.bases / run.base}",
            f"data.path={self._prompts()}",
            f"trainer.output_dir={work}",
            f"trainer.seed={run.seed}",
            f"trainer.bf16={str(self.device == 'cuda').lower()}",
            "rollout.max_new_tokens=24",
            "token_budget=6144",  # a usual step in one row (4,300 tokens), and several runs on one GPU
            *self.overrides,
        ]
        return load_recipe(recipe_path("world/reproduce"), changes)


def rounded(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Round weights to what `vcsd export` writes. Their type stays.

    >>> rounded({"weight": torch.tensor([1.001])})["weight"]
    tensor([1.])
    """
    return {
        name: tensor.to(torch.bfloat16).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def alarms_by_suite(keys: Path) -> dict[str, dict[str, int | None]]:
    """Return the first steps at which a guard that watches one suite alone would warn and stop, by suite.

    It looks at what needs no labels.
    """
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
            if not study.prepare():
                time.sleep(min(_POLL_SECONDS, max(0.0, end - time.monotonic())))
            continue
        try:
            started = time.monotonic()
            study.make(run)
            made += 1
            _say(f"{run.name}: {time.monotonic() - started:.0f} s")
        except lock.InUseError:
            busy.append(run.name)
        except Exception as error:
            failed.append(run.name)
            _say(f"FAILED {run.name}: {type(error).__name__}: {error}")
            if not isinstance(error, (VcsdError, torch.OutOfMemoryError)):
                traceback.print_exc()
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
    parser.add_argument("--gpu-share", type=float, help="The most of the GPU's memory that this process may take.")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--end-with-parent", action="store_true", help="End when the process that started it ends.")
    options = parser.parse_args()
    if options.end_with_parent:
        end_with_parent()
    with exit_on_error():
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.enable_cudnn_sdp(False)  # its gradients may not be finite
        if options.gpu_share is not None:
            torch.cuda.set_per_process_memory_fraction(options.gpu_share)
        listed = read_study(options.list, options.overrides)
        study = EmojiStudy(listed, options.bases, options.sprites, options.out, options.overrides)
        made, failed = work_through(study, 60 * options.minutes)
        missing = [run.name for run in listed.runs if study.result(run) is None]
        _say(f"{made} runs made, {len(failed)} failed, {len(missing)} of {len(listed.runs)} missing.")
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
