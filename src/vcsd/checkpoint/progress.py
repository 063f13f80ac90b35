"""The counters of a run, which a checkpoint holds besides its tensors, and how to go back to those before a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass
class Progress:
    """Counters of a run. `cursor` is the position in the data order; `token_budget` is None before it is measured.

    >>> Progress(cursor=64).num_empty_steps
    0
    """

    cursor: int = 0
    token_budget: int | None = None
    num_rollouts: int = 0
    num_empty_steps: int = 0
    num_nonfinite_steps: int = 0
    num_nonfinite_in_a_row: int = 0
    best_step: int | None = None
    best_value: float | None = None


@dataclass(frozen=True, eq=False)
class BeforeStep:
    """What a step changes before its optimizer runs: counters, skipped rows, and whether weights are gathered."""

    progress: Progress
    skips: Any
    weights: list[tuple[nn.Module, str, nn.Parameter]]
    """Every weight of student and teacher, whole or a shard, and the module that holds it."""

    @classmethod
    def of(cls, progress: Progress, skips: Any, *models: nn.Module | None) -> BeforeStep:
        """Remember the state before a step."""
        inner = [module for model in models if model is not None for module in model.modules()]
        weights = [(m, name, weight) for m in inner for name, weight in m._parameters.items() if weight is not None]
        return cls(replace(progress), skips, weights)

    def restore_weights(self) -> None:
        """Put shards back where FSDP2 may have left whole weights, and drop all gradients."""
        for module, name, weight in self.weights:
            module._parameters[name] = weight
            weight.grad = None
