"""Rollouts to read, in `samples.jsonl`: what was asked and answered, with images named and not embedded."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from PIL.Image import Image

from vcsd.views.original import file_name

if TYPE_CHECKING:
    from os import PathLike

    from vcsd.types import Example, Rollout


def image_reference(image: Image | str | PathLike[str]) -> dict[str, Any]:
    """Where to find an image: its file or, for one that exists in memory only, size and hash of its pixels.

    >>> image_reference("images/42.png")
    {'file': 'images/42.png'}
    """
    if not isinstance(image, Image):
        return {"file": str(image)}
    pixels = hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()
    return {"name": file_name(image), "size": list(image.size), "mode": image.mode, "blake2b": pixels}


def sample_record(step: int, example: Example, rollout: Rollout, text: str) -> dict[str, Any]:
    """One line of `samples.jsonl`."""
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
