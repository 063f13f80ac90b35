"""The world's training prompts as files, in the format of any other data: JSON Lines and pictures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.types import message_texts
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.examples import training_examples

if TYPE_CHECKING:
    from os import PathLike

FILE = "train.jsonl"


def prompts_folder(root: Path, num: int) -> Path:
    """The folder of `num` prompts of this world. Other numbers and other worlds have their own folders."""
    return root / f"prompts-{num}-{PARAMETERS.digest()}"


def write_prompts(folder: str | PathLike[str], num: int, seed: int = 0) -> Path:
    """Write `num` prompts with their pictures, unless they exist, and return the path of the table.

    Files are written under a temporary name first, and the table last, so that they are always complete, even if
    several processes write the same prompts while one of them is already reading.
    """
    folder = Path(folder)
    table = folder / FILE
    if table.exists():
        return table
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, example in enumerate(training_examples(num, seed)):
        (image,) = example.images
        assert isinstance(image, Image)
        name = f"images/{number:05}.png"
        partial = folder / f"{name}.{os.getpid()}.partial"
        image.save(partial, "PNG")
        partial.replace(folder / name)
        (message,) = example.prompt
        (question,) = message_texts(message)
        rows.append({"id": example.id, "question": question, "image": name, "answer": example.answer})
    partial = table.with_suffix(f".{os.getpid()}.partial")
    partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return partial.replace(table)
