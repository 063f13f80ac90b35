"""Keeps text from data text: a control token typed in a prompt is encoded like any other letters.

A tokenizer has added tokens, such as `<|im_end|>`, `<|image_pad|>` and `<think>`. It recognises them wherever they
occur, so a row could end its turn and open another one. Marking them as special does not tell them apart: Qwen's
`<think>`, `<tool_call>` and `<|fim_prefix|>` are added tokens that are not special.

    messages    "Ignore <|im_end|>"            hold an added token
    marked      "M Ignore <M|im_end|> M"       MARK (M) inside every added token and around every text
    rendered    "<|im_start|>user\nM Ignore <M|im_end|> M<|im_end|>\n"
    ids         the template's tokens are found, MARK is dropped, and the text of the data is tokenized as text

MARK is dropped by the tokenizer itself, between finding added tokens and tokenizing what lies between them. So the
text keeps the ids that it would have if its words were not added tokens, merges across pieces included. A prompt
without added tokens in its texts never gets a mark, and its ids are those of the plain processor.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

from vcsd.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcsd.models.processor import Processor

MARK = "\ufdd0"
"""A code point that Unicode reserves for use inside a program; it never stands for a character of a text."""

RELEASED = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"),
    *("<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
    *("<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>"),
    "<|audio_pad|>",
)
"""The added tokens of the released tokenizers, in the order of their ids. Qwen3-VL's are 151643 to 151668, Qwen3.5's
are the same ones from 248044 on; the last seven, for sound, are in Qwen3-Omni and in later releases of Qwen3.5."""

_PLACEHOLDER = "<|placeholder|>"
"""A placeholder that some processors of transformers write, and later replace by image tokens."""

_ROLES = ("system", "developer", "user", "assistant", "tool")
_NOT_TEXT = ("role", "type")
"""Keys of messages and parts whose values the chat template compares with words of its own."""

_OTHER_FAMILIES = (
    r"<[|\uff5c][^<>|\uff5c\s]{1,60}[|\uff5c]>",  # Llama, Phi, GPT; DeepSeek with fullwidth bars
    r"</?s>|<(?:bos|eos|pad|unk)>|\[/?INST\]|<(?:start|end)_of_(?:turn|image)>",
)
_SERVED = re.compile("|".join([*map(re.escape, RELEASED), *_OTHER_FAMILIES]))

_known: WeakKeyDictionary[Any, ControlTokens] = WeakKeyDictionary()


def control_tokens(processor: Processor) -> ControlTokens:
    """Return the control tokens of a processor, collected once for each tokenizer."""
    tokenizer = processor.tokenizer
    tokens = _known.get(tokenizer)
    if tokens is None or tokens.num_ids != len(tokenizer):
        tokens = _known[tokenizer] = ControlTokens(processor)
    return tokens


def served_control_token(text: str) -> str | None:
    """Return the first control token in a text that a server would tokenize, None if there is none.

    The server's tokenizer is not known here: this finds what Qwen's tokenizers and the usual other ones recognise.

    >>> served_control_token("Is a <b> left of c|>?"), served_control_token("Why <|im_end|>?")
    (None, '<|im_end|>')
    """
    match = _SERVED.search(text)
    return match[0] if match else None


def break_served_control_tokens(text: str) -> str:
    """Put a space into the control tokens of a text that a server would tokenize, so that they are words to it.

    >>> break_served_control_tokens("It says <|im_end|><think>, and 1 < 2.")
    'It says < |im_end|>< think>, and 1 < 2.'
    """
    return _SERVED.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


class ControlTokens:
    """The strings that a tokenizer or a processor reads as something else than text."""

    def __init__(self, processor: Processor) -> None:
        tokenizer = processor.tokenizer
        self.num_ids = len(tokenizer)
        # Single characters and white space, such as Gemma's "\n\n", are ordinary text.
        added = {
            index: token
            for index, token in tokenizer.added_tokens_decoder.items()
            if len(token.content) > 1 and not token.content.isspace()
        }
        self._ids = frozenset(added)
        self._are_normalized = any(token.normalized for token in added.values())
        words = {token.content for token in added.values()}
        words |= {word for name, word in vars(processor).items() if name.endswith("_token") and isinstance(word, str)}
        words |= {_PLACEHOLDER}
        self._words = sorted(words - {""}, key=len, reverse=True)
        pattern = "|".join(map(re.escape, self._words)) or "(?!)"
        self._whole = re.compile(pattern)
        self._first_character = re.compile(f"(?={pattern})(.)", re.DOTALL)
        self._tokenizer: Any = None

    def are_in(self, processor: Processor, messages: object) -> bool:
        """Whether the texts of messages, one by one or side by side, contain control tokens."""
        text = "".join(_texts(messages))
        if self._whole.search(text):
            return True
        # A token that is found after normalizing may be written in other characters, such as fullwidth ones.
        return self._are_normalized and not self._ids.isdisjoint(_ids(processor.tokenizer, text))

    def mark(self, example_id: str, messages: list[dict[str, object]]) -> list[dict[str, object]]:
        """Put MARK inside the control tokens of all texts and around the texts, so that neighbours cannot form one."""
        if any(MARK in text for text in _texts(messages)):
            raise DataError(
                example_id,
                f"its text contains control tokens and the noncharacter U+{ord(MARK):04X}. Remove one of them.",
            )
        return [{key: self._marked(key, value) for key, value in message.items()} for message in messages]

    def _marked(self, key: object, value: object) -> object:
        if isinstance(value, Mapping):
            return {name: self._marked(name, part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._marked(key, part) for part in value]
        if not isinstance(value, str) or key in _NOT_TEXT or not value.strip():
            return value
        # Marks go inside the white space around a text, which chat templates strip.
        before, after = len(value) - len(value.lstrip()), len(value.rstrip())
        broken = self._first_character.sub(rf"\g<1>{MARK}", value[before:after])
        return f"{value[:before]}{MARK}{broken}{MARK}{value[after:]}"

    def check_role(self, example_id: str, role: str) -> None:
        """Raise a DataError for a role that a chat template could complete to a control token, as in '<|' + role."""
        if role not in _ROLES and any(role in word or word in role for word in self._words):
            raise DataError(
                example_id, f"the role {role!r} could form a control token. Use one of {', '.join(_ROLES)}."
            )

    def reader(self, example_id: str, processor: Processor, marked: object) -> Processor:
        """Return a copy of the processor that drops MARK, after checking that it finds no control token in texts."""
        if self._tokenizer is None:
            self._tokenizer = _dropping_marks(example_id, processor.tokenizer)
        if any(not self._ids.isdisjoint(_ids(self._tokenizer, text)) for text in _texts(marked)):
            raise DataError(
                example_id, "its text contains control tokens, which this tokenizer cannot read as text. Remove them."
            )
        reader = copy.copy(processor)
        reader.tokenizer = self._tokenizer
        return reader


def _texts(value: object, key: object = None) -> Iterator[str]:
    """Yield the texts in messages."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(part, name)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part, key)
    elif isinstance(value, str) and key not in _NOT_TEXT:
        yield value


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def without_marks(text: str) -> str:
    """Return a rendered text as its reader sees it."""
    return text.replace(MARK, "")


def _dropping_marks(example_id: str, tokenizer: Any) -> Any:
    """Return a copy of the tokenizer that drops MARK after it has found added tokens, and before it tokenizes text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise DataError(
            example_id,
            f"its text contains control tokens, which {type(tokenizer).__name__} cannot read as text. Remove them.",
        )
    state = json.loads(backend.to_str())
    drop = {"type": "Replace", "pattern": {"String": MARK}, "content": ""}
    steps = [drop] if state["normalizer"] is None else [drop, state["normalizer"]]
    state["normalizer"] = {"type": "Sequence", "normalizers": steps}
    for token in state["added_tokens"]:
        token["normalized"] = False  # normalized tokens are found after the normalizer, when marks are gone
    changed = copy.copy(tokenizer)
    changed._tokenizer = Tokenizer.from_str(json.dumps(state))
    return changed
