"""A step's batch: prompts under every view that the step needs, and the student's responses to them.

Shown   one example's prompt as the student and the teacher see it, before sampling
Batch   the prompts of a step under every view, with the same responses in each
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from PIL.Image import Image

from vcsd.core import response_weights, token_weights
from vcsd.models.encode import Encoded, assert_same_layout, encode
from vcsd.models.features import Constant
from vcsd.models.packed.packing import Group, longest_view
from vcsd.views import SAME_LAYOUT, VIEWS
from vcsd.views.image_hash import image_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from typing import Any

    from torch import Tensor

    from vcsd.method import Method
    from vcsd.models.packed.packing import GroupSize, PackingPlan
    from vcsd.models.processor import Processor
    from vcsd.types import Example, Rollout


@dataclass(frozen=True, eq=False)
class Shown:
    """One example as each pass of a step sees it: the student's prompt, and the teacher's one or two.

    The student is shown the original view; the teacher `Method.target_view` and, unless it is None, `contrast_view`.
    """

    example: Example
    student: Encoded
    target: Encoded
    contrast: Encoded | None
    contrast_view: str | None
    image_keys: Mapping[str, Sequence[Hashable]] = field(default_factory=dict)
    """For "student", "target" and "contrast", a key for the content of each image; without keys nothing is cached."""

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt tokens of the longest view."""
        return max(len(prompt) for prompt in (self.student, self.target, self.contrast) if prompt is not None)


def show(
    example: Example,
    method: Method,
    processor: Processor,
    *,
    max_tokens: int | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> Shown:
    """Encode an example under the views of a method. The contrast view erases the images of the target view.

    Raises a DataError if the example cannot be used.
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
    """Return a function that names the images of a prompt by hashes of their content, each computed once."""
    known: dict[int, str] = {}

    def digest(image: Image) -> str:
        if id(image) not in known:
            known[id(image)] = image_hash(image, algorithm="blake2b")
        return known[id(image)]

    def names(prompt: Encoded, shown: Example) -> Sequence[Hashable]:
        images = [image for image in shown.images if isinstance(image, Image)]
        assert len(images) == len(shown.images), "images are loaded by a view"
        return [] if prompt.grid_thw is None else list(map(digest, images))

    return names


@dataclass(frozen=True, eq=False)
class Batch:
    """What a step trains on. The lists are parallel: one group per prompt, the same responses in each.

    `student`, `target` and `contrast` are the prompts under the views of the same names in `Shown`.
    `rollouts` holds everything that was sampled. Empty responses are in no group and do not count.
    """

    student: list[Group]
    target: list[Group]
    contrast: list[Group] | None
    rollouts: tuple[Rollout, ...] = ()
    version: str | None = None
    """The version of the weights that a separate engine sampled with; None if the student itself sampled."""

    @property
    def num_responses(self) -> int:
        """M: the responses that are trained on."""
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """N: the tokens of these responses."""
        return sum(self.lengths)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each response, in the order of the groups."""
        return [length for group in self.student for length in group.lengths]

    @property
    def token_ids(self) -> list[int]:
        """The tokens of all responses, end to end."""
        return [token for group in self.student for response in group.responses for token in response]

    @property
    def log_probs(self) -> list[float] | None:
        """The sampler's log-probabilities of these tokens; None if they were not recorded."""
        if any(group.log_probs is None for group in self.student):
            return None
        return [log_p for group in self.student for response in group.log_probs or () for log_p in response]

    def sizes(self) -> list[GroupSize]:
        """Return what the packing plan needs: the size of each prompt in its longest view, and of its responses."""
        views = (self.student, self.target, self.contrast)
        return longest_view([view for view in views if view is not None])

    def weights_of(self, row: Batch, method: Method, num_ranks: int = 1) -> Tensor:
        """The factor of each position of a row in the loss of this whole step."""
        lengths = torch.tensor(row.lengths, dtype=torch.long)
        scale = method.loss_factor
        if method.reduction == "response_mean":
            return response_weights(lengths, num_responses=self.num_responses, loss_scale=scale, num_ranks=num_ranks)
        return token_weights(lengths, num_tokens=self.num_tokens, loss_scale=scale, num_ranks=num_ranks)

    def part(self, groups: Sequence[int]) -> Batch:
        """Some of the groups, by number, under the same views."""
        contrast = None if self.contrast is None else [self.contrast[group] for group in groups]
        return Batch([self.student[group] for group in groups], [self.target[group] for group in groups], contrast)

    def joined(self, other: Batch) -> Batch:
        """These groups followed by those of another batch, under the same views."""
        contrast = None if self.contrast is None else [*self.contrast, *(other.contrast or [])]
        return Batch([*self.student, *other.student], [*self.target, *other.target], contrast)

    def rows(self, plan: PackingPlan) -> Iterator[Batch]:
        """The batch of each packed row, under the same views."""
        for row in range(len(plan.rows)):
            contrast = None if self.contrast is None else plan.select(self.contrast, row)
            yield Batch(plan.select(self.student, row), plan.select(self.target, row), contrast)


def gather(
    prompts: Sequence[Shown], rollouts: Sequence[Rollout], log_probs: Sequence[Sequence[float]] | None = None
) -> Batch:
    """Group the responses to each prompt under its views. Rollouts are in the order of prompts, equally many for each.

    Drops empty responses, and prompts without a response. `log_probs` are those of each rollout's tokens, if recorded.
    """
    per_prompt = len(rollouts) // max(1, len(prompts))
    assert len(rollouts) == per_prompt * len(prompts), f"{len(rollouts)} rollouts of {len(prompts)} prompts"
    views: dict[str, list[Group]] = {"student": [], "target": [], "contrast": []}
    for index, prompt in enumerate(prompts):
        own = rollouts[index * per_prompt : (index + 1) * per_prompt]
        assert all(rollout.example_id == prompt.example.id for rollout in own), "rollouts are in another order"
        responses = [rollout.token_ids for rollout in own if rollout.token_ids]
        own_logs = None if log_probs is None else log_probs[index * per_prompt : (index + 1) * per_prompt]
        kept_logs = None if own_logs is None else [logs for logs in own_logs if len(logs)]
        if not responses:
            continue
        for view, encoded in (("student", prompt.student), ("target", prompt.target), ("contrast", prompt.contrast)):
            if encoded is not None:
                views[view].append(Group(encoded, responses, prompt.image_keys.get(view, ()), kept_logs))
    return Batch(views["student"], views["target"], views["contrast"] or None, tuple(rollouts))
