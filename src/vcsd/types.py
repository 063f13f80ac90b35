"""The types that data passes through, in order.

    row of a file -> Example -> Encoded -> Shown -> Rollout -> Batch -> Group -> PackedRow -> Scores -> loss -> update
    -> checkpoint -> exported model -> Question -> Prediction -> Verdict -> Scorecard

Example      one question about images, read from a row                              here, built in `vcsd.data`
Encoded      its prompt under one view: token ids and pixels                         `vcsd.models.encode`
Shown        its prompt under every view that a step needs, before sampling          `vcsd.batch`
Rollout      a response that the student sampled, and why it stopped                 here, drawn in `vcsd.rollout`
Batch        a step's prompts under every view, with the same responses in each      `vcsd.batch`
Group        one prompt under one view, with its responses                           `vcsd.models.packed.packing`
PackedRow    several groups in one row of tokens                                     `vcsd.models.qwen.row`
Scores       hidden states at the response positions, with the head                  here, compared in `vcsd.loss`
Question     one question of a benchmark                                             here, read in `vcsd.evaluation`
Prediction   the text a model answered with                                          here
Verdict      the answer read from that text, and whether it is right                 here
Scorecard    the numbers of an evaluation, with intervals                            `vcsd.evaluation.scoring.scorecard`

A few words have one meaning throughout. **Student** and **teacher** say whose weights are used; a **view** is what is
shown to them: the original image, a control with its content erased, a hint. A **rollout** is sampled; its **response**
is the token ids, the same under every view; an **answer** is what a reader extracts from a text. The **contrast** is
how much the image raises a token's log-probability over the control, the **support** the tokens plausible given the
image, the **target** the distribution the student is distilled towards.

Shape legend: N response positions, D hidden width, V vocabulary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, TypeGuard

from vcsd.errors import DataError, shown

if TYPE_CHECKING:
    from os import PathLike

    from PIL.Image import Image
    from torch import Tensor

JsonValue: TypeAlias = "str | int | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""Anything that JSON can hold."""

JsonObject: TypeAlias = Mapping[str, JsonValue]

HALF_PAIR = re.compile("[\ud800-\udfff]")
"""Half a surrogate pair, which no file and no tokenizer can encode."""

_ROLE = re.compile(r"[A-Za-z_]{1,40}")
_MAX_SHOWN = 200


class ImagePart(TypedDict):
    """The place of the next image in a message: {"type": "image"}."""

    type: Literal["image"]


class TextPart(TypedDict):
    """Text in a message: {"type": "text", "text": "How many?"}."""

    type: Literal["text"]
    text: str


MessagePart: TypeAlias = ImagePart | TextPart


class Message(TypedDict):
    """One chat turn: {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}."""

    role: str
    content: list[MessagePart]


@dataclass(frozen=True)
class Example:
    """One question about images, and what some methods may additionally show their teacher. Checked when built.

    The content of a message may be given as plain text; it is stored as a list with one text part.

    >>> Example(
    ...     id="virl-00042",
    ...     images=("images/42.png",),
    ...     prompt=({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many cubes?"}]},),
    ...     answer="7",
    ... ).answer
    '7'
    """

    id: str
    images: Sequence[Image | str | PathLike[str]]
    prompt: Sequence[Message]
    answer: str | None = None
    boxes: Sequence[tuple[float, float, float, float]] = ()
    demonstration: str | None = None
    feedback: str | None = None
    control_images: Sequence[Image | str | PathLike[str]] = ()
    category: str | None = None
    """The topic of the question. Statistics are grouped by it; no model sees it."""

    def __post_init__(self) -> None:
        if not self.id or not isinstance(self.id, str):
            example_id = self.id if isinstance(self.id, str) else shown(self.id)
            raise DataError(example_id, "an example needs a text as id: rollouts are seeded by it. Add an 'id' column.")
        refuse_half_pair(self.id, "id", self.id)
        for name in ("images", "prompt", "boxes", "control_images"):
            object.__setattr__(self, name, _as_tuple(self.id, name, getattr(self, name)))
        for name in ("answer", "demonstration", "feedback", "category"):
            text = getattr(self, name)
            if not isinstance(text, str | None):
                raise DataError(self.id, f"{name} = {shown(text)} is not text.")
            refuse_half_pair(self.id, name, text or "")
        for box in self.boxes:
            if not _is_box(box):
                raise DataError(self.id, f"the box {shown(box)} is not left, top, right, bottom.")
        if not self.prompt:
            raise DataError(self.id, "the prompt has no messages. Give at least one user message.")
        object.__setattr__(self, "prompt", tuple(as_message(self.id, message) for message in self.prompt))
        num_places = sum(part["type"] == "image" for message in self.prompt for part in message["content"])
        if num_places != len(self.images):
            raise DataError(
                self.id,
                f"the prompt has places for {num_places} images, but {len(self.images)} are given. "
                'Put one {"type": "image"} part into the message content for each image.',
            )

    @property
    def text(self) -> str:
        """The text of the prompt, without its images."""
        return "\n".join(text for message in self.prompt for text in message_texts(message))


