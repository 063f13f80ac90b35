"""Algorithm 1 against the same loss computed the long way: full logits of a repeated padded batch."""

from dataclasses import replace

import pytest
import torch

from tiny_groups import gradients, repeated_batch, worst_gap
from tiny_models import build_model
from tiny_processor import build_processor
from tiny_step import long_way, make_batch, make_examples
from vcsd import step
from vcsd.batch import gather, show
from vcsd.core import log_probs
from vcsd.errors import DataError
from vcsd.method import CHOICES, METHODS, Method
from vcsd.models.family import family_of
from vcsd.models.freeze import freeze
from vcsd.models.patch import open_to_code
from vcsd.step import Distiller, distill
from vcsd.types import Rollout

CASES = {
    **METHODS,
    "noise": replace(METHODS["vcsd"], contrast_view="noise"),
    "no_image": replace(METHODS["vcsd"], contrast_view="no_image"),
    "token_mean": replace(METHODS["vcsd"], reduction="token_mean"),
    "hint_and_black": Method(target_view="hint"),
    **{view: Method(target_view=view) for view in ("crop", "crop_added", "demonstration", "feedback")},
    "crop_alone": Method(target_view="crop", contrast_view=None, alpha=0.0),
}


@pytest.fixture(scope="module")
def world():
    """A student, a teacher with other weights, so that neither can pass for the other, and a processor."""
    student, teacher = build_model(seed=0), build_model(seed=0)
    with torch.no_grad():
        for index, parameter in enumerate(teacher.parameters()):
            generator = torch.Generator().manual_seed(index)
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    for model in (student, teacher):
        family_of(model).prepare(model)
    teacher.requires_grad_(False)
    return student, teacher, build_processor()


def run(student, teacher, batch, method, ends, budget=100_000):
    distiller = Distiller(student, teacher, method, ends)
    loss, statistics = distill(distiller, batch, budget, lambda part: part.backward())
    return loss, gradients(student), statistics


def assert_equals_the_long_way(student, teacher, processor, batch, method):
    ends = family_of(student).end_token_ids(student, processor.tokenizer)
    loss, found, _ = run(student, teacher, batch, method, ends)
    expected = long_way(student, teacher, batch, method, ends)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=2e-5, atol=1e-6)
    gap, where = worst_gap(found, gradients(student))
    assert gap < 2e-3, where


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_the_long_way(world, name):
    student, teacher, processor = world
    method = CASES[name]
    batch = make_batch(student, processor, method, make_examples())
    assert_equals_the_long_way(student, teacher, processor, batch, method)


@pytest.mark.parametrize("budget", [100_000, 216])
def test_rollouts_of_another_model_are_weighed_by_importance(world, budget):
    student, teacher, processor = world
    method = replace(METHODS["opsd_published"], importance_clip=1.05)
    batch = make_batch(teacher, processor, method, make_examples())
    ends = family_of(student).end_token_ids(student, processor.tokenizer)
    loss, found, _ = run(student, teacher, batch, method, ends, budget)
    expected = long_way(student, teacher, batch, method, ends)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=2e-5, atol=1e-6)
    gap, where = worst_gap(found, gradients(student))
    assert gap < 2e-3, where
    unweighted = long_way(student, teacher, batch, replace(method, importance_clip=None), ends)
    assert abs(unweighted.item() - loss.item()) > 1e-3 * loss.item()


@pytest.mark.parametrize("view", CHOICES["target_view"])
def test_a_frozen_tower_keeps_apart_the_images_of_student_and_teacher(view):
    """Features are computed once per image: a crop of the same grid may not pass for the whole, nor the other way."""
    processor, method = build_processor(), Method(target_view=view)
    student = build_model()
    freeze(student, "vision", "projector")
    family_of(student).prepare(student)
    batch = make_batch(student, processor, method, make_examples())
    if view == "crop":
        grids = [[group.prompt.grid_thw.tolist() for group in groups] for groups in (batch.student, batch.target)]
        assert grids[0][0] == grids[1][0], "the first crop has the grid of its picture"
    assert_equals_the_long_way(student, student, processor, batch, method)


@pytest.mark.parametrize("budget", [100_000, 70])
def test_the_contrast_of_what_was_said_is_the_long_ways(world, budget):
    """Token by token: how much more likely the image made each token that was sampled. Prompts may not be mixed up."""
    student, teacher, processor = world
    method = METHODS["vcsd"]
    batch = make_batch(student, processor, method, make_examples())
    head_VD = family_of(teacher).head(teacher).weight_VD
    with torch.no_grad():
        looks = [torch.cat(repeated_batch(teacher, view)) @ head_VD.T for view in (batch.target, batch.contrast)]
        seen_NV, unseen_NV = (log_probs(look_NV, method.temperature) for look_NV in looks)
    said_N1 = torch.tensor([[token] for rollout in batch.rollouts for token in rollout.token_ids])
    expected = (seen_NV - unseen_NV).gather(1, said_N1)[:, 0]
    assert expected.abs().min() > 0
    _, _, statistics = run(student, teacher, batch, method, frozenset(), budget)
    found = torch.cat([part.realised_contrast for part in statistics])
    # sorted: rows put prompts in an order of their own
    torch.testing.assert_close(found.sort().values, expected.sort().values, rtol=1e-3, atol=1e-4)


