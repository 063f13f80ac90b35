"""`vcsd world`: help with an example, a sheet to look at, problems in words."""

import json
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from vcsd import cli
from vcsd.errors import ConfigError
from vcsd.world import measure, pretrain
from vcsd.world.bases import shipped_base
from vcsd.world.plan import Plan


def run(*words):
    return CliRunner().invoke(cli.app, ["world", *words])


@pytest.mark.parametrize("command", ["pretrain", "measure", "sheet"])
def test_help_shows_an_example(command):
    assert f"vcsd world {command} " in run(command, "--help").output


def test_a_sheet_is_drawn(tmp_path):
    assert run("sheet", "--out", str(tmp_path / "sheet.png"), "--columns", "1").exit_code == 0
    assert Image.open(tmp_path / "sheet.png").height > 7 * 160


def test_an_unknown_parameter_is_named(tmp_path):
    result = run("pretrain", "--out", str(tmp_path), "--set", "blck_share=0")
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean 'black_share'" in str(result.exception)


def test_a_family_without_a_shipped_base_is_refused():
    with pytest.raises(ConfigError, match=r"no base of 'llava' comes with this package.*vcsd world pretrain"):
        shipped_base("llava")


def test_measuring_writes_the_numbers_into_the_card(tmp_path, monkeypatch):
    def gates(model, processor, *, num, split, parameters):
        assert parameters.digest() == Plan("qwen3_vl", "small", 1).identity()["parameters"]
        found = json.loads((shipped_base("qwen3_vl") / "card.json").read_text())["measured"]["sway"]
        return {**found, "split": split, "questions": num}

    monkeypatch.setattr(measure, "gates", gates)
    shutil.copytree(shipped_base("qwen3_vl"), tmp_path / "base")
    result = run("measure", str(tmp_path / "base"), "--num", "4", "--split", "dev")
    assert result.exit_code == 0, result.exception
    assert "greedy" in result.output
    measured = json.loads((tmp_path / "base" / "card.json").read_text())["measured"]
    assert measured["dev"]["questions"] == 4
    assert measured["sway"]["questions"] == 200
    assert isinstance(run("measure", str(tmp_path)).exception, ConfigError)


def test_pretraining_from_the_command_line_leaves_a_base_and_says_where(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "NUM_MEASURED", 1)
    short = ["batch=6", "sight_steps=1", "answer_steps=1", "sway_steps=1"]
    changes = [word for change in short for word in ("--set", change)]
    result = run("pretrain", "--size", "tiny", "--device", "cpu", "--seed", "3", "--out", str(tmp_path), *changes)
    assert result.exit_code == 0, result.exception
    assert "says what it can do" in " ".join(result.output.split())
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["command"] == (
        "vcsd world pretrain --family qwen3_vl --size tiny --seed 3 "
        "--set batch=6 --set sight_steps=1 --set answer_steps=1 --set sway_steps=1 --out FOLDER"
    )
    assert (tmp_path / "model.safetensors").exists()
