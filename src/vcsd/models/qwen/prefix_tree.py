"""Shared-prefix attention: a prompt and its image go through the model once, for all its responses.

Only the layers that mix tokens are involved:

  attention     one entry of transformers' AttentionInterface, with sdpa's mask function under the same name;
  delta net     functions of the modelling module (see `delta_net.py`).

The keyword `mixer=` of the model's forward selects the mixing. Unlike a global, it is still there when gradient
checkpointing recomputes a layer. Without the keyword, the text layers equal attn_implementation="sdpa" bit for bit, so
padded batches use the same model. Rollouts have their own mixer (`rollout/shared_cache.py`).

Shape legend: T tokens in the row, H heads, E head width.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from vcsd.errors import ConfigError
from vcsd.kernels.device import compute_dtype
from vcsd.models.qwen.attention import attend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vcsd.models.packed.layout import Layout
    from vcsd.models.qwen.vision import RowFeatures

ATTENTION = "vcsd_prefix_tree"
"""The name in the AttentionInterface. It must not contain "flash": the vision tower would take another branch."""


class Mixer(Protocol):
    """Replaces the attention of a layer that is called with `mixer=`."""

    def attention(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """(1 or batch, H, tokens, E) each -> (1 or batch, tokens, H, E)."""


class PrefixTree:
    """Mixes the tokens of one packed row by its layout, and counts the layers that did.

    It also carries the row's vision features, since the tower gets the same keywords. Not a dataclass: FSDP2 rebuilds
    dataclasses among a layer's arguments, and the count would be lost.
    """

    def __init__(self, layout: Layout, features: RowFeatures | None = None) -> None:
        self.layout, self.features = layout, features

    def attention(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Every segment attends to its ancestors and, causally, to itself."""
        layout = self.layout
        layout.seen["attention"] += 1
        # Under autocast, q and k come out of their norms in float32; v does not.
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
    scaling: float | None = None,
    **settings: object,
) -> tuple[Tensor, Tensor | None]:
    """The entry in the AttentionInterface."""
    if mixer is None:
        sdpa: Callable[..., tuple[Tensor, None]] = sdpa_attention_forward
        return sdpa(module, query, key, value, attention_mask, scaling=scaling, **settings)
    assert not settings.get("dropout"), "attention dropout under a mixer"
    return mixer.attention(module, query, key, value, scaling), None


def install(model: PreTrainedModel) -> None:
    """Let the attention of `model` take `mixer=`. Without the keyword nothing changes. Idempotent."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation({"text_config": ATTENTION})


def refuse_dropout(model: nn.Module) -> None:
    """Raise if any dropout is set: a shared prompt would get one dropout mask where n prompts get n."""
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
    """Raise after the forward inside if a mixing layer did not use the layout, as after a change in transformers."""
    layout.seen.clear()  # recomputation in an earlier backward was counted too
    yield
    text = model.config.get_text_config()
    types = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    linear = types.count("linear_attention")
    counts = {"attention": len(types) - linear, "convolution": linear, "delta": linear}
    expected = {kind: count for kind, count in counts.items() if count}
    seen = {kind: layout.seen[kind] for kind in expected}
    if seen != expected:
        raise RuntimeError(
            f"shared-prefix scoring reached {seen} mixing layers of {expected}: responses would see each other. "
            f"{type(model).__name__} of this transformers release does not pass `mixer=` on; use the padded batch."
        )
