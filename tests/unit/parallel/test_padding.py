"""Fillers: every rank has equally many rows, and every row an image if any has one."""

from tiny_groups import TinyPrompt, three_groups
from vcsd.batch import Batch
from vcsd.models.packed.packing import Group
from vcsd.parallel.padding import filled


def batch_of(*groups: Group) -> Batch:
    return Batch(list(groups), list(groups), list(groups))


def without_image(group: Group) -> Group:
    return Group(TinyPrompt(group.prompt.input_ids[:3], None, None, {}, "blind"), group.responses)


def test_missing_rows_are_fillers_of_one_token():
    groups = three_groups("qwen3_vl")
    batch = batch_of(*groups)
    rows = filled(batch, [batch.part([0])], 3)
    assert [row.num_responses for row, _ in rows] == [len(groups[0].responses), 0, 0]
    assert [filler and filler.num_tokens for _, filler in rows] == [None, 1, 1]


def test_a_row_without_images_gets_a_filler_with_one():
    seen = three_groups("qwen3_vl")
    batch = batch_of(without_image(seen[0]), *seen)
    (_, none), (_, filler) = filled(batch, [batch.part([1]), batch.part([0])], 2)
    assert none is None
    assert filler is not None
    assert filler.student[0].prompt.pixel_values is not None
    assert filler.contrast is not None


def test_without_any_image_rows_stay_as_they_are():
    batch = batch_of(*map(without_image, three_groups("qwen3_vl")))
    assert [filler for _, filler in filled(batch, [batch.part([0]), batch.part([1, 2])], 2)] == [None, None]
