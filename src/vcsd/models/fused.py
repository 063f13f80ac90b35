"""Norms, rotary embeddings and gated products in one kernel each, while a row is scored or rollouts are drawn on CUDA.

transformers writes them as chains of element-wise operations. Under autocast with float32 weights these run on float32
tensors of T tokens times the width, and take about as long as all matrix products. What is changed, and where:

  RMSNorm      every norm in a text layer gets a `forward` of its own, with torch's fused `rms_norm`:
                   x / sqrt(mean(x²) + eps) * weight             Qwen3-VL
                   x / sqrt(mean(x²) + eps) * (1 + weight)       Qwen3.5, in float32, then rounded to x's type
               the delta nets' gated norm, times silu(gate), calls `vcsd.kernels.gated_norm` (the derivation is there)
  rotary       `apply_rotary_pos_emb` of the modelling module and its twin for the vision tower are wrapped once per
               process, as `delta_net.py` wraps its functions, and call `vcsd.kernels.rotary` (the derivation is there)
  MLP          `silu(gate) * up` of every text layer calls `vcsd.kernels.gated_silu`; experts keep their own code
  patches      the tower's first convolution sees each patch once and whole, which makes it a matrix product
  layer        every layer of text and tower gets a `forward` that says to these, and to the delta nets' convolution
               (`delta_net.py`), whether it is scoring

Only what happens inside a layer with a `mixer=` that has a layout is changed, or under `fused_batches()`: prompts of
rollouts, and their steps as graphs. In padded batches all of these are transformers' own, bit for bit, as they are on
the CPU and in float64. The keyword is among the layer's arguments, therefore recomputation under gradient
checkpointing takes the same path; the switch it turns is local to the thread, since autograd recomputes in threads of
its own. The last norm of the model is in no layer and stays as it is; so do the tower's norms, which are torch's own.

What differs from transformers' own, all of it rounding:

  float32      sums are taken in another order
  bfloat16     rounded once, at the end. transformers rounds what it normalised before Qwen3-VL's weight, or a gated
               norm's, multiplies it (under autocast too, where q, k and v arrive in bfloat16), each product of the
               rotation, and silu(gate)
  autocast     queries and keys are written in the type in which attention reads them, rounded from the same float32.
               Where no gradient is asked for, so is the output of a norm that only linear layers read: the same bits,
               but each of them would cast it again. With gradients it stays float32, in which theirs are then added.

FUSE = False, set before scoring, brings back transformers' own code everywhere.

Shape legend: B batch, H heads, T tokens, E head width, R rotated elements of a head.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib.util import find_spec
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from vcsd.kernels.head import compute_dtype
from vcsd.models.inside import home_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from transformers import PreTrainedModel

FUSE = True
"""Whether scoring uses the fused operations: for measurements."""

_ROTARY, _VISION_ROTARY = "apply_rotary_pos_emb", "apply_rotary_pos_emb_vision"
_WIDEST_HEAD = 4096
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_scoring: ContextVar[bool] = ContextVar("scoring", default=False)
_everywhere: ContextVar[bool] = ContextVar("everywhere", default=False)
_multiplies_patches: ContextVar[bool] = ContextVar("multiplies_patches", default=False)


def fused_batches() -> AbstractContextManager[None]:
    """Fuse in plain batches too, for those who ask: rollouts, and pre-training in the world."""
    return _switched(_everywhere, True)


def is_everywhere() -> bool:
    """Whether plain batches are to be fused too, here and now."""
    return _everywhere.get()


def scoring(mixer: Any) -> AbstractContextManager[None]:
    """What runs inside is fused if `mixer` has a layout, or if plain batches are to be fused too."""
    return _switched(_scoring, _is_fused(mixer))


def multiplied_patches(mixer: Any) -> AbstractContextManager[None]:
    """The same for what a tower does before its first layer. Layers are told by themselves, in recomputation too."""
    return _switched(_multiplies_patches, _is_fused(mixer))


def _is_fused(mixer: Any) -> bool:
    return FUSE and (_everywhere.get() or hasattr(mixer, "layout"))


@contextmanager
def _switched(switch: ContextVar[bool], value: bool) -> Iterator[None]:
    before = switch.set(value)
    try:
        yield
    finally:
        switch.reset(before)


def install(model: PreTrainedModel) -> None:
    """Fuse what the layers of a model do between their matrix products, under `mixer=`. Twice does no harm."""
    text: Any = model.base_model.language_model
    for layer in text.layers:
        _override(layer, _layer_forward)
        for module in layer.modules():
            forward = _FORWARDS.get(type(module).__name__)
            if forward is not None:
                _override(module, forward)
        layer.input_layernorm.feeds_linears = True
        # experts are no linear layers: autocast leaves alone what they are given
        layer.post_attention_layernorm.feeds_linears = hasattr(layer.mlp, "gate_proj")
    tower: Any = model.base_model.visual
    _override(tower.patch_embed, _patches_forward)
    for block in tower.blocks:
        _override(block, _layer_forward)
    _wrap(model, _ROTARY, _rotary)
    _wrap(model, _VISION_ROTARY, _vision_rotary)


def _wrap(model: PreTrainedModel, name: str, wrap: Callable[..., Any]) -> None:
    """Wrap a function of the modelling module, if it has one of that name."""
    module = home_of(model, name)
    if module is not None and not hasattr(getattr(module, name), "without_fusion"):
        setattr(module, name, wrap(getattr(module, name)))


def _override(module: nn.Module, forward: Callable[..., Any]) -> None:
    if "forward" not in vars(module):  # ours, or another library's: leave it
        module.forward = MethodType(forward, module)


def _layer_forward(self: nn.Module, *args: Any, **keywords: Any) -> Any:
    with scoring(keywords.get("mixer")):
        # The class's forward, looked up now: a method captured earlier would, in a deep copy, still run the original.
        return type(self).forward(self, *args, **keywords)


def _suits(x: Tensor) -> bool:
    """Whether fused operations take x."""
    return x.is_cuda and x.dtype in _DTYPES


def has_kernels_for(*tensors: Tensor) -> bool:
    """Whether a row is being scored and Triton kernels take all of these."""
    return _scoring.get() and kernels_take(*tensors)


def kernels_take(*tensors: Tensor) -> bool:
    """Whether Triton kernels take all of these, whoever asks."""
    return FUSE and all(map(_suits, tensors)) and _has_triton()


def _norm_forward(self: Any, x: Tensor) -> Tensor:
    """Qwen3-VL's: in the wider of the types of x and weight."""
    if not (_scoring.get() and _suits(x)):
        own: Tensor = type(self).forward(self, x)
        return own
    dtype = torch.promote_types(x.dtype, self.weight.dtype)
    out = functional.rms_norm(x.to(dtype), self.weight.shape, self.weight.to(dtype), self.variance_epsilon)
    return _for_its_readers(self, out.to(dtype))  # autocast computes norms in float32


