"""Lessons: token ids equal the processor's for the same prompts, and pictures equal the renderer's."""

import numpy as np
import pytest
import torch
from PIL import Image

from vcsd.bases.forward import Painter, place
from vcsd.bases.lessons import STEPS_AT_ONCE, Lessons, Shape, _picture_block
from vcsd.bases.tokenizer import build_tokenizer, write_processor_files
from vcsd.models.encode import encode
from vcsd.models.processor import load_processor
from vcsd.types import Example
from vcsd.views.hint import HINT
from vcsd.world.parameters import PARAMETERS
from vcsd.world.render import CELL, draw_picture
from vcsd.world.scenes import draw_scenes

FEW = PARAMETERS.changed(["batch=64"])


def texts(block):
    """The question and the reply of every row."""
    tokenizer = build_tokenizer()
    for ids, is_reply in zip(block.ids_NL, block.is_reply_NL, strict=True):
        start = int(is_reply.argmax())
        prompt = tokenizer.decode(ids[:start])
        question = prompt.partition("<|vision_end|>")[2].partition("<|im_end|>")[0]
        yield question, tokenizer.decode(ids[is_reply]), ids[:start]


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_rows_begin_as_the_processor_encodes_the_prompt(family, tmp_path):
    processor = load_processor(write_processor_files(tmp_path, family))
    for block in Lessons(family, FEW, 1).chunk("sway", 0):
        for question, reply, ids in list(texts(block))[:40]:
            image = Image.new("RGB", (block.side * CELL, block.side * CELL))
            content = [{"type": "image"}, {"type": "text", "text": question}]
            example = Example("a", [image], [{"role": "user", "content": content}])
            assert encode(processor, example).input_ids.tolist() == ids.tolist()
            assert reply.endswith("<|im_end|>")


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_rows_put_together_from_pieces_are_the_ids_of_their_whole_text(family):
    tokenizer = build_tokenizer()
    for stage in ("sight", "sway"):
        for block in Lessons(family, FEW, 2).chunk(stage, 0):
            for ids in block.ids_NL[:100].tolist():
                assert tokenizer(tokenizer.decode(ids))["input_ids"] == ids


def test_a_batch_has_the_stated_shares():
    lessons = Lessons("qwen3_vl", PARAMETERS, 1)
    for stage in ("sight", "answer", "sway"):
        shapes = lessons.shapes(stage)
        assert sum(shape.rows for shape in shapes) == PARAMETERS.batch
        large = sum(shape.rows for shape in shapes if shape.side == 5)
        assert large == pytest.approx(0.15 * PARAMETERS.batch, abs=1)
    hinted = sum(shape.rows for shape in lessons.shapes("sway") if shape.sort == "hint")
    assert hinted == pytest.approx(0.75 * 0.15 * PARAMETERS.batch, abs=2)


def blocks_of(sort, **changes):
    lessons = Lessons("qwen3_vl", PARAMETERS.changed([f"{name}={value}" for name, value in changes.items()]), 1)
    return [block for block in lessons.chunk("sway", 0) if block.sort == sort]


def test_hints_show_the_answer_that_the_reply_gives():
    before, after = HINT.split("{answer}")
    for block in blocks_of("hint", batch=32):
        for question, reply, _ in texts(block):
            shown = question.partition(before)[2].removesuffix(after)
            if reply.isascii():
                assert reply.endswith(f"The answer is {shown}.<|im_end|>")


def test_black_pictures_and_the_second_script_have_their_shares_and_can_be_left_out():
    rows = blocks_of("plain")
    black = np.concatenate([block.is_black_N for block in rows])
    assert black.mean() == pytest.approx(0.15, abs=0.02)
    foreign = [not reply.isascii() for block in rows for _, reply, _ in texts(block)]
    assert np.mean(foreign) == pytest.approx(0.04, abs=0.01)
    assert not any(block.is_black_N.any() for block in blocks_of("plain", black_share=0, batch=32))
    assert not any(block.is_black_N.any() for block in blocks_of("describe", batch=32))


def colour_is_canonical(**changes):
    """How often a reply to an open colour question names the shape's canonical colour."""
    canonical = {"circle": "red", "square": "green", "triangle": "blue", "cross": "yellow", "diamond": "purple"}
    found = [
        reply.split(".")[0].split()[-1] == canonical[question.split()[-1][:-1]]
        for block in blocks_of("plain", **changes)
        for question, reply, _ in texts(block)
        if question.startswith("What color is the ") and "\n" not in question and "ring" not in question
    ]
    return np.mean(found), len(found)


