"""Splits prompts and groups over ranks so that all have about the same number of tokens.

Every rank knows all sizes and computes the same plan, so nothing has to be exchanged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vcsd.models.packed.packing import PackingPlan, Piece, plan_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcsd.models.packed.packing import Cost, GroupSize


def balanced(sizes: Sequence[int], num_ranks: int, *, evenly: bool = False) -> list[list[int]]:
    """Return the indices of each rank's items, in ascending order: the largest first, each to the rank with the least.

    With `evenly`, the ranks' numbers of items differ by at most one.

    >>> balanced([5, 4, 3, 3, 1], num_ranks=2)
    [[0, 3], [1, 2, 4]]
    """
    most = math.ceil(len(sizes) / num_ranks) if evenly else len(sizes)
    shares: list[list[int]] = [[] for _ in range(num_ranks)]
    loads = [0] * num_ranks
    for item in sorted(range(len(sizes)), key=lambda item: (-sizes[item], item)):
        open_ranks = [rank for rank in range(num_ranks) if len(shares[rank]) < most]
        rank = min(open_ranks, key=lambda rank: (loads[rank], len(shares[rank]), rank))
        shares[rank].append(item)
        loads[rank] += sizes[item]
    return [sorted(share) for share in shares]


def plan_ranks(sizes: Sequence[GroupSize], budget: int, cost: Cost, num_ranks: int) -> list[PackingPlan]:
    """Return the rows of every rank: groups are split over ranks by their tokens, then packed into rows.

    >>> from vcsd.models.packed.packing import GroupSize, shared_cost
    >>> sizes = [GroupSize("a", 10, (3, 4)), GroupSize("b", 10, (5,)), GroupSize("c", 2, (2,))]
    >>> [plan.rows for plan in plan_ranks(sizes, 20, shared_cost, num_ranks=2)]
    [((Piece(group=0, responses=(0, 1)),),), ((Piece(group=1, responses=(0,)), Piece(group=2, responses=(0,))),)]
    """
    if num_ranks == 1:
        return [plan_rows(sizes, budget, cost)]
    shares = balanced([cost([(size.prompt, size.responses)]) for size in sizes], num_ranks)
    return [_renamed(plan_rows([sizes[group] for group in share], budget, cost), share) for share in shares]


def _renamed(plan: PackingPlan, groups: Sequence[int]) -> PackingPlan:
    """The same plan with the groups' numbers in the whole step."""
    return PackingPlan(tuple(tuple(Piece(groups[p.group], p.responses) for p in row) for row in plan.rows))
