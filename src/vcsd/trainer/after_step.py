"""A callback that runs between the gradients of a step and its log: updates the teacher, calls the monitors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from transformers import TrainerCallback

from vcsd.errors import ConfigError, did_you_mean
from vcsd.parallel.ranks import on_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from vcsd.monitor.observation import Observation
    from vcsd.trainer.trainer import DistillationTrainer

_NOT_EVERY_STEP = ("evaluation/", "language_drift")
"""Metrics that some steps lack: those of an evaluation, and `language_drift` if no prompt has letters."""


class AfterStep(TrainerCallback):
    """Updates the teacher and calls the monitors. Stateless, because Trainer rebuilds callbacks on resume."""

    def __init__(self, trainer: DistillationTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, *args: object, **kwargs: object) -> None:
        """Free the copy that samples, which an evaluation before the first step may have filled."""
        if self.trainer.half is not None:
            self.trainer.half.release()

    def on_pre_optimizer_step(self, *args: object, **kwargs: object) -> None:
        """Start measuring the update: gradients are computed and clipped."""
        self.trainer.updating.enter_context(self.trainer.phases("update"))

    def on_optimizer_step(self, *args: object, **kwargs: object) -> None:
        """Update the teacher after the optimizer, before the log and the checkpoint of the same step.

        Both are checked: a student that the update ruined must not reach the teacher.
        """
        if self.trainer.is_taken:
            self.trainer.refuse_ruined("student")
            self.trainer.teacher.update()
            self.trainer.refuse_ruined("teacher")
        self.trainer.updating.close()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Show the completed step to the monitors, and log the metrics they return. Rank 0 alone has monitors."""
        trainer, seen = self.trainer, self.trainer.seen
        if trainer.half is not None:
            trainer.half.release()  # an evaluation may have filled it
        if seen is None:
            return
        trainer.note_times()
        metrics = {**seen.metrics, "teacher_distance": trainer.teacher.distance(), **trainer.phases.metrics()}
        completed = replace(seen, metrics=metrics)
        trainer.seen = replace(seen, metrics=on_first(lambda: self._observed(completed)))
        trainer.stop_if_broken(seen.loss)
        if args.metric_for_best_model is not None and seen.is_taken:
            self._remember(args.metric_for_best_model, {"loss": seen.loss, **trainer.seen.metrics}, seen.step)

    def _observed(self, completed: Observation) -> dict[str, float]:
        """Return the metrics of a step with those of all monitors. Each sees the metrics of the ones before it."""
        metrics = dict(completed.metrics)
        for monitor in self.trainer.monitors:
            metrics |= monitor.observe(replace(completed, metrics=dict(metrics))) or {}
        return metrics

    def _remember(self, name: str, metrics: Mapping[str, float], step: int) -> None:
        """Keep the metric that checkpoints are compared by. If the first step lacks it, its name is wrong."""
        if name in metrics:
            self.trainer.best_values.append(metrics[name])
        elif step == 1 and not name.startswith(_NOT_EVERY_STEP):
            advice = did_you_mean(name, sorted(metrics))
            raise ConfigError([f"trainer.metric_for_best_model = {name!r} is not a metric of this run. {advice}"])
