"""What to pre-train: family, size, seed, world, and the learning rate of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.world.parameters import PARAMETERS, Parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from vcsd.bases.card import BaseIdentity
    from vcsd.bases.lessons import Stage
    from vcsd.bases.tokenizer import FamilyName


@dataclass(frozen=True)
class Curriculum:
    """What to pre-train."""

    family: FamilyName
    size: str
    seed: int
    parameters: Parameters = PARAMETERS

    def identity(self) -> BaseIdentity:
        """What a checkpoint and a card must match."""
        return {"family": self.family, "size": self.size, "seed": self.seed, "parameters": self.parameters.digest()}

    def steps(self) -> dict[Stage, int]:
        """The number of steps of every stage."""
        world = self.parameters
        return {"sight": world.sight_steps, "answer": world.answer_steps, "sway": world.sway_steps}

    def learning_rate(self, stage: Stage, step: int) -> float:
        """Sight: warm up, then constant. Answer: warm up to its rate, decay in the last fifth. Sway: a cosine."""
        world = self.parameters
        if stage == "sway":
            return world.sway_learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / world.sway_steps)))
        warm = min(1.0, (step + 1) / world.warmup_steps)
        if stage == "sight":
            return world.learning_rate * warm
        rate = world.learning_rate + (world.answer_learning_rate - world.learning_rate) * warm
        left = (world.answer_steps - step) / world.answer_steps
        return rate * (0.2 + 0.8 * min(1.0, left / 0.2))


def refuse_another(plan: Curriculum, out: Path, card: Mapping[str, object]) -> None:
    """Raise if a folder's card is of another base."""
    wanted = plan.identity().items()
    differences = [f"{name} is {card.get(name)}, not {value}" for name, value in wanted if card.get(name) != value]
    if differences:
        raise ConfigError([f"{out} holds another base: {'; '.join(differences)}. Choose another folder."])


def command_line(program: str, plan: Curriculum, overrides: Iterable[str]) -> str:
    """The command that makes this base, for its card."""
    changes = "".join(f" --set {override}" for override in overrides)
    return f"{program} --family {plan.family} --size {plan.size} --seed {plan.seed}{changes} --out FOLDER"
