"""What a model makes of its head's output: nothing, a scale, a soft cap. Seen, not read.

Configurations cannot be trusted here: Aya Vision and PaliGemma inherit a scale or a cap of a text model that their own
forward leaves out, Granite divides by the number that HyperCLOVA X multiplies by. So the head's output is replaced by a
ramp in one forward over two tokens, and what comes out is compared with what the configuration could mean.

Shape legend: V vocabulary.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn
    from transformers import PreTrainedModel

    Shape = tuple[float, float | None]
    """The factor of the logits, and their soft cap."""

_SEEN = "seen_logit_shape"
_STEEPEST = 100.0
_TOLERANCE = 0.02


def logit_shape(model: PreTrainedModel, head: nn.Module, forbidden: frozenset[int]) -> Shape:
    """The scale and soft cap that a model's forward applies; asked once, and only if its configuration names any.

    forbidden: tokens that stand for images, for which the model would look.
    """
    seen: Shape | None = vars(model).get(_SEEN)
    if seen is None:
        possible = list(_possible(model.config.get_text_config()))
        seen = possible[0] if len(possible) == 1 else _look(model, head, forbidden, possible)
        setattr(model, _SEEN, seen)
    return seen


def _possible(text: Any) -> Iterable[Shape]:
    """What the configuration could mean; first that nothing is applied."""
    factor, divisor = (getattr(text, name, None) or 1.0 for name in ("logit_scale", "logits_scaling"))
    cap = getattr(text, "final_logit_softcapping", None)
    scales = dict.fromkeys([1.0, factor, 1 / divisor, divisor])
    return product(scales, dict.fromkeys([None, cap or None]))


def _look(model: PreTrainedModel, head: nn.Module, forbidden: frozenset[int], possible: list[Shape]) -> Shape:
    """The possibility that is what the model does with a ramp in place of its head's output."""
    given_V, found_V = _through_the_model(model, head, forbidden)
    gaps = [((shaped(given_V, shape) - found_V).norm() / found_V.norm()).item() for shape in possible]
    nearest = min(range(len(possible)), key=gaps.__getitem__)
    if not gaps[nearest] <= _TOLERANCE:
        raise ConfigError(
            [
                f"{type(model).__name__} does something to its head's output that is neither its configuration's scale "
                "nor its soft cap; it cannot be scored."
            ]
        )
    return possible[nearest]


def shaped(logits: Tensor, shape: Shape) -> Tensor:
    """Scaled, then capped.

    >>> shaped(torch.tensor([2.0, 400.0]), (0.5, 30.0)).round(decimals=3).tolist()
    [1.0, 30.0]
    """
    scale, cap = shape
    return logits * scale if cap is None else cap * (logits * scale / cap).tanh()


@torch.no_grad()
def _through_the_model(model: PreTrainedModel, head: nn.Module, forbidden: frozenset[int]) -> tuple[Tensor, Tensor]:
    """A ramp (V,), and the logits (V,) of a model whose head gives this ramp."""
    given: list[Tensor] = []

    def replace(_: nn.Module, args: Any, output: Tensor) -> Tensor:
        given.append(torch.linspace(-_STEEPEST, _STEEPEST, output.shape[-1]).to(output))
        return given[0].expand_as(output)

    words = [token for token in range(len(forbidden) + 2) if token not in forbidden][:2]
    ids = torch.tensor([words], device=model.device)
    modes = [(module, module.training) for module in model.modules()]
    handle = head.register_forward_hook(replace)
    model.train(False)
    try:
        logits_V = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0, -1]
    except Exception as error:  # whatever a family's forward raises, we could not look
        name = type(model).__name__
        raise ConfigError([f"{name} has no adapter, and its logits could not be looked at: {error}"]) from error
    finally:
        handle.remove()
        for module, mode in modes:
            module.training = mode
    return given[0].double(), logits_V.double()
