"""Evaluation during training: the student is asked before the first step, every few steps, and after the last.

    runs/first/evaluation.jsonl              one line per evaluation: Acc, each benchmark with interval and counts
    runs/first/evaluation/step-30.jsonl      the answers of one evaluation

A line is written before the checkpoint of its step. A run that resumes from a checkpoint removes the lines of later
steps and writes them again, so every step appears once. Failed questions count as wrong, and their number is recorded.
An evaluation never ends a run, but warns if the student is clearly worse than before its first step or than at its
best.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from transformers import TrainerCallback

from vcsd.errors import ConfigError
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.predictions import PredictionFile, questions_checksum
from vcsd.evaluation.asking.presets import PAPER_SAMPLING
from vcsd.evaluation.benchmarks.world_suites import ALL_BENCHMARKS
from vcsd.evaluation.live_lines import FILE, live_line
from vcsd.evaluation.live_losses import clear_losses, loss_message
from vcsd.evaluation.reading.marking import Marking, mark
from vcsd.evaluation.scoring.score_predictions import scorecard_of
from vcsd.monitor.lines import Lines, read_lines
from vcsd.parallel.ranks import on_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from vcsd.evaluation.asking.ask import Answerer
    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.live_losses import Loss
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.monitor.lines import JsonLine
    from vcsd.rollout.sampling import Sampling
    from vcsd.trainer.trainer import DistillationTrainer
    from vcsd.types import Prediction, Question

log = logging.getLogger(__name__)

PREFIX = "evaluation/"
"""The prefix of the evaluation's metrics, as in evaluation/acc."""


@dataclass(frozen=True)
class LiveExam:
    """The questions for the student, how they are asked and how they are marked. `suites` holds the benchmarks."""

    questions: Sequence[Question]
    every: int
    sampling: Sampling = PAPER_SAMPLING
    marking: Marking = field(default_factory=lambda: Marking("final"))
    suites: Mapping[str, Benchmark] = field(default_factory=lambda: ALL_BENCHMARKS)
    also_after: frozenset[int] = frozenset()
    """More steps after which the student is asked: a replay of an extended run needs the last steps of its parts."""

    @cached_property
    def own(self) -> dict[str, str]:
        """The checksum of the questions in each of the user's own files, by benchmark name."""
        names = dict.fromkeys(question.benchmark for question in self.questions)
        return {
            name: questions_checksum(question for question in self.questions if question.benchmark == name)
            for name in names
            if name not in ALL_BENCHMARKS
        }

    def is_due(self, step: int, max_steps: int) -> bool:
        """Whether the student is asked after this step; 0 is before the first step."""
        return step % self.every == 0 or step == max_steps or step in self.also_after


