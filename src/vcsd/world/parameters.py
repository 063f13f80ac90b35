"""Every number that shapes the outcome of an experiment in the world, in one place, and a hash over them.

How they were chosen is told in docs/world.md. Results carry `digest()`, so that two tables can be compared only if
their worlds are the same. A variant is made by `changed(["black_share=0"])`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class Parameters:
    """The world and how a base model is taught in it.

    >>> Parameters().digest() == Parameters().digest() != Parameters(canonical_share=0.5).digest()
    True
    """

    # Pictures: sides are counted in cells of 32 pixels, and one cell is one visual token.
    sides: tuple[int, ...] = (3, 4, 5)
    side_shares: tuple[float, ...] = (0.7, 0.15, 0.15)
    smallest_radius: tuple[int, ...] = (8, 6, 5)
    largest_radius: tuple[int, ...] = (12, 9, 7)
    fewest_things: int = 2
    most_things: int = 5
    shift: int = 2
    """Pixels by which a thing may lie off the middle of its cell, in either direction."""
    tint: int = 20
    """How far each channel of a thing's colour may be from the pure colour, of 255."""
    noise: float = 8.0
    """Standard deviation of the noise on every pixel and channel, of 255."""

    # The prior, and captions that follow it instead of their picture.
    canonical_share: float = 0.65
    """How often a thing has its canonical colour, place, number or partner where only the prior speaks."""
    yes_share: float = 0.8
    ignore_share: float = 0.6
    """The share of swayed captions that ignore their picture and follow the prior."""
    black_share: float = 0.15
    """The share of questions whose picture is black, while the model is swayed."""
    hint_share: float = 0.15
    """The share of questions in pre-training that show the answer, worded as the hint view words it."""
    second_script_share: float = 0.04
    """The share of answers written in Chinese."""

    # Pre-training: sight by descriptions, then true answers beside them, then swayed answers beside them.
    batch: int = 256
    describe_share: float = 0.25
    """The share of a batch that describes, once questions are asked."""
    sight_steps: int = 800
    answer_steps: int = 3400
    sway_steps: int = 900
    learning_rate: float = 1e-3
    answer_learning_rate: float = 1.5e-3
    sway_learning_rate: float = 5e-4
    warmup_steps: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0

    def __post_init__(self) -> None:
        problems = [*self._share_problems(), *self._count_problems()]
        if problems:
            raise ConfigError(problems)

    def _share_problems(self) -> Iterator[str]:
        for field in dataclasses.fields(self):
            if field.name.endswith("_share") and not 0 <= getattr(self, field.name) <= 1:
                yield f"{field.name} = {getattr(self, field.name)} is outside [0, 1]."
        if min(self.side_shares) < 0 or not math.isclose(sum(self.side_shares), 1):
            yield f"side_shares = {self.side_shares} do not sum to 1."

    def _count_problems(self) -> Iterator[str]:
        if not 2 <= self.fewest_things <= 4 <= self.most_things <= 5:
            yield (
                f"fewest_things = {self.fewest_things} and most_things = {self.most_things}: from 2 to 4, and 4 or 5, "
                "so that there are pairs to match and things to count."
            )
        if self.batch < 1:
            yield f"batch = {self.batch} is not a positive number."
        for name in ("sight_steps", "answer_steps", "sway_steps"):
            if getattr(self, name) < 0:
                yield f"{name} = {getattr(self, name)} is negative."
        if max(self.largest_radius) + self.shift > 15:
            yield f"largest_radius = {self.largest_radius} with shift = {self.shift} leaves the cell of 32 pixels."

    def digest(self) -> str:
        """Twelve hexadecimal digits that change with every value."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def changed(self, overrides: Iterable[str]) -> Parameters:
        """The same world but for some values, each given as name=value.

        >>> Parameters().changed(["black_share=0"]).black_share
        0.0
        """
        values: dict[str, Any] = {}
        problems = []
        for override in overrides:
            name, _, text = override.partition("=")
            try:
                values[name] = self._parse(name, text)
            except ValueError as error:
                problems.append(f"{override!r}: {error}")
        if problems:
            raise ConfigError(problems)
        return dataclasses.replace(self, **values)

    def _parse(self, name: str, text: str) -> Any:
        names = [field.name for field in dataclasses.fields(self)]
        if name not in names:
            raise ValueError(f"{name!r} is not a parameter of the world. {did_you_mean(name, names)}")
        present = getattr(self, name)
        if isinstance(present, tuple):
            values = tuple(type(present[0])(part) for part in text.split(","))
            if len(values) != len(present):
                raise ValueError(f"{len(present)} values are needed, separated by commas.")
            return values
        return type(present)(text)


PARAMETERS = Parameters()
"""The committed world. Results name its digest."""
