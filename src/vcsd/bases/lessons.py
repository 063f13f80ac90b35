"""The training data of each stage of pre-training, as token ids and numbers for the pictures, many steps at a time.

    sight    true descriptions that name every cell
    answer   descriptions, and true answers to questions about balanced scenes
    sway     descriptions, and answers; a share of these ignores the picture and follows the prior

A block is the rows of one side and one sort: descriptions, questions, or questions with a hint. The blocks of a stage
have the same shapes in every step. Random numbers depend only on the seed, the stage and the chunk of steps, so a
resumed run sees the same rows.

Shape legend: N rows, L tokens of the longest row, C cells of a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

from vcsd.bases.tokenizer import END, IMAGE, NO_THOUGHT, PAD, FamilyName, encode_text
from vcsd.views.hint import HINT
from vcsd.world.questions.kind import DESCRIBE, describe, described, description, reasoned
from vcsd.world.questions.kinds import KINDS, ask
from vcsd.world.questions.template import Slots, Template
from vcsd.world.render import CELL, stamp
from vcsd.world.scenes import Bools, Ints, Rng, Scenes, draw_scenes
from vcsd.world.words import BACKGROUND, NUM_SHAPES, RGB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vcsd.world.parameters import Parameters
    from vcsd.world.questions.kind import AskedScenes, Kind

Stage = Literal["sight", "answer", "sway"]
STAGES: tuple[Stage, ...] = ("sight", "answer", "sway")
Sort = Literal["describe", "plain", "hint"]

STEPS_AT_ONCE = 32
"""Steps per chunk: drawing is fastest in large arrays."""


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one side and one sort.

    ids_NL         prompt, reply and end token, then padding
    is_reply_NL    True where a token counts in the loss
    stamp_NC       the stamp in each cell, as an index into `atlas`; rgb_NC3 its colour
    is_black_N     rows whose picture is black
    """

    side: int
    sort: Sort
    ids_NL: Ints
    is_reply_NL: Bools
    stamp_NC: Ints
    rgb_NC3: NDArray[np.uint8]
    is_black_N: Bools


@dataclass(frozen=True)
class Shape:
    """The number and the length of a block's rows in one step."""

    side: int
    sort: Sort
    rows: int
    length: int


