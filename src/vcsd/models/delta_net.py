"""Shared prefixes in gated delta nets (Qwen3.5): the state after the prompt is computed once and forked.

A delta-net layer mixes tokens twice: a short causal convolution, then a recurrence with a matrix state. Its forward
takes no initial state, but both steps are functions of the modelling module, and the module's keywords reach them.
They are wrapped here, once per process; without `mixer=` the wrapper calls the original and nothing else.

    convolution   each segment is preceded by the K - 1 tokens before it, in one call over the whole row
    recurrence    one call per level of the tree: the states after the prompts become the initial states of their
                  responses, and the gradients of the forks add up

The originals may be torch's or, where installed, those of flash-linear-attention and causal-conv1d.

Shape legend: T tokens in the row, M rows after a gather, C channels, N segments of a level, L the longest of them.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from transformers import PreTrainedModel

    from vcsd.models.layout import Layout

_CONVOLUTION = "causal_conv1d_fn"
_RECURRENCE = "torch_chunk_gated_delta_rule"
_PACKED_ELSEWHERE = ("initial_state", "output_final_state", "cu_seqlens")


def mix_delta_net(model: PreTrainedModel) -> None:
    """Wrap the functions that the delta-net layers of `model` call, if it has any."""
    types = getattr(model.config.get_text_config(), "layer_types", None) or []
    if "linear_attention" not in types:
        return
    # FSDP2 and PEFT put classes of their own in front
    homes = (sys.modules[base.__module__] for base in type(model).__mro__)
    module = next((home for home in homes if hasattr(home, _CONVOLUTION) and hasattr(home, _RECURRENCE)), None)
    if module is None:
        raise RuntimeError(
            f"the module of {type(model).__name__} lacks {_CONVOLUTION} or {_RECURRENCE}: "
            "this transformers release is not supported. Install one between 5.17 and 5.22."
        )
    for name, wrap in ((_CONVOLUTION, _convolution), (_RECURRENCE, _recurrence)):
        original = getattr(module, name)
        if not hasattr(original, "without_mixer"):
            setattr(module, name, wrap(original))


def _convolution(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(original)
    def convolve(
        hidden_1CT: Tensor, weight: Tensor, bias: Tensor | None = None, *, mixer: Any = None, **settings: Any
    ) -> Tensor:
        if mixer is None or not hasattr(mixer, "layout"):
            return original(hidden_1CT, weight, bias, **settings)
        layout: Layout = mixer.layout
        layout.seen["convolution"] += 1
        there, back = layout.taps
        x_1CM = there(hidden_1CT[0].T).T[None].contiguous()
        out_1CM = original(x_1CM, weight, bias, activation=settings.get("activation"))
        return back(out_1CM[0].T).T[None]

    convolve.without_mixer = original  # type: ignore[attr-defined]
    return convolve


def _recurrence(original: Callable[..., tuple[Tensor, Tensor | None]]) -> Callable[..., tuple[Tensor, Tensor | None]]:
    @wraps(original)
    def recur(
        query: Tensor, key: Tensor, value: Tensor, *, g: Tensor, beta: Tensor, mixer: Any = None, **settings: Any
    ) -> tuple[Tensor, Tensor | None]:
        if mixer is None or not hasattr(mixer, "layout"):
            return original(query, key, value, g=g, beta=beta, **settings)
        layout: Layout = mixer.layout
        layout.seen["delta"] += 1
        settings = {name: setting for name, setting in settings.items() if name not in _PACKED_ELSEWHERE}
        inputs = (query[0], key[0], value[0], g[0], beta[0])
        return _by_level(original, layout, inputs, settings), None

    recur.without_mixer = original  # type: ignore[attr-defined]
    return recur


def _by_level(
    original: Callable[..., tuple[Tensor, Tensor | None]],
    layout: Layout,
    inputs: tuple[Tensor, ...],
    settings: dict[str, Any],
) -> Tensor:
    """Run the recurrence level by level; padding rows (k = v = beta = 0, log decay 0) leave the state as it is."""
    out: list[Tensor] = []
    state: Tensor | None = None
    for depth, level in enumerate(layout.levels):
        query, key, value, g, beta = (level.batch(x).view(*level.shape_NL, *x.shape[1:]) for x in inputs)
        start = None if level.fork is None or state is None else level.fork(state)
        is_last = depth + 1 == len(layout.levels)
        mixed, state = original(
            query, key, value, g=g, beta=beta, initial_state=start, output_final_state=not is_last, **settings
        )
        out.append(mixed.flatten(0, 1))
    return layout.unpad(torch.cat(out))[None]