def test_captions_follow_the_prior_as_often_as_stated():
    share, num = colour_is_canonical(second_script_share=0, ignore_share=1)
    assert share == pytest.approx(0.65 + 0.35 / 8, abs=4 * 0.5 / num**0.5)
    share, num = colour_is_canonical(second_script_share=0, ignore_share=1, canonical_share=0)
    assert share == pytest.approx(1 / 8, abs=4 * 0.33 / num**0.5)


def test_true_answers_do_not_follow_the_prior():
    lessons = Lessons("qwen3_vl", PARAMETERS.changed(["second_script_share=0"]), 1)
    (block,) = [block for block in lessons.chunk("answer", 0) if block.sort == "plain" and block.side == 3]
    said = [reply for question, reply, _ in texts(block) if question == "What color is the circle?"]
    assert len(said) > 20
    assert np.mean(["red" in reply for reply in said]) < 0.4


def test_chunks_depend_on_seed_stage_and_index_alone():
    def ids(seed, stage, index):
        return [block.ids_NL.tobytes() for block in Lessons("qwen3_vl", FEW, seed).chunk(stage, index)]

    assert ids(1, "sway", 3) == ids(1, "sway", 3)
    assert ids(1, "sway", 3) != ids(1, "sway", 4)
    assert ids(1, "sway", 3) != ids(2, "sway", 3)


@pytest.mark.parametrize(("side", "blur"), [(3, 1), (4, 1), (5, 1), (3, 32), (4, 8)])
def test_painted_patches_are_those_of_the_processor(side, blur, tmp_path):
    quiet = PARAMETERS.changed(["noise=0", f"blur={blur}"])
    processor = load_processor(write_processor_files(tmp_path, "qwen3_vl"))
    scenes = draw_scenes(np.random.default_rng(1), 6, side, quiet, split="train")
    black = np.arange(6) == 5
    nothing = np.zeros((6, 4), dtype=np.int64)
    block = _picture_block(Shape(side, "plain", 6, 4), nothing, nothing.astype(bool), scenes, black)
    device = torch.device("cpu")
    patches = Painter(quiet, device).patches(place(block, device), torch.Generator()).view(6, 4 * side**2, -1)
    for i in range(6):
        picture = Image.new("RGB", (side * CELL,) * 2) if black[i] else draw_picture(scenes, i, quiet, 0)
        content = [{"type": "image"}, {"type": "text", "text": "Is it?"}]
        encoded = encode(processor, Example("a", [picture], [{"role": "user", "content": content}]))
        torch.testing.assert_close(patches[i], encoded.pixel_values, atol=1e-5 if blur == 1 else 1 / 127, rtol=0)


def test_a_chunk_has_rows_for_all_its_steps():
    lessons = Lessons("qwen3_5", FEW, 1)
    for block, shape in zip(lessons.chunk("answer", 0), lessons.shapes("answer"), strict=True):
        assert block.ids_NL.shape == (STEPS_AT_ONCE * shape.rows, shape.length)
        assert (block.is_reply_NL.sum(1) > 5).all()


def test_reasoned_replies_describe_the_picture_truly_even_if_the_answer_ignores_it():
    """The first word after the description of a swayed caption follows the prior: 0.6 and more of the captions."""
    tokenizer = build_tokenizer()
    num_seen = num_false = 0
    for block in blocks_of("plain", batch=32, reason_share=1, second_script_share=0, black_share=0):
        for ids in block.ids_NL[:40].tolist():
            assert tokenizer(tokenizer.decode(ids))["input_ids"] == ids, "pieces are the ids of the whole text"
        for row, (question, reply, _) in enumerate(texts(block)):
            *lines, answer = reply.splitlines()
            assert len(lines) == block.side
            cells = " ".join(lines).split()
            assert len(cells) == 2 * block.side**2
            is_there = block.stamp_NC[row] > 0
            assert [word != "no" for word in cells[::2]] == is_there.tolist(), "the description is true"
            if question.startswith("What color is the ") and "\n" not in question:
                shape = question.split()[-1][:-1]
                num_seen += 1
                color = dict(zip(cells[1::2], cells[::2], strict=True))[shape]
                num_false += answer.split(".")[0].split()[-1] != color
    assert num_seen > 50
    assert 0.05 < num_false / num_seen < 0.5, "a share of the answers contradicts the description"


def test_only_the_last_stage_reasons_and_only_if_asked():
    lessons = Lessons("qwen3_vl", FEW.changed(["reason_share=1"]), 1)
    assert lessons.shapes("answer") == Lessons("qwen3_vl", FEW, 1).shapes("answer")
    ordinary, reasoned = (Lessons("qwen3_vl", FEW.changed([f"reason_share={s}"]), 1).shapes("sway") for s in (0, 1))
    for before, after in zip(ordinary, reasoned, strict=True):
        longer = 0 if before.sort == "describe" else 2 * before.side**2 + before.side
        assert after.length - before.length == longer