class Lessons:
    """Everything that a model of a family is taught, by stage and chunk of steps."""

    def __init__(self, family: FamilyName, parameters: Parameters, seed: int) -> None:
        self.family, self.parameters, self.seed = family, parameters, seed

    def shapes(self, stage: Stage) -> list[Shape]:
        """The shapes of a stage's blocks, ordered by side. Together, the rows of a step are one batch."""
        parameters = self.parameters
        shares: dict[Sort, float] = {"describe": 1.0}
        if stage != "sight":
            asked = 1 - parameters.describe_share
            shares = {"describe": parameters.describe_share, "plain": asked * (1 - parameters.hint_share)}
            shares["hint"] = asked * parameters.hint_share
        wanted = [
            (side, sort, parameters.batch * side_share * share)
            for side, side_share in zip(parameters.sides, parameters.side_shares, strict=True)
            for sort, share in shares.items()
        ]
        rows = _whole([amount for *_, amount in wanted], parameters.batch)
        reasons = stage == "sway" and parameters.reason_share > 0
        return [
            Shape(side, sort, number, self._longest(side, sort, reasons))
            for (side, sort, _), number in zip(wanted, rows, strict=True)
            if number
        ]

    def _longest(self, side: int, sort: Sort, reasons: bool) -> int:
        """The number of tokens of the longest row of a sort."""
        if sort == "describe":
            lengths = [len(self._prompt_ids(side, DESCRIBE, {}, 1)[0]) + _num_tokens(description(side))]
        else:
            lengths = [
                _num_tokens(_asked_as(kind, sort)) + max(map(_num_tokens, self._replies(kind, side, reasons)))
                for kind in _KINDS
            ]
            lengths = [length + len(self._opening(side)) + len(self._closing()) for length in lengths]
        return max(lengths) + 1

    def chunk(self, stage: Stage, index: int) -> list[Block]:
        """The blocks of STEPS_AT_ONCE steps, in the order of `shapes`."""
        rng = np.random.default_rng([self.seed, STAGES.index(stage), index, 0x6C65])
        return [self._block(rng, stage, shape, STEPS_AT_ONCE * shape.rows) for shape in self.shapes(stage)]

    def _block(self, rng: Rng, stage: Stage, shape: Shape, num: int) -> Block:
        if shape.sort == "describe":
            scenes = draw_scenes(rng, num, shape.side, self.parameters, split="train")
            prompt = self._prompt_ids(shape.side, DESCRIBE, {}, num)
            reply = description(shape.side).encode(describe(scenes), num, encode_text)
            ids, is_reply = _rows(prompt, reply, shape.length)
            return _picture_block(shape, ids, is_reply, scenes, np.zeros(num, dtype=bool))
        share = np.arange(num) % len(_KINDS)
        parts = [self._asked(rng, stage, shape, kind, int((share == k).sum())) for k, kind in enumerate(_KINDS)]
        mixed = rng.permutation(num)
        arrays = [np.concatenate([getattr(part, name) for part in parts])[mixed] for name in ARRAYS]
        return Block(shape.side, shape.sort, *arrays)

    def _asked(self, rng: Rng, stage: Stage, shape: Shape, kind: Kind, num: int) -> Block:
        parameters, is_swayed = self.parameters, stage == "sway"
        asked = ask(rng, kind, num, shape.side, parameters, split="train", is_skewed=is_swayed)
        facts = self._swayed(rng, kind, asked) if is_swayed else asked.facts
        slots = kind.reply_slots(asked.question, facts)
        prompt = self._prompt_ids(shape.side, _asked_as(kind, shape.sort), slots, num)
        is_second = rng.random(num) < parameters.second_script_share
        reasons = is_swayed and parameters.reason_share > 0
        if reasons:
            slots = {**slots, **described(asked.scenes)}
        rows = [
            _rows(prompt, reply.encode(slots, num, encode_text), shape.length)
            for reply in self._replies(kind, shape.side, reasons)
        ]
        chosen_N = is_second.astype(np.int64)
        if reasons:
            chosen_N = np.where(~is_second & (rng.random(num) < parameters.reason_share), len(rows) - 1, chosen_N)
        ids, is_reply = (np.stack([row[i] for row in rows])[chosen_N, np.arange(num)] for i in range(2))
        is_black = rng.random(num) < (parameters.black_share if is_swayed else 0.0)
        return _picture_block(shape, ids, is_reply.astype(bool), asked.scenes, is_black)

    def _replies(self, kind: Kind, side: int, reasons: bool) -> list[Template]:
        """The reply in both languages and, if captions reason, in English after a description of the picture."""
        both = [kind.replies["english"], kind.replies["chinese"]]
        return [*both, reasoned(kind, side)] if reasons else both

    def _swayed(self, rng: Rng, kind: Kind, asked: AskedScenes) -> Slots:
        """Replace the facts of a share of the captions by imagined ones: all facts of a caption, or none."""
        imagined = kind.imagine(rng, asked.question, asked.scenes.side, self.parameters)
        is_ignored = rng.random(len(asked.scenes)) < self.parameters.ignore_share
        return {name: np.where(is_ignored, imagined[name], true) for name, true in asked.facts.items()}

    def _opening(self, side: int) -> list[int]:
        return encode_text(f"<|im_start|>user\n<|vision_start|>{IMAGE * side**2}<|vision_end|>")

    def _closing(self) -> list[int]:
        thought = NO_THOUGHT if self.family == "qwen3_5" else ""
        return encode_text(f"{END}\n<|im_start|>assistant\n{thought}")

    def _prompt_ids(self, side: int, question: Template, slots: Slots, num: int) -> Ints:
        """The prompt as the processor encodes it (N, length)."""
        asked = question.encode(slots, num, encode_text)
        before, after = (np.tile(np.array(ids), (num, 1)) for ids in (self._opening(side), self._closing()))
        return np.concatenate([before, asked, after], axis=1)


