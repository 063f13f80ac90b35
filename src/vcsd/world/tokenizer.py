"""The world's processor folder: a Qwen-like tokenizer, image processor and chat template, as a released model has them.

The tokenizer is byte-level with Qwen's special tokens and Qwen's rule for splitting text. Every piece of the world's
text, the hint view's words among it, is one token: a word with the space before it, a digit, a sign. Other text falls
apart into pieces of words and bytes, so nothing is unknown. Vocabulary, merges and rule are all there is to it, hence
whoever builds a Qwen tokenizer anew from vocabulary and merges, as AutoTokenizer does for Qwen3.5, gets the same one.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vcsd.views.hint import HINT
from vcsd.world.kinds import KINDS
from vcsd.world.merges import learn_merges
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions import DESCRIBE, description
from vcsd.world.render import CELL
from vcsd.world.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

FamilyName = Literal["qwen3_vl", "qwen3_5"]

VOCABULARY = 640
"""Rows of the models' embedding: a round number above the tokenizer's size, as with released models."""

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
"""Qwen's rule. That of Qwen3.5 also counts combining marks among letters; the world's text has none."""

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
"""Qwen3.5's opens with an empty thought, as its released template does when thinking is switched off."""

_LARGEST = CELL * max(PARAMETERS.sides)
_IMAGES = {
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "patch_size": PATCH,
    "temporal_patch_size": 2,
    "merge_size": MERGE,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "size": {"shortest_edge": CELL**2, "longest_edge": _LARGEST**2},
}


def _texts() -> Iterator[str]:
    """Every text that must be whole words: chat roles, questions, replies, descriptions, the hint with its answers."""
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
    """The tokenizer; the same object every time."""
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
    """The id of one token."""
    (found,) = encode_text(token)
    return found


@cache
def _cached_encode(text: str) -> tuple[int, ...]:
    return tuple(build_tokenizer()(text, add_special_tokens=False)["input_ids"])


def encode_text(text: str) -> list[int]:
    """The token ids of a piece of text."""
    return list(_cached_encode(text))


def write_processor_files(folder: str | PathLike[str], family: FamilyName) -> Path:
    """Write what a released folder of the family holds besides configuration and weights; return the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer().save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATES[family], encoding="utf-8")
    videos: dict[str, Any] = {**_IMAGES, "video_processor_type": "Qwen3VLVideoProcessor"}
    del videos["image_processor_type"]
    for name, content in (("preprocessor_config.json", _IMAGES), ("video_preprocessor_config.json", videos)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return folder
