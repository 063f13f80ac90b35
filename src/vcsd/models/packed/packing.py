"""Groups of responses, and the plan that packs them into rows.

A group is a prompt as the model sees it under one view, with its responses. The plan says which responses of which
groups share a row. It is made once per step, from the longest view, and used for every pass of that step: student and
teacher, original and control all use the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from vcsd.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


class Prompt(Protocol):
    """A prompt under one view, as encoded by the processor: see `encode.Encoded`."""

    @property
    def example_id(self) -> str:
        """The id of the example."""

    @property
    def input_ids(self) -> Tensor:
        """Token ids (P,), image placeholders included."""

    @property
    def pixel_values(self) -> Tensor | None:
        """The patches of the images, or None without images."""

    @property
    def grid_thw(self) -> Tensor | None:
        """Patches of each image in time, height and width (images, 3), in families that have it."""

    @property
    def extra(self) -> Mapping[str, Tensor]:
        """Other tensors that the processor returned."""


@dataclass(frozen=True, eq=False)
class Group:
    """A prompt under one view, and its responses.

    image_keys identify the content of each image for the feature cache; without keys nothing is cached. log_probs are
    those of the sampler, one per token of each response, where a method needs them.
    """

    prompt: Prompt
    responses: Sequence[Sequence[int]]
    image_keys: Sequence[Hashable] = ()
    log_probs: Sequence[Sequence[float]] | None = None

    @property
    def example_id(self) -> str:
        """The id of the example."""
        return self.prompt.example_id

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens in each response."""
        return tuple(len(response) for response in self.responses)

    def only(self, indices: Sequence[int]) -> Group:
        """This group with only some of its responses."""
        log_probs = None if self.log_probs is None else [self.log_probs[i] for i in indices]
        return replace(self, responses=[self.responses[i] for i in indices], log_probs=log_probs)


def refuse_vision_tokens(groups: Sequence[Group], vision_token_ids: frozenset[int]) -> None:
    """Raise a DataError if a group has no response, an empty response, or one with a placeholder for an image."""
    assert groups, "a row without groups"
    for group in groups:
        if not len(group.responses):
            raise DataError(group.example_id, "its group has no responses: there is nothing to score. Leave it out.")
        for index, response in enumerate(group.responses):
            if not len(response):
                raise DataError(group.example_id, f"response {index} has no tokens. A response includes its end token.")
            placeholders = vision_token_ids.intersection(map(int, response))
            if placeholders:
                raise DataError(
                    group.example_id,
                    f"response {index} contains the vision token id {min(placeholders)}, a placeholder for an image. "
                    "Ban these ids in sampling, or drop the response.",
                )


@dataclass(frozen=True)
class Piece:
    """Some responses of one group, by index."""

    group: int
    responses: tuple[int, ...]


@dataclass(frozen=True)
class PackingPlan:
    """The rows of one step, each a tuple of pieces. Every response of every group is in exactly one piece.

    >>> plan = plan_rows([GroupSize("a", 10, (3, 4)), GroupSize("b", 10, (5,))], budget=20)
    >>> plan.rows
    ((Piece(group=0, responses=(0, 1)),), (Piece(group=1, responses=(0,)),))
    """

    rows: tuple[tuple[Piece, ...], ...]

    def select(self, groups: Sequence[Group], row: int) -> list[Group]:
        """The groups of one row, each with only its responses in that row."""
        return [groups[piece.group].only(piece.responses) for piece in self.rows[row]]


@dataclass(frozen=True)
class GroupSize:
    """The size of a group: tokens of the prompt in its longest view, and of each response."""

    example_id: str
    prompt: int
    responses: tuple[int, ...]


def longest_view(views: Sequence[Sequence[Group]]) -> list[GroupSize]:
    """The sizes of groups that occur under several views, in the same order in each: views[v][g]."""
    sizes = []
    for group in zip(*views, strict=True):
        lengths = {view.lengths for view in group}
        assert len(lengths) == 1, f"the responses of {group[0].example_id!r} differ between views"
        sizes.append(
            GroupSize(group[0].example_id, max(len(view.prompt.input_ids) for view in group), group[0].lengths)
        )
    return sizes