def refuse_half_pair(example_id: str, name: str, text: str) -> None:
    """Raise a DataError if a text contains half a surrogate pair, which no tokenizer and no file can encode."""
    if half := HALF_PAIR.search(text):
        raise DataError(
            example_id,
            f"its {name} contains half a surrogate pair, U+{ord(half[0]):04X} at character {half.start()}, which is "
            "not text. Correct the row.",
        )


def _as_tuple(example_id: str, name: str, values: object) -> tuple[object, ...]:
    """Return a list as a tuple. Raise a DataError for anything else, such as a single text, bytes or None."""
    if isinstance(values, bytes | bytearray):
        raise DataError(example_id, f"{name} is {type(values).__name__} of {len(values):,} bytes, not a list.")
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise DataError(example_id, f"{name} = {shown(values)} is not a list.")
    return tuple(values)


def _is_box(box: object) -> bool:
    """Whether something is four numbers that fit into a float."""
    if not isinstance(box, Collection) or len(box) != 4 or not all(isinstance(side, Real) for side in box):
        return False
    try:
        return all(math.isfinite(side) for side in box)
    except OverflowError:
        return False


def user_message(text: str, num_images: int = 0) -> Message:
    """Build a user message with the images in front of the text.

    >>> user_message("How many?", num_images=1)
    {'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': 'How many?'}]}
    """
    images: list[MessagePart] = [{"type": "image"} for _ in range(num_images)]
    return {"role": "user", "content": [*images, {"type": "text", "text": text}]}


def message_texts(message: Message) -> list[str]:
    """Return the text of each text part of a message."""
    return [part["text"] for part in message["content"] if part["type"] == "text"]


def as_message(example_id: str, message: object) -> Message:
    """Check one chat turn and return it with its content as parts."""
    if not _has_role_and_content(message):
        raise DataError(example_id, f"a message needs 'role' and 'content', but one is {shown(message, _MAX_SHOWN)}.")
    if not isinstance(message["role"], str) or not _ROLE.fullmatch(message["role"]):
        raise DataError(
            example_id, f"a role is a word such as 'user', 'assistant' or 'system', not {shown(message['role'])}."
        )
    return {**message, "content": _parts(example_id, message["content"])}


def _has_role_and_content(message: object) -> TypeGuard[Message]:
    return isinstance(message, Mapping) and "role" in message and "content" in message


def _parts(example_id: str, content: object) -> list[MessagePart]:
    """Return the parts of a message's content; plain text is one text part."""
    if isinstance(content, str):
        refuse_half_pair(example_id, "prompt", content)
        return [{"type": "text", "text": content}]
    if not isinstance(content, Sequence) or not all(isinstance(part, Mapping) for part in content):
        shown_content = shown(content, _MAX_SHOWN)
        raise DataError(example_id, f"message content is a string or a list of parts, not {shown_content}.")
    return [_checked_part(example_id, part) for part in content]


