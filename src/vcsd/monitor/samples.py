"""Records of `samples.jsonl`: prompts and responses for people to read. Images are named, not embedded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.views.image_hash import image_hash
from vcsd.views.original import file_name

if TYPE_CHECKING:
    from os import PathLike

    from vcsd.types import Example, JsonObject, Rollout


def image_reference(image: Image | str | PathLike[str]) -> JsonObject:
    """Return the file of an image, or size and pixel hash of an image that exists only in memory."""
    if not isinstance(image, Image):
        return {"file": str(image)}
    pixels = image_hash(image, algorithm="blake2b", pixels_only=True)
    return {"name": file_name(image), "size": list(image.size), "mode": image.mode, "blake2b": pixels}


def sample_record(step: int, example: Example, rollout: Rollout, text: str) -> dict[str, object]:
    """Build one line of `samples.jsonl`."""
    return {
        "step": step,
        "example_id": example.id,
        "index": rollout.index,
        "prompt": [dict(message) for message in example.prompt],
        "images": [image_reference(image) for image in example.images],
        "answer": example.answer,
        "response": text,
        "num_tokens": len(rollout.token_ids),
        "stop": rollout.stop,
    }
