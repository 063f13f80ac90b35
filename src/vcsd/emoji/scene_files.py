"""Scenes as files, in the formats of any other data: prompts as JSON Lines to train on, questions as TSV to evaluate.

    python -m vcsd.emoji.scene_files --sprites sprites.safetensors --out scenes

    scenes/train.jsonl, images/     prompts for `vcsd train`; the answer is for methods that show it to their teacher
    scenes/made.json                how many prompts these are, and of which sprites
    scenes/emoji_dev.tsv            questions for `vcsd eval`, all suites in one file, with the suite as category
    scenes/emoji_test.tsv

Answers are whole sentences, so that `vcsd eval` and `vcsd precheck` count an answer in other words as wrong.
`emoji_exam.py` reads the deciding word instead.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.checkpoint.whole_file import write_whole
from vcsd.emoji.emoji_exam import scene_example
from vcsd.emoji.emoji_scenes import ScenePainter
from vcsd.emoji.questions import SUITES, prompt_suites
from vcsd.emoji.sprites import load_sprites, sprites_identity
from vcsd.errors import ConfigError
from vcsd.terminal import exit_on_error
from vcsd.types import message_texts

if TYPE_CHECKING:
    from vcsd.emoji.questions import SceneSplit

PROMPTS = "train.jsonl"
MADE = "made.json"
"""How many prompts there are, and of which sprites."""

NUM_PROMPTS = 3200
NUM_QUESTIONS = 256


def write_prompts_file(painter: ScenePainter, folder: Path, num: int = NUM_PROMPTS) -> Path:
    """Write `num` training prompts with their pictures, unless they exist, and return the path of the table.

    The table is written last and renamed, so that several processes may write the same prompts. Raise a ConfigError if
    the folder holds another number of prompts, or prompts with other sprites.
    """
    table, made = folder / PROMPTS, {"prompts": num, "sprites": sprites_identity(painter.sprites)}
    if table.exists():
        _check_made(folder, made)
        return table
    (folder / "images").mkdir(parents=True, exist_ok=True)
    write_whole(folder / MADE, json.dumps(made) + "\n")
    rows = []
    for number, suite in enumerate(prompt_suites(num)):
        example, _ = scene_example(painter, "train", suite, number)
        name = f"images/{number:05}.png"
        picture = io.BytesIO()
        _image(example.images[0]).save(picture, "PNG")
        write_whole(folder / name, picture.getvalue())
        (question,) = message_texts(example.prompt[0])
        row = {"id": example.id, "question": question, "image": name, "answer": example.answer, "category": suite}
        rows.append(row)
    return write_whole(table, "".join(json.dumps(row) + "\n" for row in rows))


def _check_made(folder: Path, wanted: dict[str, object]) -> None:
    try:
        made = json.loads((folder / MADE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([f"{folder / MADE} cannot be read: {error}. Remove {folder} or choose another."]) from error
    if made != wanted:
        raise ConfigError([f"{folder} was written as {made}, not as {wanted}. Choose another folder."])


def write_questions_file(painter: ScenePainter, path: Path, split: SceneSplit, num: int = NUM_QUESTIONS) -> Path:
    """Write `num` questions of every suite as a TSV with VLMEvalKit's columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["index", "image", "question", "answer", "category"])
        for suite in SUITES:
            for number in range(num):
                example, asked = scene_example(painter, split, suite, number)
                picture = _base64(_image(example.images[0]))
                table.writerow([example.id, picture, asked.text, asked.sentence, suite])
    return path


def _image(image: object) -> Image:
    assert isinstance(image, Image)
    return image


def _base64(image: Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.scene_files", description="Write scenes as files.")
    parser.add_argument("--sprites", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=NUM_PROMPTS)
    parser.add_argument("--questions", type=int, default=NUM_QUESTIONS, help="Per suite and split.")
    options = parser.parse_args()
    with exit_on_error():
        painter = ScenePainter(load_sprites(options.sprites))
        write_prompts_file(painter, options.out, options.prompts)
        splits: tuple[SceneSplit, ...] = ("dev", "test")
        for split in splits:
            write_questions_file(painter, options.out / f"emoji_{split}.tsv", split, options.questions)


if __name__ == "__main__":
    main()
