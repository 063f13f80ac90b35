"""What the package imports is what it declares, and the other way round."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import vcsd

ROOT = Path(vcsd.__file__).parent
CHECKOUT = Path(__file__).parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: {re.match(r"[A-Za-z0-9_-]+", line).group() for line in lines}
    for name, lines in PROJECT["optional-dependencies"].items()
}
FOR_CHECKOUTS = {"dev", "docs", "release"}
"""Extras that only the files of a checkout need."""

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
    required = {re.match(r"[A-Za-z0-9_-]+", line).group() for line in PROJECT["dependencies"]}
    return required.union(*(packages for name, packages in EXTRAS.items() if name not in FOR_CHECKOUTS))


def test_everything_imported_is_declared():
    assert imported_distributions() - declared() == UNDECLARED.keys()


def test_everything_declared_is_imported():
    assert declared() - imported_distributions() == NOT_IMPORTED.keys()


def hints(lines):
    """The hints to install extras, such as `pip install 'vcsd[data]'` or '.[data,eval]': each line with its extras."""
    for line in lines:
        for extras in re.findall(r"""(?:\bvcsd|['"]\.)\[([a-z]+(?:,[a-z]+)*)\](?=['"`])""", line):
            yield line, extras.split(",")
        yield from ((line, [extra]) for extra in re.findall(r"""\binstall_command\(['"](\w+)['"]\)""", line))


def lines_of(*patterns):
    return [line for pattern in patterns for path in CHECKOUT.glob(pattern) for line in path.read_text().splitlines()]


def test_every_extra_that_a_hint_names_is_declared():
    """pip only warns of an extra that does not exist, and installs nothing for it."""
    in_messages = {name for _, extras in hints(lines_of("src/vcsd/**/*.py")) for name in extras}
    assert in_messages == EXTRAS.keys() - FOR_CHECKOUTS
    pages = lines_of("*.md", "docs/**/*.md", "examples/*.ipynb", "recipes/**/*.md", "Makefile", ".github/**/*.yml")
    on_pages = {name for _, extras in hints(pages) for name in extras}
    assert on_pages >= {"data", "eval", "peft", "vllm", "dev"}
    assert on_pages <= EXTRAS.keys()


def test_an_extra_that_a_message_names_holds_the_package_that_is_missing():
    packages = set().union(*(EXTRAS[name] for name in EXTRAS.keys() - FOR_CHECKOUTS))
    for line, (extra,) in hints(lines_of("src/vcsd/**/*.py")):
        named = packages & set(re.findall(r"\w+", re.split("pip install|install_command", line)[0].lower()))
        assert named <= EXTRAS[extra], line


def test_a_hint_is_found_in_every_form():
    lines = [
        "{install_command('peft')}",
        "pip install 'vcsd[data]'.",
        'pip install "vcsd[data]"',
        "-e '.[data,eval]'",
        "(`pip install vcsd[ui]`)",
    ]
    assert [extras for _, extras in hints(lines)] == [["peft"], ["data"], ["data"], ["data", "eval"], ["ui"]]
    assert not list(hints(["vcsd[run] - opsd[run]", "f\"'vcsd[{name}]'\""]))
