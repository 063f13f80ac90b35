"""The contact sheet: a few pictures of each suite, without noise, with their questions and right answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from vcsd.errors import ConfigError
from vcsd.types import message_texts
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.suites import SUITES, build_suite

if TYPE_CHECKING:
    from pathlib import Path

    from vcsd.types import Question

_WIDTH, _PICTURE, _TEXT, _GAP = 236, 160, 88, 8
_MOST_CHARACTERS = 38
_ENOUGH = 8
"""Questions drawn for each one shown, so that all kinds of a suite appear."""
_QUIET = PARAMETERS.changed(["noise=0"])
"""Noise would make the file large."""


def refuse_no_picture(path: Path) -> None:
    """Raise if no picture can be written to a path."""
    if path.is_dir():
        raise ConfigError([f"--out {path} is a folder. Name a picture in it, such as {path / 'world.png'}."])
    if Image.registered_extensions().get(path.suffix.lower()) not in Image.SAVE:
        raise ConfigError([f"--out {path} has no image suffix. Choose a name such as {path.stem}.png."])


def draw_sheet(columns: int) -> Image.Image:
    """Draw one row of pictures per suite."""
    sheet = Image.new("RGB", (_GAP + columns * _WIDTH, len(SUITES) * (_PICTURE + _TEXT + 2 * _GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    for row, name in enumerate(SUITES):
        questions = build_suite(name, num=_ENOUGH * columns, parameters=_QUIET)
        top = row * (_PICTURE + _TEXT + 2 * _GAP) + _GAP
        for column in range(columns):
            question = questions[column * len(questions) // columns]
            _draw_question(sheet, draw, question, (_GAP + column * _WIDTH, top))
    return sheet


def _draw_question(sheet: Image.Image, draw: ImageDraw.ImageDraw, question: Question, corner: tuple[int, int]) -> None:
    picture = question.example.images[0]
    assert isinstance(picture, Image.Image)
    sheet.paste(picture, corner)
    text = message_texts(question.example.prompt[0])[0].replace("\n", "  ")
    lines = "\n".join([question.benchmark, *_wrapped(text), f"-> {question.gold}"])
    left, top = corner
    draw.multiline_text((left, top + picture.height + 4), lines, fill="black", font=ImageFont.load_default(11))


def _wrapped(text: str) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) >= _MOST_CHARACTERS:
            lines.append("")
        lines[-1] += f"{word} "
    return lines
