"""Images written as text: base64, alone or in a data URL."""

from __future__ import annotations

import base64
import binascii

from vcsd.data.skips import RowError

_DATA_URL = "data:"
_STARTS = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "Qk", "SUkqA", "TU0AK")
"""How the base64 of JPEG, PNG, GIF, WebP, BMP and TIFF files begins."""

MIN_LENGTH = 100
"""A shorter text is a path: no image file is this small."""


def is_base64(text: str) -> bool:
    """Whether a text is an image in base64 rather than a path.

    >>> is_base64("data:image/png;base64,iVBO"), is_base64("/9j/" + "A" * 200), is_base64("/9j/photos/a.jpg")
    (True, True, False)
    """
    return text[:5].lower() == _DATA_URL or (len(text) >= MIN_LENGTH and text.startswith(_STARTS))


def decode_base64(row_id: str, text: str) -> bytes:
    """Return the bytes of an image in base64, or raise a RowError."""
    if text[:5].lower() == _DATA_URL:
        header, _, text = text.partition(",")
        if not header.lower().endswith(";base64"):
            raise RowError(
                row_id, f"its image is a data URL of kind {header[:40]!r}; write ';base64'.", reason="broken_image"
            )
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RowError(
            row_id, f"its image is broken base64 ({error}). Encode the whole file again.", reason="broken_image"
        ) from error
