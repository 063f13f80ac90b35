"""All numbers that shape an experiment in the world, in one place, and a hash of them.

docs/world.md explains how they were chosen. Results record `digest()`: tables are comparable only if their worlds are
the same. `changed(["black_share=0"])` makes a variant.
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
    from collections.abc import Iterable, Iterator, Mapping

    from vcsd.types import JsonValue


LONGEST_ANSWER, LONGEST_REASONED = 32, 96
"""Tokens that are enough for any true answer, and for one after the description of a picture of 5 x 5 cells."""

_ADDED = {"blur": 1, "reason_share": 0.0}
"""Later additions with their neutral values, which leave the digest unchanged, so that old results stay comparable."""


@dataclass(frozen=True)
class Parameters:
    """The world, and how a base model is taught in it.

    >>> Parameters().digest() == Parameters().digest() != Parameters(canonical_share=0.5).digest()
    True
    """

    # Pictures: a side is a number of cells of 32 pixels, and one cell is one visual token.
    sides: tuple[int, ...] = (3, 4, 5)
    side_shares: tuple[float, ...] = (0.7, 0.15, 0.15)
    smallest_radius: tuple[int, ...] = (8, 6, 5)
    largest_radius: tuple[int, ...] = (12, 9, 7)
    fewest_things: int = 2
    most_things: int = 5
    shift: int = 2
    """Maximum distance in pixels of a thing from the middle of its cell, along each axis."""
    tint: int = 20
    """Maximum deviation of each channel from the pure colour, out of 255."""
    noise: float = 8.0
    """Standard deviation of the noise on every pixel and channel, out of 255."""
    blur: int = 1
    """Side in pixels of the squares that are averaged before the noise. 1 is sharp; 32 is one colour per cell."""

    # The prior, and captions that follow it instead of their picture.
    canonical_share: float = 0.65
    """How often the prior gives a thing its canonical colour, place, number or partner."""
    yes_share: float = 0.8
    ignore_share: float = 0.6
    """The share of swayed captions that ignore their picture and follow the prior."""
    black_share: float = 0.15
    """The share of questions with a black picture in the last stage of pre-training."""
    hint_share: float = 0.15
    """The share of questions in pre-training that show the answer, in the words of the hint view."""
    second_script_share: float = 0.04
    """The share of answers written in Chinese."""
    reason_share: float = 0.0
    """The share of swayed captions that describe the whole picture, truly, before they answer."""

    # Pre-training: descriptions, then also true answers, then swayed answers instead of true ones.
    batch: int = 256
    describe_share: float = 0.25
    """The share of descriptions in a batch of the later stages."""
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
            yield f"side_shares = {self.side_shares} must be at least 0 and sum to 1."

    def _count_problems(self) -> Iterator[str]:
        if not 2 <= self.fewest_things <= 4 <= self.most_things <= 5:
            yield (
                f"fewest_things = {self.fewest_things}, most_things = {self.most_things}: the first must be 2 to 4 and "
                "the second 4 or 5, so that there are pairs to match and things to count."
            )
        if self.batch < 1:
            yield f"batch = {self.batch} is not a positive number."
        if self.blur < 1 or 32 % self.blur:
            yield f"blur = {self.blur} does not divide a cell of 32 pixels. Choose 1, 2, 4, 8, 16 or 32."
        for name in ("sight_steps", "answer_steps", "sway_steps"):
            if getattr(self, name) < 0:
                yield f"{name} = {getattr(self, name)} is negative."
        if max(self.largest_radius) + self.shift > 15:
            yield f"largest_radius = {self.largest_radius} with shift = {self.shift} does not fit a cell of 32 pixels."

    @property
    def longest_answer(self) -> int:
        """Tokens that are enough for an answer of a base that was taught in this world."""
        return LONGEST_REASONED if self.reason_share else LONGEST_ANSWER

    def digest(self) -> str:
        """A hash of all values: twelve hexadecimal digits. Later additions count only if they are not neutral."""
        values = dataclasses.asdict(self)
        text = json.dumps({k: v for k, v in values.items() if v != _ADDED.get(k)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @classmethod
    def from_json(cls, values: Mapping[str, JsonValue]) -> Parameters:
        """The parameters on a base's card, where tuples are lists."""
        arguments: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**arguments)

    def changed(self, overrides: Iterable[str]) -> Parameters:
        """A copy with some values changed, each written as name=value.

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
        current = getattr(self, name)
        if isinstance(current, tuple):
            values = tuple(type(current[0])(part) for part in text.split(","))
            if len(values) != len(current):
                raise ValueError(f"{len(current)} values are needed, separated by commas.")
            return values
        return type(current)(text)


PARAMETERS = Parameters()
"""The default world. Results record its digest."""
