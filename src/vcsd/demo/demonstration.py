"""The demonstration: a tiny Qwen that sees but trusts its prior, before and after VCSD and matched OPSD, in minutes.

    base -> all questions -> OPSD, all questions -> VCSD, all questions -> table, report.html, training.html

It works like real runs: the world's prompts as files, a recipe, `run.train`, the suites through `ask` and `score`.
After an interruption, the same command resumes: training from its checkpoint, questions from the answers on disk.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch

from vcsd import run
from vcsd.checkpoint.lock import only_process
from vcsd.config.recipe import load_recipe
from vcsd.config.shipped import recipe_path
from vcsd.errors import ConfigError
from vcsd.evaluation.asked_questions import write_questions
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.model_answerer import folder_identity
from vcsd.evaluation.scoring.compare import compare
from vcsd.inspect.run_folder import read_runs
from vcsd.inspect.run_report import write_run_report
from vcsd.models.family import base_model
from vcsd.models.hub import load_to_answer
from vcsd.models.processor import load_processor
from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import hardware, versions
from vcsd.reproduce.exam import SEVEN, Exam, world_questions
from vcsd.reproduce.training_prompts import FILE, prompts_folder, write_prompts
from vcsd.teacher import fingerprint, named_tensors
from vcsd.world.checks import refuse_no_folder, refuse_seed
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import nn

    from vcsd.evaluation.scoring.compare import Comparison
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.models.processor import Processor
    from vcsd.types import Prediction

DIFFERENCES = (("base", "opsd"), ("base", "vcsd"), ("opsd", "vcsd"))


@dataclass(frozen=True)
class DemoSize:
    """The size of a demonstration: questions per suite, training prompts, changes to the recipe."""

    num_questions: int
    num_prompts: int
    overrides: tuple[str, ...] = ()


FULL = DemoSize(num_questions=256, num_prompts=1024)
FAST = DemoSize(num_questions=64, num_prompts=256, overrides=("trainer.max_steps=20",))

NUM_THREADS = 1
"""Models this small gain little from a second thread, and lose much if other programs use the core."""


@dataclass(frozen=True)
class Setting:
    """One demonstration: the base, the seed, the size, and the output folder."""

    base: Path
    seed: int
    size: DemoSize
    out: Path
    command: str

    @property
    def prompts(self) -> Path:
        """The folder of its training prompts."""
        return prompts_folder(self.out, self.size.num_prompts)

    def identity(self) -> dict[str, object]:
        """Return the settings that must not change when an interrupted demonstration resumes."""
        size = {"questions": self.size.num_questions, "prompts": self.size.num_prompts}
        content = {"base": folder_identity(self.base), "seed": self.seed, "world": PARAMETERS.digest()}
        return {**content, **size, "recipe": list(self.size.overrides)}

    def overrides(self, method: str) -> list[str]:
        """Return the changes to the recipe."""
        data = f"data.path={self.prompts / FILE}"
        paths = [f"model.path={self.base}", data, f"trainer.output_dir={self.out / method}"]
        chosen = [] if method == "vcsd" else [f"method={method}"]
        return [*paths, f"trainer.seed={self.seed}", *chosen, *self.size.overrides]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of a demonstration: scorecards and answers of base, OPSD and VCSD, and their differences."""

    setting: Setting
    exam: Exam
    cards: Mapping[str, Scorecard]
    usual: Mapping[str, Scorecard]
    answers: Mapping[str, list[Prediction]]
    differences: Mapping[tuple[str, str], Comparison]
    seconds: float

    def table(self) -> dict[str, object]:
        """Return the table as JSON values: the same for the same seed on the same machine."""
        rows = {
            name: {
                "acc": card.acc,
                "interval": [card.interval.low, card.interval.high],
                "suites": {suite: score.entry for suite, score in card.benchmarks.items()},
                "parts": {suite: dict(score.metrics) for suite, score in card.benchmarks.items()},
                "usual": self.usual[name].acc,
            }
            for name, card in self.cards.items()
        }
        differences = {
            f"{after} - {before}": asdict(comparison) for (before, after), comparison in self.differences.items()
        }
        return {"rows": rows, "differences": differences}


