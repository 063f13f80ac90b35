"""How a model changes its head's output: not at all, by a scale, or by a soft cap. Measured, not read from the config.

Configurations cannot be trusted here: Aya Vision and PaliGemma inherit a scale or a cap from a text model, but their
own forward ignores it; Granite divides by the number that HyperCLOVA X multiplies by. So one forward over two tokens
runs with a ramp in place of the head's output, and the result is compared with each reading of the configuration.

Shape legend: V vocabulary.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import torch

from vcsd.errors import ConfigError
from vcsd.models.freeze import in_eval_mode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn
    from transformers import PretrainedConfig, PreTrainedModel

    Shape = tuple[float, float | None]
    """The factor of the logits, and their soft cap."""

_MEASURED = "measured_logit_shape"
_STEEPEST = 100.0
_TOLERANCE = 0.02


def logit_shape(model: PreTrainedModel, head: nn.Module, forbidden: frozenset[int]) -> Shape:
    """The scale and soft cap that a model's forward applies; measured once, and only if its configuration names any.

    forbidden: placeholders of images, for which the model would expect pixels.
    """
    measured: Shape | None = vars(model).get(_MEASURED)
    if measured is None:
        possible = list(_possible(model.config.get_text_config()))
        measured = possible[0] if len(possible) == 1 else _measure(model, head, forbidden, possible)
        setattr(model, _MEASURED, measured)
    return measured


def _possible(text: PretrainedConfig) -> Iterable[Shape]:
    """All readings of the configuration; the first is that nothing is applied."""
    factor, divisor = (getattr(text, name, None) or 1.0 for name in ("logit_scale", "logits_scaling"))
    cap = getattr(text, "final_logit_softcapping", None)
    scales = dict.fromkeys([1.0, factor, 1 / divisor, divisor])
    return product(scales, dict.fromkeys([None, cap or None]))


def _measure(model: PreTrainedModel, head: nn.Module, forbidden: frozenset[int], possible: list[Shape]) -> Shape:
    """The reading that matches what the model does to a ramp in place of its head's output."""
    ramp_V, logits_V = _through_the_model(model, head, forbidden)
    gaps = [((shaped(ramp_V, shape) - logits_V).norm() / logits_V.norm()).item() for shape in possible]
    nearest = min(range(len(possible)), key=gaps.__getitem__)
    if not gaps[nearest] <= _TOLERANCE:
        raise ConfigError(
            [
                f"{type(model).__name__} changes its head's output by something other than the scale and the soft cap "
                "of its configuration; it cannot be scored."
            ]
        )
    return possible[nearest]


def shaped(logits: Tensor, shape: Shape) -> Tensor:
    """Scale logits, then cap them.

    >>> shaped(torch.tensor([2.0, 400.0]), (0.5, 30.0)).round(decimals=3).tolist()
    [1.0, 30.0]
    """
    scale, cap = shape
    return logits * scale if cap is None else cap * (logits * scale / cap).tanh()


@torch.no_grad()
def _through_the_model(model: PreTrainedModel, head: nn.Module, forbidden: frozenset[int]) -> tuple[Tensor, Tensor]:
    """A ramp (V,), and the logits (V,) of a model whose head returns this ramp."""
    ramps: list[Tensor] = []

    def replace(_: nn.Module, args: object, output: Tensor) -> Tensor:
        ramps.append(torch.linspace(-_STEEPEST, _STEEPEST, output.shape[-1]).to(output))
        return ramps[0].expand_as(output)

    words = [token for token in range(len(forbidden) + 2) if token not in forbidden][:2]
    ids = torch.tensor([words], device=model.device)
    handle = head.register_forward_hook(replace)
    try:
        with in_eval_mode(model):
            logits_V = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0, -1]
    except Exception as error:  # a forward can raise anything
        raise ConfigError(
            [f"{type(model).__name__} is not of a supported family, and its logits could not be measured: {error}"]
        ) from error
    finally:
        handle.remove()
    return ramps[0].double(), logits_V.double()
