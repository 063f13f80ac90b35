"""Dependencies point one way, importing costs nothing, and core needs torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vcsd

ROOT = Path(vcsd.__file__).parent
LAYERS = [
    ["errors"],
    ["types"],
    ["core"],
    ["kernels"],
    ["views", "models", "rollout", "teacher"],
    ["method", "batch", "step"],
    ["trainer", "checkpoint", "monitor", "data", "evaluation", "inspect", "world", "decoding", "report"],
    ["recipe_text"],
    ["recipe_groups"],
    ["config", "doctor"],
    ["run"],
    ["reproduce"],
    ["demo", "demo_page"],
    ["cli", "__main__"],
]
"""A room may import rooms above it in this list, and its neighbours; never one below."""

RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}


def imports():
    """(file, room, imported room) for every import of vcsd by vcsd."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path.name} imports relatively: rooms are named in full"
                # `from vcsd import x` may name a room or an attribute; `from vcsd.room import x` names the room
                is_top = node.module == "vcsd"
                names += (
                    [f"vcsd.{alias.name}" for alias in node.names if alias.name in RANK] if is_top else [node.module]
                )
            for name in names:
                if name.startswith("vcsd."):
                    yield path.name, parts[0], name.split(".")[1]


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_imports_point_one_way():
    found = list(imports())
    assert len(found) > 10
    upwards = [(file, room, used) for file, room, used in found if room != "__init__" and RANK[used] > RANK[room]]
    assert upwards == []


def test_every_room_has_a_layer():
    rooms = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} <= RANK.keys()


def test_there_is_no_room_without_a_purpose():
    names = {path.stem for path in ROOT.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common", "manager"}


LOADED = "import sys; print(*{name.split('.')[0] for name in sys.modules})"


@pytest.mark.parametrize("statement", ["import vcsd", "from vcsd import METHODS", "import vcsd.types, vcsd.cli"])
def test_importing_loads_neither_torch_nor_transformers(statement):
    assert not {"torch", "transformers", "pydantic", "numpy"} & set(run(f"{statement}; {LOADED}"))


def test_core_imports_torch_alone():
    with_torch = set(run(f"import torch; {LOADED}"))
    with_core = set(run(f"import vcsd.core; {LOADED}"))
    assert with_core - with_torch == {"vcsd"}


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
