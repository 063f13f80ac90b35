"""The demonstration: a tiny Qwen that sees but trusts its prior, before and after VCSD and matched OPSD, in minutes.

    base -> all questions -> OPSD, all questions -> VCSD, all questions -> table, report.html

Everything is what real runs use: the world's prompts as files, a recipe, `run.train`, the suites through `ask` and
`score`. Interrupted at any point, the same command goes on: training from its checkpoint, questions from the answers
that are on disk.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vcsd import run
from vcsd.config import load_recipe
from vcsd.errors import ConfigError
from vcsd.evaluation.bar import AskingBar
from vcsd.evaluation.compare import compare
from vcsd.evaluation.local import folder_identity
from vcsd.models.processor import load_processor
from vcsd.monitor.lines import read_lines
from vcsd.reproduce.exam import SEVEN, Exam, world_questions
from vcsd.reproduce.machine import hardware, versions
from vcsd.reproduce.prompts import FILE, prompts_folder, write_prompts
from vcsd.reproduce.recipes import recipe_path
from vcsd.reproduce.runners import load_base
from vcsd.step import base_of
from vcsd.teacher import fingerprint, named_tensors
from vcsd.world.given import refuse_no_folder, refuse_seed
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import nn

    from vcsd.evaluation.compare import Comparison
    from vcsd.evaluation.question import Prediction
    from vcsd.evaluation.scorecard import Scorecard

METHODS_SHOWN = ("opsd", "vcsd")
DIFFERENCES = (("base", "opsd"), ("base", "vcsd"), ("opsd", "vcsd"))


@dataclass(frozen=True)
class Size:
    """How much a demonstration does: questions of each suite, prompts to draw from, changes to its recipe."""

    num_questions: int
    num_prompts: int
    overrides: tuple[str, ...] = ()


FULL = Size(num_questions=256, num_prompts=1024)
FAST = Size(num_questions=64, num_prompts=256, overrides=("trainer.max_steps=20",))

WHOSE = "demo.json"
"""The file that says of which demonstration a folder is."""

NUM_THREADS = 1
"""Models this small gain little from a second thread, and lose much where other programs want the core too."""


@dataclass(frozen=True)
class Setting:
    """One demonstration: the base, the seed, the size, and where it is written."""

    base: Path
    seed: int
    size: Size
    out: Path
    command: str

    @property
    def prompts(self) -> Path:
        """The folder of its training prompts."""
        return prompts_folder(self.out, self.size.num_prompts)

    def identity(self) -> dict[str, Any]:
        """Whose folder it is: what may not change between the parts of an interrupted demonstration."""
        size = {"questions": self.size.num_questions, "prompts": self.size.num_prompts}
        who = {"base": folder_identity(self.base), "seed": self.seed, "world": PARAMETERS.digest()}
        return {**who, **size, "recipe": list(self.size.overrides)}

    def overrides(self, method: str) -> list[str]:
        """What is changed of the recipe."""
        data = f"data.path={self.prompts / FILE}"
        places = [f"model.path={self.base}", data, f"trainer.output_dir={self.out / method}"]
        chosen = [] if method == "vcsd" else [f"method={method}"]
        return [*places, f"trainer.seed={self.seed}", *chosen, *self.size.overrides]


@dataclass(frozen=True, eq=False)
class Shown:
    """What a demonstration found: scorecards and answers of base, OPSD and VCSD, and the differences between them."""

    setting: Setting
    exam: Exam
    cards: Mapping[str, Scorecard]
    usual: Mapping[str, Scorecard]
    answers: Mapping[str, list[Prediction]]
    differences: Mapping[tuple[str, str], Comparison]
    seconds: float

    def table(self) -> dict[str, Any]:
        """The table as plain values: the same for the same seed on the same machine."""
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
        differences = {f"{after} - {before}": each.to_json() for (before, after), each in self.differences.items()}
        return {"rows": rows, "differences": differences}

    def about(self) -> dict[str, Any]:
        """How it was made."""
        return {
            "command": self.setting.command,
            "seed": self.setting.seed,
            "base": str(self.setting.base),
            "world": PARAMETERS.digest(),
            "seconds": round(self.seconds, 1),
            "hardware": hardware(),
            "versions": versions(),
        }


def demonstrate(setting: Setting, say: Callable[[str], None]) -> Shown:
    """Run a demonstration, or the rest of one that was interrupted; write its table and its report."""
    from vcsd.demo_page import write_report

    refuse_seed("--seed", setting.seed)
    processor = load_processor(setting.base)
    _claim(setting)
    torch.set_num_threads(NUM_THREADS)
    start = time.monotonic()
    write_prompts(setting.prompts, setting.size.num_prompts)
    exam = Exam(world_questions(setting.size.num_questions), processor)
    num = sum(question.benchmark in SEVEN for question in exam.questions)
    say(f"{num} questions in {len(SEVEN)} suites; the base model answers")
    answers = {"base": _ask(exam, load_base(setting.base, "cpu"), folder_identity(setting.base), setting.out / "base")}
    for method in METHODS_SHOWN:
        recipe = load_recipe(recipe_path("demo"), setting.overrides(method))
        steps, prompts = recipe.training_arguments().max_steps, recipe.prompts_per_step
        say(f"{method.upper()}: {steps} steps of {prompts} prompts x {recipe.rollout.num_per_prompt} rollouts")
        trainer = run.train(run.load(recipe))
        assert trainer.model is not None
        student = base_of(trainer.model)
        say(f"{method.upper()}: the student answers")
        answers[method] = _ask(exam, student, fingerprint(named_tensors(student)), setting.out / method)
    shown = _judge(setting, exam, answers, time.monotonic() - start)
    table = {"table": shown.table(), **shown.about()}
    (setting.out / "table.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    write_report(shown, setting.out / "report.html")
    return shown


def _claim(setting: Setting) -> None:
    """Write down whose folder it is. That of another demonstration is refused: nothing in it is ours."""
    refuse_no_folder(setting.out)
    path, wanted = setting.out / WHOSE, setting.identity()
    before = next(read_lines(path), wanted)
    other = [f"{name} was {before.get(name)}, now {now}" for name, now in wanted.items() if before.get(name) != now]
    if other:
        raise ConfigError(
            [f"{setting.out} holds another demonstration: {'; '.join(other)}. Choose another folder with --out."]
        )
    setting.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted) + "\n", encoding="utf-8")


def _ask(exam: Exam, model: nn.Module, name: str, folder: Path) -> list[Prediction]:
    folder.mkdir(parents=True, exist_ok=True)
    return exam.take(model, name=name, path=folder / "predictions.jsonl", bar=AskingBar(folder.name))


def _judge(setting: Setting, exam: Exam, answers: Mapping[str, list[Prediction]], seconds: float) -> Shown:
    both = {name: exam.score(predictions) for name, predictions in answers.items()}
    cards = {name: seven for name, (seven, _) in both.items()}
    for name, card in cards.items():
        card.save(setting.out / name / "scorecard.json")
    differences = {(before, after): compare(cards[before], cards[after]) for before, after in DIFFERENCES}
    usual = {name: each for name, (_, each) in both.items()}
    return Shown(setting, exam, cards, usual, answers, differences, seconds)
