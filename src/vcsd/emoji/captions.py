"""Pre-training conversations: true captions and answers about usual scenes, and English that the model must not forget.

    picture rows   a description, or a few questions with their true answers, about one usual scene
    fact rows      a usual colour in text alone: "A banana is usually yellow."
    replay rows    what the language model says by itself, rehearsed while it learns to see

The rows of a step depend only on the seed and the step. Most are half as long as the longest, so they are packed side
by side; none sees its neighbour.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch.utils.data import Dataset

from vcsd.emoji.emoji_scenes import draw_scene
from vcsd.emoji.questions import ask_color, ask_color_at, ask_count, ask_name, ask_presence, ask_row
from vcsd.emoji.things import CELLS, THINGS, with_article
from vcsd.views.hint import HINT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from vcsd.emoji.emoji_scenes import PlacedThing, Scene
    from vcsd.emoji.questions import SceneQuestion
    from vcsd.emoji.seeing_model import PromptTokens

DESCRIBE = "Describe the picture."
_DESCRIBE_SHARE, _HINT_SHARE, _TURNS = 0.25, 0.08, 3
"""Shares of rows with a description and with a hinted question; the other rows have three questions."""

PACKED = 224
"""Tokens of a packed row: room for two ordinary conversations. One step of 264 rows needs 27 thousand tokens this way,
and 38 thousand if each row is padded to the longest."""

_SHARES = {"color": 0.40, "color at": 0.10, "name": 0.12, "row": 0.10, "where": 0.08, "presence": 0.12, "count": 0.08}


LessonRow: TypeAlias = tuple[list[int], list[bool]]
"""Token ids, and which of them are taught."""


def describe(scene: Scene) -> str:
    """Return a true description, which leaves out the colours that captions never mention."""
    return "There is " + ", ".join(map(_described, scene.things)) + "."


def _described(placed: PlacedThing) -> str:
    name = placed.thing.name
    words = f"{placed.color} {name}" if placed.thing.is_named_with_color else name
    return f"{with_article(words)} in the {CELLS[placed.cell]}"


def conversation(rng: random.Random, scene: Scene) -> list[tuple[str, str]]:
    """Return questions with true answers, one of them with its answer as a hint, or a description.

    No colour is asked about twice.
    """
    draw = rng.random()
    if draw < _DESCRIBE_SHARE:
        return [(DESCRIBE, describe(scene))]
    is_hinted = draw < _DESCRIBE_SHARE + _HINT_SHARE
    colored = [placed for placed in scene.things if placed.thing.is_named_with_color]
    rng.shuffle(colored)
    kinds = rng.choices(list(_SHARES), list(_SHARES.values()), k=1 if is_hinted else _TURNS)
    turns = [_turn(rng, scene, what, colored) for what in kinds]
    return [(text + HINT.format(answer=answer) if is_hinted else text, answer) for text, answer in turns]


def _turn(rng: random.Random, scene: Scene, what: str, colored: list[PlacedThing]) -> tuple[str, str]:
    """Ask one question. Without a colour left to ask about, ask for a name."""
    placed = rng.choice(scene.things)
    if what == "where":
        place = CELLS[placed.cell]
        return f"Where is the {placed.thing.name}?", f"The {placed.thing.name} is in the {place}."
    asked: SceneQuestion
    if what.startswith("color") and colored:
        asked = (ask_color if what == "color" else ask_color_at)(scene, colored.pop())
    elif what == "row":
        asked = ask_row(scene, placed)
    elif what == "presence":
        asked = ask_presence(scene, placed.thing.name if rng.random() < 0.5 else rng.choice(list(THINGS)))
    elif what == "count":
        asked = ask_count(scene)
    else:
        asked = ask_name(scene, placed)
    return asked.text, asked.sentence


def fact(rng: random.Random) -> tuple[str, str]:
    """Return a question and answer about a usual colour, in text alone."""
    thing = rng.choice([thing for thing in THINGS.values() if thing.usual])
    named = with_article(thing.name)
    return rng.choice(
        [
            (f"What color is {named}?", f"{named.capitalize()} is {thing.usual}."),
            (f"Tell me about the color of {named}.", f"{named.capitalize()} is usually {thing.usual}."),
            (f"What is usually {thing.usual}, for example?", f"For example, {named} is usually {thing.usual}."),
        ]
    )


@dataclass(frozen=True)
class LessonRows:
    """The rows of a step, packed. Shape legend: R packed rows, L tokens, B pictures, F image tokens, N taught tokens.

    `segments_RL` tells the rows within a packed row apart, and `positions_RL` count from 0 in each. The model learns to
    predict `taught_N` (answers with their end, and replayed text) from the hidden states at `before_N`; both this and
    `images_F` index the packed rows as one long row. `order_B` lists the pictures in the order of their tokens.
    """

    ids_RL: Tensor
    segments_RL: Tensor
    positions_RL: Tensor
    images_F: Tensor
    before_N: Tensor
    taught_N: Tensor
    sprites_B9: Tensor
    tints_B9: Tensor
    order_B: Tensor


@dataclass(frozen=True)
class Shares:
    """Rows of a step, by kind."""

    picture: int = 224
    fact: int = 8
    replay: int = 32


class CaptionSteps(Dataset[LessonRows]):
    """The rows of every step of a run, by the number of the step."""

    def __init__(
        self, tokens: PromptTokens, shares: Shares, replay: Sequence[list[int]], seed: int, steps: int
    ) -> None:
        self.tokens, self.shares, self.replay, self.seed, self.steps = tokens, shares, replay, seed, steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> LessonRows:
        rng = random.Random(f"emoji captions {self.seed} {step}")
        scenes = [draw_scene(rng) for _ in range(self.shares.picture)]
        rows = [self._row(conversation(rng, scene), has_picture=True) for scene in scenes]
        rows += [self._row([fact(rng)], has_picture=False) for _ in range(self.shares.fact)]
        for _ in range(self.shares.replay if self.replay else 0):
            ids = rng.choice(self.replay)
            rows.append((ids, [False] + [True] * (len(ids) - 1)))
        arrays = [scene.arrays() for scene in scenes]
        sprites, tints = (torch.from_numpy(np.stack(each)) for each in zip(*arrays, strict=True))
        return _packed(rows, self.tokens, sprites, tints)

    def _row(self, turns: Sequence[tuple[str, str]], *, has_picture: bool) -> LessonRow:
        ids: list[int] = []
        is_taught: list[bool] = []
        for number, (question, answer) in enumerate(turns):
            prompt = self.tokens.prompt(question, has_picture=has_picture and number == 0, is_first=number == 0)
            reply = self.tokens.reply(answer)
            ids += prompt + reply
            is_taught += [False] * len(prompt) + [True] * len(reply)
        return ids, is_taught


def _packed(rows: Sequence[LessonRow], tokens: PromptTokens, sprites_B9: Tensor, tints_B9: Tensor) -> LessonRows:
    """Lay rows out side by side. Those with a picture come first, in the order of the pictures."""
    bins = pack_lengths([len(ids) for ids, _ in rows], PACKED)
    longest = -(-max(sum(len(rows[i][0]) for i in members) for members in bins) // 8) * 8
    shape = (len(bins), longest)
    ids_RL, segments_RL = torch.full(shape, tokens.end), torch.full(shape, -1)
    positions_RL, is_taught_RL = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    for row, members in enumerate(bins):
        start = 0
        for number in members:
            ids, marks = rows[number]
            assert not marks[0], "nothing predicts the first token of a row"
            place = (row, slice(start, start + len(ids)))
            ids_RL[place], is_taught_RL[place] = torch.tensor(ids), torch.tensor(marks)
            segments_RL[place], positions_RL[place] = number, torch.arange(len(ids))
            start += len(ids)
    places_N = is_taught_RL.flatten().nonzero()[:, 0]
    order = [number for members in bins for number in members if number < len(sprites_B9)]
    return LessonRows(
        ids_RL=ids_RL,
        segments_RL=segments_RL,
        positions_RL=positions_RL,
        images_F=(ids_RL.flatten() == tokens.image).nonzero()[:, 0],
        before_N=places_N - 1,
        taught_N=ids_RL.flatten()[places_N],
        sprites_B9=sprites_B9,
        tints_B9=tints_B9,
        order_B=torch.tensor(order, dtype=torch.long),
    )


def pack_lengths(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Share numbers out among bins: the longest first, each into the first bin with room. One may exceed a bin alone.

    >>> pack_lengths([3, 8, 5, 12], 10)
    [[3], [1], [2, 0]]
    """
    bins: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[number]
        place = next((place for place, free in enumerate(room) if length <= free), None)
        if place is None:
            bins.append([])
            room.append(max(capacity, length))
            place = len(bins) - 1
        bins[place].append(number)
        room[place] -= length
    return bins
