"""The one place where messages become token ids and images become patches.

Student, teacher, control and rollout all go through `encode`, so that they cannot disagree on a resize, a chat
template or a token.

encode                 one example, as shown by a view, to model inputs
assert_same_layout     a control must differ from the original in pixel values only
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.errors import DataError, few
from vcsd.models.messages.chat_template import check_switches, render
from vcsd.models.messages.control_tokens import control_tokens, without_marks
from vcsd.models.messages.prompt_length import is_far_longer
from vcsd.models.processor import ImageOnlyQwenProcessor, Processor
from vcsd.types import message_texts
from vcsd.views.original import file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from vcsd.types import Example

_MAX_LISTED = 4
"""Images that an error message lists."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """One example as the model sees it under one view, without padding and without a batch dimension.

    Shape legend: P prompt tokens, I images, K patches of all images, C values per patch.
    """

    example_id: str
    text: str
    input_ids: Tensor
    """(P,)"""
    pixel_values: Tensor | None
    """(K, C); another shape in other families."""
    grid_thw: Tensor | None
    """(I, 3): the patches of each image in time, height and width. None in families that have no such grid."""
    image_sizes: tuple[tuple[int, int], ...]
    """Width and height of each image before the processor resized it."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """Other model inputs as the processor returned them, with a leading batch dimension of 1."""

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def num_images(self) -> int:
        """Number of images."""
        return len(self.image_sizes)


def encode(
    processor: Processor,
    example: Example,
    *,
    max_tokens: int | None = None,
    chat_template_kwargs: Mapping[str, object] | None = None,
) -> Encoded:
    """Turn one example, as shown by a view, into model inputs that end where the response begins.

    `max_tokens` limits the prompt, including its visual tokens. `chat_template_kwargs` are switches of the chat
    template, such as {"enable_thinking": False} for Qwen3.5.
    """
    images = [image for image in example.images if isinstance(image, Image)]
    assert len(images) == len(example.images), f"example {example.id!r}: its images are not loaded. Apply a view first"
    prompt = _rendered(processor, example, chat_template_kwargs or {})
    if max_tokens is not None and is_far_longer(processor.tokenizer, prompt.text, max_tokens):
        raise _over_long(example.id, f"more than {2 * max_tokens}", max_tokens, images)
    # Never truncate, whatever the tokenizer's files say, and add no second start token to the chat template's.
    start, options = processor.tokenizer.bos_token, {"truncation": False}
    if start and prompt.marked.startswith(start):
        options["add_special_tokens"] = False
    with _explained(example.id, images):
        reader = (
            processor if prompt.is_plain else control_tokens(processor).reader(example.id, processor, prompt.messages)
        )
        inputs = dict(reader(text=[prompt.marked], images=images or None, return_tensors="pt", **options))
    inputs.pop("attention_mask", None)
    encoded = Encoded(
        example_id=example.id,
        text=prompt.text,
        input_ids=inputs.pop("input_ids")[0],
        pixel_values=inputs.pop("pixel_values", None),
        grid_thw=inputs.pop("image_grid_thw", None),
        image_sizes=tuple(image.size for image in images),
        extra=inputs,
    )
    _check_encoded(processor, encoded, images, max_tokens)
    return encoded


@contextmanager
def _explained(example_id: str, images: list[Image]) -> Iterator[None]:
    """Turn what a processor raises for one prompt into a DataError."""
    try:
        yield
    except DataError:
        raise
    except BaseException as error:
        # The Rust tokenizer panics on ten million spaces in a row. Its PanicException is not an Exception in Python.
        if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
            raise
        reason = f"the processor refuses it: {str(error).rstrip('.')}. {_shown(images)}"
        raise DataError(example_id, reason, file=_only_file(images)) from error


def _check_encoded(processor: Processor, encoded: Encoded, images: list[Image], max_tokens: int | None) -> None:
    """Raise a DataError unless the prompt is short enough and contains its images."""
    if max_tokens is not None and len(encoded) > max_tokens:
        raise _over_long(encoded.example_id, str(len(encoded)), max_tokens, images)
    image_token_id = getattr(processor, "image_token_id", None)
    if images and image_token_id is not None and not (encoded.input_ids == image_token_id).any():
        raise DataError(encoded.example_id, "its prompt has no image tokens. The chat template drops images.")


def _over_long(example_id: str, num_tokens: str, max_tokens: int, images: list[Image]) -> DataError:
    return DataError(
        example_id,
        f"its prompt has {num_tokens} tokens, {max_tokens} are allowed. {_shown(images)} "
        "Lower max_pixels, shorten the text, or allow more tokens.",
        reason="over_long_prompt",
        file=_only_file(images),
    )


@dataclass(frozen=True)
class _RenderedPrompt:
    """A rendered prompt. `marked` is `text` with marks in and around the data's texts if one has control tokens."""

    text: str
    marked: str
    messages: list[dict[str, object]]

    @property
    def is_plain(self) -> bool:
        """Whether no text of the data contains a control token."""
        return self.marked == self.text


