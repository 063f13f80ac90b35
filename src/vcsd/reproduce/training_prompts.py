"""The world's training prompts as files, in the format of any other data: JSON Lines and pictures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.checkpoint.whole_file import write_whole
from vcsd.reproduce.experiments import ORDINARY
from vcsd.types import message_texts
from vcsd.views import VIEWS
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.about_colors import COLOR_KINDS
from vcsd.world.questions.examples import training_examples
from vcsd.world.questions.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from vcsd.types import Example
    from vcsd.world.parameters import Parameters

FILE = "train.jsonl"

_SEED = 0
"""All runs of a world see the same prompts."""


@dataclass(frozen=True)
class PromptSet:
    """Which training prompts a run sees: their kinds, whether the text tells the answer, how skewed the scenes are."""

    kinds: tuple[str, ...] = tuple(KINDS)
    tells_answer: bool = False
    is_usual: bool = False
    """Scenes are as skewed as the prior of the base's world."""

    def examples(self, num: int, parameters: Parameters) -> list[Example]:
        """Draw `num` prompts."""
        drawn = training_examples(num, 0, parameters, only=self.kinds, is_skewed=self.is_usual)
        return [VIEWS["hint"](example) for example in drawn] if self.tells_answer else drawn


PROMPT_SETS: Mapping[str, PromptSet] = {
    ORDINARY: PromptSet(),
    "told": PromptSet(tells_answer=True),
    "colors": PromptSet(kinds=tuple(kind.name for kind in COLOR_KINDS)),
    "usual": PromptSet(is_usual=True),
}
"""All sets of training prompts by name."""


def prompts_folder(root: Path, num: int, which: str = ORDINARY, parameters: Parameters = PARAMETERS) -> Path:
    """The folder of `num` prompts of a world. Other numbers, sets and worlds have their own folders."""
    name = f"prompts-{num}-{parameters.digest()}"
    return root / (name if which == ORDINARY else f"{name}-{which}")


def write_prompts(
    folder: str | PathLike[str],
    num: int,
    *,
    which: str = ORDINARY,
    parameters: Parameters = PARAMETERS,
) -> Path:
    """Write `num` prompts with their pictures, unless they exist, and return the path of the table.

    Files are written under a temporary name first, and the table last, so that they are always complete, even if
    several processes write the same prompts while one of them is already reading.
    """
    folder = Path(folder)
    table = folder / FILE
    if table.exists():
        return table
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows, sizes = [], []
    for number, example in enumerate(PROMPT_SETS[which].examples(num, parameters)):
        (image,) = example.images
        assert isinstance(image, Image)
        sizes.append(image.size)
        name = _image_name(number)
        picture = BytesIO()
        image.save(picture, "PNG")
        write_whole(folder / name, picture.getvalue())
        (message,) = example.prompt
        (question,) = message_texts(message)
        row = {"id": example.id, "question": question, "image": name, "answer": example.answer}
        rows.append({**row, "category": example.category})
    for row, other in zip(rows, _others(sizes), strict=True):
        row["control_image"] = None if other is None else _image_name(other)
    return write_whole(table, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _image_name(number: int) -> str:
    return f"images/{number:05}.png"


def _others(sizes: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each picture, the next one of the same size, which the view `given` shows as its control.

    >>> _others([(3, 3), (4, 4), (3, 3), (3, 3)])
    [2, None, 3, 0]
    """
    by_size: dict[tuple[int, int], list[int]] = {}
    for number, size in enumerate(sizes):
        by_size.setdefault(size, []).append(number)
    others: list[int | None] = [None] * len(sizes)
    for numbers in by_size.values():
        for number, following in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
            others[number] = following if following != number else None
    return others
