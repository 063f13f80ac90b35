"""Scenes: the contents of pictures as arrays of numbers, many at a time, since pre-training draws millions.

A scene is a square of cells, some of which hold a thing: a shape, a colour, a size. No two things of a scene have the
same shape, so that "the circle" is unambiguous.

A hash of a scene's layout (which shape is where, but not the colours) decides whether it is for training or for tests.
So no test picture has the layout of a training picture, whatever the seeds.

Shape legend: N scenes, K slots for things, of which the first `count` are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vcsd.world.words import NUM_COLORS, NUM_SHAPES

if TYPE_CHECKING:
    from vcsd.world.parameters import Parameters

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Rng: TypeAlias = np.random.Generator

Split = Literal["train", "dev", "test"]

_SPLIT_OF_FOLD = ("test", "test", "dev", *["train"] * 13)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Scenes:
    """N scenes of the same side. Index with an array to select some of them."""

    side: int
    count_N: Ints
    cell_NK: Ints
    shape_NK: Ints
    color_NK: Ints
    radius_NK: Ints
    shift_NK2: Ints
    tint_NK3: Ints

    def __len__(self) -> int:
        return len(self.count_N)

    def __getitem__(self, chosen: Ints | Bools) -> Scenes:
        return Scenes(self.side, *(getattr(self, name)[chosen] for name in _ARRAYS))

    @property
    def is_there_NK(self) -> Bools:
        """Which slots hold a thing."""
        return np.asarray(np.arange(self.cell_NK.shape[1]) < self.count_N[:, None])

    @property
    def row_NK(self) -> Ints:
        """Rows from the top, counted from one."""
        return self.cell_NK // self.side + 1

    @property
    def column_NK(self) -> Ints:
        """Columns from the left, counted from one."""
        return self.cell_NK % self.side + 1

    def recolored(self, color_NK: Ints) -> Scenes:
        """The same layouts, and so the same splits, in other colours."""
        return replace(self, color_NK=color_NK)

    def split_N(self) -> NDArray[np.str_]:
        """The split that each scene belongs to."""
        # The fold is a hash of side and layout, the same in every process and version.
        code_NK = (self.cell_NK * NUM_SHAPES + self.shape_NK + 1).astype(np.uint64)
        mixed_NK = _scramble(code_NK * np.uint64(self.side)) * self.is_there_NK
        fold_N = _scramble(mixed_NK.sum(1, dtype=np.uint64)) % np.uint64(len(_SPLIT_OF_FOLD))
        return np.array(_SPLIT_OF_FOLD)[fold_N.astype(np.int64)]


_ARRAYS = ("count_N", "cell_NK", "shape_NK", "color_NK", "radius_NK", "shift_NK2", "tint_NK3")


def _scramble(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits (splitmix)."""
    x = (x + np.uint64(1)) * _MIX
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def concatenate(parts: list[Scenes]) -> Scenes:
    """Concatenate scenes of one side."""
    assert len({part.side for part in parts}) == 1, "scenes have different sides"
    return Scenes(parts[0].side, *(np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS))


def draw_scenes(
    rng: Rng, num: int, side: int, parameters: Parameters, *, split: Split, canonical_share: float = 0.0
) -> Scenes:
    """Draw scenes of one split. `canonical_share` of the things have the canonical colour of their shape."""
    parts: list[Scenes] = []
    num_drawn = 0
    share = _SPLIT_OF_FOLD.count(split) / len(_SPLIT_OF_FOLD)
    while num_drawn < num:
        scenes = _draw(rng, int((num - num_drawn) / share * 1.1) + 16, side, parameters, canonical_share)
        kept = scenes[scenes.split_N() == split]
        parts.append(kept)
        num_drawn += len(kept)
    return concatenate(parts)[np.arange(num)]


def _draw(rng: Rng, num: int, side: int, parameters: Parameters, canonical_share: float) -> Scenes:
    most = parameters.most_things
    assert most <= NUM_SHAPES, "the things of a scene need different shapes"
    size = parameters.sides.index(side)
    shape_NK = _distinct(rng, num, NUM_SHAPES, most)
    any_color_NK = rng.integers(NUM_COLORS, size=(num, most))
    return Scenes(
        side=side,
        count_N=rng.integers(parameters.fewest_things, most + 1, size=num),
        cell_NK=_distinct(rng, num, side**2, most),
        shape_NK=shape_NK,
        color_NK=np.where(rng.random((num, most)) < canonical_share, shape_NK, any_color_NK),
        radius_NK=rng.integers(parameters.smallest_radius[size], parameters.largest_radius[size] + 1, size=(num, most)),
        shift_NK2=rng.integers(-parameters.shift, parameters.shift + 1, size=(num, most, 2)),
        tint_NK3=rng.integers(-parameters.tint, parameters.tint + 1, size=(num, most, 3)),
    )


def _distinct(rng: Rng, num: int, total: int, chosen: int) -> Ints:
    """(num, chosen) numbers below `total`, distinct within a row, in random order."""
    return np.argsort(rng.random((num, total)), axis=1)[:, :chosen]
