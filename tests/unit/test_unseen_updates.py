"""The benchmark of what bfloat16 hides, on numbers worked by hand and on a tiny language model."""

import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from tiny_language import write_language
from unseen_updates import IGNORED, THINGS, lesson, lessons, movement, replaced, run

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_language(tmp_path_factory.mktemp("language"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def test_a_change_below_half_a_step_of_the_grid_is_moved_but_not_seen():
    step = 2**-7  # between 1 and the next number in bfloat16
    start = torch.ones(4)
    weight = nn.Parameter(start + torch.tensor([0.0, 0.4 * step, -0.2 * step, 0.6 * step]))
    moved = movement([weight], [start])
    assert moved["changed"] == 1 / 4  # below 1 the step is half as long, and 0.2 is less than half of that
    assert moved["moved"] == pytest.approx((0.4**2 + 0.2**2 + 0.6**2) ** 0.5 * step, rel=1e-4)
    assert moved["seen"] == step
    assert moved["seen_share"] == pytest.approx(0.6 / (0.4**2 + 0.2**2 + 0.6**2), rel=1e-4)


def test_weights_are_back_after_an_error():
    weight = nn.Parameter(torch.tensor([1.001]))
    master = weight.data
    with pytest.raises(RuntimeError, match="stop"), replaced([(weight, torch.tensor([1.0]))]):
        raise RuntimeError("stop")
    assert weight.data.data_ptr() == master.data_ptr()


def test_only_answers_are_learned(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids, labels = lesson(tokenizer, "banana")
    assert tokenizer.decode(ids[labels != IGNORED]) == "The banana is blue.<|im_end|>\n"
    batch = lessons(tokenizer)
    assert len(batch["labels"]) == len(THINGS)
    assert bool((batch["labels"][batch["attention_mask"] == 0] == IGNORED).all())


def test_a_run_in_bfloat16_sees_less_than_its_masters_and_adapters_lose_it_in_the_export(folder):
    whole, exact = (run(folder, 2e-6, is_half=is_half, steps=2) for is_half in (True, False))
    adapters = run(folder, 1e-3, is_half=True, steps=2, rank=2)
    dithered = run(folder, 2e-6, is_half=True, steps=2, dither=True)
    assert dithered[0]["rounded_loss"] == whole[0]["rounded_loss"]
    assert abs(dithered[2]["seen_share"] - 1) < 0.2
    for rows in (whole, exact, adapters, dithered):
        assert [row["updates"] for row in rows] == [0, 1, 2]
        assert rows[0]["changed"] == rows[0]["moved"] == 0
    assert all(row["trained_loss"] == row["master_loss"] for row in exact)
    assert whole[0]["master_loss"] == whole[0]["rounded_loss"] == exact[0]["master_loss"]
    assert 0 < whole[2]["seen_share"] < 0.5
    assert whole[2]["exported_loss"] == whole[2]["rounded_loss"]
    assert abs(adapters[2]["seen_share"] - 1) < 0.01
    assert adapters[2]["exported_loss"] != adapters[2]["rounded_loss"]
