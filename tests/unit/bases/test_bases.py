"""The shipped bases are small, load like any model folder, and score what their cards say."""

import json

import pytest
from transformers import AutoModelForImageTextToText

from faulty_disk import half_written_files
from vcsd.bases.card import CARD, read_card, record
from vcsd.bases.measure import Speaker, share_right, sight
from vcsd.bases.shipped_bases import SHIPPED, shipped_base
from vcsd.bases.tokenizer import CHAT_TEMPLATES, build_tokenizer
from vcsd.models.processor import load_processor
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.examples import training_examples


def test_all_bases_together_fit_16_megabytes():
    files = [path for family in SHIPPED for path in shipped_base(family).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 16e6


@pytest.mark.parametrize("family", SHIPPED)
def test_a_card_says_how_its_base_was_made(family):
    card = json.loads((shipped_base(family) / "card.json").read_text())
    assert (card["family"], card["size"], card["seed"]) == (family, "small", 1)
    changes = [word for word in card["command"].split() if "=" in word]
    assert PARAMETERS.changed(changes).digest() == card["parameters"]
    assert card["measured"]["sway"]["hint"] >= 90
    assert min(card["measured"]["sway"]["sight"].values()) >= 90
    assert card["measured"]["sway"]["contrast"]["mean"] > card["measured"]["sway"]["greedy"]["mean"] + 10


def test_a_full_disk_leaves_the_card_of_a_base(tmp_path):
    card = (shipped_base() / CARD).read_text()
    (tmp_path / CARD).write_text(card)
    with half_written_files(), pytest.raises(OSError, match="No space left"):
        record(tmp_path, {**read_card(tmp_path)["measured"]["sway"], "split": "later"})
    assert (tmp_path / CARD).read_text() == card


@pytest.mark.parametrize("family", SHIPPED)
def test_the_folder_has_the_tokenizer_and_template_of_the_code(family):
    processor = load_processor(shipped_base(family))
    assert processor.tokenizer.get_vocab() == build_tokenizer().get_vocab()
    assert processor.chat_template.strip() == CHAT_TEMPLATES[family].strip()


@pytest.mark.parametrize("family", SHIPPED)
def test_a_base_sees_follows_hints_and_is_swayed(family):
    folder = shipped_base(family)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype="float32")
    assert sum(parameter.numel() for parameter in model.parameters()) <= 4_000_000
    processor = load_processor(folder)
    greedy, contrast = Speaker(model, processor), Speaker(model, processor, uses_contrast=True)
    examples = training_examples(65, seed=3)
    assert share_right(greedy, examples, view="hint") >= 90
    assert share_right(contrast, examples) > share_right(greedy, examples)
    assert min(sight(greedy, 6, "test").values()) >= 90
