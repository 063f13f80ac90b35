"""Records of `samples.jsonl`: prompts and responses for people to read. Images are named, not embedded.

thumbnails   paths of small copies of the images, in the run's folder
tokens       the text of each token of the response, up to MOST_TOKENS
contrast     how many nats the image added to each of these tokens, as the loss saw it; absent without a control
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.views.image_hash import image_hash
from vcsd.views.original import file_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from vcsd.monitor.token_texts import TokenTexts
    from vcsd.types import Example, JsonObject, Rollout

MOST_TOKENS = 1024
"""Tokens of a response that are stored with their contrast."""


def image_reference(image: Image | str | PathLike[str]) -> JsonObject:
    """Return the file of an image, or size and pixel hash of an image that exists only in memory."""
    if not isinstance(image, Image):
        return {"file": str(image)}
    pixels = image_hash(image, algorithm="blake2b", pixels_only=True)
    return {"name": file_name(image), "size": list(image.size), "mode": image.mode, "blake2b": pixels}


def contrast_record(token_ids: Sequence[int], contrast: Sequence[float] | None, texts: TokenTexts) -> JsonObject:
    """Return the tokens of a response with their contrasts, in nats to four digits; nothing without a contrast."""
    if contrast is None:
        return {}
    tokens = [texts.of(token_id) for token_id in token_ids[:MOST_TOKENS]]
    return {"tokens": tokens, "contrast": [round(value, 4) for value in contrast[:MOST_TOKENS]]}


def sample_record(step: int, example: Example, rollout: Rollout, text: str) -> dict[str, object]:
    """Build one line of `samples.jsonl`, without its contrast and thumbnails."""
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
