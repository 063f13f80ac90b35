"""Groups of responses, and the plan that packs them into rows.

A group is a prompt as the model sees it under one view, with the responses to it. The plan says which responses of
which groups share a row. It is made once per step, on the longest view, and used for every pass of that step, so that
student and teacher, original and control walk through the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from vcsd.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


class Prompt(Protocol):
    """What the processor makes of a prompt under one view: see `encode.Encoded`."""

    @property
    def example_id(self) -> str:
        """Whose prompt it is."""
        ...

    @property
    def input_ids(self) -> Tensor:
        """Token ids (P,), image placeholders included."""
        ...

    @property
    def pixel_values(self) -> Tensor | None:
        """The images' patches, or None without an image."""
        ...

    @property
    def grid_thw(self) -> Tensor | None:
        """Patches of each image in time, height and width (images, 3), for families that have it."""
        ...

    @property
    def extra(self) -> Mapping[str, Any]:
        """Whatever else the family's processor returned."""
        ...


@dataclass(frozen=True, eq=False)
class Group:
    """A prompt under one view, and the responses to it.

    image_keys names the content of each image, for the cache of vision features; without them nothing is cached.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> prompt = SimpleNamespace(example_id="virl-00042", input_ids=torch.arange(9), pixel_values=None, grid_thw=None)
    >>> group = Group(prompt, responses=((785, 22, 151645), (22, 151645)))
    >>> group.example_id, group.lengths
    ('virl-00042', (3, 2))
    """

    prompt: Prompt
    responses: Sequence[Sequence[int]]
    image_keys: Sequence[Hashable] = ()

    @property
    def example_id(self) -> str:
        """Whose responses they are."""
        return self.prompt.example_id

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens in each response."""
        return tuple(len(response) for response in self.responses)


def refuse_vision_tokens(groups: Sequence[Group], vision_token_ids: frozenset[int]) -> None:
    """Raise a DataError for what cannot be scored: no response, an empty one, one with a placeholder for an image."""
    assert groups, "a row without groups"
    for group in groups:
        if not len(group.responses):
            raise DataError(group.example_id, "its group has no responses: there is nothing to score. Leave it out.")
        for index, response in enumerate(group.responses):
            if not len(response):
                raise DataError(group.example_id, f"response {index} has no tokens. A response includes its end token.")
            found = vision_token_ids.intersection(map(int, response))
            if found:
                raise DataError(
                    group.example_id,
                    f"response {index} contains the vision token id {min(found)}, which stands for an image. "
                    "Ban these ids in sampling, or drop the response.",
                )


@dataclass(frozen=True)
class Piece:
    """Some responses of one group, by index.

    >>> Piece(group=3, responses=(0, 1, 2))
    Piece(group=3, responses=(0, 1, 2))
    """

    group: int
    responses: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The rows of one step: each a tuple of pieces. Every response of every group is in exactly one of them.

    >>> plan = plan_rows([Size("a", 10, (3, 4)), Size("b", 10, (5,))], budget=20)
    >>> plan.rows
    ((Piece(group=0, responses=(0, 1)),), (Piece(group=1, responses=(0,)),))
    """

    rows: tuple[tuple[Piece, ...], ...]

    def select(self, groups: Sequence[Group], row: int) -> list[Group]:
        """The groups of one row, each with its responses of that row only."""
        return [
            replace(groups[piece.group], responses=[groups[piece.group].responses[i] for i in piece.responses])
            for piece in self.rows[row]
        ]

    def order(self, row: int) -> list[tuple[int, int]]:
        """(group, response) of every response of a row, in the order of its scores."""
        return [(piece.group, i) for piece in self.rows[row] for i in piece.responses]


@dataclass(frozen=True)
class Size:
    """What the plan needs to know of a group: tokens of the prompt in its longest view, and of each response.

    >>> Size("virl-00042", prompt=1030, responses=(120, 87)).prompt
    1030
    """

    example_id: str
    prompt: int
    responses: tuple[int, ...]


def longest_view(views: Sequence[Sequence[Group]]) -> list[Size]:
    """The sizes of groups that occur under several views, in the same order in each: views[v][g]."""
    sizes = []
    for group in zip(*views, strict=True):
        lengths = {each.lengths for each in group}
        assert len(lengths) == 1, f"the responses of {group[0].example_id!r} differ between views"
        sizes.append(Size(group[0].example_id, max(len(each.prompt.input_ids) for each in group), group[0].lengths))
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
    """Tokens of the padded batch that a family without an adapter needs: each prompt once per response.

    >>> padded_cost([(10, (3, 4)), (20, (5,))])
    75
    """
    longest = max(prompt + max(responses) for prompt, responses in pieces)
    return longest * sum(len(responses) for _, responses in pieces)


def plan_rows(sizes: Sequence[Size], budget: int, cost: Cost = shared_cost) -> Plan:
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
    return Plan(tuple(tuple(row) for row in rows))


def _joined(row: Sequence[Piece], piece: Piece) -> list[Piece]:
    """A row with one more piece; parts of one group that meet again are one piece, so that their prompt is there once.

    >>> _joined([Piece(0, (1,)), Piece(2, (0,))], Piece(0, (0,)))
    [Piece(group=0, responses=(0, 1)), Piece(group=2, responses=(0,))]
    """
    if all(own.group != piece.group for own in row):
        return [*row, piece]
    both = (tuple(sorted(own.responses + piece.responses)) if own.group == piece.group else () for own in row)
    return [Piece(own.group, met or own.responses) for own, met in zip(row, both, strict=True)]


def _split(group: int, size: Size, budget: int, cost: Cost) -> list[Piece]:
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
