"""Visual Contrastive Self-Distillation: post-train vision-language models without labels.

Importing this package runs nothing and loads neither torch nor transformers; names are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcsd.method import METHODS, Method
    from vcsd.trainer import VCSDTrainer

__version__ = "0.1.0"
__all__ = ["METHODS", "Method", "VCSDTrainer", "__version__"]

_HOME = {"METHODS": "vcsd.method", "Method": "vcsd.method", "VCSDTrainer": "vcsd.trainer"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vcsd' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