def _zero_centred_forward(self: Any, x: Tensor) -> Tensor:
    """Qwen3.5's: the weight is what is added to one, and nothing is rounded before the end."""
    if not (_scoring.get() and _suits(x)):
        own: Tensor = type(self).forward(self, x)
        return own
    weight = 1.0 + self.weight.float()
    out = functional.rms_norm(x.float(), weight.shape, weight, self.eps)
    return _for_its_readers(self, out.to(x.dtype))


def _gated_forward(self: Any, hidden_states: Tensor, gate: Tensor) -> Tensor:
    """The delta nets': what transformers rounds before weight and gate multiply it is rounded after them alone."""
    fits = hidden_states.shape == gate.shape and hidden_states.shape[-1] <= _WIDEST_HEAD
    if not (fits and self.activation == "silu" and has_kernels_for(hidden_states, gate, self.weight)):
        own: Tensor = type(self).forward(self, hidden_states, gate)
        return own
    from vcsd.kernels.gated_norm import gated_norm  # here, since it imports Triton

    return gated_norm(hidden_states, gate, self.weight, self.variance_epsilon)


def _mlp_forward(self: Any, x: Tensor) -> Tensor:
    """A dense layer's: what transformers rounds before it multiplies is rounded after it alone."""
    if not (self.config.hidden_act == "silu" and has_kernels_for(x)):
        own: Tensor = type(self).forward(self, x)
        return own
    from vcsd.kernels.gated_silu import gated_silu  # here, since it imports Triton

    gate, up = self.gate_proj(x), self.up_proj(x)
    fits = gate.dtype == up.dtype and has_kernels_for(gate, up)
    product = gated_silu(gate, up) if fits else self.act_fn(gate) * up
    del gate, up  # as large as the product: without gradients their memory is free now
    out: Tensor = self.down_proj(product)
    return out


