"""One name, one meaning; and folders and functions small enough to see at a glance."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import vcsd

ROOT = Path(vcsd.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

REPEATED_MODULES = {
    "__init__": "every package has one",
}
"""Module names that may occur in several packages, with the reason."""

MOST_MODULES = 13
"""Split a folder that has more, not counting `__init__.py`."""

MOST_LINES = 59
"""Of a function, signature and docstring included; Triton kernels may be longer."""

MOST_ANY = 6
"""Uses of `Any` per thousand lines."""


def repeated(places):
    return {name: files for name, files in places.items() if len(files) > 1}


def test_no_public_class_name_is_defined_twice():
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 50
    assert repeated(places) == {}


def test_module_names_repeat_only_for_a_reason():
    places = defaultdict(list)
    for path in FILES:
        places[path.stem].append(str(path.relative_to(ROOT)))
    assert repeated(places).keys() == REPEATED_MODULES.keys()


def test_folders_hold_about_a_dozen_modules():
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in FILES if path.stem != "__init__")
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def is_kernel(function):
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_functions_end_where_their_start_can_still_be_seen():
    lengths = {
        f"{path.relative_to(ROOT)}: {node.name}": node.end_lineno - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and not is_kernel(node)
    }
    assert len(lengths) > 500
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_any_is_rare():
    texts = [path.read_text() for path in FILES]
    num_lines = sum(len(text.splitlines()) for text in texts)
    code = [line for text in texts for line in text.splitlines() if not re.match(r"\s*(from|import) ", line)]
    num_any = sum(len(re.findall(r"\bAny\b", line)) for line in code)
    assert 1000 * num_any / num_lines <= MOST_ANY


NOT_YET_NAMED = ("evaluation/reading", "emoji", "reproduce/planned")
"""Folders whose variables may still be called `found`."""


def bound_names(tree):
    """The variables and parameters of a module, without the fields of its classes."""
    fields = {field.target for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for field in node.body
              if isinstance(field, ast.AnnAssign)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield node.id


def test_variables_say_what_was_found():
    places = [str(path.relative_to(ROOT)) for path in FILES if "found" in bound_names(ast.parse(path.read_text()))]
    assert [place for place in places if not place.startswith(NOT_YET_NAMED)] == []
    assert all(any(place.startswith(folder) for place in places) for folder in NOT_YET_NAMED)
