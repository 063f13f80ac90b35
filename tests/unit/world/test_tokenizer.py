"""The processor folder: every world text is whole words, and it loads through the same door as a released one."""

import pytest

from vcsd.models.processor import encode, load_processor
from vcsd.views import VIEWS
from vcsd.world.examples import training_examples
from vcsd.world.kinds import KINDS
from vcsd.world.tokenizer import CHAT_TEMPLATES, VOCABULARY, build_tokenizer, encode_text, write_processor_files
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


@pytest.mark.parametrize("family", CHAT_TEMPLATES)
def test_words_stay_whole_in_a_folder_that_holds_a_model_too(family, tmp_path):
    """With a config.json beside it, AutoTokenizer would rebuild Qwen3.5's tokenizer from its merges: it has none."""
    from vcsd.world.models import build_model

    build_model(family, "tiny").config.save_pretrained(tmp_path)
    tokenizer = load_processor(write_processor_files(tmp_path, family)).tokenizer
    assert tokenizer("What color is the circle?")["input_ids"] == encode_text("What color is the circle?")
