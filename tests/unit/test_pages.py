"""README, docs and changelog: links work, the names they use exist, and lines are at most 120 columns wide."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[ap]*/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_at_most_120_columns_wide(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith("|") and " " in line.strip()]
    assert [line for line in lines if len(line) > 120] == []


def test_links_point_to_files():
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:]+)\)", prose):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_files_that_a_page_names_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:src|tests|benchmarks|examples|recipes|docs)/[\w/.]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_package_that_a_page_uses_exist(page):
    text = page.read_text().partition("## What moved")[0]
    for statement in re.findall(r"^from (vcsd[\w.]*) import (.+)$", text, flags=re.MULTILINE):
        module, names = statement
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == []
    for name in re.findall(r"`(vcsd(?:\.\w+)+)", text):
        assert resolves(name), f"{page.name} names {name}"


def resolves(name):
    """Whether a dotted name is a module of the package, or an attribute of something that is."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, attribute = name.rpartition(".")
        return resolves(parent) and hasattr(pkgutil.resolve_name(parent), attribute)
    return True


def test_the_new_names_of_what_moved_exist():
    moved = (ROOT / "CHANGELOG.md").read_text().partition("### What moved")[2]
    rows = [line.strip("| ").split(" | ") for line in moved.splitlines() if line.startswith("| `vcsd.")]
    new = [name for cells in rows for name in re.findall(r"`(vcsd(?:\.\w+)+)", cells[1])]
    assert len(new) > 100
    assert [name for name in new if not resolves(name)] == []