class LiveEvaluation(TrainerCallback):
    """Evaluates the student of a trainer. `answerer(step)` answers with the student's weights after that step."""

    def __init__(self, trainer: DistillationTrainer, exam: LiveExam, answerer: Callable[[int], Answerer]) -> None:
        self.trainer, self.exam, self.answerer = trainer, exam, answerer
        self.folder = Path(str(trainer.args.output_dir))
        self.lines = Lines(self.folder / FILE)
        self._earlier: dict[int, Scorecard] | None = None

    def attach(self) -> None:
        """Add this callback before the trainer's monitors, so that they record the results with the step."""
        self.trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Remove the lines of steps that will be repeated; evaluate the student before its first step."""
        is_new, self._earlier = state.global_step == 0, None
        num_removed = on_first(lambda: self.lines.keep_until("step", -1 if is_new else state.global_step))
        if num_removed:
            log.warning("%s: repeating %d evaluations after step %d.", self.lines.path, num_removed, state.global_step)
        if is_new:
            self.examine(0)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Evaluate the student if it is due, and add the numbers to the metrics of the step."""
        if not self.exam.is_due(state.global_step, state.max_steps):
            return
        numbers, seen = self.examine(state.global_step), self.trainer.seen
        if seen is not None:
            self.trainer.seen = replace(seen, metrics={**seen.metrics, **numbers})
        is_skipped = seen is None or not seen.is_taken  # the trainer records the best value of steps that it took
        if is_skipped and args.metric_for_best_model in numbers:
            self.trainer.best_values.append(numbers[args.metric_for_best_model])

    def examine(self, step: int) -> dict[str, float]:
        """Ask, mark and record the answers; return the numbers by name. Rank 0 asks, once it has all weights."""
        answerer = self.answerer(step)
        return on_first(lambda: self._examine(step, answerer))

    def _examine(self, step: int, answerer: Answerer) -> dict[str, float]:
        start = time.monotonic()
        path = self._path(step)
        if step:  # remove the answers of an earlier attempt at this step, which had other weights
            path.unlink(missing_ok=True)
        exam = self.exam
        bar = AskingBar(f"evaluation after step {step}", Console(stderr=True, force_terminal=False))
        predictions = ask(exam.questions, answerer, sampling=exam.sampling, path=path, bar=bar)
        card = self._card(predictions)
        losses = self._losses(step, card)
        seconds = time.monotonic() - start
        self.lines.append(live_line(step, card, losses, exam.sampling, seconds, exam.own))
        entries = {name: score.entry for name, score in card.benchmarks.items()}
        listed = ", ".join(f"{name} {entry:.2f}" for name, entry in entries.items())
        log.info("step %d  Acc %.2f  unread %.1f%%  %s  (%.0f s)", step, card.acc, card.share_unread, listed, seconds)
        if losses:
            log.warning("Step %d: %s", step, loss_message(losses))
        numbers = {"acc": card.acc, "unread": card.share_unread, **entries}
        return {f"{PREFIX}{name}": value for name, value in numbers.items()}

    def _path(self, step: int) -> Path:
        """The file of the answers after a step."""
        return self.folder / "evaluation" / f"step-{step}.jsonl"

    def _card(self, predictions: Sequence[Prediction]) -> Scorecard:
        exam = self.exam
        verdicts = mark(exam.questions, predictions, exam.marking, exam.suites)
        return scorecard_of(exam.questions, predictions, verdicts, marking=exam.marking, suites=exam.suites)

    def _losses(self, step: int, card: Scorecard) -> list[Loss]:
        """Scores that are clearly worse than in an earlier evaluation. A resumed run reads the earlier answers."""
        if self._earlier is None:
            self._earlier = self._cards_before(step)
        losses = clear_losses(card, self._earlier)
        self._earlier[step] = card
        return losses

    def _cards_before(self, step: int) -> dict[int, Scorecard]:
        """The scorecards of earlier evaluations, by step, from their files.

        Leaves out evaluations that asked other questions or used other sampling values: these change scores too.
        """
        lines = [line for line in read_lines(self.lines.path) if line.get("step", step) < step]
        sampling, own = asdict(self.exam.sampling), self.exam.own.items()
        alike = _watched(lines, "evaluation.sampling was different", lambda line: line.get("sampling") == sampling)
        alike = _watched(alike, "evaluation.tsv had other questions", lambda line: own <= line.get("tsv", {}).items())
        cards = {line["step"]: self._stored_card(line["step"]) for line in alike}
        return {earlier: card for earlier, card in cards.items() if card is not None}

    def _stored_card(self, step: int) -> Scorecard | None:
        """The scorecard after a step, from the file of its answers; None if other questions were asked."""
        not_compared = "Scores are not compared with the evaluation at step %d: %s"
        try:
            stored = PredictionFile(self._path(step))
        except ConfigError as error:
            log.warning(not_compared, step, error)
            return None
        answers = [stored.latest(question) for question in self.exam.questions]
        known = [prediction for prediction in answers if prediction is not None]
        if len(known) < len(answers):
            log.warning(not_compared, step, f"it answered {len(known)} of the {len(answers)} questions.")
            return None
        return self._card(known)


def _watched(lines: Sequence[JsonLine], otherwise: str, is_alike: Callable[[JsonLine], bool]) -> list[JsonLine]:
    """Return the evaluations that can be compared with, and log a warning on the others with the reason."""
    alike = [line for line in lines if is_alike(line)]
    if len(alike) < len(lines):
        several = f"{len(lines) - len(alike)} of {len(lines)} earlier evaluations"
        log.warning("Scores are not compared with %s: %s then.", several, otherwise)
    return alike