def demonstrate(setting: Setting, say: Callable[[str], None]) -> Outcome:
    """Run a demonstration or resume an interrupted one; write its table and its report."""
    refuse_seed("--seed", setting.seed)
    processor = load_processor(setting.base)
    refuse_no_folder(setting.out)
    with only_process(setting.out):
        _claim(setting)
        return _demonstrate(setting, processor, say)


def _demonstrate(setting: Setting, processor: Processor, say: Callable[[str], None]) -> Outcome:
    from vcsd.demo.demo_page import write_report

    torch.set_num_threads(NUM_THREADS)
    start = time.monotonic()
    write_prompts(setting.prompts, setting.size.num_prompts)
    exam = Exam(world_questions(setting.size.num_questions), processor)
    num = sum(question.benchmark in SEVEN for question in exam.questions)
    others = len(exam.questions) - num
    say(f"{num} questions in {len(SEVEN)} suites, {others} with usual answers; the base model answers")
    base = load_to_answer(setting.base, dtype=torch.float32, device="cpu")
    answers = {"base": _ask(exam, base, folder_identity(setting.base), setting.out / "base")}
    for method in ("opsd", "vcsd"):
        recipe = load_recipe(recipe_path("world/demo"), setting.overrides(method))
        steps, prompts = recipe.training_arguments().max_steps, recipe.prompts_per_step
        say(f"{method.upper()}: {steps} steps of {prompts} prompts x {recipe.rollout.num_per_prompt} rollouts")
        trainer = run.train(run.load(recipe))
        assert trainer.model is not None
        student = base_model(trainer.model)
        say(f"{method.upper()}: the student answers")
        answers[method] = _ask(exam, student, fingerprint(named_tensors(student)), setting.out / method)
    outcome = _score(setting, exam, answers, time.monotonic() - start)
    table = {
        "table": outcome.table(),
        "command": setting.command,
        "seed": setting.seed,
        "base": str(setting.base),
        "world": PARAMETERS.digest(),
        "seconds": round(outcome.seconds, 1),
        "hardware": hardware(),
        "versions": versions(),
    }
    (setting.out / "table.json").write_text(json.dumps(table, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    write_report(outcome, setting.out / "report.html")
    write_run_report(
        read_runs([setting.out / method for method in ("base", "opsd", "vcsd")]), setting.out / "training.html"
    )
    return outcome


def _claim(setting: Setting) -> None:
    """Record in demo.json which demonstration the folder belongs to; raise if it belongs to another."""
    path, wanted = setting.out / "demo.json", setting.identity()
    before = next(read_lines(path), wanted)
    changes = [f"{name} was {before.get(name)}, now {now}" for name, now in wanted.items() if before.get(name) != now]
    if changes:
        raise ConfigError(
            [f"{setting.out} holds another demonstration: {'; '.join(changes)}. Choose another folder with --out."]
        )
    path.write_text(json.dumps(wanted) + "\n", encoding="utf-8")


def _ask(exam: Exam, model: nn.Module, name: str, folder: Path) -> list[Prediction]:
    folder.mkdir(parents=True, exist_ok=True)
    return exam.take(model, name=name, path=folder / "predictions.jsonl", bar=AskingBar(folder.name))


def _score(setting: Setting, exam: Exam, answers: Mapping[str, list[Prediction]], seconds: float) -> Outcome:
    both = {name: exam.score(predictions) for name, predictions in answers.items()}
    cards = {name: replace(one, made_with={"model": name, **one.made_with}) for name, (one, _) in both.items()}
    for name, card in cards.items():
        card.save(setting.out / name / "scorecard.json")
        write_questions(setting.out / name, [one for one in exam.questions if one.benchmark in SEVEN])
    differences = {(before, after): compare(cards[before], cards[after]) for before, after in DIFFERENCES}
    usual = {name: card for name, (_, card) in both.items()}
    return Outcome(setting, exam, cards, usual, answers, differences, seconds)
