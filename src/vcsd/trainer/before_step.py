"""The state of a run before a step, to save it if the step runs out of memory on a rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from vcsd.checkpoint.progress import Progress
    from vcsd.trainer.resumable import ResumableTrainer


@dataclass(frozen=True, eq=False)
class BeforeStep:
    """What a step changes before its optimizer runs: counters, skipped rows, and whether weights are gathered."""

    progress: Progress
    skips: Any
    weights: list[tuple[nn.Module, str, nn.Parameter]]
    """Every weight of student and teacher, whole or a shard, and the module that holds it."""

    @classmethod
    def of(cls, trainer: ResumableTrainer) -> BeforeStep:
        """Remember the state of a trainer."""
        modules = [trainer.model, trainer.teacher.weights]
        inner = [module for model in modules if model is not None for module in model.modules()]
        weights = [
            (module, name, weight)
            for module in inner
            for name, weight in module._parameters.items()
            if weight is not None
        ]
        return cls(replace(trainer.progress), trainer.stream.skips.state(), weights)

    def restore(self, trainer: ResumableTrainer, token_budget: int | None) -> None:
        """Go back to that state, with another token budget."""
        trainer.progress = replace(self.progress, token_budget=token_budget)
        trainer.stream.skips.restore(self.skips, cursor=trainer.progress.cursor)
        for module, name, weight in self.weights:
            module._parameters[name] = weight  # FSDP2 may have left the whole weight here
            weight.grad = None
