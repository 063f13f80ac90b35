"""Edits that views make to a prompt: append text to the last user message, drop or add image parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vcsd.errors import DataError
from vcsd.views.original import original

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vcsd.types import Example, Message, MessagePart


def show_below(example: Example, view: str, column: str, template: str) -> Example:
    """Show the text of a column, inside a template, below the question. Raise a DataError if the column is empty."""
    value: str | None = getattr(example, column)
    if value is None or not value.strip():
        raise DataError(
            example.id,
            f"view {view!r} shows the column {column!r}, but it is empty. Fill it, or choose target_view: original.",
        )
    text = template.format(**{column: value})
    return replace(original(example), prompt=append_to_question(example, text))


def append_to_question(example: Example, text: str) -> tuple[Message, ...]:
    """Return the prompt with text added to the end of its last user message.

    >>> from vcsd.types import Example, user_message
    >>> append_to_question(Example(id="a", images=(), prompt=(user_message("How many?"),)), " Look.")
    ({'role': 'user', 'content': [{'type': 'text', 'text': 'How many? Look.'}]},)
    """
    user_turns = [index for index, message in enumerate(example.prompt) if message["role"] == "user"]
    if not user_turns:
        raise DataError(example.id, "the prompt has no user message, so there is no question to add to.")
    last = user_turns[-1]
    return (*example.prompt[:last], _append(example.prompt[last], text), *example.prompt[last + 1 :])


def _append(message: Message, text: str) -> Message:
    parts = message["content"]
    if parts and parts[-1]["type"] == "text":
        last = parts[-1]
        return {**message, "content": [*parts[:-1], {**last, "text": last["text"] + text}]}
    return {**message, "content": [*parts, {"type": "text", "text": text.lstrip()}]}


def replace_image_parts(prompt: Iterable[Message], replacement: Sequence[MessagePart]) -> tuple[Message, ...]:
    """Return the prompt with each image part replaced by other parts; text stays as it is.

    >>> from vcsd.types import user_message
    >>> replace_image_parts([user_message("How many?", num_images=1)], [])
    ({'role': 'user', 'content': [{'type': 'text', 'text': 'How many?'}]},)
    """
    return tuple({**message, "content": _replaced(message["content"], replacement)} for message in prompt)


def _replaced(parts: Iterable[MessagePart], replacement: Sequence[MessagePart]) -> list[MessagePart]:
    return [new for part in parts for new in (replacement if part["type"] == "image" else [part])]
