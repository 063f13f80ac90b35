"""Shared prefixes in gated delta nets (Qwen3.5): the state after the prompt is computed once and forked.

A delta-net layer mixes tokens twice: a short causal convolution, then a recurrence with a matrix state. Its forward
takes no initial state, but both steps are functions of the modelling module, and the layer passes its keywords on to
them. The replacements below are the family's patches (`qwen3_5.py`). Without `mixer=`, and outside `fused_batches()`,
they only call the original.

    convolution   each segment with the K - 1 tokens before it, in one call over the whole row; on CUDA a kernel reads
                  these tokens in place
    recurrence    one call per level of the tree: the states after the prompts are the initial states of their
                  responses, and the gradients of the forks add up
    step          the recurrence of one token, in decoding; with Triton a kernel that updates the states in place

With flash-linear-attention and causal-conv1d installed, the originals are theirs, which do not run on a CPU. Padded
batches on a GPU use them; the recurrence of a row is always `delta_rule`.

Shape legend: T tokens in the row, M rows after a gather, C channels, N segments of a level, L the longest of them.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from vcsd.kernels.device import WIDTHS
from vcsd.kernels.sources import MAX_TAPS
from vcsd.models.qwen import fused
from vcsd.models.qwen.delta_rule import for_value_heads, gated_delta_rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcsd.models.packed.layout import Layout

    Rule = Callable[..., tuple[Tensor, Tensor | None]]
    """A recurrence: returns the output of every token, and the state after the last one."""

Result = TypeVar("Result")
_ACTIVATIONS = (None, "silu", "swish")
_LONGEST_CHUNK = 64
_SET_BY_LAYOUT = ("initial_state", "output_final_state", "cu_seqlens")


def _of_torch(original: Callable[..., Result]) -> Callable[..., Result]:
    """The torch function that an optional package replaces by a kernel."""
    plain: Callable[..., Result] = inspect.unwrap(original)
    return plain


def convolution(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Replace the convolution of a layer."""

    @wraps(original)
    def convolve(
        hidden_1CT: Tensor, weight: Tensor, bias: Tensor | None = None, *, mixer: object = None, **settings: object
    ) -> Tensor:
        here = original if hidden_1CT.is_cuda else _of_torch(original)
        layout: Layout | None = getattr(mixer, "layout", None)
        if layout is None:
            return here(hidden_1CT, weight, bias, **settings)
        layout.seen["convolution"] += 1
        activation = settings.get("activation")
        if activation in _ACTIVATIONS and _can_fuse(hidden_1CT, weight, bias, layout.num_taps):
            from vcsd.kernels.segment_conv import segment_conv  # here, since it imports Triton

            x_TC, is_silu = hidden_1CT[0].T, activation is not None
            return segment_conv(x_TC, weight, bias, layout.sources, is_silu=is_silu).T[None]
        there, back = layout.taps
        x_1CM = there(hidden_1CT[0].T).T[None].contiguous()
        out_1CM = here(x_1CM, weight, bias, activation=activation)
        return back(out_1CM[0].T).T[None]

    return convolve


def _can_fuse(hidden_1CT: Tensor, weight: Tensor, bias: Tensor | None, num_taps: int) -> bool:
    """Whether one kernel can gather, convolve and activate: the same function, rounded once."""
    fits = weight.shape == (hidden_1CT.shape[1], num_taps) and num_taps <= MAX_TAPS
    return fits and fused.has_kernels_for(*(x for x in (hidden_1CT, weight, bias) if x is not None))


def recurrence(original: Rule) -> Rule:
    """Replace the recurrence over a whole sequence."""

    @wraps(original)
    def recur(
        query: Tensor, key: Tensor, value: Tensor, *, g: Tensor, beta: Tensor, mixer: object = None, **settings: object
    ) -> tuple[Tensor, Tensor | None]:
        layout: Layout | None = getattr(mixer, "layout", None)
        if layout is None:
            plain = original if query.is_cuda else _of_torch(original)
            rule: Rule = gated_delta_rule if fused.is_everywhere() else plain
            return rule(query, key, value, g=g, beta=beta, **settings)
        layout.seen["delta"] += 1
        settings = {name: setting for name, setting in settings.items() if name not in _SET_BY_LAYOUT}
        inputs = (query[0], key[0], value[0], g[0], beta[0])
        return _level_by_level(layout, inputs, settings), None

    return recur


def step(original: Rule) -> Rule:
    """Replace the recurrence of one token."""

    @wraps(original)
    def step_once(
        query: Tensor, key: Tensor, value: Tensor, *, g: Tensor, beta: Tensor, mixer: object = None, **settings: object
    ) -> tuple[Tensor, Tensor | None]:
        state = settings.get("initial_state")
        # Without a mixer the cache is transformers' own, whose states must not be updated in place.
        if mixer is None or not isinstance(state, Tensor) or not _can_step(query, key, value, state):
            here = original if query.is_cuda else _of_torch(original)
            return here(query, key, value, g=g, beta=beta, **settings)
        from vcsd.kernels.delta.token_step import delta_step  # here, since it imports Triton

        query, key = for_value_heads(value.shape[2], query, key)
        inputs = (query[:, 0], key[:, 0], value[:, 0], g[:, 0], beta[:, 0])
        is_normalised = bool(settings.get("use_qk_l2norm_in_kernel"))
        return delta_step(*inputs, state, is_normalised=is_normalised)[:, None], state

    return step_once


def _can_step(query: Tensor, key: Tensor, value: Tensor, state: Tensor) -> bool:
    """Whether the kernel can do this step: one token per rollout, and no gradient."""
    widths = {query.shape[-1], value.shape[-1]}
    fits = query.shape[1] == 1 and widths <= set(WIDTHS) and state.is_contiguous() and not torch.is_grad_enabled()
    return fits and fused.kernels_take(query, key, value, state)


def _chunk_size(longest: int) -> int:
    """The chunk size of the recurrence in torch. It pads to a multiple, so short responses use smaller chunks.

    >>> _chunk_size(5), _chunk_size(33), _chunk_size(1000)
    (8, 64, 64)
    """
    return min(_LONGEST_CHUNK, max(8, 1 << (longest - 1).bit_length()))


def _level_by_level(layout: Layout, inputs: tuple[Tensor, ...], settings: dict[str, object]) -> Tensor:
    """Run each level as one batch. Padding rows (k = v = beta = 0, log decay 0) do not change the state."""
    rule: Rule = gated_delta_rule
    out: list[Tensor] = []
    state: Tensor | None = None
    for level in layout.levels:
        query, key, value, g, beta = (level.batch(x).view(*level.shape_NL, *x.shape[1:]) for x in inputs)
        keywords = {"chunk_size": _chunk_size(level.shape_NL[1])} | settings
        keywords["initial_state"] = None if level.fork is None or state is None else level.fork(state)
        keywords["output_final_state"] = level is not layout.levels[-1]
        mixed, state = rule(query, key, value, g=g, beta=beta, **keywords)
        out.append(mixed.flatten(0, 1))
    return layout.unpad(torch.cat(out))[None]
