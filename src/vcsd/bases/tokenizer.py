"""The processor files of the tiny models: a Qwen-like tokenizer, image processor and chat template.

The tokenizer is byte-level, with Qwen's special tokens and Qwen's rule for splitting text. Each piece of the world's
text, including the words of the hint view, is one token: a word with the space before it, a digit, a sign. Other text
is split into parts of words and bytes, so nothing is unknown. Vocabulary, merges and splitting rule define it fully:
building a Qwen tokenizer from vocabulary and merges, as AutoTokenizer does for Qwen3.5, gives the same tokenizer.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vcsd.bases.merges import learn_merges
from vcsd.views.hint import HINT
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.kind import DESCRIBE, description
from vcsd.world.questions.kinds import KINDS
from vcsd.world.questions.template import Template
from vcsd.world.render import CELL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

FamilyName = Literal["qwen3_vl", "qwen3_5"]

VOCABULARY = 640
"""Rows of the embedding: a round number above the tokenizer's size, as in released models."""

PATCH, MERGE = 16, 2
END, PAD = "<|im_end|>", "<|endoftext|>"
IMAGE = "<|image_pad|>"
SPECIAL = (
    *(PAD, "<|im_start|>", END, "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    *("<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", IMAGE),
    "<|video_pad|>",
)
PLAIN = ("<think>", "</think>")

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's splitting rule. Qwen3.5's rule also treats combining marks as letters, but the world's text has none."""

_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif -%}
{% endfor %}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
THINK{% endif -%}"""
NO_THOUGHT = "<think>\n\n</think>\n\n"
CHAT_TEMPLATES: dict[FamilyName, str] = {
    "qwen3_vl": _TEMPLATE.replace("THINK", ""),
    "qwen3_5": _TEMPLATE.replace("THINK", NO_THOUGHT),
}
"""Qwen3.5's template starts the answer with an empty thought, like the released one with thinking switched off."""

_IMAGES = {
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "patch_size": PATCH,
    "temporal_patch_size": 2,
    "merge_size": MERGE,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "size": {"shortest_edge": CELL**2, "longest_edge": (CELL * max(PARAMETERS.sides)) ** 2},
}


def _texts() -> Iterator[str]:
    """All text whose words must be single tokens: chat roles, questions, replies, descriptions, hints with answers."""
    yield from ("user\n", "assistant\n", "system\n", *re.split("</?think>", NO_THOUGHT))
    for template in (DESCRIBE, *(description(side) for side in PARAMETERS.sides)):
        yield from template.all_words()
    for kind in KINDS.values():
        yield from kind.question.all_words()
        answer = kind.replies["english"].slots["a"].word_class
        yield from Template(kind.question.text + HINT.replace("{answer}", f"{{a:{answer}}}")).all_words()
        for reply in kind.replies.values():
            yield from reply.all_words()


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer once; later calls return the same object."""
    split = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    pieces = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    merges = learn_merges(piece for text in _texts() for piece, _ in pieces.pre_tokenize_str(text))
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge) for merge in merges)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN])
    assert tokenizer.get_vocab_size() <= VOCABULARY, f"{tokenizer.get_vocab_size()} tokens"
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def token_id(token: str) -> int:
    """The id of a token."""
    (token_id,) = encode_text(token)
    return token_id


@cache
def _cached_encode(text: str) -> tuple[int, ...]:
    return tuple(build_tokenizer()(text, add_special_tokens=False)["input_ids"])


def encode_text(text: str) -> list[int]:
    """Encode a text without special tokens around it."""
    return list(_cached_encode(text))


def write_processor_files(folder: str | PathLike[str], family: FamilyName) -> Path:
    """Write the tokenizer, chat template and image processor files of a family into a folder, and return it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer().save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATES[family], encoding="utf-8")
    videos = {**_IMAGES, "video_processor_type": "Qwen3VLVideoProcessor"}
    del videos["image_processor_type"]
    for name, content in (("preprocessor_config.json", _IMAGES), ("video_preprocessor_config.json", videos)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return folder
