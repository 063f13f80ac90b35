"""Chat messages with a place for each image, built from the prompt cell of a row.

A text becomes one user message, and every literal `<image>` mark in it becomes an image part. If a text or a list of
messages has neither marks nor image parts, the images go in front of the first user message, as in TRL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vcsd.data.skips import RowError, reason
from vcsd.errors import shown
from vcsd.types import as_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.types import Message, MessagePart

MARK = "<image>"


def split_at_marks(text: str) -> list[MessagePart]:
    """Split a text into parts: each `<image>` mark becomes an image, the text around it stays verbatim.

    >>> split_at_marks("<image>\\nHow many?")
    [{'type': 'image'}, {'type': 'text', 'text': '\\nHow many?'}]
    """
    pieces = (piece for piece in re.split(f"({MARK})", text) if piece)
    return [{"type": "image"} if piece == MARK else {"type": "text", "text": piece} for piece in pieces]


def build_prompt(row_id: str, cell: object, num_images: int) -> tuple[Message, ...]:
    """Build messages with as many image parts as there are images.

    >>> build_prompt("a", "How many?", 1)
    ({'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': 'How many?'}]},)
    """
    messages = [_with_marks(row_id, message) for message in _messages(row_id, cell)]
    num_places = sum(part["type"] == "image" for message in messages for part in message["content"])
    if num_places == 0 and num_images:
        _put_in_front(row_id, messages, num_images)
    elif num_places != num_images:
        raise _malformed(row_id, f"its prompt has {num_places} places for images, but it has {num_images} images.")
    return tuple(messages)


def _messages(row_id: str, cell: object) -> Sequence[Mapping[str, object]]:
    if isinstance(cell, str) and cell.strip():
        return ({"role": "user", "content": cell},)
    if not isinstance(cell, list | tuple) or not cell:
        raise _malformed(
            row_id, f"its prompt is {shown(cell, 200) if cell else 'empty'}. Give a text or a list of messages."
        )
    for message in cell:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not message.get("content"):
            problem = "has an empty 'content'" if _is_empty(message) else "needs 'role' and 'content'"
            raise _malformed(row_id, f"a message {problem}: {shown(message, 200)}.")
    return cell


def _is_empty(message: object) -> bool:
    return isinstance(message, Mapping) and isinstance(message.get("role"), str) and message.get("content") in ("", [])


def _with_marks(row_id: str, message: Mapping[str, object]) -> Message:
    """Return the message with its content as parts. Marks count in user messages only."""
    content = message["content"]
    if isinstance(content, str) and message["role"] == "user":
        content = split_at_marks(content)
    elif isinstance(content, list | tuple):
        # Arrow gives every part every key: {"type": "image", "text": None}.
        content = [_without_nulls(part) if isinstance(part, Mapping) else part for part in content]
    with reason("malformed_row"):
        return as_message(row_id, {"role": message["role"], "content": content})


def _without_nulls(part: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in part.items() if value is not None}


def _put_in_front(row_id: str, messages: list[Message], num_images: int) -> None:
    for message in messages:
        if message["role"] == "user":
            images: list[MessagePart] = [{"type": "image"} for _ in range(num_images)]
            message["content"] = [*images, *message["content"]]
            return
    raise _malformed(row_id, "its prompt has no user message to show the images in.")


def _malformed(row_id: str, message: str) -> RowError:
    return RowError(row_id, message, reason="malformed_row")
