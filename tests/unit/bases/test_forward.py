"""The fast forward pass equals transformers' own, and a step is the same with blocks together or one by one."""

import pytest
import torch
from torch.nn import functional

from vcsd.bases.forward import Forward, Painter, gather, place
from vcsd.bases.lessons import Lessons
from vcsd.bases.recorded import Work, in_bfloat16
from vcsd.bases.tiny_models import build_model
from vcsd.bases.tokenizer import IMAGE, token_id
from vcsd.world.parameters import PARAMETERS

FEW = PARAMETERS.changed(["batch=24"])
DEVICE = torch.device("cpu")


def rows_of(family, groups):
    lessons = Lessons(family, FEW, 3)
    shapes = lessons.shapes("answer")
    blocks = [place(block, DEVICE).step(1, s.rows) for block, s in zip(lessons.chunk("answer", 0), shapes, strict=True)]
    order = [list(range(len(shapes)))] if groups == "together" else [[i] for i in range(len(shapes))]
    rows = gather(
        Painter(FEW, DEVICE), [[blocks[i] for i in group] for group in order], torch.Generator().manual_seed(1)
    )
    return rows, [[shapes[i] for i in group] for group in order]


def loss_of(model, family, groups):
    rows, shapes = rows_of(family, groups)
    return sum(Forward(model, own).loss(each)[0] for own, each in zip(shapes, rows, strict=True))


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_blocks_together_or_one_by_one_give_the_same_gradient(family):
    gradients = []
    for groups in ("together", "apart"):
        model = build_model(family, "tiny", seed=2)
        loss_of(model, family, groups).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert gradients[0].norm() > 0.1
    assert (gradients[0] - gradients[1]).norm() < 1e-4 * gradients[0].norm()


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_the_loss_is_that_of_the_model_called_as_anyone_would(family):
    (rows,), (shapes,) = rows_of(family, "together")
    with torch.no_grad():
        fast, each_NL = Forward(build_model(family, "tiny", seed=2), shapes).loss(rows)
        model = build_model(family, "tiny", seed=2)
        sides = [shape.side for shape in shapes for _ in range(shape.rows)]
        start, total = 0, 0.0
        for i, side in enumerate(sides):
            ids, num = rows.ids_NL[i : i + 1], 4 * side**2
            logits = model(
                input_ids=ids,
                pixel_values=rows.patches_PV[start : start + num],
                image_grid_thw=torch.tensor([[1, 2 * side, 2 * side]]),
                mm_token_type_ids=(ids == token_id(IMAGE)).int(),
            ).logits[0, :-1]
            start += num
            plain_L = functional.cross_entropy(logits, ids[0, 1:], reduction="none")
            torch.testing.assert_close(each_NL[i], plain_L, atol=2e-4, rtol=1e-4)
            total += (plain_L * rows.weight_NL[i, 1:]).sum()
        assert start == len(rows.patches_PV)
    torch.testing.assert_close(fast, total, atol=1e-4, rtol=1e-4)


def test_descriptions_weigh_one_and_answers_weigh_one():
    rows, shapes = rows_of("qwen3_vl", "apart")
    weights = {"describe": 0.0, "asked": 0.0}
    for each, (shape,) in zip(rows, shapes, strict=True):
        weights["describe" if shape.sort == "describe" else "asked"] += float(each.weight_NL.sum())
    assert weights == pytest.approx({"describe": 1.0, "asked": 1.0}, abs=1e-5)


def steps_of(model, masters, num=3):
    rows, shapes = rows_of("qwen3_vl", "apart")
    forwards = [Forward(model, own) for own in shapes]
    optimizer = torch.optim.AdamW(masters.parameters(), lr=0.0, betas=(0.9, 0.95))
    work = Work(model, optimizer, forwards, clip=1.0, num_lost=torch.zeros((), dtype=torch.long))
    return [float(work.step(rows, 1e-3)) for _ in range(num)]


def test_a_copy_that_computes_for_its_masters_changes_nothing():
    alone, masters, copy = (build_model("qwen3_vl", "tiny", seed=2) for _ in range(3))
    assert steps_of(alone, alone) == steps_of(copy, masters)
    for own, master, copied in zip(alone.parameters(), masters.parameters(), copy.parameters(), strict=True):
        assert torch.equal(own, master)
        assert torch.equal(own, copied)


def test_masters_of_a_bfloat16_copy_move_by_less_than_it_can_hold():
    masters, copy = build_model("qwen3_vl", "tiny", seed=2), in_bfloat16(build_model("qwen3_vl", "tiny", seed=2))
    frequencies = build_model("qwen3_vl", "tiny").model.language_model.rotary_emb.inv_freq
    assert torch.equal(copy.model.language_model.rotary_emb.inv_freq, frequencies)
    losses = steps_of(copy, masters, num=4)
    assert losses[-1] < losses[0]
    weight, master = (each.model.language_model.layers[0].mlp.up_proj.weight for each in (copy, masters))
    assert weight.dtype == torch.bfloat16
    assert torch.equal(weight, master.to(torch.bfloat16))
    assert not torch.equal(weight.float(), master)
