"""Find recipes: a file by its path, or one that ships with the package by its name.

The shipped recipes are the checkout's `recipes/` folder, which a wheel carries inside the package. Their names are
paths in it without the ending: `paper/qwen3_vl_2b`.
"""

from __future__ import annotations

from pathlib import Path

from vcsd.errors import ConfigError, did_you_mean, is_file, is_folder, shown, similar_path

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")

_RECIPE_ENDINGS = (".yaml", ".yml")
_DATA_ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet", ".arrow")

NOT_RECIPES = ("accelerate",)
"""Folders next to the recipes that hold something else: configs for `accelerate launch`."""


def shipped_folder() -> Path:
    """Return the folder of the shipped recipes."""
    for folder in _FOLDERS:
        if folder.is_dir():
            return folder
    raise ConfigError(
        [f"the shipped recipes are missing: no folder {' or '.join(map(str, _FOLDERS))}. Reinstall vcsd."]
    )


def shipped_names() -> list[str]:
    """Return the names of all shipped recipes, sorted.

    >>> "paper/qwen3_vl_2b" in shipped_names()
    True
    """
    folder = shipped_folder()
    paths = [path.relative_to(folder) for path in folder.rglob("*.yaml")]
    return sorted(path.with_suffix("").as_posix() for path in paths if path.parts[0] not in NOT_RECIPES)


def folder_titles() -> dict[str, str]:
    """Return what each folder of recipes holds, from the table in its README.

    >>> folder_titles()["paper"]
    "VCSD on the six models of the paper's main table"
    """
    lines = (shipped_folder() / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| `")]
    return {folder.strip("`/"): title.partition(";")[0].replace("`", "") for folder, title in rows}


def recipe_path(name: str | Path) -> Path:
    """Return the path of a recipe, given as a path or by the name of a shipped one. An existing file wins.

    >>> recipe_path("paper/qwen3_vl_2b").name
    'qwen3_vl_2b.yaml'
    """
    if is_folder(Path(name)) and str(name) not in shipped_names():
        raise ConfigError(
            [f"recipe {shown(str(name), 200)} is a folder. Give the YAML file of the run; the same command resumes it."]
        )
    if not is_file(Path(name)):
        return shipped_path(str(name))
    if Path(name).suffix.lower() in _DATA_ENDINGS:
        file = shown(str(name), 200)
        raise ConfigError(
            [f"{file} holds data, not a recipe. Write one that trains on it: vcsd init --model MODEL --data {name}"]
        )
    return Path(name)


def shipped_path(name: str) -> Path:
    """Return the path of a shipped recipe. Raise a ConfigError with the nearest name if there is none."""
    known, stem = shipped_names(), name.removesuffix(".yaml")
    if stem not in known:
        problem = (
            f"recipe {shown(name, 200)} cannot be read: there is neither such a file nor a shipped recipe of this name."
        )
        here = [file for ending in _RECIPE_ENDINGS if is_file(Path(f"{name}{ending}")) and (file := f"{name}{ending}")]
        near = f"Did you mean {here[0]!r}?" if here else did_you_mean(stem, known)
        similar = None if near.startswith("Did") else similar_path(name, wants_file=True)
        if similar is not None and Path(similar).suffix in _RECIPE_ENDINGS:
            near = f"Did you mean {similar!r}?"
        raise ConfigError([f"{problem} {near if near.startswith('Did') else '`vcsd recipes` lists them.'}"])
    return shipped_folder() / f"{stem}.yaml"
