"""Many cells: known ones are not run, equal ones are run once, and one that fails does not stop the others."""

from types import SimpleNamespace

from vcsd.reproduce import cell as cell_module
from vcsd.reproduce.pool import run_cells


def toy(key, result=None):
    return SimpleNamespace(key=key, title=f"cell {key}", result=lambda: result, plan=None)


def test_each_is_run_once_and_failures_are_named(monkeypatch):
    ran, lines = [], []

    def run_cell(cell):
        ran.append(cell.key)
        if cell.key == "b":
            raise ValueError("no such base")
        return {"acc": 50.0, "seconds": 2.0}

    monkeypatch.setattr(cell_module, "run_cell", run_cell)
    cells = [toy("a"), toy("b"), toy("a"), toy("known", {"acc": 1.0}), toy("c")]
    failed = run_cells(cells, 1, lines.append)
    assert ran == ["a", "b", "c"]
    assert failed == ["cell b: ValueError: no such base"]
    assert lines[0] == "3 cells to run, 1 known, 1 at a time"
    assert "cell b: FAILED, ValueError: no such base" in lines[2]
    assert lines[3].endswith("[3/3] cell c: 50.00, 2 s")


def test_nothing_to_do_runs_nothing(monkeypatch):
    monkeypatch.setattr(cell_module, "run_cell", None)
    assert run_cells([toy("known", {})], 4, lambda line: None) == []
