"""Running code inside a wrapped model's forward, where its sharded weights exist.

DDP synchronises gradients, FSDP2 gathers weights and accelerate enters autocast in hooks around `forward` of the
wrapped model. Code that calls an inner module directly bypasses them: FSDP2 raises, DDP silently skips the gradient
synchronisation, autocast silently computes in float32. So an instance-level `forward` is put on the model and on its
head, and our code travels inside:

    open_to_code(model, head)                      # before the model is wrapped, and before the teacher is copied
    loss = model(run=partial(loss_of, ...))        # hooks of the root fire, then loss_of(model) runs
    head(run=lambda head: head.weight)             # hooks of the head fire: an untied head is a unit of its own

Pass tensors through `partial`, not as keywords of `model(...)`: FSDP2 casts every floating-point tensor among the
root's arguments to its compute type.
"""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

Result = TypeVar("Result")
_OPEN = "is_open_to_code"


def open_to_code(*modules: nn.Module) -> None:
    """Let `module(run=f)` be `f(module)`, inside the module's hooks. Calling twice does no harm."""
    for module in modules:
        if not getattr(module, _OPEN, False):  # accelerate may have wrapped our forward since: leave it
            module.forward = MethodType(_forward, module)
            setattr(module, _OPEN, True)


def _forward(self: nn.Module, *args: Any, run: Callable[[nn.Module], Any] | None = None, **keywords: Any) -> Any:
    # The class's forward, looked up now: a method captured earlier would, in a deep copy, still run the original.
    return run(self) if run is not None else type(self).forward(self, *args, **keywords)


def inside(module: nn.Module, run: Callable[[Any], Result]) -> Result:
    """`run(module)` inside the forward of a module that is open to code.

    >>> from torch import nn
    >>> layer = nn.Linear(2, 3)
    >>> open_to_code(layer)
    >>> inside(layer, lambda layer: layer.weight.shape)
    torch.Size([3, 2])
    """
    result: Result = module(run=run)
    return result
