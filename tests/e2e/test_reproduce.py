"""`vcsd reproduce`: runs, results, tables and claims on random bases, and again without running anything."""

import json
import sys
from dataclasses import asdict

import pytest

from tiny_bases import make_base
from vcsd.cli import app
from vcsd.evaluation.reading.final_answer import READER
from vcsd.reproduce import pool
from vcsd.world.parameters import PARAMETERS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    root = tmp_path_factory.mktemp("bases")
    make_base(root / "vl-0"), make_base(root / "vl-1", seed=1), make_base(root / "qwen3_5-0", "qwen3_5")
    return root


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", "reproduce", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    shown = capsys.readouterr()
    return stop.value.code, shown.out, shown.err


def test_main_runs_every_base_and_is_not_run_again(bases, monkeypatch, capsys, tmp_path):
    given = ("main", "--quick", "--seeds", "101", "--bases", bases, "--out", tmp_path)
    code, out, _ = run(monkeypatch, capsys, *given)
    assert code == 0
    assert "6 cells to run, 0 already done" in out, "base, OPSD and VCSD on the first base of each family"
    assert "Experiments: main\nQwen3-VL 0.5M: vl-0, vl-1\nQwen3.5 0.4M: qwen3_5-0\nSeeds: 101;" in out
    assert "Wall time: " in out
    cells = [json.loads(path.read_text()) for path in (tmp_path / "cells").glob("*.json")]
    assert len(cells) == 6
    for cell in cells:
        assert cell["command"] == "vcsd " + " ".join(map(str, ("reproduce", *given)))
        assert cell["identity"]["world"] == PARAMETERS.digest()
        assert cell["hardware"]
        assert len(cell["scores"]) == 7
        assert cell["acc"] == pytest.approx(sum(cell["scores"].values()) / 7, abs=1e-3)
        assert cell["variant"] == "base" or len(cell["series"]["loss"]) == cell["steps"] == 2
    page = (tmp_path / "main.md").read_text()
    assert page.count("\n## Qwen3-VL 0.5M\n") == page.count("\n## Qwen3.5 0.4M\n") == 1
    assert page.partition("## Qwen3.5")[2].count("| VCSD |") == 3, "scores, run by run, health"
    assert "VCSD improves every model" in (tmp_path / "claims.md").read_text()
    (noted,) = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert (noted["cells_run"], noted["cells_known"], noted["jobs"], noted["ended"]) == (6, 0, 1, "done")
    assert noted["wall_seconds"] > 0.9 * noted["run_seconds"] > 0, "one after the other, each rounded"
    assert noted["command"] in (tmp_path / "how_made.md").read_text()
    assert not list((tmp_path / "work").glob("*/metrics.jsonl")), "only results are kept"
    code, out, _ = run(monkeypatch, capsys, *given)
    assert code == 0
    assert "0 cells to run, 6 already done" in out
    assert (tmp_path / "main.md").read_text() == page
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1, "nothing was run"
    path = next((tmp_path / "cells").glob("*.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "reader": 1, "unresolved": 3}))
    code, out, _ = run(monkeypatch, capsys, *given)
    assert code == 0
    assert "Running 1 again: some answers were unread" in out
    assert "1 cells to run, 5 already done" in out
    assert json.loads(path.read_text())["reader"] == READER


def test_bases_that_never_saw_black_are_an_experiment_of_their_own(bases, monkeypatch, capsys, tmp_path):
    black = make_base(tmp_path / "black", seed=5)
    (black / "card.json").write_text(json.dumps({"world": {**asdict(PARAMETERS), "black_share": 0.0}}))
    given = ("--quick", "--seeds", "101", "--bases", bases / "vl-0", "--bases", black, "--out", tmp_path / "out")
    code, out, _ = run(monkeypatch, capsys, "black", *given)
    assert code == 0
    assert "5 cells to run" in out, "base, OPSD and three controls on the one base"
    assert "vl-0 (not used by these experiments)" in out
    page = (tmp_path / "out" / "black.md").read_text()
    assert "## Qwen3-VL 0.5M, black_share=0" in page
    assert row_names(page) >= {"base", "OPSD", "VCSD with black", "VCSD with no image", "VCSD with noise"}
    claims = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert {each["experiment"]: each["verdict"] for each in claims}["black"] == "no claim"
    assert {each["verdict"] for each in claims if each["experiment"] != "black"} == {"not run"}


def test_a_quick_command_asks_as_many_questions_as_it_is_told(bases, monkeypatch, capsys, tmp_path):
    given = ("main", "--quick", "--seeds", "101", "--bases", bases / "vl-0", "--out", tmp_path, "--questions", "5")
    assert run(monkeypatch, capsys, *given)[0] == 0
    cells = [json.loads(path.read_text()) for path in (tmp_path / "cells").glob("*.json")]
    assert {cell["identity"]["num_questions"] for cell in cells} == {5}
    assert {cell.get("steps", 2) for cell in cells} == {2}


def row_names(page):
    return {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")}


def test_an_interrupted_command_keeps_what_is_done_and_says_so(bases, monkeypatch, capsys, tmp_path):
    attempt, begun = pool._attempt, []

    def once(cell):
        begun.append(cell)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return attempt(cell)

    given = ("main", "--quick", "--seeds", "101", "--bases", bases / "vl-0", "--out", tmp_path)
    monkeypatch.setattr(pool, "_attempt", once)
    code, out, _ = run(monkeypatch, capsys, *given)
    assert code == 130
    assert "Stopped. 1 of 3 cells are done. The same command resumes." in out
    assert "2 cells to run, 1 already done" in run(monkeypatch, capsys, *given)[1]
    noted = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [(each["cells_run"], each["ended"]) for each in noted] == [(1, "interrupted"), (2, "done")]


def test_curves_decoding_and_information_are_measured(bases, monkeypatch, capsys, tmp_path):
    for experiment in ("dynamics", "decoding", "pmi"):
        given = (experiment, "--quick", "--seeds", "101", "--bases", bases / "vl-0", "--out", tmp_path)
        assert run(monkeypatch, capsys, *given)[0] == 0
    found = {}
    for path in (tmp_path / "cells").glob("*.json"):
        cell = json.loads(path.read_text())
        found.setdefault(cell["identity"]["kind"], []).append(cell)
    curves = [cell["curve"] for cell in found["train"] if cell["curve"]]
    assert [[point["step"] for point in curve] for curve in curves] == [[1, 2], [1, 2]]
    (decoded,) = found["decode"]
    assert decoded["cost"]["ratio"] > 0
    (measured,) = found["pmi"]
    assert set(measured["pmi"]) >= {"black", "noise", "blur", "no_image"}


@pytest.mark.slow
def test_two_processes_find_what_one_does(bases, monkeypatch, capsys, tmp_path):
    for jobs in (1, 2):
        given = ("alpha", "--quick", "--seeds", "101", "--bases", bases / "vl-0", "--jobs", jobs)
        assert run(monkeypatch, capsys, *given, "--out", tmp_path / str(jobs))[0] == 0
    one, two = (
        [json.loads(path.read_text()) for path in sorted((tmp_path / str(j) / "cells").iterdir())] for j in (1, 2)
    )
    assert [cell["key"] for cell in one] == [cell["key"] for cell in two]
    assert len(one) == 8, "base, OPSD and six strengths"
    for first, second in zip(one, two, strict=True):
        assert first["scores"] == second["scores"]
        losses = [cell.get("series", {"loss": []})["loss"] for cell in (first, second)]  # the base is not trained
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_what_cannot_be_run_is_refused(bases, monkeypatch, capsys, tmp_path):
    for given, words in (
        (("mian",), "Did you mean 'main'?"),
        (("main", "--seeds", "x", "--bases", bases), "is not a list of distinct seeds"),
        (("main", "--bases", tmp_path), "no base model in"),
        (("black", "--bases", bases), "vcsd world pretrain --set black_share=0"),
        (("main", "--jobs", "0", "--bases", bases), "must be at least 1"),
        (("main", "--split", "train", "--bases", bases), "Allowed: test, dev"),
        (("main", "--seeds=-1", "--bases", bases), "--seeds: -1 is not a seed"),
        (("main", "--questions", "0", "--bases", bases), "--questions 0 must be at least 1"),
        (("main", "--quick", "--questions=-3", "--bases", bases), "--questions -3 must be at least 1"),
        (("main", "--bases", bases, "--bases", tmp_path / "nowhere"), f"no base model in {tmp_path / 'nowhere'}"),
        (("main", "--bases", bases, "--out", bases / "vl-0" / "config.json"), "config.json is a file"),
    ):
        code, _, err = run(monkeypatch, capsys, *given)
        assert code == 2
        assert words in err


def test_a_second_command_on_one_folder_stops_before_it_writes(bases, monkeypatch, capsys, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".lock").open("w") as held:
        held.write("process 7 on elsewhere")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        code, _, err = run(
            monkeypatch, capsys, "main", "--quick", "--seeds", "101", "--bases", bases, "--out", tmp_path
        )
    assert code == 2
    assert "is in use by process 7 on elsewhere. Wait for it" in " ".join(err.split())
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
