"""Scenes: two to five different things on a grid of three by three cells, as names and as pictures.

A scene is drawn from a `random.Random`; in a usual scene every thing with a usual colour or row has it. The picture of
a scene adds what nobody asks about: sizes, exact places, the light, the ground, a little noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from vcsd.emoji.sprites import NATIVE
from vcsd.emoji.things import COLORS, ROWS, THINGS

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from vcsd.emoji.things import Thing

GRID = 3
CELL = 48
"""Pixels of a cell's side."""

PICTURE = GRID * CELL
"""Pixels of a picture's side."""

FEWEST, MOST = 2, 5
"""Things in a scene."""

_COLOR_NAMES, _NAMES = list(COLORS), list(THINGS)
_LIGHT, _LIGHT_RANGE, _SMALLEST, _TINTED_GROUND, _NOISE = 0.85, 0.25, 0.72, 0.12, 0.02


@dataclass(frozen=True)
class PlacedThing:
    """A thing in a scene. `color` is what a person would call it, `tint` which sprite is drawn."""

    thing: Thing
    cell: int
    color: str | None
    tint: int

    @property
    def row(self) -> str:
        """The name of its row."""
        return ROWS[self.cell // GRID]


@dataclass(frozen=True)
class Scene:
    """What is in a picture, in the order of the cells."""

    things: tuple[PlacedThing, ...]

    def find(self, name: str) -> PlacedThing | None:
        """Return the thing of this name, if it is in the scene."""
        return next((placed for placed in self.things if placed.thing.name == name), None)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sprite (-1 for none) and the tint of each cell."""
        sprites, tints = np.full(GRID**2, -1, np.int64), np.full(GRID**2, NATIVE, np.int64)
        for placed in self.things:
            sprites[placed.cell], tints[placed.cell] = _NAMES.index(placed.thing.name), placed.tint
        return sprites, tints


def draw_scene(rng: random.Random, *, must: Sequence[str] = (), unusual: Collection[str] = ()) -> Scene:
    """Draw a scene with certain things in it; `unusual` ones have a colour or a row that they do not usually have."""
    names, num = list(must), rng.randint(FEWEST, MOST)
    while len(names) < num:
        name = rng.choice(_NAMES)
        if name not in names:
            names.append(name)
    taken: dict[int, PlacedThing] = {}
    # Those with a usual row first, because only three cells suit them; the rest find a cell in any case.
    for thing in sorted((THINGS[name] for name in names), key=lambda thing: thing.usual_row is None):
        is_unusual = thing.name in unusual
        cells = [cell for cell in _cells(thing, is_unusual=is_unusual) if cell not in taken]
        if cells:
            cell = rng.choice(cells)
            taken[cell] = PlacedThing(thing, cell, *_look(rng, thing, is_unusual=is_unusual))
    return Scene(tuple(taken[cell] for cell in sorted(taken)))


def _cells(thing: Thing, *, is_unusual: bool) -> list[int]:
    rows = [row for row in range(GRID) if thing.usual_row is None or (row == thing.usual_row) != is_unusual]
    return [GRID * row + column for row in rows for column in range(GRID)]


def _look(rng: random.Random, thing: Thing, *, is_unusual: bool) -> tuple[str | None, int]:
    """The colour of a thing, and its sprite: a usual colour is drawn in the emoji's own colours half of the time."""
    if thing.group == "any":
        color = rng.choice(_COLOR_NAMES)
    elif thing.usual is None:
        return None, NATIVE
    elif is_unusual:
        color = rng.choice([color for color in _COLOR_NAMES if color != thing.usual])
    elif rng.random() < 0.5:
        return thing.usual, NATIVE
    else:
        color = thing.usual
    return color, _COLOR_NAMES.index(color)


class ScenePainter:
    """Paints scenes on a device, many at a time. Shape legend: B scenes."""

    def __init__(self, sprites: Tensor, device: torch.device | str = "cpu") -> None:
        self.sprites, self.device = sprites.to(device), torch.device(device)

    def paint(self, sprites_B9: Tensor, tints_B9: Tensor, generator: torch.Generator) -> Tensor:
        """Paint scenes, given as arrays: (B, 3, PICTURE, PICTURE), from 0 to 1."""
        num, cells = len(sprites_B9), GRID**2

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, device=self.device, generator=generator)

        sprites_B9, tints_B9 = sprites_B9.to(self.device), tints_B9.to(self.device)
        art = self.sprites[sprites_B9.clamp(min=0), tints_B9].flatten(0, 1).float() / 255
        opacity = art[:, 3:] * (sprites_B9.flatten() >= 0)[:, None, None, None]
        light = (_LIGHT + _LIGHT_RANGE * uniform(num)).repeat_interleave(cells)[:, None, None, None]
        art = torch.cat([(art[:, :3] * light).clamp(0, 1) * opacity, opacity], 1)
        scale = _SMALLEST + (1 - _SMALLEST) * uniform(num * cells)
        move = torch.zeros(num * cells, 2, 3, device=self.device)
        move[:, 0, 0] = move[:, 1, 1] = 1 / scale
        move[:, :, 2] = (2 * uniform(num * cells, 2) - 1) * ((1 - scale) / scale)[:, None]
        grid = functional.affine_grid(move, [num * cells, 4, CELL, CELL], align_corners=False)
        drawn = functional.grid_sample(art, grid, align_corners=False)
        drawn = drawn.view(num, GRID, GRID, 4, CELL, CELL).permute(0, 3, 1, 4, 2, 5).reshape(num, 4, PICTURE, PICTURE)
        ground = (uniform(num, 1, 1, 1) + _TINTED_GROUND * (uniform(num, 3, 1, 1) - 0.5)).clamp(0, 1)
        picture = drawn[:, :3] + (1 - drawn[:, 3:]) * ground
        noise = torch.randn(picture.shape, device=self.device, generator=generator)
        return (picture + _NOISE * noise).clamp(0, 1)

    def picture(self, scene: Scene, seed: int) -> Image.Image:
        """Paint one scene as an image; the same scene and seed give the same pixels on the same machine."""
        sprites, tints = (torch.from_numpy(array)[None] for array in scene.arrays())
        generator = torch.Generator(self.device).manual_seed(seed)
        (pixels,) = (self.paint(sprites, tints, generator) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu()
        return Image.fromarray(pixels.numpy())
