"""Norms, rotary embeddings and gated products in one kernel each, while a row is scored or rollouts are drawn on CUDA.

transformers computes them as chains of element-wise operations. Under autocast with float32 weights these run on
float32 tensors of T tokens times the width, and take about as long as all matrix products. The patches:

  RMSNorm      torch's fused `rms_norm` in text layers:
                   x / sqrt(mean(x²) + eps) * weight             Qwen3-VL
                   x / sqrt(mean(x²) + eps) * (1 + weight)       Qwen3.5, in float32, then rounded to x's type
               the gated norm of delta nets, times silu(gate), uses `vcsd.kernels.gated_norm`
  rotary       the rotary embeddings of text and tower use `vcsd.kernels.rotary`
  MLP          `silu(gate) * up` of every text layer uses `vcsd.kernels.gated_silu`; experts keep transformers' code
  patches      the tower's first convolution sees each patch exactly once, so it is a matrix product
  layer        the forward of every layer of text and tower sets whether a row is being scored, for the patches above
               and the convolution of delta nets (`delta_net.py`)

They take effect inside a layer called with a `mixer=` that has a layout, or under `fused_batches()`: in the prefill of
rollouts, and in decoding steps recorded as graphs. Elsewhere (padded batches, the CPU, float64) transformers' own code
runs, bit for bit. The keyword is among the layer's arguments, so recomputation under gradient checkpointing takes the
same path; the switch is local to the thread, since autograd recomputes in its own threads. The model's last norm is in
no layer and is not affected; neither are the tower's norms, which are torch's own.

The results differ from transformers' by rounding only:

  float32      sums have another order
  bfloat16     one rounding, at the end. transformers also rounds the normalised values before they are multiplied by
               the weight of Qwen3-VL's norm or of a gated norm (under autocast too, where q, k and v arrive in
               bfloat16), each product of the rotation, and silu(gate)
  autocast     queries and keys are written in the type in which attention reads them, rounded from the same float32.
               Without gradients, so is the output of a norm that only linear layers read: the same bits, cast once
               instead of once per layer. With gradients it stays in float32, in which the gradients are added up.

FUSE = False, set before scoring, restores transformers' own code everywhere.

Shape legend: B batch, H heads, T tokens, E head width, R rotated elements of a head.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache, partial, wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from vcsd.kernels.device import compute_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from transformers import PretrainedConfig, PreTrainedModel

    Rotary = Callable[..., tuple[Tensor, Tensor]]

FUSE = True
"""Whether to use the fused operations; switched off for measurements."""

_KNOWS = "knows_scoring"
"""Marks a checkpointing function that `layer_forward` has wrapped."""

_WIDEST_HEAD = 4096
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_scoring: ContextVar[bool] = ContextVar("scoring", default=False)
_everywhere: ContextVar[bool] = ContextVar("everywhere", default=False)
_multiplies_patches: ContextVar[bool] = ContextVar("multiplies_patches", default=False)


def fused_batches() -> AbstractContextManager[None]:
    """Fuse in plain batches too: for rollouts, and for pre-training in the offline world."""
    return _switched(_everywhere, True)


def is_everywhere() -> bool:
    """Whether plain batches are fused too, in this context."""
    return _everywhere.get()


def scoring(mixer: object) -> AbstractContextManager[None]:
    """Fuse the operations inside if `mixer` has a layout, or under `fused_batches()`."""
    return _switched(_scoring, _is_fused(mixer))


def multiplied_patches(mixer: object) -> AbstractContextManager[None]:
    """Like `scoring`, for a tower's part before its first layer. Layers have their own switch, for recomputation."""
    return _switched(_multiplies_patches, _is_fused(mixer))


def _is_fused(mixer: object) -> bool:
    return FUSE and (_everywhere.get() or hasattr(mixer, "layout"))


@contextmanager
def _switched(switch: ContextVar[bool], value: bool) -> Iterator[None]:
    before = switch.set(value)
    try:
        yield
    finally:
        switch.reset(before)


def mark_norms_before_linears(model: PreTrainedModel) -> None:
    """Mark the norms of text layers whose output only linear layers read: see `_for_its_readers`."""
    text: Any = model.base_model.language_model
    for layer in text.layers:
        layer.input_layernorm.feeds_linears = True
        # Experts are not linear layers: autocast does not cast their inputs.
        layer.post_attention_layernorm.feeds_linears = hasattr(layer.mlp, "gate_proj")


