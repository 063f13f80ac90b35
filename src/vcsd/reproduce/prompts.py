"""The world's training prompts as files, as any other data would come: JSON Lines and pictures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.world.examples import training_examples
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from os import PathLike

FILE = "train.jsonl"


def prompts_folder(root: Path, num: int) -> Path:
    """Where so many prompts of this world are: other numbers and other worlds have other folders."""
    return root / f"prompts-{num}-{PARAMETERS.digest()}"


def write_prompts(folder: str | PathLike[str], num: int, seed: int = 0) -> Path:
    """Write `num` prompts with their pictures, unless they are there; the table's path.

    Everything is written under another name first, and the table last: what is there is whole, even while several
    processes write the same prompts and one of them reads already.
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
        whole = folder / f"{name}.{os.getpid()}.partial"
        image.save(whole, "PNG")
        whole.replace(folder / name)
        (message,) = example.prompt
        question = next(part["text"] for part in message["content"] if part["type"] == "text")
        rows.append({"id": example.id, "question": question, "image": name, "answer": example.answer})
    beside = table.with_suffix(f".{os.getpid()}.partial")
    beside.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return beside.replace(table)
