"""A prompt may fill the positions of the model up to the response, and a huge one is skipped before it is tokenized."""

import pytest
from transformers import Qwen3VLConfig

from tiny_examples import example
from tiny_processor import build_processor
from vcsd.errors import DataError
from vcsd.models.encode import encode
from vcsd.models.messages.prompt_length import is_far_longer, longest_prompt
from vcsd.views import VIEWS


class CountingTokenizer:
    """One token for each character, and a count of the characters that it has seen."""

    def __init__(self) -> None:
        self.num_characters = 0

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        self.num_characters += len(text)
        return [0] * len(text)


def config(**text: object) -> Qwen3VLConfig:
    return Qwen3VLConfig(text_config=text)


def test_a_response_has_room_behind_the_longest_prompt() -> None:
    assert longest_prompt(config(max_position_embeddings=4096), 1024) == 3072
    assert longest_prompt(config(max_position_embeddings=4096), 4096) == 4096


def test_a_configuration_without_positions_sets_no_limit() -> None:
    class Nameless:
        def get_text_config(self) -> object:
            return object()

    assert longest_prompt(Nameless(), 10) is None  # type: ignore[arg-type]


def test_a_huge_text_is_not_tokenized_to_its_end() -> None:
    tokenizer = CountingTokenizer()
    assert is_far_longer(tokenizer, "x" * 10_000_000, 40_000)
    assert tokenizer.num_characters < 200_000


def test_a_text_near_the_limit_is_left_to_the_exact_count() -> None:
    tokenizer = CountingTokenizer()
    assert not is_far_longer(tokenizer, "x" * 80_000, 40_000)
    assert is_far_longer(tokenizer, "x" * 80_001, 40_000)
    assert not is_far_longer(tokenizer, "x" * 50_000, 10)  # short texts are counted exactly, at once


@pytest.mark.parametrize("text", ["7" * 1_000_000, "<think>" * 150_000, " \n" * 500_000])
def test_a_megabyte_of_text_is_an_over_long_prompt(text: str) -> None:
    with pytest.raises(DataError, match=r"its prompt has (more than )?\d+ tokens, 4096 are allowed") as error:
        encode(build_processor(), VIEWS["original"](example(text=text + "?")), max_tokens=4096)
    assert error.value.reason == "over_long_prompt"


def test_a_panic_of_the_tokenizer_is_an_error_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):  # as the tokenizers library names it
        pass

    processor, shown = build_processor(), VIEWS["original"](example())
    for error, expected in ((PanicException("retry-limit"), DataError), (KeyboardInterrupt(), KeyboardInterrupt)):

        def fail(*_given: object, raised: BaseException = error, **_options: object) -> None:
            raise raised

        monkeypatch.setattr(type(processor), "__call__", fail)
        with pytest.raises(expected):
            encode(processor, shown)
