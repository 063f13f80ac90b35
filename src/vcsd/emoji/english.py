"""English that has nothing to do with pictures: what the language model says by itself, and prose to measure it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vcsd.emoji.seeing_model import START
from vcsd.models.freeze import in_eval_mode

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Idefics3ForConditionalGeneration

    from vcsd.emoji.seeing_model import PromptTokens

_NEW_TOKENS, _TEMPERATURE, _ROWS_AT_ONCE, _SHORTEST = 96, 0.8, 512, 12

PROSE = (
    "The library stays open until nine on weekdays. Most people come in the afternoon, when the reading room is warm "
    "and the light falls across the long tables. If you want a quiet hour, go early in the morning, before the school "
    "groups arrive.",
    "Bread needs flour, water, salt and time. Mix the dough in the evening, let it rest overnight, and shape it the "
    "next morning. A hot oven gives it a dark crust, and a pan of water on the bottom keeps the inside soft.",
    "The moon has no air, so sound cannot travel there. Footprints left by visitors will remain for millions of years, "
    "because no wind and no rain will ever disturb them. The sky above them is black even in the middle of the day.",
    "Our committee met on Tuesday to discuss the budget for the coming year. Two members wanted to repair the old "
    "bridge first; the others preferred to wait until the school had a new roof. In the end, we agreed to ask the "
    "county for advice.",
    "She had lived in the village all her life and knew every path through the forest. When the stranger asked her for "
    "the way to the coast, she thought for a moment, pointed to the hills, and told him to follow the river until it "
    "divided.",
    "A computer stores numbers as patterns of zeros and ones. When two of them are added, tiny switches open and close "
    "millions of times in a second. The programmer rarely thinks about these switches, because many layers of software "
    "hide them.",
    "Regular exercise is good for the heart, but it does not have to be hard. A brisk walk of half an hour is enough "
    "for most people. What matters is to do it often, to drink enough water, and to stop when something hurts.",
    "In the spring the farmers repair their fences and clear the ditches. By early summer the fields are full, and "
    "everyone hopes for rain at the right time. The harvest begins in August and lasts until the first cold nights.",
)
"""English prose, written for this purpose."""


def replayed_text(
    model: Idefics3ForConditionalGeneration, tokens: PromptTokens, num: int, seed: int
) -> list[list[int]]:
    """Let the model write texts, half of them as a user's turn. Very short ones are left out."""
    device, known = model.device, len(tokens.tokenizer)
    vocabulary = model.get_input_embeddings().weight.shape[0]  # type: ignore[no-untyped-call]
    unused = list(range(known - 4, vocabulary))  # pictures' tokens, and rows of the table without a token
    texts: list[list[int]] = []
    starts = [tokens.ids("<|endoftext|>"), tokens.ids(f"{START}user\n")]
    with in_eval_mode(model), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for start, first in ((start, first) for start in starts for first in range(0, num // 2, _ROWS_AT_ONCE)):
            rows = min(_ROWS_AT_ONCE, num // 2 - first)
            ids = torch.tensor([start] * rows, device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                drawn: Tensor = model.generate(  # type: ignore[misc, assignment]
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=True,
                    temperature=_TEMPERATURE,
                    top_k=0,
                    max_new_tokens=_NEW_TOKENS,
                    suppress_tokens=unused,
                )
            texts += [_until_end(row, len(start), tokens.end) for row in drawn.tolist()]
    return [text for text in texts if len(text) > _SHORTEST]


def _until_end(row: list[int], start: int, end: int) -> list[int]:
    """Cut a text after its first end token, but not within its start."""
    return row[: row.index(end, start) + 1] if end in row[start:] else row
