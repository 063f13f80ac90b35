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

import sys
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torch import nn

Result = TypeVar("Result")
_OPEN = "is_open_to_code"
_HOOK, _OF_HOOKED = "_hf_hook", "_old_forward"
"""Where accelerate keeps a module's hook, and the forward that it goes around."""


def open_to_code(*modules: nn.Module) -> None:
    """Let `module(run=f)` be `f(module)`, inside the module's hooks. Calling twice does no harm."""
    for module in modules:
        if not getattr(module, _OPEN, False):  # accelerate may have wrapped our forward since: leave it
            override(module, _redirected(type(module)))
            setattr(module, _OPEN, True)


def override(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Give a module a forward of its own, inside the hooks that accelerate may have put around it (device_map).

    Raises a ConfigError where another library has replaced the forward: ours would undo what it did, or it ours.
    """
    place = _OF_HOOKED if _HOOK in vars(module) else "forward"
    before = vars(module).get(place)
    if before is not None and getattr(before, "__func__", None) is not type(module).forward:
        raise ConfigError(
            [
                f"{type(module).__name__} has a forward that another library has put in place of its class's. Prepare "
                "the model first, and wrap or patch it afterwards."
            ]
        )
    setattr(module, place, MethodType(forward, module))


def reshard(*models: nn.Module) -> None:
    """Let parameters be shards again: after a forward without a backward, FSDP2 leaves some of them whole."""
    for model in models:
        for module in model.modules():
            give_back = getattr(module, "reshard", None)
            if give_back is not None:
                give_back()


def home_of(module: nn.Module, *names: str) -> ModuleType | None:
    """The Python module of its class that has all these names; FSDP2 and PEFT put classes of their own in front.

    >>> from torch import nn
    >>> home_of(nn.Linear(2, 3), "Linear", "Bilinear").__name__
    'torch.nn.modules.linear'
    """
    homes = (sys.modules[base.__module__] for base in type(module).__mro__)
    return next((home for home in homes if all(hasattr(home, name) for name in names)), None)


def _redirected(kind: type[nn.Module]) -> Callable[..., Any]:
    @wraps(kind.forward)  # `generate` and Trainer read the signature to see which inputs the model takes
    def forward(self: nn.Module, *args: Any, run: Callable[[nn.Module], Any] | None = None, **keywords: Any) -> Any:
        # The class's forward, looked up now: a method captured earlier would, in a deep copy, still run the original.
        return run(self) if run is not None else type(self).forward(self, *args, **keywords)

    return forward


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
