"""A family without an adapter: exact through the repeated batch, and it says what that costs."""

from dataclasses import replace

import pytest
import torch

from tiny_groups import gradients, nonlinear_loss, repeated_batch, three_groups, worst_gap
from tiny_models import build_model, exact_arithmetic
from vcsd.errors import DataError
from vcsd.models.family import extra_inputs, family_of
from vcsd.models.packing import longest_view, plan_rows
from vcsd.models.score import score


def test_scores_and_gradients_are_those_of_the_repeated_batch() -> None:
    groups = three_groups("llava")
    model, stock = (build_model("llava", dtype=torch.float64).train() for _ in range(2))
    with pytest.warns(UserWarning, match="no adapter for shared prefixes"):
        family_of(model).prepare(model)
    with exact_arithmetic(model, stock):
        expected = torch.cat(repeated_batch(stock, groups, "llava"))
        nonlinear_loss(expected).backward()
        scores = score(model, groups)
        nonlinear_loss(scores.hidden_ND).backward()
    assert scores.lengths == (9, 3, 17, 1, 6, 70, 2, 2, 5)
    assert (scores.hidden_ND - expected).abs().max() < 1e-12
    assert worst_gap(gradients(model), gradients(stock))[0] < 1e-9


def test_the_plan_counts_the_repeated_prompts() -> None:
    groups = three_groups("llava")
    family = family_of(build_model("llava"))
    sizes = longest_view([groups])
    budget = max(4 * (size.prompt + max(size.responses)) for size in sizes)
    plan = plan_rows(sizes, budget, family.cost)
    assert len(plan.rows) > len(plan_rows(sizes, budget).rows)


def test_vision_tokens_in_a_response_are_refused_here_too() -> None:
    model = build_model("llava")
    (image,) = family_of(model).vision_token_ids(model)
    group = replace(three_groups("llava")[0], responses=[[1, image]])
    with pytest.raises(DataError, match="contains the vision token id"):
        score(model, [group])


def test_extra_inputs_are_padded_where_there_is_one_value_per_token() -> None:
    prompts = [
        replace(group.prompt, extra={"types": torch.ones(1, len(group.prompt.input_ids)), "sizes": torch.ones(2, 2)})
        for group in three_groups("llava")[:2]
    ]
    length = max(len(prompt.input_ids) for prompt in prompts) + 2
    left, right = (extra_inputs(prompts, length, left=left) for left in (True, False))
    assert left["types"].shape == right["types"].shape == (2, length)
    assert left["types"][0].sum() == len(prompts[0].input_ids)
    assert (left["types"][0, -1], left["types"][0, 0], right["types"][0, 0], right["types"][0, -1]) == (1, 0, 1, 0)
    assert left["sizes"].shape == (4, 2)