def layer_forward(self: Any, *args: object, **keywords: object) -> object:
    """Replace the forward of a layer, and set whether a row is being scored while it runs."""
    if self.training and self.gradient_checkpointing:
        self._gradient_checkpointing_func = _scored_again(self._gradient_checkpointing_func)
    with scoring(keywords.get("mixer")):
        return type(self).forward(self, *args, **keywords)


def _scored_again(checkpoint: Callable[..., object]) -> Callable[..., object]:
    """Let a layer's recomputation know whether a row is being scored. Idempotent.

    Since transformers 5.23, a layer's own forward is checkpointed, inside `layer_forward`, which does not run again.
    """
    if hasattr(checkpoint, _KNOWS):
        return checkpoint

    def run(forward: partial[object], *args: object) -> object:
        def scored(*args: object) -> object:
            with scoring(forward.keywords.get("mixer")):
                return forward(*args)

        return checkpoint(scored, *args)

    setattr(run, _KNOWS, True)
    return run


def _suits(x: Tensor) -> bool:
    """Whether fused operations support x."""
    return x.is_cuda and x.dtype in _DTYPES


def has_kernels_for(*tensors: Tensor) -> bool:
    """Whether a row is being scored and Triton kernels support all of these tensors."""
    return _scoring.get() and kernels_take(*tensors)


def kernels_take(*tensors: Tensor) -> bool:
    """Whether Triton kernels support all of these tensors."""
    return FUSE and all(map(_suits, tensors)) and _has_triton()


class _Norm(Protocol):
    weight: Tensor
    variance_epsilon: float
    eps: float
    """The name of `variance_epsilon` in Qwen3.5."""

    def forward(self, x: Tensor, /) -> Tensor: ...


class _GatedNorm(Protocol):
    weight: Tensor
    variance_epsilon: float
    activation: str

    def forward(self, hidden_states: Tensor, gate: Tensor, /) -> Tensor: ...


class _Mlp(Protocol):
    config: PretrainedConfig
    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module
    act_fn: nn.Module

    def forward(self, x: Tensor, /) -> Tensor: ...


class _Patches(Protocol):
    proj: nn.Conv3d

    def forward(self, patches_KC: Tensor, /) -> Tensor: ...


def norm_forward(self: _Norm, x: Tensor) -> Tensor:
    """Replace Qwen3-VL's norm; the result has the wider of the types of x and weight."""
    if not (_scoring.get() and _suits(x)):
        return type(self).forward(self, x)
    dtype = torch.promote_types(x.dtype, self.weight.dtype)
    out = functional.rms_norm(x.to(dtype), self.weight.shape, self.weight.to(dtype), self.variance_epsilon)
    return _for_its_readers(self, out.to(dtype))  # autocast computes norms in float32


def zero_centred_forward(self: _Norm, x: Tensor) -> Tensor:
    """Replace Qwen3.5's norm: its weight is an offset from one, and only the result is rounded."""
    if not (_scoring.get() and _suits(x)):
        return type(self).forward(self, x)
    weight = 1.0 + self.weight.float()
    out = functional.rms_norm(x.float(), weight.shape, weight, self.eps)
    return _for_its_readers(self, out.to(x.dtype))


def gated_forward(self: _GatedNorm, hidden_states: Tensor, gate: Tensor) -> Tensor:
    """Replace the gated norm of delta nets; it is rounded once, after weight and gate."""
    fits = hidden_states.shape == gate.shape and hidden_states.shape[-1] <= _WIDEST_HEAD
    if not (fits and self.activation == "silu" and has_kernels_for(hidden_states, gate, self.weight)):
        return type(self).forward(self, hidden_states, gate)
    from vcsd.kernels.gated_norm import gated_norm  # here, since it imports Triton

    return gated_norm(hidden_states, gate, self.weight, self.variance_epsilon)


