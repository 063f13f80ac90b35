"""Recipes that start from another one: the key `base`.

    base: qwen3_vl_2b.yaml              # a path relative to this file, or the name of a shipped recipe
    method: {alpha: 0.5}                # sections are merged key by key; every other value replaces the base's

A `method` that is one word, or that gives a `name`, replaces the whole method section: another method does not inherit
the values of the first. `vcsd config RECIPE` prints the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

from vcsd.config.shipped import shipped_path
from vcsd.config.yaml_text import MAX_CHARACTERS, NotYamlError, parse_yaml
from vcsd.errors import ConfigError, is_file, shown

if TYPE_CHECKING:
    from pathlib import Path

BASE = "base"
MAX_DEPTH = 8
"""The most recipes in a chain of bases, the first one included."""


def read_tree(path: Path, keys: Collection[str]) -> object:
    """Read a recipe file and everything it starts from into one tree of plain values, without the key `base`."""
    return merged(read_chain(path, keys))


def read_chain(path: Path, keys: Collection[str]) -> list[tuple[Path, object]]:
    """Read a recipe file and everything it starts from: each file with its own tree, from the given one down.

    `keys` are those of a recipe. A base without any of them is not a recipe, and errors do not quote it: a recipe from
    a stranger could name a private file.
    """
    chain: list[tuple[Path, object]] = [(path, _read(path))]
    while (base := _base_of(*chain[-1])) is not None:
        if base.resolve() in {file.resolve() for file, _ in chain}:
            raise ConfigError([f"{BASE}: the recipes {_names(chain)} and {str(base)!r} start from one another."])
        if len(chain) == MAX_DEPTH:
            raise ConfigError([f"{BASE}: {_names(chain)} are more than {MAX_DEPTH - 1} bases. Merge some of them."])
        chain.append((base, _read_base(base, keys)))
    return chain


def merged(chain: list[tuple[Path, object]]) -> object:
    """Merge the trees of a chain, without the key `base`. Each file overrides the ones that it starts from."""
    trees = [tree for _, tree in chain]
    tree = trees.pop()
    while trees:
        tree = _merged(tree, trees.pop())
    return tree


def _read(path: Path) -> object:
    """The tree of one file, with its base if it has one."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text. Give a YAML file"
        raise ConfigError([f"recipe {str(path)!r} cannot be read: {problem}."]) from error
    return parse_yaml(text, source=str(path))


def _read_base(path: Path, keys: Collection[str]) -> object:
    try:
        tree = _read(path)
    except NotYamlError as error:
        raise ConfigError([f"{BASE}: {str(path)!r} is not valid YAML{error.where}."]) from None
    if not isinstance(tree, Mapping) or not {BASE, *keys}.intersection(tree):
        raise ConfigError([f"{BASE}: {str(path)!r} is not a recipe: it has no sections, such as 'model:' and 'data:'."])
    return tree


def _base_of(path: Path, tree: object) -> Path | None:
    """The recipe that a file starts from: next to it if there is one, else a shipped one."""
    if not isinstance(tree, Mapping) or BASE not in tree:
        return None
    name = tree[BASE]
    if not isinstance(name, str) or not name:
        raise ConfigError([f"{BASE} = {shown(name)} in {str(path)!r} is not the path or name of a recipe."])
    if is_file(path.parent / name):
        return path.parent / name
    try:
        return shipped_path(name)
    except ConfigError as error:
        raise ConfigError([f"{BASE} in {str(path)!r}: {problem}" for problem in error.problems]) from error


def _merged(below: object, above: object) -> object:
    """Merge two trees; `above` overrides. A tree that is not a mapping is reported when the recipe is built."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above if not isinstance(above, Mapping) else below
    tree = {key: value for key, value in deepcopy(dict(below)).items() if key != BASE}
    for key, value in above.items():
        if key != BASE:
            tree[key] = _merged_method(tree.get(key), value) if key == "method" else _merged_value(tree.get(key), value)
    return tree


def _merged_value(below: object, above: object) -> object:
    return {**below, **above} if isinstance(below, Mapping) and isinstance(above, Mapping) else above


def _merged_method(below: object, above: object) -> object:
    """Merge the fields of two methods; `above` overrides, and replaces everything if it names a method.

    >>> _merged_method("opsd", {"temperature": 1})
    {'name': 'opsd', 'temperature': 1}
    >>> _merged_method({"alpha": 2, "preset": "author_code"}, {"name": "opsd"})
    {'name': 'opsd'}
    """
    if isinstance(above, Mapping) and "name" not in above:
        return _merged_value({"name": below} if isinstance(below, str) else below, above)
    return above


def _names(chain: list[tuple[Path, object]]) -> str:
    return ", ".join(repr(str(path)) for path, _ in chain)
