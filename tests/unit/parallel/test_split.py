"""Splitting work over ranks: nothing is lost, everybody computes the same plan, and loads are close."""

import pytest

from vcsd.models.packed.packing import GroupSize, padded_cost, shared_cost
from vcsd.parallel.split import balanced, plan_ranks

SIZES = [GroupSize(f"x{i}", 20 + 7 * (i % 5), tuple(3 + (i * j) % 9 for j in range(1, 5))) for i in range(13)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 16])
def test_every_item_belongs_to_one_rank(num_ranks):
    shares = balanced([7, 1, 5, 5, 3, 2, 9], num_ranks)
    assert len(shares) == num_ranks
    assert sorted(item for share in shares for item in share) == list(range(7))


def test_loads_differ_by_at_most_one_item():
    sizes = [7, 1, 5, 5, 3, 2, 9, 4]
    loads = [sum(sizes[item] for item in share) for share in balanced(sizes, 3)]
    assert max(loads) - min(loads) <= max(sizes)
    assert max(loads) == 12


def test_an_even_split_gives_every_rank_as_many_items():
    assert [len(share) for share in balanced([100, 1, 1, 1, 1, 1], 3, evenly=True)] == [2, 2, 2]
    assert [len(share) for share in balanced([100, 1, 1, 1, 1, 1], 3)] == [1, 3, 2]


@pytest.mark.parametrize("cost", [shared_cost, padded_cost])
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_every_response_is_in_one_row_of_one_rank(cost, num_ranks):
    plans = plan_ranks(SIZES, 150, cost, num_ranks)
    found = sorted(
        (piece.group, response) for plan in plans for row in plan.rows for piece in row for response in piece.responses
    )
    assert found == [(group, response) for group, size in enumerate(SIZES) for response in range(len(size.responses))]


def test_more_ranks_than_groups_leave_some_without_rows():
    assert [len(plan.rows) for plan in plan_ranks(SIZES[:1], 150, shared_cost, 3)] == [1, 0, 0]
