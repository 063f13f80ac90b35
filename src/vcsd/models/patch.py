"""The one way to change transformers' code: replace a function of its module, or a method of one model's modules.

Each family lists its patches as data, as in `qwen/qwen3_vl.py` and `idefics/idefics3.py`; `apply` puts them in place. A
function is replaced once per process. A method is replaced on each instance of its class, which works behind
accelerate's hooks (device_map), in the subclasses that FSDP2 makes, under PEFT, and in deep copies of the model.

All replacements carry one mark, and one policy covers all conflicts:

    patched already          nothing happens, and wrappers that accelerate added in the meantime stay
    by another library       ConfigError: one library would undo what the other did
    the target is missing    RuntimeError: the release of transformers is not supported
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import wraps
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from torch import nn

    Function = Callable[..., Any]

_MARK = "is_patch_of_vcsd"
_HOOK, _HOOKED = "_hf_hook", "_old_forward"
"""Where accelerate keeps a module's hook, and the forward that the hook runs around."""


@dataclass(frozen=True)
class Patch:
    """One change: a function "name", or a method "Class.name" with the class named without the family's prefix.

    A function is replaced by `replacement(function)`, made with functools.wraps. A method is replaced by `replacement`,
    which calls `type(self).name(self, ...)` if it needs the original: a bound method captured earlier would still run
    on the original model in a deep copy.

    >>> Patch("TextModel._deepstack_process", print).target("Qwen3VLMoe")
    'Qwen3VLMoeTextModel._deepstack_process'
    """

    name: str
    replacement: Function

    def target(self, prefix: str) -> str:
        """The name in a modelling module whose classes begin with a prefix."""
        return prefix + self.name if "." in self.name else self.name


def apply(patches: Sequence[Patch], model: nn.Module, prefix: str) -> None:
    """Patch the modelling module of `model` and the modules in it. Idempotent."""
    home = home_of(model, f"{prefix}Model")
    absent = [f"{prefix}Model"] if home is None else missing(patches, home, prefix)
    if home is None or absent:
        raise RuntimeError(
            f"the modelling module of {type(model).__name__} has no {', '.join(absent)}: "
            "this release of transformers is not supported. Install one between 5.17 and 5.23."
        )
    for patch in patches:
        owner, _, name = patch.target(prefix).rpartition(".")
        if not owner:
            replace_function(home, name, patch.replacement)
            continue
        for module in model.modules():
            if isinstance(module, getattr(home, owner)):
                replace_method(module, name, patch.replacement)


def missing(patches: Sequence[Patch], home: ModuleType, prefix: str) -> list[str]:
    """The targets of patches that a modelling module does not have."""
    targets = [patch.target(prefix) for patch in patches]
    owners = {target: target.rpartition(".") for target in targets}
    return [
        target
        for target, (owner, _, name) in owners.items()
        if not hasattr(getattr(home, owner, None) if owner else home, name)
    ]


def replace_function(home: ModuleType, name: str, wrap: Function) -> None:
    """Replace a function of a Python module by `wrap(function)`."""
    current = getattr(home, name)
    if _is_ours(current):
        return
    # Kernels that transformers itself chose are objects, or wrapped under the name of transformers' function.
    if isinstance(current, FunctionType) and current.__module__.split(".")[0] != home.__name__.split(".")[0]:
        raise _conflict(f"{home.__name__}.{name}", f"the function {current.__module__}.{current.__name__}")
    setattr(home, name, _marked(wrap(current)))


def replace_method(module: nn.Module, name: str, method: Function) -> None:
    """Replace a method of one module, inside the hook that accelerate may have put around its forward."""
    slot = _HOOKED if name == "forward" and _HOOK in vars(module) else name
    current = vars(module).get(slot)
    if _is_ours(current):
        return
    if current is not None and getattr(current, "__func__", None) is not getattr(type(module), name):
        raise _conflict(f"{type(module).__name__}.{name}", "a method")
    setattr(module, slot, MethodType(_marked(method), module))


def _marked(function: Function) -> Function:
    setattr(function, _MARK, True)
    return function


def _is_ours(function: object) -> bool:
    """Whether a function is a patch, or wraps one."""
    while function is not None and not hasattr(function, _MARK):
        function = getattr(function, "__wrapped__", None)
    return function is not None


def _conflict(target: str, replacement: str) -> ConfigError:
    return ConfigError(
        [f"another library has replaced {target} by {replacement}. Prepare the model first, then wrap or patch it."]
    )


def home_of(module: nn.Module, *names: str) -> ModuleType | None:
    """The Python module of a module's class, or of one of its bases (FSDP2 and PEFT derive classes), with these names.

    >>> from torch import nn
    >>> home_of(nn.Linear(2, 3), "Linear", "Bilinear").__name__
    'torch.nn.modules.linear'
    """
    homes = (sys.modules[base.__module__] for base in type(module).__mro__)
    return next((home for home in homes if all(hasattr(home, name) for name in names)), None)


def open_to_code(*modules: nn.Module) -> None:
    """Let `module(run=f)` call `f(module)` inside the module's hooks (see `vcsd.models.inside`). Idempotent."""
    for module in modules:
        replace_method(module, "forward", _redirected(type(module)))


def _redirected(kind: type[nn.Module]) -> Function:
    @wraps(kind.forward)  # `generate` and Trainer read the signature to see which inputs the model takes
    def forward(
        self: nn.Module, *args: object, run: Callable[[nn.Module], object] | None = None, **keywords: object
    ) -> object:
        return run(self) if run is not None else type(self).forward(self, *args, **keywords)

    return forward
