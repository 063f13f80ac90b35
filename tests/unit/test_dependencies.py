"""What the package imports is what it declares, and the other way round."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import vcsd

ROOT = Path(vcsd.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

DISTRIBUTIONS = {"PIL": "pillow", "yaml": "pyyaml"}
"""Import names that differ from the name of the distribution."""

UNDECLARED = {
    "pydantic_core": "a part of pydantic, which pins it",
    "triton": "torch brings it where there is one; kernels are used only if it is there",
    "torchvision": "never needed: `vcsd doctor` only warns of one that is broken",
}
"""Imports that need no declaration, with the reason."""

NOT_IMPORTED = {
    "accelerate": "transformers' Trainer needs it",
    "gguf": "transformers reads GGUF files with it",
}
"""Declared distributions that no file imports, with the reason."""


def imported_modules(tree):
    """Top-level names of everything that a file imports, also by `import_module("name")` and `need("name")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            name = node.args[0]
            if node.func.id in ("import_module", "need") and isinstance(name, ast.Constant):
                yield name.value


def imported_distributions():
    modules = {
        name.split(".")[0] for path in ROOT.rglob("*.py") for name in imported_modules(ast.parse(path.read_text()))
    }
    return {DISTRIBUTIONS.get(name, name) for name in modules - sys.stdlib_module_names - {"vcsd"}}


def declared():
    groups = PROJECT["optional-dependencies"].items()
    extras = [line for name, lines in groups if name not in ("dev", "docs", "release") for line in lines]
    return {re.match(r"[A-Za-z0-9_-]+", line).group() for line in [*PROJECT["dependencies"], *extras]}


def test_everything_imported_is_declared():
    assert imported_distributions() - declared() == UNDECLARED.keys()


def test_everything_declared_is_imported():
    assert declared() - imported_distributions() == NOT_IMPORTED.keys()
