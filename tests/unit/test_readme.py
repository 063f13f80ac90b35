"""The README is true: its Python runs, its file tree is the disk's, its commands exist."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from vcsd import __version__, cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return [code for name, code in re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL) if name == language]


def listed_files():
    """The paths of the file tree, from its indentation."""
    (tree,) = [block for block in blocks("") if block.startswith("src/vcsd/")]
    folders, paths = {}, []
    for line in tree.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        path = folders.get(depth - 1, "") + name
        assert name.endswith("/") or len(line.split()) > 1, f"{name} has no comment"
        if name.endswith("/"):
            folders[depth] = path
            paths += [path] if len(line.split()) > 1 else []  # a folder with a comment stands for what is in it
        else:
            paths.append(path)
    return paths


def test_the_file_tree_is_what_is_on_disk():
    tracked = subprocess.run(
        [
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "src",
            "examples",
            "recipes",
            "docs",
            "benchmarks",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    on_disk = {path for path in tracked.stdout.split() if (ROOT / path).exists() and not path.endswith("py.typed")}
    listed = set(listed_files())
    folders = tuple(path for path in listed if path.endswith("/"))
    assert sorted(listed - set(folders)) == sorted(path for path in on_disk if not path.startswith(folders))


def test_the_python_runs_and_is_about_fifteen_lines():
    (code,) = blocks("python")
    exec(code, {"print": lambda *values: None})
    assert len([line for line in code.splitlines() if line.strip()]) <= 15


def test_the_two_commands_are_targets_of_the_makefile():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    commands = re.findall(r"^make ([a-z-]+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    assert set(commands) <= set(targets)


def test_every_vcsd_command_in_the_readme_exists():
    named = set(re.findall(r"^vcsd ([a-z]+)", README, flags=re.MULTILINE))
    commands = {command.callback.__name__ for command in cli.app.registered_commands}
    assert named == commands | {group.name for group in cli.app.registered_groups}


def test_links_lead_to_files():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"]:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:]+)\)", prose):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


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