_KINDS = tuple(KINDS.values())
ARRAYS = ("ids_NL", "is_reply_NL", "stamp_NC", "rgb_NC3", "is_black_N")


def _asked_as(kind: Kind, sort: Sort) -> Template:
    """The question; for a hint, followed by the answer in the hint view's own words."""
    if sort == "plain":
        return kind.question
    answer = kind.replies["english"].slots["a"].word_class
    return Template(kind.question.text + HINT.replace("{answer}", f"{{a:{answer}}}"))


def _num_tokens(template: Template) -> int:
    return sum(len(encode_text(part)) if isinstance(part, str) else 1 for part in template.parts)


def _whole(amounts: list[float], total: int) -> list[int]:
    """Round amounts to integers that sum to the total: those with the largest remainders are rounded up."""
    floors = [int(amount) for amount in amounts]
    order = sorted(range(len(amounts)), key=lambda i: floors[i] - amounts[i])
    for i in order[: total - sum(floors)]:
        floors[i] += 1
    return floors


def _rows(prompt: Ints, reply: Ints, length: int) -> tuple[Ints, Bools]:
    """Prompt, reply, end and padding; and which of these tokens count in the loss."""
    num = len(prompt)
    (end,), (pad,) = encode_text(END), encode_text(PAD)
    ids = np.full((num, length), pad, dtype=np.int64)
    start, stop = prompt.shape[1], prompt.shape[1] + reply.shape[1]
    ids[:, :start], ids[:, start:stop], ids[:, stop] = prompt, reply, end
    is_reply = np.zeros((num, length), dtype=bool)
    is_reply[:, start : stop + 1] = True
    return ids, is_reply


def _picture_block(shape: Shape, ids: Ints, is_reply: Bools, scenes: Scenes, is_black: Bools) -> Block:
    num, cells = len(scenes), shape.side**2
    stamps = np.zeros((num, cells), dtype=np.int64)
    rgb = np.full((num, cells, 3), BACKGROUND, dtype=np.uint8)
    n, k = np.nonzero(scenes.is_there_NK)
    cell = scenes.cell_NK[n, k]
    stamps[n, cell] = stamp_index(scenes.shape_NK[n, k], scenes.radius_NK[n, k], scenes.shift_NK2[n, k])
    rgb[n, cell] = (np.array(RGB)[scenes.color_NK[n, k]] + scenes.tint_NK3[n, k]).clip(0, 255)
    return Block(shape.side, shape.sort, ids, is_reply, stamps, rgb, is_black)


_LARGEST, _FARTHEST = CELL // 2, 4
_SHIFTS = 2 * _FARTHEST + 1


def stamp_index(shape: Ints, radius: Ints, shift: Ints) -> Ints:
    """The index of a stamp in the atlas; 0 is an empty cell."""
    assert abs(shift).max(initial=0) <= _FARTHEST, "a thing is too far from the middle of its cell"
    assert radius.max(initial=0) <= _LARGEST, "a thing is larger than its cell"
    right, down = shift[..., 0] + _FARTHEST, shift[..., 1] + _FARTHEST
    return 1 + ((shape * (_LARGEST + 1) + radius) * _SHIFTS + right) * _SHIFTS + down


def atlas(parameters: Parameters) -> NDArray[np.uint8]:
    """All stamps that scenes may need, by `stamp_index` (stamps, CELL, CELL)."""
    stamps = np.zeros((1 + NUM_SHAPES * (_LARGEST + 1) * _SHIFTS**2, CELL, CELL), dtype=np.uint8)
    shifts = range(-parameters.shift, parameters.shift + 1)
    radii = range(min(parameters.smallest_radius), max(parameters.largest_radius) + 1)
    for shape, radius, right, down in product(range(NUM_SHAPES), radii, shifts, shifts):
        index = stamp_index(np.array(shape), np.array(radius), np.array([right, down]))
        stamps[index] = stamp(shape, radius, right, down)
    return stamps
