"""What a step looks up instead of computing it: vision features, and when they may be."""

import copy
from dataclasses import replace

import pytest
import torch

from tiny_groups import gradients
from tiny_models import build_model
from tiny_processor import build_processor
from tiny_step import make_batch, make_examples
from vcsd.batch import Shown, gather, show
from vcsd.method import Method
from vcsd.models.encode import encode
from vcsd.models.family import family_of
from vcsd.models.freeze import freeze
from vcsd.models.vision import Constant
from vcsd.step import Distiller, distil
from vcsd.types import Rollout
from vcsd.views import VIEWS

METHOD = Method()


def distiller(*, frozen, teacher=None):
    student = build_model()
    if frozen:
        freeze(student, "vision", "projector")
    family = family_of(student)
    family.prepare(student)
    teacher = copy.deepcopy(student) if teacher is None else teacher
    return Distiller(student, teacher.eval().requires_grad_(False), METHOD, family.end_token_ids(student))


def one_step(run, step=0):
    batch = make_batch(run.student, build_processor(), METHOD, make_examples(3), step)
    before = run.features.num_computed
    loss, _ = distil(run, batch, 600, lambda part: part.backward())
    return loss, run.features.num_computed - before


def kept(run):
    return len(run.features._of_step), len(run.features._constant)


def test_black_images_are_computed_once_for_all_steps_while_the_tower_is_frozen():
    run = distiller(frozen=True)
    assert [one_step(run, step)[1] for step in range(3)] == [3 + 3, 3, 3], "three originals, and three black grids once"
    assert kept(run) == (0, 3)


def test_nothing_is_held_after_a_step_that_trains_the_tower():
    run = distiller(frozen=False)
    assert [one_step(run, step)[1] for step in range(2)] == [6, 6]
    assert kept(run) == (0, 0)


def test_black_features_of_a_tower_that_has_moved_are_not_read_again():
    run = distiller(frozen=True)
    one_step(run)
    run.student.model.visual.requires_grad_(True)
    assert one_step(run)[1] == 6
    run.student.model.visual.requires_grad_(False)
    assert one_step(run)[1] == 6


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_student_reads_the_features_of_its_copy_and_not_of_another_model(is_copy):
    run = distiller(frozen=True, teacher=None if is_copy else prepared(build_model(seed=1)))
    loss, _ = one_step(run)
    found = gradients(run.student)
    fresh = replace(run, student=unfrozen(run.student))  # a tower that trains reads nothing
    expected, _ = one_step(fresh)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    wanted = gradients(fresh.student)
    assert all(torch.allclose(grad, wanted[name], rtol=1e-3, atol=1e-6) for name, grad in found.items())
    assert run.has_one_tower == is_copy


def prepared(model):
    family_of(model).prepare(model)
    return model


def unfrozen(model):
    return copy.deepcopy(model).requires_grad_(True)


def keys(shown):
    batch = gather([shown], [Rollout(shown.example.id, 0, (5, 6), "end")])
    return batch.student[0].image_keys, batch.target[0].image_keys, batch.contrast[0].image_keys


def test_images_are_named_by_the_view_that_shows_them():
    processor, example = build_processor(), make_examples(1)[0]
    original = ("tiny-0", 0, "original")
    assert keys(show(example, METHOD, processor)) == ([original], [original], [Constant("black")])
    hinted = keys(show(example, Method(target_view="hint"), processor))
    assert hinted == ([original], [original], [Constant("black")]), "a hint leaves the image as it is"
    student, target = encode(processor, example), encode(processor, VIEWS["blur"](VIEWS["original"](example)))
    shown = Shown(example, student, target, student, "noise", "blur")
    assert keys(shown) == ([original], [("tiny-0", 0, "blur")], [("tiny-0", 0, "noise")])
