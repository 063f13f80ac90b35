"""Open a model for inspection. The offline world has a picture and a question of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PIL import Image

from vcsd.bases.shipped_bases import shipped_base
from vcsd.models.hub import load_to_answer, model_folder, require_image_model
from vcsd.models.processor import load_processor
from vcsd.types import message_texts
from vcsd.world.questions.suites import build_suite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from transformers import PreTrainedModel

    from vcsd.models.processor import Processor

WORLD = "world"
"""In place of a folder: the base that is shipped with the package."""


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A model with its processor, and the name it is shown under."""

    model: PreTrainedModel
    processor: Processor
    name: str
    chat_template_kwargs: Mapping[str, object] = field(default_factory=dict)


def open_model(
    path: str,
    *,
    name: str | None = None,
    max_pixels: int | None = None,
    chat_template_kwargs: Mapping[str, object] | None = None,
) -> OpenedModel:
    """Open a model folder, a hub id or "world": in bfloat16 on a GPU, in float32 on a CPU. Its name is the path."""
    folder = folder_of(path)
    require_image_model(folder)
    processor = load_processor(folder, max_pixels=max_pixels)
    name = path if name is None else name
    return OpenedModel(load_to_answer(folder), processor, name, dict(chat_template_kwargs or {}))


def folder_of(model: str) -> Path:
    """Return the folder of a model, given by its path, by a hub id or as "world"."""
    return shipped_base() if model == WORLD else model_folder(model, key="model")


def world_question() -> tuple[Image.Image, str]:
    """Return a picture of the world and a question about it. The shipped base answers it wrongly, from its prior."""
    (question,) = [one for one in build_suite("mixed", num=12) if one.id == _WORLD_QUESTION]
    (picture,) = question.example.images
    assert isinstance(picture, Image.Image)
    return picture, message_texts(question.example.prompt[-1])[0]


_WORLD_QUESTION = "mixed-same-0001"
