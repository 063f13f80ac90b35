"""How many rollouts fit into memory at once, computed from the cache that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

DEFAULT_ROWS = 256
"""Rollouts at once if free memory is unknown: enough to keep a device busy."""

_SHARE_OF_FREE_MEMORY = 0.8
_LOGIT_COPIES = 4
"""Float32 tensors of rollouts x vocabulary alive while a token is drawn."""


@dataclass(frozen=True)
class CacheCost:
    """Bytes that decoding needs per token in the cache, and per rollout regardless of its length.

    >>> CacheCost(per_token=114688, per_rollout=0).of(num_prompt=1030, num_new=1024, num_rollouts=8, is_shared=True)
    1057652736
    """

    per_token: int
    per_rollout: int

    def of(self, num_prompt: int, num_new: int, num_rollouts: int, *, is_shared: bool) -> int:
        """Bytes of one prompt with its rollouts; a shared prompt is stored once."""
        prompts = 1 if is_shared else num_rollouts
        return prompts * num_prompt * self.per_token + num_rollouts * (num_new * self.per_token + self.per_rollout)


def cache_cost(model: PreTrainedModel, dtype: torch.dtype) -> CacheCost:
    """The cost of a model's cache, read from its text configuration."""
    text = model.config.get_text_config()
    types = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    num_linear = types.count("linear_attention")
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    per_token = (len(types) - num_linear) * 2 * heads * width * dtype.itemsize
    per_rollout = _LOGIT_COPIES * text.vocab_size * torch.float32.itemsize
    if num_linear:
        per_rollout += num_linear * _delta_net_bytes(text, dtype)
    return CacheCost(per_token, per_rollout)


def _delta_net_bytes(text: PretrainedConfig, dtype: torch.dtype) -> int:
    """The state of one delta-net layer: a matrix per head in float32, and the last inputs of the convolution."""
    keys = text.linear_num_key_heads * text.linear_key_head_dim
    values = text.linear_num_value_heads * text.linear_value_head_dim
    matrix = values * text.linear_key_head_dim * torch.float32.itemsize
    return int(matrix + (2 * keys + values) * text.linear_conv_kernel_dim * dtype.itemsize)


def rows_that_fit(
    cost: CacheCost, free: int | None, num_prompt: int, num_new: int, num_rollouts: int, *, is_shared: bool
) -> int:
    """How many rollouts to decode at once: whole prompts while they fit, at least one rollout.

    >>> cost = CacheCost(per_token=114688, per_rollout=0)
    >>> rows_that_fit(cost, 62 * 2**30, num_prompt=1030, num_new=1024, num_rollouts=8, is_shared=True)
    400
    >>> rows_that_fit(cost, 2**30, num_prompt=1030, num_new=1024, num_rollouts=8, is_shared=True)
    6
    >>> rows_that_fit(cost, 2**20, num_prompt=1030, num_new=1024, num_rollouts=8, is_shared=True)
    1
    """
    if free is None:
        return DEFAULT_ROWS
    room = int(free * _SHARE_OF_FREE_MEMORY)
    groups = room // cost.of(num_prompt, num_new, num_rollouts, is_shared=is_shared)
    if groups:
        return groups * num_rollouts
    some = range(1, num_rollouts)
    return max((n for n in some if cost.of(num_prompt, num_new, n, is_shared=is_shared) <= room), default=1)
