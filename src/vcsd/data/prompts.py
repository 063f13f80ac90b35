"""From the prompt cell of a row to chat messages with a place for each image.

A text becomes one user message. Its literal `<image>` marks become image parts where they stand; a text or messages
without any mark or image part get the images in front of the first user message, as TRL does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcsd.data.skips import RowError

if TYPE_CHECKING:
    from vcsd.types import Message

MARK = "<image>"

Part = dict[str, Any]


def split_at_marks(text: str) -> list[Part]:
    """The parts of a text whose `<image>` marks are images; the text between them is kept to the letter.

    >>> split_at_marks("<image>\\nHow many?")
    [{'type': 'image'}, {'type': 'text', 'text': '\\nHow many?'}]
    """
    pieces = (piece for piece in re.split(f"({MARK})", text) if piece)
    return [{"type": "image"} if piece == MARK else {"type": "text", "text": piece} for piece in pieces]


def build_prompt(row_id: str, cell: Any, num_images: int) -> tuple[Message, ...]:
    """Messages with as many image parts as there are images.

    >>> build_prompt("a", "How many?", 1)
    ({'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': 'How many?'}]},)
    """
    messages = [_with_marks(row_id, message) for message in _messages(row_id, cell)]
    num_places = sum(part.get("type") == "image" for message in messages for part in message["content"])
    if num_places == 0 and num_images:
        _put_in_front(row_id, messages, num_images)
    elif num_places != num_images:
        raise _malformed(row_id, f"its prompt has {num_places} places for images, but it has {num_images} images.")
    return tuple(messages)


def _messages(row_id: str, cell: Any) -> Sequence[Message]:
    if isinstance(cell, str) and cell.strip():
        return ({"role": "user", "content": cell},)
    if not isinstance(cell, list | tuple) or not cell:
        raise _malformed(
            row_id, f"its prompt is {'empty' if not cell else repr(cell)}. Give a text or a list of messages."
        )
    for message in cell:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not message.get("content"):
            raise _malformed(row_id, f"a message needs 'role' and 'content', but one is {message!r}.")
    return cell


def _with_marks(row_id: str, message: Message) -> dict[str, Any]:
    """The message with its content as parts; marks count in the user's words only."""
    content = message["content"]
    if isinstance(content, str):
        parts = split_at_marks(content) if message["role"] == "user" else [{"type": "text", "text": content}]
    elif isinstance(content, list | tuple) and all(isinstance(part, Mapping) for part in content):
        # Arrow gives every part every key: {"type": "image", "text": None}.
        parts = [{key: value for key, value in part.items() if value is not None} for part in content]
    else:
        raise _malformed(row_id, f"message content is a text or a list of parts, not {content!r}.")
    unknown = [part for part in parts if part.get("type") not in ("image", "text")]
    if unknown:
        raise _malformed(row_id, f"a message part is an image or a text, not {unknown[0]!r}.")
    wordless = [part for part in parts if part["type"] == "text" and not isinstance(part.get("text"), str)]
    if wordless:
        raise _malformed(row_id, f"a text part needs 'text', but one is {wordless[0]!r}.")
    return {"role": message["role"], "content": parts}


def _put_in_front(row_id: str, messages: list[dict[str, Any]], num_images: int) -> None:
    for message in messages:
        if message["role"] == "user":
            message["content"] = [*({"type": "image"} for _ in range(num_images)), *message["content"]]
            return
    raise _malformed(row_id, "its prompt has no user message to show the images in.")


def _malformed(row_id: str, message: str) -> RowError:
    return RowError(row_id, message, reason="malformed_row")
