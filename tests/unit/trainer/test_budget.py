from functools import partial

import pytest
import torch
import torch.distributed as dist

from tiny_processor import build_processor
from tiny_ranks import on_ranks
from tiny_step import make_examples
from vcsd.batch import show
from vcsd.errors import ConfigError
from vcsd.method import METHODS
from vcsd.models.packed.packing import padded_cost
from vcsd.parallel.distress import _wait_for
from vcsd.parallel.ranks import OtherRankError
from vcsd.trainer.budget import LARGEST_BUDGET, Room, agreed_budget, calibrate, fitting, row_tokens, worst_row


@pytest.fixture(scope="module")
def shown():
    processor = build_processor()
    return [show(example, METHODS["opsd"], processor) for example in make_examples(3)]


def rows(shown, max_new_tokens):
    return partial(worst_row, shown, 7, max_new_tokens=max_new_tokens)


def test_a_family_that_repeats_prompts_is_measured_in_what_it_pays(shown):
    room = Room(free=20_000_000, moments=0)
    shared = calibrate(lambda row: 1_000 * row_tokens(row), room, rows(shown, 30))
    padded = calibrate(lambda row: 1_000 * row_tokens(row, padded_cost), room, rows(shown, 30), padded_cost)
    assert shared == padded


def test_the_worst_row_holds_the_longest_prompt_and_full_responses(shown):
    longest = max(each.num_prompt_tokens for each in shown)
    row = worst_row(shown, 7, num_tokens=longest + 100, max_new_tokens=30)
    assert row_tokens(row) == longest + 90
    assert row.num_responses == 3
    assert row_tokens(worst_row(shown, 7, num_tokens=0, max_new_tokens=30)) == longest + 30


def test_the_budget_is_what_fits_beside_adams_moments(shown):
    def measure(row):
        return 1_000_000 + 2_000 * row_tokens(row)

    room = Room(free=30_000_000, moments=8_000_000)
    budget = calibrate(measure, room, rows(shown, 30))
    assert budget % 256 == 0
    assert 1_000_000 + 2_000 * budget <= room.left < 1_000_000 + 2_000 * (budget + 256)


def test_responses_longer_than_both_rows_are_measured_too(shown):
    sizes = []

    def measure(row):
        sizes.append(row_tokens(row))
        return 1000 * sizes[-1]

    calibrate(measure, Room(10**9, 0), rows(shown, 6000))
    assert sizes[1] - sizes[0] == 6000


def test_memory_without_end_has_a_largest_row():
    assert fitting([1000, 2000], [10, 20], Room(10**12, 0)) == LARGEST_BUDGET


def test_too_little_memory_says_what_to_lower(shown):
    with pytest.raises(ConfigError, match=r"Lower model.max_pixels or rollout.max_new_tokens"):
        calibrate(lambda row: 1000 * row_tokens(row), Room(100_000, 0), rows(shown, 30))

    def too_large(row):
        raise torch.OutOfMemoryError("too large")

    with pytest.raises(ConfigError, match="does not fit into the"):
        calibrate(too_large, Room(100_000, 0), rows(shown, 30))


ENOUGH, LITTLE = Room(free=10**12, moments=0), Room(free=1, moments=0)


def refused_on_a_rank(rows, where):
    """Rank 1 has no room; the other measures without trouble, or waits inside the row. Both must be told."""
    is_short = dist.get_rank() == 1

    def measure(row):
        if is_short and where == "in a row":
            raise torch.OutOfMemoryError("no room")
        if where == "in a row":
            _wait_for(dist.all_reduce(torch.ones(1), async_op=True))
        return 1000 * row_tokens(row)

    room = LITTLE if is_short and where == "after the rows" else ENOUGH
    with pytest.raises((ConfigError, OtherRankError), match="does not fit into the remaining"):
        agreed_budget(measure, room, rows.__getitem__, in_step=where == "in a row")


@pytest.mark.parametrize("where", ["in a row", "after the rows"])
def test_a_rank_without_room_is_an_error_on_all_ranks(shown, where):
    rows = {size: worst_row(shown, 10, size, 100) for size in (0, 2048, 4096)}
    on_ranks(2, refused_on_a_rank, rows, where)


def smallest_of_ranks(rows):
    """The second rank has half the memory."""
    room = Room(free=2**32 // (1 + dist.get_rank()), moments=0)
    own = calibrate(lambda row: 100_000 * row_tokens(row), room, rows.__getitem__)
    found = agreed_budget(lambda row: 100_000 * row_tokens(row), room, rows.__getitem__, in_step=False)
    assert (found < own) == (dist.get_rank() == 0)
    assert found <= own


def test_ranks_agree_on_the_smallest_budget(shown):
    on_ranks(2, smallest_of_ranks, {size: worst_row(shown, 10, size, 100) for size in (0, 2048, 4096)})
