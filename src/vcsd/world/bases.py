"""The bases that come with the package, one of each family, and where to find them."""

from __future__ import annotations

from pathlib import Path

from vcsd.errors import ConfigError, did_you_mean

_FOLDER = Path(__file__).parent / "bases"


def shipped_families() -> list[str]:
    """The families of which a base is shipped."""
    return sorted(path.name for path in _FOLDER.iterdir() if (path / "card.json").exists()) if _FOLDER.is_dir() else []


def shipped_base(family: str = "qwen3_vl") -> Path:
    """The folder of the shipped base of a family: a plain model folder with its processor and card."""
    families = shipped_families()
    if family not in families:
        raise ConfigError(
            [
                f"no base of {family!r} comes with this package. {did_you_mean(family, families)} "
                "Make one with `vcsd world pretrain`."
            ]
        )
    return _FOLDER / family
