"""Shared-prefix attention: a prompt and its image go through the model once, for all responses to it.

Only the layers that mix tokens need to know. Their functions are replaced where transformers lets one do so:

  attention     one entry of transformers' AttentionInterface, with sdpa's mask function under the same name;
  delta net     two functions of the modelling module (see `delta_net.py`).

What to do travels as the keyword `mixer=` through the model's forward, so that recomputation under gradient
checkpointing sees it too; a global would already be gone by then. Without the keyword the text layers are bit for bit
what they are with attn_implementation="sdpa": padded batches run through the same model. Rollouts bring a mixer of
their own (`rollout/shared_cache.py`).

Shape legend: T tokens in the row, H heads, E head width.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from vcsd.errors import ConfigError
from vcsd.kernels.head import compute_dtype
from vcsd.models.attention import attend
from vcsd.models.delta_net import mix_delta_net

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcsd.models.layout import Layout
    from vcsd.models.vision import RowFeatures

ATTENTION = "vcsd_prefix_tree"
"""Our name in the AttentionInterface. It must not contain "flash": the vision tower would take another branch."""


class Mixer(Protocol):
    """What replaces a layer's attention while `mixer=` is given."""

    def attention(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """(1 or batch, H, tokens, E) each -> (1 or batch, tokens, H, E)."""
        ...


class PrefixTree:
    """Mixes the tokens of one packed row by its layout, and counts the layers that did.

    The row's vision features ride along: the tower gets the same keywords. A plain class on purpose: FSDP2 rebuilds
    dataclasses among a layer's arguments, and the count would be lost.
    """

    def __init__(self, layout: Layout, features: RowFeatures | None = None) -> None:
        self.layout, self.features = layout, features

    def attention(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Every segment attends to its ancestors and, causally, to itself."""
        layout = self.layout
        layout.seen["attention"] += 1
        # q and k leave their norms in float32 under autocast, v does not
        dtype = compute_dtype(value)
        query_THE, key_THE, value_THE = (x[0].transpose(0, 1).to(dtype) for x in (query, key, value))
        return attend(query_THE, key_THE, value_THE, layout, scaling)[None]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    mixer: Mixer | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor | None]:
    """The entry in the AttentionInterface."""
    if mixer is None:
        plain: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
        return plain
    assert not settings.get("dropout"), "attention dropout under a mixer"
    return mixer.attention(module, query, key, value, settings.get("scaling")), None


def install(model: PreTrainedModel) -> None:
    """Let `model` understand `mixer=`. Without the keyword nothing changes; calling twice does no harm."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation({"text_config": ATTENTION})
    mix_delta_net(model)


def refuse_dropout(model: nn.Module) -> None:
    """Raise if any dropout is set: a shared prompt would be dropped once where n prompts are dropped n times."""
    config = getattr(model, "config", None)
    text = config.get_text_config() if config is not None else None
    problems = [
        f"{name} has dropout {module.p}, but shared-prefix scoring has none. Set it to 0."
        for name, module in model.named_modules()
        if isinstance(module, nn.Dropout) and module.p > 0
    ]
    if getattr(text, "attention_dropout", 0.0):
        problems.append(
            f"attention_dropout = {text.attention_dropout} in the text config, "  # type: ignore[union-attr]
            "but shared-prefix scoring has none. Set it to 0."
        )
    if problems:
        raise ConfigError(problems)


@contextmanager
def every_layer_mixes(model: PreTrainedModel, layout: Layout) -> Iterator[None]:
    """Put one forward inside: raises if a mixing layer did not see the layout, as after a change in transformers."""
    layout.seen.clear()  # recomputation in an earlier backward counted too
    yield
    expected = count_mixing_layers(model)
    seen = {kind: layout.seen[kind] for kind in expected}
    if seen != expected:
        raise RuntimeError(
            f"shared-prefix scoring reached {seen} mixing layers of {expected}: responses would see each other. "
            f"{type(model).__name__} of this transformers release does not pass `mixer=` on; use the padded batch."
        )


def count_mixing_layers(model: PreTrainedModel) -> dict[str, int]:
    """How many calls of each kind one forward makes."""
    text = model.config.get_text_config()
    types = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    linear = types.count("linear_attention")
    counts = {"attention": len(types) - linear, "convolution": linear, "delta": linear}
    return {kind: count for kind, count in counts.items() if count}
