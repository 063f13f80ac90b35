"""The names of the weights in released checkpoints, family by family; N stands for the number of a layer.

Engines look up weights by these names, and silently skip those that they do not find. A model's own names come from the
installed transformers, so comparing them only with each other would not reveal a rename there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcsd.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NUMBER = re.compile(r"\.\d+(?=\.)")
_NAMED_IN_ERROR = 3


def _both(*layers: str) -> list[str]:
    return [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]


_LAYER = "model.language_model.layers.N"
_BLOCK = "model.visual.blocks.N"
_MERGER = ("linear_fc1", "linear_fc2", "norm")
_TEXT = [
    "model.language_model.embed_tokens.weight",
    "model.language_model.norm.weight",
    *(f"{_LAYER}.{norm}.weight" for norm in ("input_layernorm", "post_attention_layernorm")),
    *(f"{_LAYER}.mlp.{part}.weight" for part in ("gate_proj", "up_proj", "down_proj")),
    *(f"{_LAYER}.self_attn.{part}_proj.weight" for part in "qkvo"),
    *(f"{_LAYER}.self_attn.{part}_norm.weight" for part in "qk"),
]
_TOWER = [
    "model.visual.pos_embed.weight",
    *_both("model.visual.patch_embed.proj", f"{_BLOCK}.attn.qkv", f"{_BLOCK}.attn.proj"),
    *_both(f"{_BLOCK}.mlp.linear_fc1", f"{_BLOCK}.mlp.linear_fc2", f"{_BLOCK}.norm1", f"{_BLOCK}.norm2"),
    *_both(*(f"model.visual.merger.{part}" for part in _MERGER)),
]
_DELTA_NET = [
    *(f"{_LAYER}.linear_attn.{part}" for part in ("A_log", "dt_bias", "conv1d.weight", "norm.weight")),
    *(f"{_LAYER}.linear_attn.in_proj_{part}.weight" for part in ("qkv", "z", "a", "b")),
    f"{_LAYER}.linear_attn.out_proj.weight",
]
_DEEPSTACK = _both(*(f"model.visual.deepstack_merger_list.N.{part}" for part in _MERGER))

HEAD = "lm_head.weight"
"""Only models whose head is not tied to the embeddings have it."""

NAMES: Mapping[str, frozenset[str]] = {
    "qwen3_vl": frozenset([*_TEXT, *_TOWER, *_DEEPSTACK]),
    "qwen3_5": frozenset([*_TEXT, *_TOWER, *_DELTA_NET]),
}


def refuse_renamed(family: str, names: Iterable[str]) -> None:
    """Raise a RunError unless a model's weights have exactly the names of the family's released checkpoints."""
    patterns = {_NUMBER.sub(".N", name) for name in names} - {HEAD}
    problems = [
        f"{what}: {', '.join(sorted(wrong)[:_NAMED_IN_ERROR])}"
        for what, wrong in (("missing", NAMES[family] - patterns), ("unknown", patterns - NAMES[family]))
        if wrong
    ]
    if problems:
        raise RunError(
            f"the weights of this {family} are not named as in released checkpoints ({'; '.join(problems)}). vLLM "
            "would skip them silently. Install a supported transformers (see vcsd doctor), or set rollout.engine: "
            "transformers."
        )
