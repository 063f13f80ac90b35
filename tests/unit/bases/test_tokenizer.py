"""The processor files: every word of the world is one token, and they load like those of a released model."""

import json
import shutil

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from vcsd.bases.tiny_models import build_model
from vcsd.bases.tokenizer import (
    CHAT_TEMPLATES,
    END,
    PAD,
    VOCABULARY,
    build_tokenizer,
    encode_text,
    token_id,
    write_processor_files,
)
from vcsd.models.encode import encode
from vcsd.models.processor import load_processor
from vcsd.views import VIEWS
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.examples import training_examples
from vcsd.world.questions.kind import describe, description
from vcsd.world.questions.kinds import KINDS, ask
from vcsd.world.scenes import draw_scenes
from vcsd.world.words import WORDS


@pytest.fixture(scope="module", params=list(CHAT_TEMPLATES))
def processor(request, tmp_path_factory):
    return load_processor(write_processor_files(tmp_path_factory.mktemp("folder"), request.param))


def test_the_vocabulary_is_a_few_hundred_tokens():
    assert 256 < len(build_tokenizer()) <= VOCABULARY


def test_prompts_and_hints_come_back_from_their_tokens(processor):
    for example in training_examples(40, seed=1):
        for view in ("original", "hint"):
            encoded = encode(processor, VIEWS[view](example))
            back = processor.tokenizer.decode(encoded.input_ids).replace("<|image_pad|>", "")
            assert back == encoded.text.replace("<|image_pad|>", "")


def test_no_word_of_a_prompt_falls_apart_into_bytes(processor):
    """A token of one byte is a letter, a sign or a new line that is a word by itself."""
    for example in training_examples(40, seed=2):
        ids = encode(processor, VIEWS["hint"](example)).input_ids.tolist()
        short = {token for token in processor.tokenizer.convert_ids_to_tokens(ids) if len(token) == 1}
        assert short <= set("ABCDQ.,?0123456789a\u010a\u0120")


def test_every_word_of_both_languages_is_one_token_with_and_without_a_space():
    for kind in KINDS.values():
        for reply in kind.replies.values():
            for slot in reply.slots.values():
                assert {len(encode_text(word)) for word in slot.words(reply.language)} == {1}
    for word in (*WORDS["english"]["color"], *WORDS["english"]["truth"], *WORDS["english"]["number"]):
        assert len(encode_text(word)) == 1


def test_any_other_text_is_encodable_too():
    text = "Zürich, 7½ of 東京!\n\tok"
    assert build_tokenizer().decode(encode_text(text)) == text


def test_a_cell_is_one_visual_token_and_black_keeps_the_layout(processor):
    for example in training_examples(40, seed=1):
        side = example.images[0].width // 32
        shown, black = (encode(processor, VIEWS[view](example)) for view in ("original", "black"))
        assert (shown.input_ids == processor.image_token_id).sum() == side**2
        assert shown.grid_thw.tolist() == [[1, 2 * side, 2 * side]]
        assert (black.pixel_values == -1).all()


def test_qwen3_5_opens_with_an_empty_thought():
    assert CHAT_TEMPLATES["qwen3_5"].endswith("<think>\n\n</think>\n\n{% endif -%}")
    assert "<think>" not in CHAT_TEMPLATES["qwen3_vl"]


@pytest.fixture(scope="module", params=list(CHAT_TEMPLATES))
def model_folder(request, tmp_path_factory):
    """A folder that holds a model's configuration too: AutoTokenizer chooses its class by that."""
    folder = write_processor_files(tmp_path_factory.mktemp("model"), request.param)
    build_model(request.param, "tiny").config.save_pretrained(folder)
    return folder


def world_texts(processor):
    """Whole chats of every kind of question in both scripts, with hints, and descriptions."""
    for view in ("original", "hint"):
        for example in training_examples(40, seed=3):
            messages = VIEWS[view](example).prompt
            yield processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    rng = np.random.default_rng(0)
    for side in PARAMETERS.sides:
        scenes = draw_scenes(rng, 2, side, PARAMETERS, split="train")
        yield description(side).fill(describe(scenes), 1)
    for kind in KINDS.values():
        asked = ask(rng, kind, 8, 3, PARAMETERS, split="train")
        slots = kind.reply_slots(asked.question, asked.facts)
        for reply in kind.replies.values():
            yield from (kind.question.fill(slots, i) + END + reply.fill(slots, i) + END for i in range(8))


def test_every_way_to_load_the_folder_gives_the_same_ids(model_folder):
    """AutoTokenizer may read tokenizer.json or build the family's class anew; Qwen2Tokenizer always builds."""
    texts = [*world_texts(load_processor(model_folder)), "Zu\u0308rich, 7½ of 東京!\n\tisn't  ok "]
    assert len(texts) > 200
    expected = [encode_text(text) for text in texts]
    ours = load_processor(model_folder).tokenizer
    for tokenizer in (ours, AutoTokenizer.from_pretrained(model_folder), Qwen2Tokenizer.from_pretrained(model_folder)):
        assert [tokenizer(text)["input_ids"] for text in texts] == expected
        assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (token_id(END), token_id(PAD))
        assert len(tokenizer) == len(build_tokenizer())


def test_without_merges_a_rebuilt_tokenizer_would_read_bytes(model_folder, tmp_path):
    """What the merges are for: whole words in the vocabulary do not help a tokenizer that is built from merges."""
    shutil.copytree(model_folder, tmp_path, dirs_exist_ok=True)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"] |= {"merges": [], "ignore_merges": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    question = "What color is the circle?"
    assert PreTrainedTokenizerFast.from_pretrained(tmp_path)(question)["input_ids"] == encode_text(question)
    assert len(Qwen2Tokenizer.from_pretrained(tmp_path)(question)["input_ids"]) == len(question)


def test_sentences_filled_as_ids_are_the_ids_of_the_filled_text():
    rng = np.random.default_rng(1)
    for kind in KINDS.values():
        asked = ask(rng, kind, 8, 3, PARAMETERS, split="train")
        slots = kind.reply_slots(asked.question, asked.facts)
        for template in (kind.question, *kind.replies.values()):
            rows = template.encode(slots, 8, encode_text)
            assert rows.tolist() == [encode_text(template.fill(slots, i)) for i in range(8)]


def test_a_digit_leaves_its_space_to_the_text_before_it():
    tokens = build_tokenizer().convert_ids_to_tokens(encode_text("in row 3 and"))
    assert tokens[1:] == ["\u0120row", "\u0120", "3", "\u0120and"]
