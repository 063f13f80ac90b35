"""What to pre-train: family, size, seed and world; the rate of every step; and whose folder it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError
from vcsd.world.parameters import PARAMETERS, Parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from vcsd.world.lessons import Stage
    from vcsd.world.tokenizer import FamilyName


@dataclass(frozen=True)
class Plan:
    """What to pre-train."""

    family: FamilyName
    size: str
    seed: int
    parameters: Parameters = PARAMETERS

    def identity(self) -> dict[str, Any]:
        """Whose checkpoint it is."""
        names = {"family": self.family, "size": self.size, "seed": self.seed}
        return {**names, "parameters": self.parameters.digest()}

    def steps(self) -> dict[Stage, int]:
        """Steps of every stage."""
        world = self.parameters
        return {"sight": world.sight_steps, "answer": world.answer_steps, "sway": world.sway_steps}

    def learning_rate(self, stage: Stage, step: int) -> float:
        """Warm up and hold for sight; go to the rate of answers, come down in its last fifth; a cosine for swaying."""
        world = self.parameters
        if stage == "sway":
            return world.sway_learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / world.sway_steps)))
        warm = min(1.0, (step + 1) / world.warmup_steps)
        if stage == "sight":
            return world.learning_rate * warm
        rate = world.learning_rate + (world.answer_learning_rate - world.learning_rate) * warm
        left = (world.answer_steps - step) / world.answer_steps
        return rate * (0.2 + 0.8 * min(1.0, left / 0.2))


def refuse_another(plan: Plan, out: Path, card: Mapping[str, Any]) -> None:
    """A folder holds one base."""
    wanted = plan.identity()
    other = [f"{name} is {card.get(name)}, not {value}" for name, value in wanted.items() if card.get(name) != value]
    if other:
        raise ConfigError([f"{out} holds another base: {'; '.join(other)}. Choose another folder."])


def command_line(program: str, plan: Plan, overrides: Iterable[str]) -> str:
    """The command that makes this base anywhere, for its card."""
    changes = "".join(f" --set {override}" for override in overrides)
    return f"{program} --family {plan.family} --size {plan.size} --seed {plan.seed}{changes} --out FOLDER"
