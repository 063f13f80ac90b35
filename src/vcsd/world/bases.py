"""The bases that come with the package, one of each family, and where to find them."""

from __future__ import annotations

from pathlib import Path

from vcsd.errors import ConfigError, did_you_mean

_FOLDER = Path(__file__).parent / "assets"

SHIPPED = {"qwen3_vl": "qwen3_vl-small-1", "qwen3_5": "qwen3_5-small-1"}
"""The folder of each family's base: family, size, seed."""


def shipped_base(family: str = "qwen3_vl") -> Path:
    """The folder of the shipped base of a family: a plain model folder with its processor and card."""
    if family not in SHIPPED:
        raise ConfigError(
            [
                f"no base of {family!r} comes with this package. {did_you_mean(family, SHIPPED)} "
                "Make one with `vcsd world pretrain`."
            ]
        )
    return _FOLDER / SHIPPED[family]
