"""Find the world's recipes, in the checkout's `recipes/world` or inside an installed package."""

from __future__ import annotations

from pathlib import Path

from vcsd.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "recipes" / "world", _PACKAGE.parents[1] / "recipes" / "world")


def recipe_path(name: str) -> Path:
    """Return the path of a shipped recipe."""
    for folder in _FOLDERS:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise ConfigError([f"there is no world recipe {name!r} in {' or '.join(map(str, _FOLDERS))}."])