def test_the_loss_does_not_depend_on_how_the_step_is_cut_into_rows(world):
    student, teacher, processor = world
    method = METHODS["vcsd"]
    batch = make_batch(student, processor, method, make_examples(4))
    ends = family_of(student).end_token_ids(student)
    whole, found, statistics = run(student, teacher, batch, method, ends)
    assert len(statistics) == 1
    counts = set()
    for budget in (130, 70, 40):
        loss, parts, statistics = run(student, teacher, batch, method, ends, budget)
        counts.add(len(statistics))
        assert loss.item() == pytest.approx(whole.item(), rel=1e-6)
        assert worst_gap(parts, found)[0] < 1e-4
        assert sum(len(part.divergence) for part in statistics) == batch.num_tokens
    assert len(counts) == 3
    assert max(counts) > 4  # groups were split too


@pytest.mark.parametrize("swap", ["student and teacher", "views"])
def test_swapping_two_parts_is_noticed(world, swap):
    """That the long way would notice: a loss that cannot tell them apart proves nothing."""
    student, teacher, processor = world
    batch = make_batch(student, processor, METHODS["vcsd"], make_examples())
    ends = family_of(student).end_token_ids(student)
    with torch.no_grad():
        right = long_way(student, teacher, batch, METHODS["vcsd"], ends)
        if swap == "views":
            wrong = long_way(
                student, teacher, replace(batch, target=batch.contrast, contrast=batch.target), METHODS["vcsd"], ends
            )
        else:
            wrong = long_way(teacher, student, batch, METHODS["vcsd"], ends)
    assert abs(right - wrong) > 0.01 * right


@pytest.mark.parametrize("is_cast", [False, True])
def test_a_teacher_that_is_the_student_itself_leaves_its_gradients_whole(world, is_cast):
    """Autocast may reuse casts made without gradient, and is never left if the same one is entered twice."""
    _, _, processor = world
    student, twin = build_model(), build_model()
    for model in (student, twin):
        family_of(model).prepare(model)
        if is_cast:  # as accelerate does
            model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    batch = make_batch(student, processor, METHODS["vcsd"], make_examples(2))
    ends = family_of(student).end_token_ids(student)
    alone, found, _ = run(student, student, batch, METHODS["vcsd"], ends)
    twins, expected, _ = run(student, twin.requires_grad_(False), batch, METHODS["vcsd"], ends)
    assert found.keys() == expected.keys()
    assert worst_gap(found, expected)[0] < 1e-6
    assert torch.equal(alone, twins)
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("is_own_teacher", [False, True])
def test_only_the_students_pass_keeps_what_backward_needs(world, monkeypatch, is_own_teacher):
    student, teacher, processor = world
    batch = make_batch(student, processor, METHODS["vcsd"], make_examples(2))
    original, passes = step.hidden_states, []

    def noted(model, groups, features):
        passes.append(torch.is_grad_enabled())
        return original(model, groups, features)

    monkeypatch.setattr(step, "hidden_states", noted)
    run(student, student if is_own_teacher else teacher, batch, METHODS["vcsd"], frozenset({0}))
    assert passes == [False, False, True]


def test_statistics_of_every_position_come_back(world):
    student, teacher, processor = world
    batch = make_batch(student, processor, METHODS["vcsd"], make_examples())
    _, _, (statistics,) = run(student, teacher, batch, METHODS["vcsd"], family_of(student).end_token_ids(student))
    assert len(statistics.divergence) == batch.num_tokens
    assert statistics.realised_contrast is not None
    assert (statistics.realised_contrast != 0).any()


def test_empty_responses_are_not_counted_and_prompts_without_any_left_out(world):
    _, _, processor = world
    shown = [show(example, METHODS["vcsd"], processor) for example in make_examples(2)]
    ids = [each.example.id for each in shown]
    answers = [(ids[0], (5, 6)), (ids[0], ()), (ids[1], ()), (ids[1], ())]
    rollouts = [Rollout(name, index % 2, tokens, "end") for index, (name, tokens) in enumerate(answers)]
    batch = gather(shown, rollouts)
    assert (batch.num_responses, batch.num_tokens, len(batch.student)) == (1, 2, 1)
    assert len(batch.rollouts) == 4


def test_a_control_is_a_control_of_what_the_teacher_sees(world):
    _, _, processor = world
    shown = show(make_examples(1)[0], CASES["hint_and_black"], processor)
    assert shown.contrast is not None
    assert "Reference answer" in shown.contrast.text
    assert "Reference answer" not in shown.student.text
    assert shown.contrast.pixel_values.std() == 0
    assert shown.target.pixel_values.std() > 0
    assert shown.num_prompt_tokens == len(shown.target) > len(shown.student)


def test_an_example_without_what_the_method_shows_is_refused(world):
    _, _, processor = world
    with pytest.raises(DataError, match="needs an answer"):
        show(replace(make_examples(1)[0], answer=None), METHODS["opsd"], processor)


def test_an_open_model_is_opened_once():
    model = build_model()
    family_of(model).prepare(model)
    forward = model.forward
    open_to_code(model)
    assert model.forward == forward