def _checked_part(example_id: str, part: Mapping[str, object]) -> MessagePart:
    kind, text = part.get("type"), part.get("text")
    if kind not in ("image", "text"):
        raise DataError(example_id, f"a message part is an image or a text, not {shown(part, _MAX_SHOWN)}.")
    allowed = ("type", "text") if kind == "text" else ("type",)
    if others := [key for key, value in part.items() if key not in allowed and value is not None]:
        # Processors load images from other keys, also from the web.
        raise DataError(
            example_id,
            f'a message part of type {kind!r} has the key {shown(others[0])}. An image part is {{"type": "image"}} and '
            "nothing else: the images themselves are given apart, as files or PIL images. Nothing is downloaded.",
        )
    if kind == "image":
        return {"type": "image"}
    if not isinstance(text, str):
        raise DataError(example_id, f"a text part needs 'text', but one is {shown(part, _MAX_SHOWN)}.")
    refuse_half_pair(example_id, "prompt", text)
    return {"type": "text", "text": text}


@dataclass(frozen=True)
class Rollout:
    """A response sampled by the student: its token ids, the end token included, and why it stopped.

    stop is "end" at an end token, "length" at the longest response allowed, and "broken" if the student's logits were
    not finite: then nothing could be drawn, and the last token is an end token in its place. In evaluation it may be
    "cut": the engine had no room for the rest of the response.
    """

    example_id: str
    index: int
    token_ids: tuple[int, ...]
    stop: Literal["end", "length", "broken", "cut"]

    def __post_init__(self) -> None:
        assert self.stop in ("end", "length", "broken", "cut"), f"a rollout does not stop for {self.stop!r}"
        assert self.index >= 0, f"rollout index {self.index}"


@dataclass(frozen=True, eq=False)
class Head:
    """The language-model head: logits = soft_cap(logit_scale * (hidden @ weight.T + bias))."""

    weight_VD: Tensor
    bias_V: Tensor | None = None
    logit_scale: float = 1.0
    soft_cap: float | None = None
    compute_weight_VD: Tensor | None = None
    """A copy of the weight in the dtype of the matrix products; `vcsd.loss.cast_head` makes it."""


@dataclass(frozen=True, eq=False)
class Scores:
    """One model under one view: its hidden state at every response position, and the head that gives the logits.

    The loss forms logits a few rows at a time; nothing of size positions x vocabulary is kept.
    """

    hidden_ND: Tensor
    head: Head


AnswerKind = Literal["option", "yes_no", "integer", "float", "list", "text"]
"""Kinds of answers: a letter of the options, Yes or No, a number, a list of numbers, free text."""


@dataclass(frozen=True)
class Question:
    """One question of a benchmark, its gold answer and the groups it is averaged in.

    >>> prompt = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Is it red?"}]}]
    >>> question = Question(
    ...     example=Example("VD_figure_1_0_1_0", ["figures/0_1.png"], prompt),
    ...     benchmark="HallusionBench",
    ...     kind="yes_no",
    ...     gold="Yes",
    ...     groups={"category": "VD", "l2-category": "VD_figure", "set": "0", "figure": "1", "question": "0"},
    ... )
    >>> question.id, question.gold
    ('VD_figure_1_0_1_0', 'Yes')
    """

    example: Example
    benchmark: str
    kind: AnswerKind
    gold: str
    options: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    """Other cells of the row that scoring or an export needs, such as precision or the raw question."""

    @property
    def id(self) -> str:
        """The question's id within its benchmark."""
        return self.example.id

    @property
    def text(self) -> str:
        """The text of the last message, which asks."""
        return "\n".join(message_texts(self.example.prompt[-1]))

    @property
    def wording(self) -> str:
        """The benchmark's own words, without what a prompt style adds; the text of the last message if it has none."""
        return self.fields.get("question") or self.text


@dataclass(frozen=True)
class Prediction:
    """A model's reply to a question: the text and why it stopped, or the error that prevented it."""

    question_id: str
    text: str
    stop: Literal["end", "length"] | None
    num_tokens: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The answer read from a prediction, and whether it is right. `found` is None if nothing could be read."""

    question_id: str
    found: str | None
    is_right: bool
    by: str
    """The rule or judge that read the answer."""
