"""Dependencies point one way, importing costs nothing, and core needs torch alone."""

import ast
import importlib
import inspect
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import vcsd

ROOT = Path(vcsd.__file__).parent
RANKS = [
    "errors",
    "visible",
    "terminal",
    "types",
    "core",
    "kernels",
    "loss",
    "method",
    "views",
    "models",
    "batch",
    "parallel",
    "rollout",
    "teacher",
    "host_teacher",
    "lora",
    "step",
    "checkpoint",
    "monitor",
    "data",
    "inputs",
    "trainer",
    "report",
    "world",
    "evaluation",
    "config",
    "student",
    "projection",
    "run",
    "publish",
    "bases",
    "inspect",
    "reproduce",
    "emoji",
    "demo",
    "cli",
    "__main__",
]
"""Every package and top-level module, one rank each: it may import those above it in this list, and no other."""

RANK = {name: rank for rank, name in enumerate(RANKS)}


SUB_RANKS = {
    "data": ["formats"],
    "emoji": ["study"],
    "emoji/study": ["sections"],
    "evaluation": ["asking", "benchmarks", "reading", "scoring"],
    "evaluation/benchmarks": ["files"],
    "evaluation/reading": ["texts", "judging"],
    "inspect": ["precheck", "ui"],
    "kernels": ["delta"],
    "models": ["messages", "packed", "weights", "qwen", "idefics"],
    "reproduce": ["abilities", "paper", "pages", "planned", "judged", "failures"],
    "rollout": ["vllm", "fixed"],
    "world": ["questions"],
}
"""The sub-packages of each package, in the same order: one may import those above it, and no other."""


def module_path(name):
    """("models", "qwen", "fused") for "vcsd.models.qwen.fused"; None for a name that is not a module of vcsd."""
    parts = tuple(name.split("."))
    if parts[0] != "vcsd" or len(parts) == 1:
        return None
    path = ROOT.joinpath(*parts[1:])
    return parts[1:] if path.with_suffix(".py").exists() or (path / "__init__.py").exists() else None


@cache
def imports():
    """(importing module, imported module) for every import of vcsd by vcsd, each as a tuple of path parts."""
    pairs = []
    for path in sorted(ROOT.rglob("*.py")):
        importer = path.relative_to(ROOT).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path} imports relatively: write the full name of the package"
                # `from vcsd.package import x` names a module or an attribute of the package
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            pairs += [(importer, imported) for imported in map(module_path, names) if imported]
    return pairs


def imports_within(package):
    """(child, imported child, importing module) for every import between two children of a package."""
    depth = len(package)
    for importer, imported in imports():
        is_inside = importer[:depth] == imported[:depth] == package and min(len(importer), len(imported)) > depth
        if is_inside and importer[depth] != imported[depth] and importer[depth] != "__init__":
            yield importer[depth], imported[depth], "/".join(importer)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_imports_point_one_way():
    edges = list(imports_within(()))
    assert len(edges) > 100
    assert [edge for edge in edges if RANK[edge[1]] > RANK[edge[0]]] == []


def test_every_package_has_one_rank():
    packages = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert packages - {"__init__"} == set(RANKS)
    assert len(RANKS) == len(RANK)


def test_every_sub_package_has_one_rank():
    nested = [path.parent.relative_to(ROOT) for path in ROOT.rglob("*/*/__init__.py")]
    listed = [f"{package}/{child}" for package, children in SUB_RANKS.items() for child in children]
    assert sorted(listed) == sorted(map(str, nested))


@pytest.mark.parametrize("package", SUB_RANKS)
def test_imports_between_sub_packages_point_one_way(package):
    rank = {name: rank for rank, name in enumerate(SUB_RANKS[package])}
    edges = [edge for edge in imports_within(tuple(package.split("/"))) if edge[0] in rank and edge[1] in rank]
    assert [edge for edge in edges if rank[edge[1]] > rank[edge[0]]] == []


def reached(start, graph):
    """Everything that `start` imports, directly or through others."""
    seen, waiting = set(), [start]
    while waiting:
        for imported in graph[waiting.pop()] - seen:
            seen.add(imported)
            waiting.append(imported)
    return seen


@pytest.mark.parametrize("package", SUB_RANKS)
def test_no_sub_package_imports_what_imports_it(package):
    graph = defaultdict(set)
    for child, imported, _ in imports_within(tuple(package.split("/"))):
        graph[child].add(imported)
    assert [child for child in SUB_RANKS[package] if child in reached(child, graph)] == []


def test_every_module_is_named_for_its_purpose():
    names = {path.stem for path in ROOT.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common", "manager"}


LOADED = "import sys; print(*{name.split('.')[0] for name in sys.modules})"


@pytest.mark.parametrize("statement", ["import vcsd", "from vcsd import METHODS", "import vcsd.types, vcsd.cli"])
def test_importing_loads_neither_torch_nor_transformers(statement):
    assert not {"torch", "transformers", "pydantic", "numpy"} & set(run(f"{statement}; {LOADED}"))


@pytest.mark.parametrize("module", ["inspect.run_dashboard", "inspect.run_report", "data.skips", "cli.run_commands"])
def test_looking_at_the_files_of_a_run_does_not_wait_for_torch(module):
    assert not {"torch", "transformers"} & set(run(f"import vcsd.{module}; {LOADED}"))


@pytest.mark.parametrize("package", ["vcsd", "vcsd.checkpoint", "vcsd.inspect", "vcsd.monitor"])
def test_lazy_names_are_found_whichever_module_is_imported_first(package):
    loaded = importlib.import_module(package)
    for path in ROOT.joinpath(*package.split(".")[1:]).glob("*.py"):
        if path.stem not in {"__init__", "__main__"}:
            importlib.import_module(f"{package}.{path.stem}")
    assert [name for name in loaded.__all__ if inspect.ismodule(getattr(loaded, name))] == []
    assert set(loaded.__all__) <= set(dir(loaded))


def test_core_imports_torch_alone():
    loaded = run("import sys, torch; before = set(sys.modules); import vcsd.core; print(*(set(sys.modules) - before))")
    assert {name.split(".")[0] for name in loaded} == {"vcsd"}


def test_core_files_name_no_other_package():
    foreign = set()
    for path in (ROOT / "core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                foreign |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                foreign.add(node.module.split(".")[0] if not node.module.startswith("vcsd.core") else "vcsd.core")
    assert foreign <= {"torch", "math", "collections", "vcsd.core"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Mehtod'"):
        _ = vcsd.Mehtod
    assert set(vcsd.__all__) <= {*dir(vcsd), "METHODS", "Method", "VCSDTrainer"}
    assert vcsd.VCSDTrainer.__name__ == "VCSDTrainer"
