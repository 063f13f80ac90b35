"""A tiny language model folder with random weights, and sprites without a font, for tests of `vcsd.emoji`."""

import random
from functools import cache

import numpy as np
import torch
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from vcsd.emoji.captions import conversation
from vcsd.emoji.emoji_scenes import draw_scene
from vcsd.emoji.sprites import SIDE, _all_colors, save_sprites
from vcsd.emoji.things import THINGS

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write_language(folder):
    """Write a Llama of two small layers, with a byte-level tokenizer that knows the words of the scenes."""
    rng = random.Random(0)
    texts = [text for _ in range(300) for turn in conversation(rng, draw_scene(rng)) for text in turn]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    names = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "pad_token": SPECIAL[2], "unk_token": SPECIAL[0]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@cache
def plain_sprites():
    """Plain shapes without any font, drawn once: for each thing a polygon with its own number of corners and angle."""
    pictures = []
    for index in range(len(THINGS)):
        picture = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 0))
        circle = (SIDE / 2, SIDE / 2, SIDE / 2 - 2)
        corners, angle = 3 + index % 6, 3 * (index // 6)
        ImageDraw.Draw(picture).regular_polygon(circle, corners, rotation=angle, fill=(200, 120, 60, 255))
        pictures.append(np.asarray(picture).astype(np.float32) / 255)
    return _all_colors(pictures)


def write_sprites(path):
    """Write sprites that need no font."""
    save_sprites(plain_sprites(), path)
    return path
