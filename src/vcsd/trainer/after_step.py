"""What happens between the gradients of a step and its log: the teacher's update, the monitors' look, a run's stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from vcsd.errors import ConfigError, did_you_mean
from vcsd.trainer.progress import Observation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.trainer.trainer import VCSDTrainer

_SOMETIMES = ("evaluation/", "language_drift")
"""Metrics that not every step has: those of an evaluation, and `language_drift` where no prompt has letters."""


class AfterStep(TrainerCallback):
    """The teacher's update and the monitors' look. Stateless: Trainer rebuilds callbacks on resume."""

    def __init__(self, trainer: VCSDTrainer) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Gradients are there and clipped; from here on it is the update's time and memory."""
        self.trainer.updating.enter_context(self.trainer.phases("update"))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """After the optimizer, before the log and the checkpoint of the same step."""
        if self.trainer.is_taken:
            self.trainer.teacher.update()
        self.trainer.updating.close()

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Show the whole step to the monitors, and log what they say."""
        trainer, seen = self.trainer, self.trainer.seen
        if seen is None:
            return
        numbers = {**seen.metrics, "teacher_distance": trainer.teacher.distance(), **trainer.phases.metrics()}
        fields = (seen.step, seen.is_taken, seen.loss, seen.examples, seen.batch, seen.statistics)
        whole = Observation(*fields, numbers)
        found: dict[str, float] = {}
        for monitor in trainer.monitors:
            found |= monitor.observe(whole)
        trainer.seen = Observation(*fields, numbers | found)
        trainer.stop_if_broken(seen.loss)
        if args.metric_for_best_model is not None and seen.is_taken:
            self._remember(args.metric_for_best_model, {"loss": seen.loss, **trainer.seen.metrics}, seen.step)

    def _remember(self, name: str, metrics: Mapping[str, float], step: int) -> None:
        """Keep the number that checkpoints are compared by. A name that the first step lacks is a wrong one."""
        if name in metrics:
            self.trainer.best_values.append(metrics[name])
        elif step == 0 and not name.startswith(_SOMETIMES):
            advice = did_you_mean(name, sorted(metrics))
            raise ConfigError([f"trainer.metric_for_best_model = {name!r} is no metric of this run. {advice}"])
