"""A vision-language model around a language model: Idefics3, the architecture of the first SmolVLM, with a small tower.

The tower and the connector have random weights; the language model keeps its own, and four tokens are added for
pictures. A picture of 144 x 144 pixels has 12 x 12 patches, which become 36 tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from transformers import AutoTokenizer, Idefics3Config, Idefics3ForConditionalGeneration, LlamaForCausalLM

from vcsd.checkpoint.whole_file import write_whole
from vcsd.emoji.emoji_scenes import PICTURE
from vcsd.errors import ConfigError
from vcsd.kernels.device import sent
from vcsd.models.hub import refuse_unsafe, without_bars
from vcsd.models.processor import Processor, load_processor

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from vcsd.emoji.captions import LessonRows

PATCH, SHUFFLE = 12, 2
NUM_PATCHES = (PICTURE // PATCH) ** 2
NUM_VISUAL = NUM_PATCHES // SHUFFLE**2
"""Tokens of a picture."""

START, END = "<|im_start|>", "<|im_end|>"
IMAGE, AROUND, WHOLE = "<image>", "<fake_token_around_image>", "<global-img>"
_ADDED = (AROUND, IMAGE, "<end_of_utterance>", WHOLE)
HAS_PROCESSOR = "processor_config.json"
"""The last file of a processor: where it exists, the others do."""

_ROUND_TO = 64
"""The vocabulary is a multiple of this."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<image>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class TowerSize:
    """Width, depth and heads of the vision tower."""

    width: int = 384
    layers: int = 6
    heads: int = 6


def write_processor(language: Path, out: Path) -> Processor:
    """Write the processor's files: the language model's tokenizer with four more tokens, and how pictures are read."""
    if not (language / "tokenizer.json").is_file():
        raise ConfigError([f"{language} has no tokenizer.json. Pass the folder of a language model."])
    tokenizer = AutoTokenizer.from_pretrained(language, trust_remote_code=False)
    unknown = [
        token for token in (START, END) if tokenizer.convert_tokens_to_ids(token) in (None, tokenizer.unk_token_id)
    ]
    if unknown:
        raise ConfigError([f"{language}: its tokenizer lacks {unknown[0]}. Use a model with ChatML, such as SmolLM2."])
    tokenizer.add_special_tokens({"additional_special_tokens": list(_ADDED)})
    tokenizer.chat_template = None  # the processor has its own
    tokenizer.save_pretrained(out)
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    edge = {"longest_edge": PICTURE}
    half = [0.5, 0.5, 0.5]
    pictures = {
        **{"image_processor_type": "Idefics3ImageProcessor", "do_image_splitting": False},
        **{"size": edge, "max_image_size": edge, "image_mean": half, "image_std": half},
    }
    _write_json(out / "preprocessor_config.json", pictures)
    _write_json(out / HAS_PROCESSOR, {"processor_class": "Idefics3Processor", "image_seq_len": NUM_VISUAL})
    return load_processor(out)


def _write_json(path: Path, content: object) -> None:
    write_whole(path, json.dumps(content, indent=2) + "\n")


def build_seeing_model(
    language: Path, processor: Processor, size: TowerSize, seed: int = 0
) -> Idefics3ForConditionalGeneration:
    """Put a random tower in front of a language model, in float32. The same seed gives the same weights."""
    refuse_unsafe(language)
    with without_bars():
        speaker = LlamaForCausalLM.from_pretrained(language, dtype=torch.float32, use_safetensors=True)
    model = empty_seeing_model(speaker.config.to_dict(), processor, size, seed)
    _copy_language(speaker, model, seed)
    return model


