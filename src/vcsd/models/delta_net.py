"""Shared prefixes in gated delta nets (Qwen3.5): the state after the prompt is computed once and forked.

A delta-net layer mixes tokens twice: a short causal convolution, then a recurrence with a matrix state. Its forward
takes no initial state, but both steps are functions of the modelling module, and the module's keywords reach them.
They are wrapped here, once per process; without `mixer=`, and not under `fused_batches()`, the wrapper calls the
original and nothing else.

    convolution   each segment is preceded by the K - 1 tokens before it, in one call over the whole row; on CUDA a
                  kernel of our own reads these tokens where they are
    recurrence    one call per level of the tree: the states after the prompts become the initial states of their
                  responses, and the gradients of the forks add up
    step          in decoding, the recurrence of one token: where Triton kernels run, one of our own, which changes the
                  states where they are

Where flash-linear-attention and causal-conv1d are installed the originals are theirs; they know no CPU. Padded batches
on a GPU run them; the recurrence of a row is `delta_rule` everywhere, whatever is installed.

Shape legend: T tokens in the row, M rows after a gather, C channels, N segments of a level, L the longest of them.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from vcsd.kernels.device import WIDTHS
from vcsd.kernels.sources import MAX_TAPS
from vcsd.models import fused
from vcsd.models.delta_rule import gated_delta_rule
from vcsd.models.inside import home_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from transformers import PreTrainedModel

    from vcsd.models.layout import Layout, Level

_CONVOLUTION = "causal_conv1d_fn"
_RECURRENCE, _STEP = "torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"
_ACTIVATIONS = (None, "silu", "swish")
_LONGEST_CHUNK = 64
_PACKED_ELSEWHERE = ("initial_state", "output_final_state", "cu_seqlens")


def mix_delta_net(model: PreTrainedModel) -> None:
    """Wrap the functions that the delta-net layers of `model` call, if it has any."""
    types = getattr(model.config.get_text_config(), "layer_types", None) or []
    if "linear_attention" not in types:
        return
    wraps_of: dict[str, Callable[..., Any]] = {_CONVOLUTION: _convolution, _RECURRENCE: _recurrence, _STEP: _step}
    module = home_of(model, *wraps_of)
    if module is None:
        raise RuntimeError(
            f"the module of {type(model).__name__} lacks {', '.join(wraps_of)} or one of them: "
            "this transformers release is not supported. Install one between 5.17 and 5.22."
        )
    for name, wrap in wraps_of.items():
        original = getattr(module, name)
        if not hasattr(original, "without_mixer"):
            setattr(module, name, wrap(original))


def _of_torch(original: Callable[..., Any]) -> Callable[..., Any]:
    """The torch function that an optional package's kernel stands in for."""
    plain: Callable[..., Any] = inspect.unwrap(original)
    return plain


def _convolution(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(original)
    def convolve(
        hidden_1CT: Tensor, weight: Tensor, bias: Tensor | None = None, *, mixer: Any = None, **settings: Any
    ) -> Tensor:
        here = original if hidden_1CT.is_cuda else _of_torch(original)
        if mixer is None or not hasattr(mixer, "layout"):
            return here(hidden_1CT, weight, bias, **settings)
        layout: Layout = mixer.layout
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

    convolve.without_mixer = original  # type: ignore[attr-defined]
    return convolve


def _can_fuse(hidden_1CT: Tensor, weight: Tensor, bias: Tensor | None, num_taps: int) -> bool:
    """Whether one kernel may gather, convolve and activate: the same function, rounded once."""
    fits = weight.shape == (hidden_1CT.shape[1], num_taps) and num_taps <= MAX_TAPS
    return fits and fused.has_kernels_for(*(x for x in (hidden_1CT, weight, bias) if x is not None))


def _recurrence(original: Callable[..., tuple[Tensor, Tensor | None]]) -> Callable[..., tuple[Tensor, Tensor | None]]:
    @wraps(original)
    def recur(
        query: Tensor, key: Tensor, value: Tensor, *, g: Tensor, beta: Tensor, mixer: Any = None, **settings: Any
    ) -> tuple[Tensor, Tensor | None]:
        if mixer is None or not hasattr(mixer, "layout"):
            plain = original if query.is_cuda else _of_torch(original)
            rule = gated_delta_rule if fused.is_everywhere() else plain
            return rule(query, key, value, g=g, beta=beta, **settings)
        layout: Layout = mixer.layout
        layout.seen["delta"] += 1
        settings = {name: setting for name, setting in settings.items() if name not in _PACKED_ELSEWHERE}
        inputs = (query[0], key[0], value[0], g[0], beta[0])
        return _level_by_level(layout, inputs, settings), None

    recur.without_mixer = original  # type: ignore[attr-defined]
    return recur


def _step(original: Callable[..., tuple[Tensor, Tensor | None]]) -> Callable[..., tuple[Tensor, Tensor | None]]:
    @wraps(original)
    def step(
        query: Tensor, key: Tensor, value: Tensor, *, g: Tensor, beta: Tensor, mixer: Any = None, **settings: Any
    ) -> tuple[Tensor, Tensor | None]:
        state: Tensor | None = settings.get("initial_state")
        # Of a cache that is not ours the state is not ours to change.
        if mixer is None or state is None or not _can_step(query, key, value, state):
            here = original if query.is_cuda else _of_torch(original)
            return here(query, key, value, g=g, beta=beta, **settings)
        from vcsd.kernels.delta_step import delta_step  # here, since it imports Triton

        inputs = (query[:, 0], key[:, 0], value[:, 0], g[:, 0], beta[:, 0])
        is_normalised = bool(settings.get("use_qk_l2norm_in_kernel"))
        return delta_step(*inputs, state, is_normalised=is_normalised)[:, None], state

    step.without_mixer = original  # type: ignore[attr-defined]
    return step


def _can_step(query: Tensor, key: Tensor, value: Tensor, state: Tensor) -> bool:
    """Whether the kernel takes a step: one token per rollout, and nobody asks for a gradient."""
    widths = {query.shape[-1], value.shape[-1]}
    fits = query.shape[1] == 1 and widths <= set(WIDTHS) and state.is_contiguous() and not torch.is_grad_enabled()
    return fits and fused.kernels_take(query, key, value, state)


def _chunk_size(longest: int) -> int:
    """Tokens that torch's recurrence takes at a time: it pads to a multiple, so fewer for short responses.

    >>> _chunk_size(5), _chunk_size(33), _chunk_size(1000)
    (8, 64, 64)
    """
    return min(_LONGEST_CHUNK, max(8, 1 << (longest - 1).bit_length()))


def _level_by_level(layout: Layout, inputs: tuple[Tensor, ...], settings: dict[str, Any]) -> Tensor:
    """Each level in one batch; padding rows (k = v = beta = 0, log decay 0) leave the state as it is."""
    out: list[Tensor] = []
    state: Tensor | None = None
    for level in layout.levels:
        query, key, value, g, beta = (level.batch(x).view(*level.shape_NL, *x.shape[1:]) for x in inputs)
        chunk = {"chunk_size": _chunk_size(level.shape_NL[1])} | settings
        mixed, state = gated_delta_rule(query, key, value, g=g, beta=beta, **_states(layout, level, state), **chunk)
        out.append(mixed.flatten(0, 1))
    return layout.unpad(torch.cat(out))[None]


def _states(layout: Layout, level: Level, above: Tensor | None) -> dict[str, Any]:
    """The states that a level's segments start from, and whether those after them are needed."""
    start = None if level.fork is None or above is None else level.fork(above)
    return {"initial_state": start, "output_final_state": level is not layout.levels[-1]}
