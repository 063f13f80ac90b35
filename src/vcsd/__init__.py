"""Visual Contrastive Self-Distillation: post-train vision-language models without labels.

Importing this package runs nothing and loads neither torch nor transformers; names are imported on first use.
"""

from typing import TYPE_CHECKING

from vcsd.lazy import on_first_use

if TYPE_CHECKING:
    from vcsd.method import METHODS, Method
    from vcsd.trainer import VCSDTrainer

__version__ = "0.1.0"
__all__ = ["METHODS", "Method", "VCSDTrainer", "__version__"]

__getattr__ = on_first_use(
    __name__,
    {
        "method": "METHODS Method",
        "trainer": "VCSDTrainer",
    },
)