def _rendered(processor: Processor, example: Example, switches: Mapping[str, object]) -> _RenderedPrompt:
    """Render the prompt, with marks if one of its texts contains a control token."""
    check_switches(processor, switches)
    tokens = control_tokens(processor)
    for message in example.prompt:
        tokens.check_role(example.id, message["role"])
    messages: list[dict[str, object]] = [dict(message) for message in example.prompt]
    is_plain = not tokens.are_in(processor, messages)
    if not is_plain:
        messages = tokens.mark(example.id, messages)
    marked = render(processor, example.id, messages, switches)
    prompt = _RenderedPrompt(marked if is_plain else without_marks(marked), marked, messages)
    _check_rendered(processor, example, prompt)
    return prompt


def _check_rendered(processor: Processor, example: Example, prompt: _RenderedPrompt) -> None:
    """Raise a DataError if the chat template dropped text, or has other image or video tokens than the example."""
    try:
        prompt.text.encode()
    except UnicodeEncodeError as error:
        raise DataError(example.id, f"its prompt contains half a surrogate pair: {error.reason}.") from error
    questions = [
        question for message in example.prompt if message["role"] == "user" for question in message_texts(message)
    ]
    for question in questions:
        if question.strip() not in prompt.text:
            raise DataError(
                example.id,
                f"the chat template dropped {question.strip()!r}. It has to accept message content as a list of parts: "
                '[{"type": "image"}, {"type": "text", "text": "..."}].',
            )
    # Only Qwen's image tokens can be counted before they are expanded; other templates may write something else.
    num_fewest = len(example.images) if isinstance(processor, ImageOnlyQwenProcessor) else 0
    for name, fewest, most in (("image_token", num_fewest, len(example.images)), ("video_token", 0, 0)):
        token = getattr(processor, name, None)
        count = 0 if token is None else prompt.marked.count(token)
        if token is None or fewest <= count <= most:
            continue
        what = "adds" if count > most else "drops"
        raise DataError(
            example.id,
            f"its prompt has {token!r} {count} times, for {len(example.images)} images. The chat template {what} "
            f"{'images' if name == 'image_token' else 'videos'}.",
        )


def _only_file(images: list[Image]) -> str | None:
    """The image file of an example with one image, else None."""
    return file_name(images[0]) if len(images) == 1 else None


def _shown(images: list[Image]) -> str:
    """List the images of an example for an error message."""
    if not images:
        return "It has no images."
    return f"Its images: {few([f'{file_name(one)} ({one.width} x {one.height})' for one in images], _MAX_LISTED)}."


def assert_same_layout(original: Encoded, control: Encoded, *, view: str = "control") -> None:
    """Assert that a control differs from the original in pixel values only.

    Sizes, grid and token ids must be equal, and therefore positions. Otherwise the contrast would measure a change of
    layout instead of the content of the image.
    """
    first, second = _layout(original), _layout(control)
    differences = [
        f"{name} {first.get(name)} became {second.get(name)}"
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]
    if not differences and original.input_ids.tolist() != control.input_ids.tolist():
        differences = ["the token ids differ"]
    if differences:
        summary = "; ".join(differences)
        raise AssertionError(
            f"example {original.example_id!r}: view {view!r} must change pixel values only, but {summary}."
        )


def _layout(encoded: Encoded) -> dict[str, object]:
    """What a control must not change, except the token ids, which are too many to print."""
    tensors = {"pixel values": encoded.pixel_values, **encoded.extra}
    return {
        "example": encoded.example_id,
        "image sizes": encoded.image_sizes,
        "grid": None if encoded.grid_thw is None else encoded.grid_thw.tolist(),
        "token count": len(encoded),
        **{f"shape of {name}": tuple(tensor.shape) for name, tensor in tensors.items() if tensor is not None},
    }
