"""Evaluation while training: the live student is asked before the first step, every few steps, and after the last.

    runs/first/evaluation.jsonl              one line per evaluation: Acc, each benchmark with interval and counts
    runs/first/evaluation/step-30.jsonl      the answers behind it

A line is written before the checkpoint of its step, and a run that goes on from a checkpoint removes the lines of later
steps, which it does again: no step is missing, and none is there twice. Questions that fail count as wrong and are
counted; an evaluation never ends a run.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from transformers import TrainerCallback

from vcsd.evaluation.bar import AskingBar
from vcsd.evaluation.marking import Marking, mark
from vcsd.evaluation.presets import PAPER_SAMPLING
from vcsd.evaluation.runner import ask
from vcsd.evaluation.score import scorecard_of
from vcsd.evaluation.world import ALL_BENCHMARKS
from vcsd.monitor.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vcsd.evaluation.benchmark import Benchmark
    from vcsd.evaluation.question import Question
    from vcsd.evaluation.runner import Answerer
    from vcsd.evaluation.scorecard import Scorecard
    from vcsd.rollout.sampling import Sampling
    from vcsd.trainer.trainer import VCSDTrainer

log = logging.getLogger(__name__)

FILE = "evaluation.jsonl"
PREFIX = "evaluation/"
"""What the names of its metrics begin with, as in evaluation/acc."""


@dataclass(frozen=True)
class Exam:
    """What the student is asked, how, and how it is marked. `suites` say how each benchmark's number is made."""

    questions: Sequence[Question]
    every: int
    sampling: Sampling = PAPER_SAMPLING
    marking: Marking = field(default_factory=lambda: Marking("final"))
    suites: Mapping[str, Benchmark] = field(default_factory=lambda: ALL_BENCHMARKS)
    seed: int = 0

    def is_due(self, step: int, max_steps: int) -> bool:
        """Whether the student is asked after this step; 0 is before the first."""
        return step % self.every == 0 or step == max_steps


class LiveEvaluation(TrainerCallback):
    """Examines the student of a trainer. `answerer(step)` gives the student as it is after that step."""

    def __init__(self, trainer: VCSDTrainer, exam: Exam, answerer: Callable[[int], Answerer]) -> None:
        self.trainer, self.exam, self.answerer = trainer, exam, answerer
        self.folder = Path(str(trainer.args.output_dir))
        self.lines = Lines(self.folder / FILE)

    def attach(self) -> None:
        """Join the trainer in front of its monitors: what is found is part of the step that they write down."""
        self.trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Drop what will be done again; ask the student that has not learnt yet."""
        begins = state.global_step == 0
        num_removed = self.lines.keep_until("step", -1 if begins else state.global_step)
        if num_removed:
            log.warning(
                "%s: %d evaluations after step %d are done again.", self.lines.path, num_removed, state.global_step
            )
        if begins:
            self.examine(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ask if it is time. The numbers join those of the step, so that they are written and logged with it."""
        if not self.exam.is_due(state.global_step, state.max_steps):
            return
        found, seen = self.examine(state.global_step), self.trainer.seen
        if seen is not None:
            self.trainer.seen = replace(seen, metrics={**seen.metrics, **found})
        is_left_out = seen is None or not seen.is_taken  # the trainer looks for its best at steps that it took
        if is_left_out and args.metric_for_best_model in found:
            self.trainer.best_values.append(found[args.metric_for_best_model])

    def examine(self, step: int) -> dict[str, float]:
        """Ask, mark, write down; the numbers by name."""
        start = time.monotonic()
        path = self.folder / "evaluation" / f"step-{step}.jsonl"
        if step:  # answers of an earlier attempt at this step, by other weights
            path.unlink(missing_ok=True)
        exam = self.exam
        bar = AskingBar(f"evaluation after step {step}", Console(stderr=True, force_terminal=False))
        answerer = self.answerer(step)
        predictions = ask(exam.questions, answerer, sampling=exam.sampling, path=path, seed=exam.seed, bar=bar)
        verdicts = mark(exam.questions, predictions, exam.marking, exam.suites)
        card = scorecard_of(exam.questions, predictions, verdicts, marking=exam.marking, suites=exam.suites)
        seconds = time.monotonic() - start
        self.lines.append(_record(step, card, exam, seconds))
        entries = {name: each.entry for name, each in card.benchmarks.items()}
        shown = ", ".join(f"{name} {entry:.2f}" for name, entry in entries.items())
        log.info("step %d  Acc %.2f  %s  (%.0f s)", step, card.acc, shown, seconds)
        return {f"{PREFIX}{name}": value for name, value in {"acc": card.acc, **entries}.items()}


def _record(step: int, card: Scorecard, exam: Exam, seconds: float) -> dict[str, Any]:
    """A line of the curves: a few numbers for each benchmark, and how they were made."""
    benchmarks = {
        name: {
            "entry": each.entry,
            "interval": [each.interval.low, each.interval.high],
            "num_questions": each.num_questions,
            "num_expected": each.num_expected,
            "metrics": dict(each.metrics),
            **asdict(each.counts),
        }
        for name, each in card.benchmarks.items()
    }
    return {
        "step": step,
        "acc": card.acc,
        "interval": [card.interval.low, card.interval.high],
        "benchmarks": benchmarks,
        "mode": card.mode,
        "rules": card.rules,
        "sampling": asdict(exam.sampling),
        "seconds": round(seconds, 1),
    }
