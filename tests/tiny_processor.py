"""Tiny offline processors: a byte-level tokenizer, an image processor, a chat template, as released.

write_processor_files(folder, family)   the files of a released folder: "qwen3_vl", "qwen3_5" or "llava" (a fallback)
build_processor(family)                 the same, loaded with `vcsd.models.processor.load_processor`
build_tokenizer()                       Qwen's special tokens and split rule; at most VOCAB_SIZE ids

A model for these processors needs vocab_size=VOCAB_SIZE, patch_size=PATCH and spatial_merge_size=MERGE.
"""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from vcsd.models.processor import Processor, load_processor

VOCAB_SIZE = 512
PATCH, MERGE = 16, 2
MIN_PIXELS, MAX_PIXELS = 32 * 32, 256 * 256
LLAVA_SIDE = 32

SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|image_pad|>", "<|video_pad|>", "<image>"),
)
PLAIN = ("<think>", "</think>")
WORDS = "user assistant system how many what colour is the square answer red green blue one two 0 1 2 3 4 5 6 7 8 9 ?"
SPLIT = r"'\p{L}+|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_PARTS = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
THINK{% endif -%}"""
_QWEN = _PARTS.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
_SWITCH = "<think>\n{% if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}"
CHAT_TEMPLATES = {
    "qwen3_vl": _QWEN.replace("THINK", ""),
    "qwen3_5": _QWEN.replace("THINK", _SWITCH),
    "llava": _PARTS.replace("IMAGE", "<image>").replace("THINK", ""),
}

_QWEN_IMAGES = {
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "patch_size": PATCH,
    "temporal_patch_size": 2,
    "merge_size": MERGE,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
}
_LLAVA_IMAGES = {
    "processor_class": "LlavaProcessor",
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": LLAVA_SIDE},
    "crop_size": {"height": LLAVA_SIDE, "width": LLAVA_SIDE},
}
_LLAVA = {"processor_class": "LlavaProcessor", "patch_size": PATCH, "vision_feature_select_strategy": "full"}


@cache
def _trained() -> str:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL) - len(PLAIN),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS] * 2, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN])
    return tokenizer.to_str()


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that can write any text, with a few merges so that tokens are not all one byte."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def write_processor_files(folder: str | Path, family: str = "qwen3_vl") -> Path:
    """Write what a released folder of the family holds besides config and weights; return the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer().save_pretrained(folder)
    template = CHAT_TEMPLATES[family]
    if family == "qwen3_vl":
        _write(folder / "chat_template.json", {"chat_template": template})
    else:
        (folder / "chat_template.jinja").write_text(template)
    if family == "llava":
        _write(folder / "preprocessor_config.json", _LLAVA_IMAGES)
        _write(folder / "processor_config.json", _LLAVA)
    else:
        _write(folder / "preprocessor_config.json", _QWEN_IMAGES)
        videos = {**_QWEN_IMAGES, "video_processor_type": "Qwen3VLVideoProcessor"}
        del videos["image_processor_type"]
        _write(folder / "video_preprocessor_config.json", videos)
    return folder


def build_processor(family: str = "qwen3_vl", **pixels: int) -> Processor:
    """The family's tiny processor, loaded as a released one is."""
    return load_processor(_processor_folder(family).name, **pixels)


@cache
def _processor_folder(family: str) -> TemporaryDirectory[str]:
    """The family's files, kept until the process ends: checkpoints copy them."""
    folder = TemporaryDirectory(prefix=f"{family}-processor-")
    write_processor_files(folder.name, family)
    return folder


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2))
