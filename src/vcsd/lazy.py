"""Packages whose names are imported on first use, so that what only reads files does not wait for torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def on_first_use(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: `names` maps each of its modules to the public names that it defines.

    A name must differ from that of its module: importing the module would take its place in the package.

    >>> on_first_use("vcsd", {"method": "METHODS Method"})("Method").__name__
    'Method'
    """
    homes = {name: f"{package}.{module}" for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get
