"""`vcsd demo`: from a base to a table and a page, the same for the same seed, and from where it was stopped."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_bases import make_base
from vcsd.bases.shipped_bases import SHIPPED
from vcsd.cli import app
from vcsd.demo import demonstration
from vcsd.evaluation.scoring.compare import compare
from vcsd.evaluation.scoring.scorecard import load_scorecard
from vcsd.evaluation.scoring.terminal_tables import comparison_remarks
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.training_prompts import write_prompts
from vcsd.trainer import DistillationTrainer

pytestmark = pytest.mark.e2e

FEW = demonstration.DemoSize(
    num_questions=4,
    num_prompts=8,
    overrides=(
        *("trainer.max_steps=4", "trainer.save_steps=2", "trainer.warmup_steps=1", "trainer.learning_rate=1e-2"),
        *("prompts_per_step=2", "rollout.num_per_prompt=2", "rollout.max_new_tokens=8", "guard=off"),
    ),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(demonstration, "FULL", FEW)


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", "demo", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return stop.value.code, capsys.readouterr().out


def table(folder):
    return json.loads((folder / "table.json").read_text())


def test_the_demo_writes_a_table_and_a_page_and_says_where(base, monkeypatch, capsys, tmp_path):
    code, out = run(monkeypatch, capsys, "--base", base, "--out", tmp_path, "--seed", 3)
    assert code == 0
    assert str(tmp_path / "report.html") in out.replace("\n", "")
    for name in (*SEVEN, "all seven"):
        assert name in out
    assert "VCSD - base: unread" in " ".join(out.split())
    assert "<small>unread" in (tmp_path / "report.html").read_text()
    found = table(tmp_path)
    assert list(found["table"]["rows"]) == ["base", "opsd", "vcsd"]
    assert set(found["table"]["differences"]) == {"opsd - base", "vcsd - base", "vcsd - opsd"}
    assert (found["seed"], found["command"]) == (3, f"vcsd demo --base {base} --out {tmp_path} --seed 3")
    for name in ("opsd", "vcsd"):
        recipe = json.loads((tmp_path / name / "config.json").read_text())
        assert (recipe["method"]["name"], recipe["trainer"]["seed"]) == (name, 3)
        assert len((tmp_path / name / "metrics.jsonl").read_text().splitlines()) == 4
    page = (tmp_path / "report.html").read_text()
    assert "vcsd demo --base" in page
    assert page.count("<figure>") == 8
    training = (tmp_path / "training.html").read_text()
    assert "<h1>3 runs</h1>" in training  # the base, which was only evaluated, and both students
    assert "vcsd - opsd" in training
    comparison = compare(*(load_scorecard(tmp_path / name / "scorecard.json") for name in ("base", "vcsd")))
    assert next(comparison_remarks(comparison)) == "All settings are the same; only the model differs."


def test_an_interrupted_demo_goes_on_and_ends_with_the_same_table(base, monkeypatch, capsys, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(monkeypatch, capsys, "--base", base, "--out", whole)
    training_step = DistillationTrainer.training_step

    def interrupted(self, *given, **more):
        if self.method.name == "vcsd" and self.state.global_step == 3:
            raise KeyboardInterrupt
        return training_step(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(DistillationTrainer, "training_step", interrupted)
        code, out = run(monkeypatch, capsys, "--base", base, "--out", parts)
    assert code == 130
    assert "The same command resumes" in out
    assert not (parts / "table.json").exists()
    steps = []
    monkeypatch.setattr(
        DistillationTrainer,
        "training_step",
        lambda self, *g, **m: steps.append(self.method.name) or training_step(self, *g, **m),
    )
    code, _ = run(monkeypatch, capsys, "--base", base, "--out", parts)
    assert code == 0
    assert steps == ["vcsd", "vcsd"], "OPSD is done, and VCSD goes on after its second step"
    assert table(parts)["table"] == table(whole)["table"]
    for name in ("base", "opsd", "vcsd"):
        first, second = ((folder / name / "predictions.jsonl").read_text() for folder in (whole, parts))
        assert first == second


def refused(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", "demo", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 2
    return capsys.readouterr().err


def num_prompts(folder, method):
    recipe = json.loads((folder / method / "config.json").read_text())
    return len(Path(recipe["data"]["path"]).read_text().splitlines())


def test_a_demo_of_another_size_neither_trains_on_the_prompts_of_the_first_nor_spoils_it(
    base, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(demonstration, "FAST", replace(FEW, num_prompts=4))
    small, large = tmp_path / "small", tmp_path / "large"
    assert run(monkeypatch, capsys, "--fast", "--base", base, "--out", small)[0] == 0
    before = (small / "table.json").read_bytes()
    err = refused(monkeypatch, capsys, "--base", base, "--out", small)
    assert "holds another demonstration: prompts was 4, now 8. Choose another folder with --out." in err
    assert "seed was 0, now 1" in refused(monkeypatch, capsys, "--fast", "--base", base, "--out", small, "--seed", 1)
    assert (small / "table.json").read_bytes() == before
    assert run(monkeypatch, capsys, "--base", base, "--out", large)[0] == 0
    assert [num_prompts(folder, "vcsd") for folder in (small, large)] == [4, 8]


def test_prompts_are_written_once_for_a_demo(base, tmp_path):
    setting = demonstration.Setting(base, 0, FEW, tmp_path, "vcsd demo")
    table = write_prompts(setting.prompts, FEW.num_prompts)
    table.write_text("kept")
    assert write_prompts(setting.prompts, FEW.num_prompts).read_text() == "kept"
    larger = replace(setting, size=replace(FEW, num_prompts=9))
    assert len(write_prompts(larger.prompts, 9).read_text().splitlines()) == 9
    assert f"data.path={larger.prompts / 'train.jsonl'}" in larger.overrides("vcsd")


def test_a_seed_or_folder_that_cannot_be_is_refused_before_anything_is_written(base, monkeypatch, capsys, tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    assert f"{file} is a file" in refused(monkeypatch, capsys, "--base", base, "--out", file).replace("\n", "")
    out = tmp_path / "out"
    assert "--seed -1 is not a seed" in refused(monkeypatch, capsys, "--base", base, "--out", out, "--seed", "-1")
    assert not out.exists()


def test_a_family_without_a_base_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["vcsd", "demo", "--family", "qwen9"])
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 2
    assert "no base of the family 'qwen9' is shipped with this package" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif("qwen3_vl" not in SHIPPED, reason="no base is shipped")
def test_the_shipped_base_gains_in_a_fast_demo(monkeypatch, capsys, tmp_path):
    code, _ = run(monkeypatch, capsys, "--fast", "--out", tmp_path)
    assert code == 0
    found = table(tmp_path)["table"]
    gain = found["differences"]["vcsd - base"]["acc"]
    assert gain["difference"] > 0
    assert gain["interval"]["low"] > 0
    assert found["differences"]["vcsd - opsd"]["acc"]["difference"] > 0
