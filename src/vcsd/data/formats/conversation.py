"""Reads a prompt cell: chat messages, the images inside them, and a reference answer.

Accepted are a text; chat messages with plain or typed content, as TRL, OpenAI and Qwen write them; the turns of
ShareGPT ("from" and "value"); and any of these lists as JSON text, which CSV needs. A final assistant turn is the
labelled answer. It is never shown to the model: it becomes the reference answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from vcsd.data.skips import RowError
from vcsd.errors import shown

ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant"}
"""Names of roles in ShareGPT data, and the role each stands for."""

_KNOWN = ("system", "user", "assistant")
_IMAGE_KEYS = ("image", "path", "url", "image_url", "bytes", "base64")
"""Where a typed part may hold its image."""


class Conversation(NamedTuple):
    """What a prompt cell holds."""

    prompt: object
    """A text or a list of messages, for `build_prompt`."""
    images: tuple[object, ...] = ()
    """The images inside the messages, in order."""
    reference: str | None = None
    """The text of a last assistant turn, which is not part of the prompt."""


def read_conversation(row_id: str, cell: object) -> Conversation:
    """Read a prompt cell. Anything but a text or a list of turns is returned unchanged, for `build_prompt` to judge.

    >>> turns = [{"from": "human", "value": "<image>How many?"}, {"from": "gpt", "value": "7"}]
    >>> read_conversation("a", turns)
    Conversation(prompt=[{'role': 'user', 'content': '<image>How many?'}], images=(), reference='7')
    """
    turns = _turns(cell)
    if turns is None:
        return Conversation(cell)
    messages = [_message(row_id, turn) for turn in turns]
    reference = None
    if len(messages) > 1 and messages[-1]["role"] == "assistant":
        reference = message_text(messages.pop()).strip() or None
    if messages[-1]["role"] != "user":
        raise _malformed(row_id, f"its prompt ends in a turn of {messages[-1]['role']!r}; a user must ask last.")
    images: list[object] = []
    prompt = [_without_images(message, images) for message in messages]
    return Conversation(prompt, tuple(images), reference)


def message_text(message: Mapping[str, object]) -> str:
    """Return the text of a message with plain or typed content."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return content if isinstance(content, str) else ""
    return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))


def _turns(cell: object) -> list[Mapping[str, object]] | None:
    """Return a cell as a list of turns, or None if it is something else."""
    if isinstance(cell, str) and cell.lstrip().startswith("[{"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return None
    if isinstance(cell, Mapping):  # one message without a list around it
        cell = [cell]
    if not isinstance(cell, list | tuple) or not cell or not all(_is_turn(turn) for turn in cell):
        return None
    return list(cell)


def _is_turn(turn: object) -> bool:
    return isinstance(turn, Mapping) and (isinstance(turn.get("role"), str) or isinstance(turn.get("from"), str))


def _message(row_id: str, turn: Mapping[str, object]) -> dict[str, object]:
    """Return a turn as a message with one of the known roles."""
    given = str(turn["role"] if turn.get("role") is not None else turn["from"])
    role = ROLES.get(given.lower(), given.lower())
    if role not in _KNOWN:
        raise _malformed(row_id, f"the role {shown(given)} is not known. Allowed: {', '.join((*_KNOWN, *ROLES))}.")
    content = turn.get("content") if turn.get("content") is not None else turn.get("value")
    return {"role": role, "content": content}


def _without_images(message: Mapping[str, object], images: list[object]) -> dict[str, object]:
    """Move the images inside a message to a list, and leave a plain image part in the place of each."""
    content = message["content"]
    if not isinstance(content, list | tuple):
        return dict(message)
    parts: list[object] = []
    for part in content:
        image = _image_of(part)
        if image is not None:
            images.append(image)
        parts.append(part if image is None else _without_image(part))
    return {**message, "content": parts}


def _without_image(part: Mapping[str, object]) -> dict[str, object]:
    """Return the place of an image; unknown keys stay, for the check of messages to reject."""
    return {**{key: value for key, value in part.items() if key not in _IMAGE_KEYS}, "type": "image"}


def _image_of(part: object) -> object:
    """Return the image that a typed part holds, or None."""
    if not isinstance(part, Mapping) or part.get("type") not in ("image", "image_url", "input_image"):
        return None
    image = next((part[key] for key in _IMAGE_KEYS if part.get(key) is not None), None)
    return image["url"] if isinstance(image, Mapping) and isinstance(image.get("url"), str) else image


def _malformed(row_id: str, message: str) -> RowError:
    return RowError(row_id, message, reason="malformed_row")
