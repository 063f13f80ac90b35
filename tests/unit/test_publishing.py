"""What the package is published with: workflows, container, changelog, notebook, site and description."""

import ast
import importlib
import importlib.util
import json
import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
import yaml
from transformers import TrainingArguments

from vcsd import __version__
from vcsd.cli import app
from vcsd.views import VIEWS

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
PUBLIC = ("vcsd", "core", "loss", "views", "data", "inspect", "trainer", "config", "evaluation.reading")


def from_file(path):
    """Import a script that is not part of a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Workflows.


def jobs_of_ci():
    return re.findall(r"^job \S+ (\S+)$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)


def made_in(workflow):
    steps = [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]
    commands = [step["run"].split() for step in steps if "run" in step]
    assert {words[0] for words in commands} == {"make"}
    return [words[1] for words in commands]


def test_the_workflow_checks_makes_the_targets_of_ci_in_its_order_on_every_python():
    assert len(jobs_of_ci()) > 10
    assert made_in("checks") == jobs_of_ci()
    versions = WORKFLOWS["checks"]["jobs"]["checks"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    declared = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert declared == versions


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_workflows_call_targets_that_exist(workflow):
    targets = re.findall(r"^([\w./-]+):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert [target for target in made_in(workflow) if target not in targets] == []


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_workflows_may_only_read_and_name_a_version_of_every_action(workflow):
    content = WORKFLOWS[workflow]
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        may = job.get("permissions", {})
        assert may == ({"id-token": "write"} if (workflow, name) == ("publish", "publish") else {})
        assert job["timeout-minutes"] <= 180
        actions = [step["uses"] for step in job["steps"] if "uses" in step]
        assert [action for action in actions if not re.search(r"@(v\d+|release/v\d+|[0-9a-f]{40})$", action)] == []


def test_publishing_needs_a_tag_an_environment_and_checked_files():
    content = WORKFLOWS["publish"]
    assert content[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key `on` as true
    assert content["jobs"]["publish"]["environment"] == "pypi"
    assert content["jobs"]["publish"]["needs"] == "build"
    assert "secrets" not in (ROOT / ".github" / "workflows" / "publish.yml").read_text()


# Container.


def test_versions_in_the_container_are_the_tested_ones():
    text = (ROOT / "Dockerfile").read_text()
    pinned = dict(re.findall(r"([\w-]+)==([\w.]+)", text))
    assert pinned.keys() == {"torch", "transformers", "vllm"}
    assert pinned == {name: PINS[name] for name in pinned}
    (extras,) = re.findall(r"source\[([\w,]+)\]", text)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_the_container_does_not_run_as_root():
    users = re.findall(r"^USER (\S+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert users
    assert not {"root", "0"} & set(users)


def test_the_dev_container_builds_a_stage_that_exists():
    content = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    stages = re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert content["build"]["target"] in stages
    assert content["remoteUser"] in (ROOT / "Dockerfile").read_text()


# Versions and tools.


def test_the_changelog_has_unreleased_changes_on_top_and_then_this_version():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", headings[1])


def test_the_tools_that_make_installs_are_those_of_the_extras():
    (line,) = re.findall(r"^DOCS_TOOLS := (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    extras = PROJECT["optional-dependencies"]
    assert sorted(line.split()) == sorted(re.split(r"[<>=]", one)[0] for one in [*extras["docs"], *extras["release"]])


def test_the_description_has_no_pictures_and_no_links_into_the_repository(monkeypatch):
    interface = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    text = from_file(ROOT / "hatch_build.py").standalone((ROOT / "README.md").read_text())
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []
    assert "![" not in text
    assert "Post-train vision-language models" in text


# Notebook.


def test_the_notebook_has_no_outputs_and_its_code_is_python():
    cells = json.loads((ROOT / "examples" / "demo.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
    for text in code:
        ast.parse(text)


# Site.


def test_every_public_name_is_on_a_page_of_the_api():
    text = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    whole = set(re.findall(r"automodule:: (\S+)\n(?!   :no-members:)", text + "\n"))
    single = set(re.findall(r"auto(?:class|function|data):: (\S+)", text))
    for package in PUBLIC:
        module = "vcsd" if package == "vcsd" else f"vcsd.{package}"
        names = set() if module in whole else {f"{module}.{name}" for name in importlib.import_module(module).__all__}
        known = {"vcsd.METHODS", "vcsd.__version__", "vcsd.trainer.VCSDTrainer"}  # documented where they are defined
        assert names - single - known == set()


def strings_of_the_package():
    """The fixed parts of every string in the package, with the parts of an f-string joined by an ellipsis."""
    for path in (ROOT / "src" / "vcsd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_messages_under_troubleshooting_are_those_of_the_package():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)
    assert len(messages) > 25
    known = "\n".join(strings_of_the_package())
    parts = [part.strip(" .") for message in messages for part in message.split("…")]
    assert [part for part in parts if len(part) > 3 and part not in known] == []


def test_a_dead_link_a_lost_page_and_a_foreign_script_are_found(tmp_path):
    (tmp_path / "index.html").write_text('<a href="a.html#here">a</a><a href="gone.html">b</a>')
    (tmp_path / "a.html").write_text('<script src="https://example.org/a.js"></script>')
    (tmp_path / "lost.html").write_text("")
    found = from_file(ROOT / ".ci" / "check_site.py").problems(tmp_path.resolve())
    assert len(found) == 4
    assert [word for word in ("gone.html", "#here", "example.org", "lost.html") if word not in "".join(found)] == []


def test_every_page_is_in_a_table_of_contents_of_the_site():
    listed = set(re.findall(r"^([\w/]+)$", (ROOT / "docs" / "index.md").read_text(), flags=re.MULTILINE))
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {
        f"project/{path.stem}" for path in (ROOT / "docs" / "project").glob("*.md")
    }
    assert sorted(pages - listed - {"index"}) == [], "add these to a toctree in docs/index.md"


def recipe_keys():
    keys = set(re.findall(r"`([\w.]+)` \|", (ROOT / "docs" / "recipe_keys.md").read_text()))
    return keys | {f"trainer.{field.name}" for field in fields(TrainingArguments)} | {"data.columns.images"}


def test_our_side_of_the_page_for_other_libraries_names_keys_that_exist():
    rows = re.findall(r"^\|.*\| ([^|]+) \|$", (ROOT / "docs" / "coming_from.md").read_text(), flags=re.MULTILINE)
    sections = r"`((?:model|data|method|rollout|trainer|lora|evaluation)\.[\w.]+)"
    named = {key for row in rows for key in re.findall(sections, row)}
    assert len(named) > 20
    assert sorted(named - recipe_keys()) == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_commands_on_pages_have_options_that_exist(page):
    commands = typer.main.get_command(app.app).commands
    blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", page.read_text(), flags=re.DOTALL))
    for name, rest in re.findall(r"^vcsd ([a-z]+)(.*)$", blocks, flags=re.MULTILINE):
        parts = [commands[name], *getattr(commands[name], "commands", {}).values()]
        known = {option for command in parts for parameter in command.params for option in parameter.opts} | {"--help"}
        assert [flag for flag in re.findall(r"(?<=\s)--[a-z-]+", rest.partition(" #")[0]) if flag not in known] == []


def test_the_table_of_tested_versions_is_that_of_the_constraints():
    page = (ROOT / "docs" / "project" / "install.md").read_text()
    rows = re.findall(r"^\| (torch|transformers|vLLM) \| ([\d.]+)[^|]*\| ([\d.]+)[^|]*\| ([\d.]+)", page, re.MULTILINE)
    pinned = {name: version for name, _, version, _ in rows}
    assert pinned == {"torch": PINS["torch"], "transformers": PINS["transformers"], "vLLM": PINS["vllm"]}
    ((oldest, latest),) = [(first, last) for name, first, _, last in rows if name == "transformers"]
    makefile = (ROOT / "Makefile").read_text()
    assert f".oldest/.installed: RELEASE := {oldest}\n" in makefile
    assert f".latest/.installed: RELEASE := {latest}\n" in makefile
    for name, first, _, last in rows[:2]:  # the next minor release is not supported
        major, minor, _ = last.split(".")
        bounds = f'"{name}>={".".join(first.split(".")[:2])},<{major}.{int(minor) + 1}"'
        assert bounds in (ROOT / "pyproject.toml").read_text()


def test_every_view_is_on_the_page_of_views():
    page = (ROOT / "docs" / "api" / "views.md").read_text()
    views = [f"{view.__module__}.{view.__qualname__}" for view in VIEWS.values()]
    assert [view for view in views if f"autofunction:: {view}\n" not in page] == []