def _patches_forward(self: Any, patches_KC: Tensor) -> Tensor:
    """The tower's: a convolution whose kernel is as large as what it sees."""
    conv = self.proj
    is_plain = type(conv) is nn.Conv3d and not (
        "forward" in vars(conv) or conv._forward_hooks or conv._forward_pre_hooks
    )
    sees_all = is_plain and conv.weight[0].numel() == patches_KC.shape[-1]
    if not (sees_all and _multiplies_patches.get() and _suits(patches_KC)):
        own: Tensor = type(self).forward(self, patches_KC)
        return own
    return functional.linear(patches_KC.to(conv.weight.dtype), conv.weight.flatten(1), conv.bias)


_FORWARDS: dict[str, Callable[..., Tensor]] = {
    "Qwen3VLTextRMSNorm": _norm_forward,
    "Qwen3VLMoeTextRMSNorm": _norm_forward,
    "Qwen3_5RMSNorm": _zero_centred_forward,
    "Qwen3_5MoeRMSNorm": _zero_centred_forward,
    "Qwen3_5RMSNormGated": _gated_forward,
    "Qwen3_5MoeRMSNormGated": _gated_forward,
    "Qwen3VLTextMLP": _mlp_forward,
    "Qwen3VLMoeTextMLP": _mlp_forward,
    "Qwen3_5MLP": _mlp_forward,
    "Qwen3_5MoeMLP": _mlp_forward,
}


def _for_its_readers(norm: nn.Module, out: Tensor) -> Tensor:
    """A norm's output, cast once for all linear layers that would each cast it."""
    if torch.is_grad_enabled() or not getattr(norm, "feeds_linears", False):
        return out
    return out.to(compute_dtype(out))


def _rotary(original: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    @wraps(original)
    def apply(
        q_BHTE: Tensor, k_BHTE: Tensor, cos_BTR: Tensor, sin_BTR: Tensor, *args: Any, **keywords: Any
    ) -> tuple[Tensor, Tensor]:
        pair = (q_BHTE, k_BHTE)
        fuses = has_kernels_for(*pair) and not args and not keywords
        if not (fuses and all(_can_rotate(x, cos_BTR, sin_BTR) for x in pair)):
            return original(q_BHTE, k_BHTE, cos_BTR, sin_BTR, *args, **keywords)
        from vcsd.kernels.rotary import rotate  # here, since it imports Triton

        q, k = (rotate(x, cos_BTR, sin_BTR, _dtype_for_attention(x, cos_BTR)) for x in pair)
        return q, k

    apply.without_fusion = original  # type: ignore[attr-defined]
    return apply


def _vision_rotary(original: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The tower's: tokens before heads, no batch, and each output in the type of its input."""

    @wraps(original)
    def apply(
        q_THE: Tensor, k_THE: Tensor, cos_TR: Tensor, sin_TR: Tensor, *args: Any, **keywords: Any
    ) -> tuple[Tensor, Tensor]:
        fuses = has_kernels_for(q_THE, k_THE) and not args and not keywords
        # As transformers does. FSDP2 casts a layer's arguments, before torch 2.13 not when it is recomputed: what is
        # kept for the backward must be of one type nevertheless.
        angles = (cos_TR.float()[None], sin_TR.float()[None])
        pair = [x.transpose(0, 1)[None] for x in (q_THE, k_THE)] if fuses else []
        if not (fuses and all(_can_rotate(x, *angles) for x in pair)):
            return original(q_THE, k_THE, cos_TR, sin_TR, *args, **keywords)
        from vcsd.kernels.rotary import rotate  # here, since it imports Triton

        q, k = (rotate(x, *angles, x.dtype)[0].transpose(0, 1) for x in pair)
        return q, k

    apply.without_fusion = original  # type: ignore[attr-defined]
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
    """Autocast's type where it is on, else that of the products."""
    is_on = torch.is_autocast_enabled(x.device.type)
    return compute_dtype(x) if is_on else torch.promote_types(x.dtype, cos.dtype)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
