"""How views edit a prompt: text is added to the last user message, image parts are dropped or added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vcsd.types import Example, Message

Part = dict[str, Any]


def need(example: Example, view: str, column: str) -> str:
    """The text in a column that a view shows; a DataError if the example has none."""
    value: str | None = getattr(example, column)
    if value is None or not value.strip():
        raise DataError(
            example.id,
            f"view {view!r} shows the column {column!r}, but it is empty. Fill it, or choose target_view: original.",
        )
    return value


def append_to_question(example: Example, text: str) -> tuple[Message, ...]:
    """The prompt with text added to the end of its last user message.

    >>> from vcsd.types import Example
    >>> append_to_question(Example(id="a", images=(), prompt=({"role": "user", "content": "How many?"},)), " Look.")
    ({'role': 'user', 'content': 'How many? Look.'},)
    """
    places = [place for place, message in enumerate(example.prompt) if message["role"] == "user"]
    if not places:
        raise DataError(example.id, "the prompt has no user message, so there is no question to add to.")
    last = places[-1]
    return (*example.prompt[:last], _append(example.prompt[last], text), *example.prompt[last + 1 :])


def _append(message: Message, text: str) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content + text}
    if content and content[-1].get("type") == "text":
        return {**message, "content": [*content[:-1], {**content[-1], "text": content[-1]["text"] + text}]}
    return {**message, "content": [*content, {"type": "text", "text": text.lstrip()}]}


def replace_image_parts(
    prompt: tuple[Message, ...], replacement: Callable[[Mapping[str, Any]], list[Part]]
) -> tuple[Message, ...]:
    """The prompt with each image part replaced by other parts; text stays as it is.

    >>> message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}
    >>> replace_image_parts((message,), lambda part: [])
    ({'role': 'user', 'content': [{'type': 'text', 'text': 'How many?'}]},)
    """
    return tuple(
        message if isinstance(message["content"], str) else {**message, "content": _parts(message, replacement)}
        for message in prompt
    )


def _parts(message: Message, replacement: Callable[[Mapping[str, Any]], list[Part]]) -> list[Part]:
    parts: list[Part] = []
    for part in message["content"]:
        parts += replacement(part) if part.get("type") == "image" else [dict(part)]
    return parts
