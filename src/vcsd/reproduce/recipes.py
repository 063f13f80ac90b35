"""Where the world's recipes are: in the checkout's `recipes/world`, or inside an installed package."""

from __future__ import annotations

from pathlib import Path

from vcsd.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "recipes" / "world", _PACKAGE.parents[1] / "recipes" / "world")


def recipe_path(name: str) -> Path:
    """The recipe of that name.

    >>> recipe_path("demo").name
    'demo.yaml'
    """
    for folder in _PLACES:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise ConfigError([f"there is no recipe {name!r} of the world in {' or '.join(str(place) for place in _PLACES)}."])
