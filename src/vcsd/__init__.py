"""Visual Contrastive Self-Distillation: post-train vision-language models without labels.

Importing this package runs nothing and loads neither torch nor transformers; names are imported on first use.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcsd.method import METHODS, Method
    from vcsd.trainer import VCSDTrainer

__version__ = "0.1.0"
__all__ = ["METHODS", "Method", "VCSDTrainer", "__version__"]


def on_first_use(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package. `names` maps its modules to the public names that they define.

    A name must differ from that of its module: importing the module would take its place in the package.

    >>> get, names = on_first_use("vcsd", {"method": "METHODS Method"})
    >>> get("Method").__name__, "Method" in names()
    ('Method', True)
    """
    homes = {name: f"{package}.{module}" for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})


__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "method": "METHODS Method",
        "trainer": "VCSDTrainer",
    },
)
