"""What a step looks up instead of computing it: vision features, and when they may be."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from PIL import Image

from tiny_groups import gradients
from tiny_models import build_model
from tiny_processor import build_processor
from tiny_shards import shard
from tiny_step import make_batch, make_examples
from vcsd import batch as batch_module
from vcsd.batch import gather, show
from vcsd.method import Method
from vcsd.models.family import family_of
from vcsd.models.features import Constant
from vcsd.models.freeze import freeze
from vcsd.step import Distiller, distill
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
    loss, _ = distill(run, batch, 600, lambda part: part.backward())
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
    assert run.features.has_one_tower(run.student, run.teacher) == is_copy


def test_sharded_towers_are_alike_in_every_step_and_black_images_last(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        run, mesh = distiller(frozen=True), dist.device_mesh.init_device_mesh("cpu", (1,))
        for model in (run.student, run.teacher):
            shard(model, mesh)
        counts = []
        for step in range(3):
            counts.append(one_step(run, step)[1])
            assert run.features.for_student is run.features
        assert counts == [6, 3, 3]
    finally:
        dist.destroy_process_group()


def prepared(model):
    family_of(model).prepare(model)
    return model


def unfrozen(model):
    return copy.deepcopy(model).requires_grad_(True)


def keys(shown):
    batch = gather([shown], [Rollout(shown.example.id, 0, (5, 6), "end")])
    return batch.student[0].image_keys, batch.target[0].image_keys, batch.contrast[0].image_keys


def test_images_are_named_by_what_they_show():
    processor, example = build_processor(), make_examples(1)[0]
    (original,), again, black = keys(show(example, METHOD, processor))
    assert again == [original]
    assert black == [Constant("black")]
    hinted = keys(show(example, Method(target_view="hint"), processor))
    assert hinted == ([original], [original], [Constant("black")]), "a hint leaves the image as it is"
    of_copy = keys(show(replace(example, id="other"), METHOD, processor))
    assert of_copy[0] == [original], "whatever the example is called"
    _, _, (noise,) = keys(show(example, Method(contrast_view="noise"), processor))
    _, _, (other_noise,) = keys(show(replace(example, id="other"), Method(contrast_view="noise"), processor))
    assert len({original, noise, other_noise}) == 3, "noise is drawn for each example"


def test_a_control_of_another_layout_stops_before_it_is_scored(monkeypatch):
    def smaller(example):
        shown = VIEWS["black"](example)
        return replace(shown, images=tuple(image.resize((32, 32)) for image in shown.images))

    example, processor = make_examples(2)[1], build_processor()
    with monkeypatch.context() as patched:
        patched.setattr(batch_module, "VIEWS", {**VIEWS, "black": smaller})
        with pytest.raises(AssertionError, match="view 'black' must change pixel values only"):
            show(example, METHOD, processor)
    show(example, METHOD, processor)


def test_an_added_crop_leaves_the_name_of_the_image_beside_it():
    example = replace(make_examples(1)[0], boxes=((0.0, 0.0, 20.0, 20.0),))
    (original,), (first, crop), black = keys(show(example, Method(target_view="crop_added"), build_processor()))
    assert first == original != crop
    assert len(black) == 2


def test_examples_with_one_id_are_seen_each_for_itself():
    losses = []
    for ids in (("a", "b"), ("a", "a")):
        run = distiller(frozen=True)
        examples = [replace(example, id=name) for example, name in zip(two_colours(), ids, strict=True)]
        shown = [show(example, METHOD, build_processor()) for example in examples]
        batch = gather(shown, [Rollout(name, 0, (5, 6, 7), "end") for name in ids])
        losses.append(distill(run, batch, 4000, lambda loss: loss.backward())[0])
    assert torch.equal(*losses)


def two_colours():
    (example,) = make_examples(1)
    return [replace(example, images=(Image.new("RGB", (64, 64), colour),)) for colour in ("red", "blue")]


@pytest.mark.parametrize("changed", [("student", "teacher"), ("student",), ("teacher",)])
def test_vision_weights_that_are_changed_in_place_are_seen_by_the_next_step(changed):
    run = distiller(frozen=True)
    one_step(run)
    assert run.features.has_one_tower(run.student, run.teacher)
    with torch.no_grad():
        for name in changed:
            for parameter in getattr(run, name).model.visual.parameters():
                parameter.mul_(1.5)
    assert run.features.has_one_tower(run.student, run.teacher) == (len(changed) == 2)
    loss, _ = one_step(run)
    fresh, _ = one_step(Distiller(run.student, run.teacher, run.method, run.end_token_ids))
    assert torch.equal(loss, fresh)
