"""The bases that are shipped with the package, one of each family."""

from __future__ import annotations

from pathlib import Path

from vcsd.errors import ConfigError, did_you_mean

_FOLDER = Path(__file__).parent / "assets"

SHIPPED = {"qwen3_vl": "qwen3_vl-small-1", "qwen3_5": "qwen3_5-small-1"}
"""The folder of each family's base: family, size, seed."""


def shipped_base(family: str = "qwen3_vl") -> Path:
    """The folder of a family's shipped base: an ordinary model folder with a processor and a card."""
    if family not in SHIPPED:
        raise ConfigError(
            [
                f"no base of the family {family!r} is shipped with this package. {did_you_mean(family, SHIPPED)} "
                "Make one with `vcsd world pretrain`."
            ]
        )
    return _FOLDER / SHIPPED[family]
