from functools import partial

import pytest
import torch

from tiny_processor import build_processor
from tiny_step import make_examples
from vcsd.batch import show
from vcsd.errors import ConfigError
from vcsd.method import METHODS
from vcsd.models.packed.packing import padded_cost
from vcsd.trainer.budget import LARGEST_BUDGET, Room, calibrate, fitting, row_tokens, worst_row


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