def mlp_forward(self: _Mlp, x: Tensor) -> Tensor:
    """Replace the MLP of a dense layer; the gated product is rounded once."""
    if not (self.config.hidden_act == "silu" and has_kernels_for(x)):
        return type(self).forward(self, x)
    from vcsd.kernels.gated_silu import gated_silu  # here, since it imports Triton

    gate, up = self.gate_proj(x), self.up_proj(x)
    fits = gate.dtype == up.dtype and has_kernels_for(gate, up)
    product = gated_silu(gate, up) if fits else self.act_fn(gate) * up
    del gate, up  # as large as the product: without gradients this frees their memory
    out: Tensor = self.down_proj(product)
    return out


def patches_forward(self: _Patches, patches_KC: Tensor) -> Tensor:
    """Replace the tower's first convolution, whose kernel covers exactly one patch."""
    conv = self.proj
    is_plain = type(conv) is nn.Conv3d and not (
        "forward" in vars(conv) or conv._forward_hooks or conv._forward_pre_hooks
    )
    sees_all = is_plain and conv.weight[0].numel() == patches_KC.shape[-1]
    if not (sees_all and _multiplies_patches.get() and _suits(patches_KC)):
        return type(self).forward(self, patches_KC)
    return functional.linear(patches_KC.to(conv.weight.dtype), conv.weight.flatten(1), conv.bias)


def _for_its_readers(norm: object, out: Tensor) -> Tensor:
    """Cast a norm's output once, instead of in every linear layer that reads it."""
    if torch.is_grad_enabled() or not getattr(norm, "feeds_linears", False):
        return out
    return out.to(compute_dtype(out))


def rotary(original: Rotary) -> Rotary:
    """Replace the rotary embedding of text layers."""

    @wraps(original)
    def apply(
        q_BHTE: Tensor, k_BHTE: Tensor, cos_BTR: Tensor, sin_BTR: Tensor, *args: object, **keywords: object
    ) -> tuple[Tensor, Tensor]:
        pair = (q_BHTE, k_BHTE)
        fuses = has_kernels_for(*pair) and not args and not keywords
        if not (fuses and all(_can_rotate(x, cos_BTR, sin_BTR) for x in pair)):
            return original(q_BHTE, k_BHTE, cos_BTR, sin_BTR, *args, **keywords)
        from vcsd.kernels.rotary import rotate  # here, since it imports Triton

        q, k = (rotate(x, cos_BTR, sin_BTR, _dtype_for_attention(x, cos_BTR)) for x in pair)
        return q, k

    return apply


def vision_rotary(original: Rotary) -> Rotary:
    """Replace the tower's rotary embedding: tokens before heads, no batch, each output in the type of its input."""

    @wraps(original)
    def apply(
        q_THE: Tensor, k_THE: Tensor, cos_TR: Tensor, sin_TR: Tensor, *args: object, **keywords: object
    ) -> tuple[Tensor, Tensor]:
        fuses = has_kernels_for(q_THE, k_THE) and not args and not keywords
        # In float32, as in transformers. FSDP2 casts a layer's arguments, but before torch 2.13 not when the layer is
        # recomputed; the tensors saved for the backward must have the same type both times.
        angles = (cos_TR.float()[None], sin_TR.float()[None])
        pair = [x.transpose(0, 1)[None] for x in (q_THE, k_THE)] if fuses else []
        if not (fuses and all(_can_rotate(x, *angles) for x in pair)):
            return original(q_THE, k_THE, cos_TR, sin_TR, *args, **keywords)
        from vcsd.kernels.rotary import rotate  # here, since it imports Triton

        q, k = (rotate(x, *angles, x.dtype)[0].transpose(0, 1) for x in pair)
        return q, k

    return apply


def _can_rotate(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Whether x is (B, H, T, E), and cos and sin are constants (B or 1, T, R) with an even R of at most E."""
    return (
        x.ndim == 4
        and cos.ndim == 3
        and cos.shape == sin.shape
        and cos.shape[0] in (1, x.shape[0])
        and cos.shape[1] == x.shape[2]
        and 0 < cos.shape[2] <= x.shape[3]
        and cos.shape[2] % 2 == 0
        and cos.dtype in _DTYPES
        and not (cos.requires_grad or sin.requires_grad)
    )


def _dtype_for_attention(x: Tensor, cos: Tensor) -> torch.dtype:
    """Autocast's type if it is on, else the type of the products."""
    is_on = torch.is_autocast_enabled(x.device.type)
    return compute_dtype(x) if is_on else torch.promote_types(x.dtype, cos.dtype)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
