"""The README matches the repository, its Python runs, and docs/files.md lists every file."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from vcsd import __version__
from vcsd.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FILES = (ROOT / "docs" / "files.md").read_text()
LISTED = ("src", "examples", "recipes", "docs", "benchmarks")
"""The folders whose files docs/files.md lists."""


def blocks(text, language):
    return [code for name, code in re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL) if name == language]


def tree(text):
    """The paths of a file tree, from its indentation; a folder with a comment stands for everything in it."""
    (lines,) = [block.splitlines() for block in blocks(text, "") if block.startswith("src/vcsd/")]
    folders, paths = {}, []
    for line in lines:
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        path = folders.get(depth - 1, "") + name
        has_comment = len(line.split()) > 1
        if name.endswith("/"):
            folders[depth] = path
        else:
            assert has_comment, f"{name} has no comment"
        if has_comment:
            paths.append(path)
    return paths


def tracked(*folders):
    """Paths of files that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return {path for path in listing.stdout.splitlines() if (ROOT / path).exists()}


def test_the_list_of_files_matches_the_disk():
    listed = set(tree(FILES))
    folders = tuple(path for path in listed if path.endswith("/"))
    may_be_left_out = {path for path in tracked("src") if path.endswith(("__init__.py", "py.typed"))}
    on_disk = {path for path in tracked(*LISTED) if not path.startswith(folders)}
    assert sorted(on_disk - may_be_left_out - listed) == [], "add these to docs/files.md"
    assert sorted(listed - set(folders) - on_disk) == [], "remove these from docs/files.md"


def test_the_readme_has_one_line_per_folder():
    packages = {"/".join(path.split("/")[:3]) for path in tracked("src") if path.endswith("/__init__.py")}
    top = {path.split("/")[0] for path in tracked() if "/" in path and not path.startswith(".")} - {"src"}
    expected = {f"{path}/" for path in packages | top if not path.endswith(".py")} | {"src/vcsd/"}
    assert sorted(tree(README)) == sorted(expected)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120


def test_the_python_runs_and_is_about_ten_lines():
    (code,) = blocks(README, "python")
    exec(code, {"print": lambda *values: None})
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_the_two_commands_are_targets_of_the_makefile():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    commands = re.findall(r"^make ([a-z-]+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    assert set(commands) <= set(targets)


def test_the_readme_names_every_command_and_no_other():
    named = set(re.findall(r"`vcsd ([a-z]+)", README))
    commands = {command.callback.__name__ for command in app.app.registered_commands}
    assert named == commands | {group.name for group in app.app.registered_groups}


def test_the_version_is_the_same_everywhere():
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_nothing_asks_for_torchvision_and_torch_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    constraints = (ROOT / "constraints.txt").read_text()
    assert not [line for line in asked if line.startswith("torchvision")]
    assert not re.search(r"^(torchvision|nvidia)", constraints, flags=re.MULTILINE)
    assert "\ntorch==2.13.0\n" in constraints


def test_every_direct_dependency_is_pinned_in_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    names = {re.match(r"[A-Za-z0-9_-]+", line).group().lower() for line in asked}
    pinned = {
        line.split("==")[0].strip().lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    assert names - pinned == set()
