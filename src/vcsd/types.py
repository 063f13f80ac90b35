"""The nouns of the package, in the order in which data flows through it.

    Example -> Rollout -> (View) -> Scores -> Target -> loss -> update

student, teacher   whose weights are used. The teacher is by default a moving average of the student.
view               what is shown: the original image, a control with its content erased, a hint. Not whose weights.
rollout            an answer the student sampled. After sampling it is a fact: the same token ids under every view.
scores             hidden states at the response positions, with the head that turns them into logits.
contrast           how much the image raises a token's log-probability over the control.
support            the tokens plausible given the image.
target             the distribution the student is distilled towards: zero off the support.
divergence         how far the student is from the target, in nats per position.
scorecard          what an evaluation found, with its uncertainty.

Shape legend: N response positions, D hidden width, V vocabulary, S entries on the supports of all N positions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from vcsd.errors import DataError

if TYPE_CHECKING:
    from os import PathLike

    from PIL.Image import Image
    from torch import Tensor

Message = Mapping[str, Any]
"""One chat turn: {"role": "user", "content": "text"}, or with parts:
{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}."""


@dataclass(frozen=True)
class Example:
    """One question about images, and what some methods may additionally show their teacher. Checked when built.

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

    def __post_init__(self) -> None:
        if not self.id or not isinstance(self.id, str):
            raise DataError(
                str(self.id), "an example needs a text as id: rollouts are seeded by it. Add an 'id' column."
            )
        for name in ("images", "prompt", "boxes"):
            object.__setattr__(self, name, _as_tuple(self.id, name, getattr(self, name)))
        for name in ("answer", "demonstration", "feedback"):
            if not isinstance(getattr(self, name), str | None):
                raise DataError(self.id, f"{name} = {getattr(self, name)!r} is not text.")
        for box in self.boxes:
            if not _is_box(box):
                raise DataError(self.id, f"the box {box!r} is not left, top, right, bottom.")
        if not self.prompt:
            raise DataError(self.id, "the prompt has no messages. Give at least one user message.")
        num_places = sum(part.get("type") == "image" for message in self.prompt for part in _parts(self.id, message))
        if num_places != len(self.images):
            raise DataError(
                self.id,
                f"the prompt has places for {num_places} images, but {len(self.images)} are given. "
                'Put one {"type": "image"} part into the message content for each image.',
            )


def _as_tuple(example_id: str, name: str, values: Any) -> tuple[Any, ...]:
    """A frozen copy of a list; a single text, a file's bytes or nothing in its place is an error."""
    if isinstance(values, bytes | bytearray):
        raise DataError(example_id, f"{name} is {type(values).__name__} of {len(values):,} bytes, not a list.")
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise DataError(example_id, f"{name} = {values!r} is not a list.")
    return tuple(values)


def _is_box(box: Any) -> bool:
    """Whether something is four numbers."""
    return isinstance(box, Collection) and len(box) == 4 and all(isinstance(side, Real) for side in box)


def _parts(example_id: str, message: Message) -> Sequence[Mapping[str, Any]]:
    """The parts of a message's content, each an image or a text; a plain string is one text part."""
    if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
        raise DataError(example_id, f"a message needs 'role' and 'content', but one is {message!r}.")
    content = message["content"]
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if not isinstance(content, Sequence) or not all(isinstance(part, Mapping) for part in content):
        raise DataError(example_id, f"message content is a string or a list of parts, not {content!r}.")
    for part in content:
        if part.get("type") not in ("image", "text"):
            raise DataError(example_id, f"a message part is an image or a text, not {part!r}.")
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise DataError(example_id, f"a text part needs 'text', but one is {part!r}.")
    return content


@dataclass(frozen=True)
class Rollout:
    """An answer sampled by the student: its token ids, the end token included, and why it stopped.

    stop is "end" at an end token, "length" at the longest answer allowed, and "broken" where the student's logits were
    not finite: there was nothing to draw, and the last token is an end token that stands for it.

    >>> rollout = Rollout(example_id="virl-00042", index=3, token_ids=(785, 220, 22, 151645), stop="end")
    >>> len(rollout.token_ids), rollout.stop
    (4, 'end')
    """

    example_id: str
    index: int
    token_ids: tuple[int, ...]
    stop: Literal["end", "length", "broken"]

    def __post_init__(self) -> None:
        assert self.stop in ("end", "length", "broken"), f"a rollout does not stop for {self.stop!r}"
        assert self.index >= 0, f"rollout index {self.index}"


@dataclass(frozen=True, eq=False)
class Head:
    """The language-model head: logits = soft_cap(logit_scale * (hidden @ weight.T + bias)).

    >>> import torch
    >>> Head(weight_VD=torch.zeros(151936, 2048)).weight_VD.shape
    torch.Size([151936, 2048])
    """

    weight_VD: Tensor
    bias_V: Tensor | None = None
    logit_scale: float = 1.0
    soft_cap: float | None = None


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model thinks at every response position under one view. Nothing of size positions x vocabulary is kept.

    >>> import torch
    >>> head = Head(weight_VD=torch.zeros(10, 4))
    >>> scores = Scores(hidden_ND=torch.zeros(5, 4), lengths=(2, 3), head=head)      # responses of 2 and 3 tokens
    >>> sum(scores.lengths) == len(scores.hidden_ND)
    True
    """

    hidden_ND: Tensor
    lengths: tuple[int, ...]
    head: Head


@dataclass(frozen=True, eq=False)
class Target:
    """log q* on the plausible support. Sparse and ragged: position i owns the entries offsets[i] to offsets[i + 1].

    >>> import torch
    >>> target = Target(
    ...     token_ids_S=torch.tensor([22, 23, 151645]),
    ...     log_q_S=torch.tensor([0.9, 0.1, 1.0]).log(),
    ...     offsets=torch.tensor([0, 2, 3]),      # two candidates at position 0, one at position 1
    ... )
    >>> target.offsets.diff().tolist()
    [2, 1]
    """

    token_ids_S: Tensor
    log_q_S: Tensor
    offsets: Tensor


@dataclass(frozen=True)
class StepOutput:
    """What one step of the algorithm did.

    >>> StepOutput(loss=0.71, num_responses=256, num_tokens=61234, metrics={"support_size": 2.4}).loss
    0.71
    """

    loss: float
    num_responses: int
    num_tokens: int
    metrics: Mapping[str, float] = field(default_factory=dict)
