"""The seven benchmarks of the paper's table, one file each: what they are called, where they lie, how a row is read."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from vcsd.evaluation.benchmarks import blink, hallusionbench, hrbench4k, hrbench8k, mathvista, mmstar, vstar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.benchmarks.layout import Layout

_MODULES = (blink, mmstar, vstar, mathvista, hrbench4k, hrbench8k, hallusionbench)
LAYOUTS: Mapping[str, Layout] = MappingProxyType({module.LAYOUT.name: module.LAYOUT for module in _MODULES})
"""By VLMEvalKit's names, in the order of the paper's table."""
