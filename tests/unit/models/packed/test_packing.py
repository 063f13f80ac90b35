"""The packing plan: complete, within the budget, the same for every view."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_groups import make_group, make_prompt
from vcsd.errors import DataError
from vcsd.models.packed.packing import GroupSize, PackingPlan, Piece, longest_view, padded_cost, plan_rows, shared_cost

GROUPS = st.lists(st.tuples(st.integers(1, 50), st.lists(st.integers(1, 40), min_size=1, max_size=8)), max_size=12)


def tokens(plan: PackingPlan, sizes: list[GroupSize], row: int, cost=shared_cost) -> int:
    return cost([(sizes[p.group].prompt, [sizes[p.group].responses[i] for i in p.responses]) for p in plan.rows[row]])


@given(GROUPS, st.integers(90, 300), st.sampled_from([shared_cost, padded_cost]))
def test_every_response_is_in_exactly_one_row_and_no_row_exceeds_the_budget(groups, budget, cost) -> None:
    sizes = [GroupSize(f"e{i}", prompt, tuple(responses)) for i, (prompt, responses) in enumerate(groups)]
    plan = plan_rows(sizes, budget, cost)
    placed = sorted((piece.group, i) for row in plan.rows for piece in row for i in piece.responses)
    assert placed == [(g, i) for g, size in enumerate(sizes) for i in range(len(size.responses))]
    assert all(tokens(plan, sizes, row, cost) <= budget for row in range(len(plan.rows)))
    assert all(len({piece.group for piece in row}) == len(row) for row in plan.rows), "a prompt is in a row once"


@given(GROUPS, st.integers(90, 300))
def test_two_rows_that_would_fit_into_one_are_one(groups, budget) -> None:
    sizes = [GroupSize(f"e{i}", prompt, tuple(responses)) for i, (prompt, responses) in enumerate(groups)]
    plan = plan_rows(sizes, budget)
    filled = [tokens(plan, sizes, row) for row in range(len(plan.rows))]
    assert all(a + b > budget for a, b in pairwise(filled))


def test_a_group_too_long_for_a_row_is_split_between_its_responses() -> None:
    plan = plan_rows([GroupSize("a", 10, (5, 5, 5, 5))], budget=20)
    assert plan.rows == ((Piece(0, (0, 1)),), (Piece(0, (2, 3)),))


def test_parts_of_a_group_that_meet_in_a_row_share_its_prompt() -> None:
    plan = plan_rows([GroupSize("a", 5, (20, 80, 10))], 90)
    assert plan.rows == ((Piece(0, (1,)),), (Piece(0, (0, 2)),))


def test_a_response_too_long_for_any_row_is_named() -> None:
    with pytest.raises(DataError, match=r"virl-7.*prompt of 10 tokens with a response of 11 exceeds the budget of 20"):
        plan_rows([GroupSize("virl-7", 10, (5, 11))], budget=20)


def test_the_plan_is_made_on_the_longest_view() -> None:
    original = make_group(make_prompt(num_after=7), (3, 4))
    hinted = make_group(make_prompt(num_after=20), (3, 4))
    (size,) = longest_view([[original], [hinted]])
    assert (size.prompt, size.responses) == (len(hinted.prompt.input_ids), (3, 4))


def test_the_views_must_hold_the_same_responses() -> None:
    with pytest.raises(AssertionError, match="differ between views"):
        longest_view([[make_group(make_prompt(), (3, 4))], [make_group(make_prompt(), (3, 5))]])
