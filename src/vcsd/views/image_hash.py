"""The one hash of an image's content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from PIL.Image import Image


def image_hash(
    image: Image | bytes,
    *,
    algorithm: Literal["sha256", "blake2b"] = "sha256",
    num_digits: int = 32,
    pixels_only: bool = False,
) -> str:
    """Hash an image's mode, size and pixels, or the bytes of its file, as hexadecimal digits.

    Use the defaults in new code. The arguments exist because hashes of other kinds are stored in files that must stay
    valid: samples.jsonl holds BLAKE2b hashes of the pixels alone, and the groups of questions in scorecards, whose
    order decides the bootstrap's draws, hold 16 digits.

    >>> from PIL import Image
    >>> one, other = (Image.new("L", size) for size in ((2, 3), (3, 2)))
    >>> image_hash(one) == image_hash(other), image_hash(one, pixels_only=True) == image_hash(other, pixels_only=True)
    (False, True)
    """
    content = image if isinstance(image, bytes) else image.tobytes()
    header = b"" if isinstance(image, bytes) or pixels_only else f"{image.mode} {image.size} ".encode()
    digest = hashlib.sha256() if algorithm == "sha256" else hashlib.blake2b(digest_size=num_digits // 2)
    digest.update(header)
    digest.update(content)
    return digest.hexdigest()[:num_digits]