Cost = Callable[[Sequence[tuple[int, Sequence[int]]]], int]
"""Tokens of a row, given (prompt length, response lengths) of each of its pieces."""


def shared_cost(pieces: Sequence[tuple[int, Sequence[int]]]) -> int:
    """Tokens of a packed row: each prompt once.

    >>> shared_cost([(10, (3, 4)), (20, (5,))])
    42
    """
    return sum(prompt + sum(responses) for prompt, responses in pieces)


def padded_cost(pieces: Sequence[tuple[int, Sequence[int]]]) -> int:
    """Tokens of the padded batch that the fallback needs: each prompt once per response.

    >>> padded_cost([(10, (3, 4)), (20, (5,))])
    75
    """
    longest = max(prompt + max(responses) for prompt, responses in pieces)
    return longest * sum(len(responses) for _, responses in pieces)


def cached_cost(pieces: Sequence[tuple[int, Sequence[int]]]) -> int:
    """Tokens of two padded batches: each prompt once, then each response once after its prompt's cache.

    >>> cached_cost([(10, (3, 4)), (20, (5,))])
    55
    """
    prompts = len(pieces) * max(prompt for prompt, _ in pieces)
    lengths = [length for _, responses in pieces for length in responses]
    return prompts + len(lengths) * max(lengths)


def plan_rows(sizes: Sequence[GroupSize], budget: int, cost: Cost = shared_cost) -> PackingPlan:
    """Pack groups into rows of at most `budget` tokens: the largest first, each into the first row with room.

    A group that does not fit is split; its prompt is then computed once per part, and the result is still exact. A
    response that does not fit even alone with its prompt is a DataError.
    """
    pieces = [piece for group, size in enumerate(sizes) for piece in _split(group, size, budget, cost)]

    def weight(row: Sequence[Piece]) -> int:
        return cost([(sizes[p.group].prompt, [sizes[p.group].responses[i] for i in p.responses]) for p in row])

    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-weight([piece]), piece.group, piece.responses)):
        for index, row in enumerate(rows):
            joined = _joined(row, piece)
            if weight(joined) <= budget:
                rows[index] = joined
                break
        else:
            rows.append([piece])
    return PackingPlan(tuple(tuple(row) for row in rows))


def _joined(row: Sequence[Piece], piece: Piece) -> list[Piece]:
    """Add a piece to a row. Parts of one group are merged into one piece, so that the row holds their prompt once.

    >>> _joined([Piece(0, (1,)), Piece(2, (0,))], Piece(0, (0,)))
    [Piece(group=0, responses=(0, 1)), Piece(group=2, responses=(0,))]
    """
    if all(own.group != piece.group for own in row):
        return [*row, piece]
    both = (tuple(sorted(own.responses + piece.responses)) if own.group == piece.group else () for own in row)
    return [Piece(own.group, merged or own.responses) for own, merged in zip(row, both, strict=True)]


def _split(group: int, size: GroupSize, budget: int, cost: Cost) -> list[Piece]:
    """The fewest runs of a group's responses that fit into a row each."""
    parts: list[list[int]] = []
    for index, length in enumerate(size.responses):
        if cost([(size.prompt, [length])]) > budget:
            raise DataError(
                size.example_id,
                f"a prompt of {size.prompt} tokens with a response of {length} exceeds the budget of {budget} tokens "
                "per row. Raise the budget, or lower max_pixels or max_new_tokens.",
            )
        fits = parts and cost([(size.prompt, [size.responses[i] for i in parts[-1]] + [length])]) <= budget
        if fits:
            parts[-1].append(index)
        else:
            parts.append([index])
    return [Piece(group, tuple(part)) for part in parts]
