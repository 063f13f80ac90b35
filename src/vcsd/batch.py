"""A step's batch: prompts under every view that the step needs, and the student's responses to them.

Shown   one example as the student and the teacher see it, before there are responses
Batch   the same responses under every view, and how many of them count
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PIL.Image import Image

from vcsd.models.encode import Encoded, assert_same_layout, encode
from vcsd.models.packing import Group, longest_view
from vcsd.models.vision import Constant
from vcsd.views import SAME_LAYOUT, VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from typing import Any

    from vcsd.method import Method
    from vcsd.models.packing import Size
    from vcsd.models.processor import Processor
    from vcsd.types import Example, Rollout


@dataclass(frozen=True, eq=False)
class Shown:
    """One example as each pass of a step sees it: the student's prompt, the teacher's two, `contrast` None without."""

    example: Example
    student: Encoded
    target: Encoded
    contrast: Encoded | None
    contrast_view: str | None
    image_keys: Mapping[str, Sequence[Hashable]] = field(default_factory=dict)
    """For "student", "target" and "contrast", a name for the content of each image; without them nothing is cached."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the longest view's prompt."""
        return max(len(prompt) for prompt in (self.student, self.target, self.contrast) if prompt is not None)


def show(
    example: Example,
    method: Method,
    processor: Processor,
    *,
    max_tokens: int | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> Shown:
    """Encode an example under the views of a method. The control is a control of what the teacher's target view shows.

    Raises DataError for an example that cannot be used.
    """
    method.check(example)

    def encoded(shown: Example) -> Encoded:
        return encode(processor, shown, max_tokens=max_tokens, chat_template_kwargs=chat_template_kwargs)

    original = VIEWS["original"](example)
    student = encoded(original)
    seen = VIEWS[method.target_view](original)
    target = student if method.target_view == "original" else encoded(seen)
    name = _names()
    keys = {"student": name(student, original), "target": name(target, seen)}
    if method.contrast_view is None:
        return Shown(example, student, target, None, None, keys)
    control = VIEWS[method.contrast_view](seen)
    contrast = encoded(control)
    if method.contrast_view in SAME_LAYOUT:
        assert_same_layout(target, contrast, view=method.contrast_view)
    is_black = method.contrast_view == "black"  # the same for every example
    keys["contrast"] = [Constant("black")] * contrast.num_images if is_black else name(contrast, control)
    return Shown(example, student, target, contrast, method.contrast_view, keys)


def _names() -> Callable[[Encoded, Example], Sequence[Hashable]]:
    """What names the images of a prompt by a hash of their content, taken once for each of an example's images."""
    known: dict[int, str] = {}

    def digest(image: Image) -> str:
        if id(image) not in known:
            found = hashlib.blake2b(f"{image.mode} {image.size}".encode(), digest_size=16)
            found.update(image.tobytes())
            known[id(image)] = found.hexdigest()
        return known[id(image)]

    def names(prompt: Encoded, shown: Example) -> Sequence[Hashable]:
        images = [image for image in shown.images if isinstance(image, Image)]
        assert len(images) == len(shown.images), "images are loaded by a view"
        return [] if prompt.grid_thw is None else list(map(digest, images))

    return names


@dataclass(frozen=True, eq=False)
class Batch:
    """What a step trains on. The lists are parallel: one group per prompt, the same responses in each.

    `rollouts` holds all that was sampled; responses without a token are in no group and do not count.
    """

    student: list[Group]
    target: list[Group]
    contrast: list[Group] | None
    rollouts: tuple[Rollout, ...]

    @property
    def num_responses(self) -> int:
        """M: the responses that are trained."""
        return sum(len(group.responses) for group in self.student)

    @property
    def num_tokens(self) -> int:
        """Their tokens."""
        return sum(sum(group.lengths) for group in self.student)

    def sizes(self) -> list[Size]:
        """What the packing plan needs, over the longest view of each prompt."""
        views = (self.student, self.target, self.contrast)
        return longest_view([view for view in views if view is not None])


def gather(shown: Sequence[Shown], rollouts: Sequence[Rollout]) -> Batch:
    """Put the responses to each prompt under its views. Rollouts are in the order of prompts, equally many for each.

    Responses without a token are dropped, and prompts without a response.
    """
    per_prompt = len(rollouts) // max(1, len(shown))
    assert len(rollouts) == per_prompt * len(shown), f"{len(rollouts)} rollouts of {len(shown)} prompts"
    views: dict[str, list[Group]] = {"student": [], "target": [], "contrast": []}
    for index, each in enumerate(shown):
        own = rollouts[index * per_prompt : (index + 1) * per_prompt]
        assert all(rollout.example_id == each.example.id for rollout in own), "rollouts are in another order"
        responses = [rollout.token_ids for rollout in own if rollout.token_ids]
        if not responses:
            continue
        for view, prompt in (("student", each.student), ("target", each.target), ("contrast", each.contrast)):
            if prompt is not None:
                views[view].append(Group(prompt, responses, each.image_keys.get(view, ())))
    return Batch(views["student"], views["target"], views["contrast"] or None, tuple(rollouts))