def empty_seeing_model(
    text: dict[str, object], processor: Processor, size: TowerSize, seed: int = 0
) -> Idefics3ForConditionalGeneration:
    """Build a model with random weights, for a language model with this configuration."""
    tokenizer = processor.tokenizer
    vocabulary = -(-len(tokenizer) // _ROUND_TO) * _ROUND_TO
    end = tokenizer.convert_tokens_to_ids(END)
    settings = {
        "text_config": {**text, "model_type": "llama", "vocab_size": vocabulary, "attention_dropout": 0.0},
        "vision_config": {
            **{"hidden_size": size.width, "intermediate_size": 4 * size.width, "num_hidden_layers": size.layers},
            **{"num_attention_heads": size.heads, "image_size": PICTURE, "patch_size": PATCH},
        },
        **{"scale_factor": SHUFFLE, "image_token_id": tokenizer.convert_tokens_to_ids(IMAGE)},
        **{"tie_word_embeddings": True, "pad_token_id": end},
    }
    config = Idefics3Config.from_dict(settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Idefics3ForConditionalGeneration(config)  # type: ignore[no-untyped-call]
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = end
    return model


def _copy_language(speaker: LlamaForCausalLM, model: Idefics3ForConditionalGeneration, seed: int) -> None:
    """Copy the language model's weights. New tokens begin as the mean of all, and pictures as large as words."""
    weights = speaker.model.state_dict()
    words = weights.pop("embed_tokens.weight")
    text = model.model.text_model
    with torch.no_grad():
        missing, unexpected = text.load_state_dict(weights, strict=False)
        assert set(missing) == {"embed_tokens.weight"}, missing
        assert not unexpected, unexpected
        table = text.embed_tokens.weight
        table.copy_(words.mean(0).expand_as(table))
        table[: len(words)] = words[: len(table)]
        projection = model.model.connector.modality_projection.proj.weight
        own = torch.Generator().manual_seed(seed)
        projection.normal_(std=float(words.std()) / projection.shape[1] ** 0.5, generator=own)
    model.tie_weights()


def see(model: Idefics3ForConditionalGeneration, pixels: Tensor) -> Tensor:
    """Return the features of pictures (B, 3, PICTURE, PICTURE), from 0 to 1: (B, NUM_VISUAL, hidden width)."""
    shown = model.model.get_image_features(pixel_values=2 * pixels[:, None] - 1)
    return torch.stack(list(shown.pooler_output))


def hidden_states(model: Idefics3ForConditionalGeneration, rows: LessonRows, pixels: Tensor) -> Tensor:
    """Return the hidden states (N, D) from which the taught tokens of packed rows are predicted.

    Every token sees those before it in its own segment. `pixels` are in the order of the pictures' tokens.
    """
    device = model.device
    words = model.model.text_model.embed_tokens(sent(rows.ids_RL, device))
    if len(pixels):
        shown = see(model, pixels).flatten(0, 1).to(words.dtype)
        words = words.flatten(0, 1).index_copy(0, sent(rows.images_F, device), shown).view_as(words)
    segments = sent(rows.segments_RL, device)
    is_own = segments[:, None, :, None] == segments[:, None, None, :]
    hidden: Tensor = model.model.text_model(
        inputs_embeds=words,
        attention_mask=is_own.tril(),
        position_ids=sent(rows.positions_RL, device),
        use_cache=False,
    ).last_hidden_state
    return hidden.flatten(0, 1).index_select(0, sent(rows.before_N, device))


@dataclass
class PromptTokens:
    """Token ids of prompts and replies, the same as those of the processor. Texts that recur are tokenised once."""

    tokenizer: PreTrainedTokenizerBase
    _known: dict[str, list[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The token that ends a reply."""
        return self.ids(END)[0]

    @property
    def image(self) -> int:
        """The token that stands for a part of a picture."""
        return self.ids(IMAGE)[0]

    def prompt(self, question: str, *, has_picture: bool, is_first: bool = True) -> list[int]:
        """Return the tokens of a user's turn, up to where the reply begins."""
        picture = AROUND + WHOLE + IMAGE * NUM_VISUAL + AROUND if has_picture else ""
        opening = ("" if is_first else "\n") + f"{START}user\n{picture}"
        return self.ids(opening) + self.ids(question) + self.ids(f"{END}\n{START}assistant\n")

    def reply(self, text: str) -> list[int]:
        """Return the tokens of a reply with its end."""
        return [*self.ids(text), self.end]

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text, special ones included."""
        if text not in self._known:
            ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            self._known[text] = ids
        return self._known[text]
