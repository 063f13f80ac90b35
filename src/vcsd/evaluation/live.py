"""Evaluation during training: the student is asked before the first step, every few steps, and after the last.

    runs/first/evaluation.jsonl              one line per evaluation: Acc, each benchmark with interval and counts
    runs/first/evaluation/step-30.jsonl      the answers behind it

A line is written before the checkpoint of its step. A run that resumes from a checkpoint removes the lines of later
steps and writes them again, so every step appears once. Failed questions count as wrong and are counted; an evaluation
never ends a run.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from transformers import TrainerCallback

from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.presets import PAPER_SAMPLING
from vcsd.evaluation.benchmarks.world_suites import ALL_BENCHMARKS
from vcsd.evaluation.reading.marking import Marking, mark
from vcsd.evaluation.scoring.score_predictions import scorecard_of
from vcsd.monitor.lines import Lines
from vcsd.parallel.ranks import on_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from vcsd.evaluation.asking.ask import Answerer
    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.rollout.sampling import Sampling
    from vcsd.trainer.trainer import DistillationTrainer
    from vcsd.types import Question

log = logging.getLogger(__name__)

FILE = "evaluation.jsonl"
PREFIX = "evaluation/"
"""The prefix of its metrics, as in evaluation/acc."""


@dataclass(frozen=True)
class LiveExam:
    """The questions for the student, how they are asked and how they are marked. `suites` holds the benchmarks."""

    questions: Sequence[Question]
    every: int
    sampling: Sampling = PAPER_SAMPLING
    marking: Marking = field(default_factory=lambda: Marking("final"))
    suites: Mapping[str, Benchmark] = field(default_factory=lambda: ALL_BENCHMARKS)
    seed: int = 0
    also_after: frozenset[int] = frozenset()
    """More steps after which the student is asked, where a run is repeated that was extended."""

    def is_due(self, step: int, max_steps: int) -> bool:
        """Whether the student is asked after this step; 0 is before the first step."""
        return step % self.every == 0 or step == max_steps or step in self.also_after


class LiveEvaluation(TrainerCallback):
    """Examines the student of a trainer. `answerer(step)` answers with the student's weights after that step."""

    def __init__(self, trainer: DistillationTrainer, exam: LiveExam, answerer: Callable[[int], Answerer]) -> None:
        self.trainer, self.exam, self.answerer = trainer, exam, answerer
        self.folder = Path(str(trainer.args.output_dir))
        self.lines = Lines(self.folder / FILE)

    def attach(self) -> None:
        """Join the trainer ahead of its monitors, so that they record the results with the step."""
        self.trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Remove the lines of steps that will be repeated; examine the student before its first step."""
        is_new = state.global_step == 0
        num_removed = on_first(lambda: self.lines.keep_until("step", -1 if is_new else state.global_step))
        if num_removed:
            log.warning("%s: repeating %d evaluations after step %d.", self.lines.path, num_removed, state.global_step)
        if is_new:
            self.examine(0)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Examine the student if it is due, and add the numbers to the metrics of the step."""
        if not self.exam.is_due(state.global_step, state.max_steps):
            return
        numbers, seen = self.examine(state.global_step), self.trainer.seen
        if seen is not None:
            self.trainer.seen = replace(seen, metrics={**seen.metrics, **numbers})
        is_skipped = seen is None or not seen.is_taken  # the trainer itself looks at the steps that it took
        if is_skipped and args.metric_for_best_model in numbers:
            self.trainer.best_values.append(numbers[args.metric_for_best_model])

    def examine(self, step: int) -> dict[str, float]:
        """Ask, mark and record the answers; return the numbers by name. Rank 0 asks, once it has all weights."""
        answerer = self.answerer(step)
        return on_first(lambda: self._examine(step, answerer))

    def _examine(self, step: int, answerer: Answerer) -> dict[str, float]:
        start = time.monotonic()
        path = self.folder / "evaluation" / f"step-{step}.jsonl"
        if step:  # remove the answers of an earlier attempt at this step, which had other weights
            path.unlink(missing_ok=True)
        exam = self.exam
        bar = AskingBar(f"evaluation after step {step}", Console(stderr=True, force_terminal=False))
        predictions = ask(exam.questions, answerer, sampling=exam.sampling, path=path, seed=exam.seed, bar=bar)
        verdicts = mark(exam.questions, predictions, exam.marking, exam.suites)
        card = scorecard_of(exam.questions, predictions, verdicts, marking=exam.marking, suites=exam.suites)
        seconds = time.monotonic() - start
        self.lines.append(_record(step, card, exam, seconds))
        entries = {name: score.entry for name, score in card.benchmarks.items()}
        unread = sum(score.share_unread for score in card.benchmarks.values()) / len(card.benchmarks)
        listed = ", ".join(f"{name} {entry:.2f}" for name, entry in entries.items())
        log.info("step %d  Acc %.2f  unread %.1f%%  %s  (%.0f s)", step, card.acc, unread, listed, seconds)
        return {f"{PREFIX}{name}": value for name, value in {"acc": card.acc, "unread": unread, **entries}.items()}


def live_unread_share(record: Mapping[str, Any], name: str = "") -> float | None:
    """Return the share of unread answers in a line of evaluation.jsonl, in percent: of a benchmark, or the mean."""
    benchmarks = record.get("benchmarks", {})
    chosen = [benchmarks.get(name, {})] if name else list(benchmarks.values())
    if not chosen or not all(one.get("num_questions") and "unresolved" in one for one in chosen):
        return None
    return sum(100 * float(one["unresolved"]) / float(one["num_questions"]) for one in chosen) / len(chosen)


def _record(step: int, card: Scorecard, exam: LiveExam, seconds: float) -> dict[str, object]:
    """Build a line of evaluation.jsonl: a few numbers for each benchmark, and how they were made."""
    benchmarks = {
        name: {
            "entry": score.entry,
            "interval": [score.interval.low, score.interval.high],
            "num_questions": score.num_questions,
            "num_expected": score.num_expected,
            "metrics": dict(score.metrics),
            **asdict(score.counts),
        }
        for name, score in card.benchmarks.items()
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
