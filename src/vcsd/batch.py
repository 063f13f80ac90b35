"""A step's batch: prompts under every view that the step needs, and the student's responses to them.

Shown   one example as the student and the teacher see it, before there are responses
Batch   the same responses under every view, and how many of them count
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vcsd.models.encode import Encoded, assert_same_layout, encode
from vcsd.models.packing import Group, longest_view
from vcsd.models.vision import Constant
from vcsd.views import SAME_LAYOUT, VIEWS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
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
    target_view: str = "original"

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
    if method.contrast_view is None:
        return Shown(example, student, target, None, None, method.target_view)
    contrast = encoded(VIEWS[method.contrast_view](seen))
    if method.contrast_view in SAME_LAYOUT:
        assert_same_layout(target, contrast, view=method.contrast_view)
    return Shown(example, student, target, contrast, method.contrast_view, method.target_view)


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
        views["student"].append(Group(each.student, responses, _image_keys(each.student, "original")))
        views["target"].append(Group(each.target, responses, _image_keys(each.target, _images_of_target(each))))
        if each.contrast is not None and each.contrast_view is not None:
            keys = _image_keys(each.contrast, each.contrast_view)
            views["contrast"].append(Group(each.contrast, responses, keys))
    return Batch(views["student"], views["target"], views["contrast"] or None, tuple(rollouts))


def _images_of_target(shown: Shown) -> str:
    """The view whose images the teacher's target view shows: a hint changes the text alone."""
    one, other = shown.student.pixel_values, shown.target.pixel_values
    is_same = one is other or (one is not None and other is not None and torch.equal(one, other))
    return "original" if is_same else shown.target_view


def _image_keys(prompt: Encoded, view: str) -> list[Hashable]:
    """The names of a prompt's images in the cache of vision features: a black image is the same for every example."""
    if prompt.grid_thw is None:
        return []
    if view == "black":
        return [Constant("black")] * prompt.num_images
    return [(prompt.example_id, index, view) for index in range(prompt.num_images)]
