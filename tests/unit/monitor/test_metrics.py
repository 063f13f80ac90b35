"""Every metric on four positions or four rollouts worked by hand, and the mean of parts is the mean of the whole."""

import math

import pytest
import torch

from vcsd.loss import Statistics
from vcsd.monitor import Sums
from vcsd.types import Rollout


def four_positions(*, contrast=True):
    return Statistics(
        divergence=torch.tensor([0.1, 0.2, 0.3, 0.8]),
        support_size=torch.tensor([1, 2, 3, 10], dtype=torch.int32),
        kl_target_original=torch.tensor([0.0, 0.0, 0.5, 1.5]),
        argmax_changed=torch.tensor([False, False, False, True]),
        student_entropy=torch.tensor([1.0, 2.0, 3.0, 2.0]),
        realised_contrast=torch.tensor([-1.0, 0.0, 2.0, 3.0]) if contrast else None,
    )


BY_HAND = {
    "kl_target_original": 0.5,
    "argmax_changed": 0.25,
    "support_size": 4.0,
    "realised_contrast": 1.0,
    "student_entropy": 2.0,
    "divergence": 0.35,
}


def rollout(token_ids, stop="end"):
    return Rollout(example_id="a", index=0, token_ids=tuple(token_ids), stop=stop)


def test_the_means_of_four_positions():
    sums = Sums()
    sums.add_statistics(four_positions())
    assert sums.means() == pytest.approx(BY_HAND)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_micro_batches_of_any_size_give_the_mean_of_the_whole_step(cut):
    sums = Sums()
    sums.add_statistics(four_positions().rows(0, cut))
    sums.add_statistics(four_positions().rows(cut, 4))
    assert sums.means() == pytest.approx(BY_HAND)


def test_without_a_control_there_is_no_contrast_and_no_zero_in_its_place():
    sums = Sums()
    sums.add_statistics(four_positions(contrast=False))
    assert "realised_contrast" not in sums.means()
    sums.add_statistics(four_positions())
    assert sums.means()["realised_contrast"] == 1.0


def test_the_means_of_four_rollouts():
    sums = Sums()
    sums.add_rollout(rollout(range(10)), "Seven.", {"LATIN"})
    sums.add_rollout(rollout(range(20)), "It is 七.", {"LATIN"})
    sums.add_rollout(rollout([1, 2] * 35, "length"), "no no", {"LATIN"})
    sums.add_rollout(rollout([]), "", {"LATIN"})
    assert sums.means() == {"length": 25.0, "truncated": 0.25, "repetition": 0.25, "language_drift": 0.25}


def test_a_prompt_without_letters_does_not_count_in_language_drift():
    sums = Sums()
    sums.add_rollout(rollout([1]), "七", ())
    assert "language_drift" not in sums.means()
    sums.add_rollout(rollout([1]), "七", {"LATIN"})
    assert sums.means()["language_drift"] == 1.0


def test_a_sum_of_many_small_numbers_keeps_its_digits():
    sums = Sums()
    column = torch.full((2**20,), 0.1)
    sums.add_statistics(Statistics(column, column, column, column > 0, column, None))
    assert sums.means()["divergence"] == pytest.approx(column[0].item(), rel=1e-12)


def test_a_number_that_is_not_finite_is_not_hidden():
    statistics = four_positions()
    statistics.divergence[2] = math.nan
    sums = Sums()
    sums.add_statistics(statistics)
    assert math.isnan(sums.means()["divergence"])
