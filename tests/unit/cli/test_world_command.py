"""`vcsd world`: help with an example, a sheet to look at, problems in words."""

import json
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from vcsd.bases import measure, pretrain
from vcsd.bases.curriculum import Curriculum
from vcsd.bases.measure import Speaker
from vcsd.bases.shipped_bases import shipped_base
from vcsd.cli import app
from vcsd.errors import ConfigError


def run(*words):
    return CliRunner().invoke(app.app, ["world", *words])


@pytest.mark.parametrize("command", ["pretrain", "measure", "sheet"])
def test_help_shows_an_example(command):
    assert f"vcsd world {command} " in run(command, "--help").output


def test_a_sheet_is_drawn(tmp_path):
    assert run("sheet", "--out", str(tmp_path / "sheet.png"), "--columns", "1").exit_code == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 7 * 160


def test_an_unknown_parameter_is_named(tmp_path):
    result = run("pretrain", "--out", str(tmp_path), "--set", "blck_share=0")
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean 'black_share'" in str(result.exception)


def refused(*words):
    """What a command says that is refused as every error of a user is."""
    error = run(*map(str, words)).exception
    assert isinstance(error, ConfigError), repr(error)
    return str(error)


def test_a_base_is_not_written_where_a_file_is(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    assert f"{file} is a file" in refused("pretrain", "--out", file)
    assert f"{file} is a file" in refused("pretrain", "--out", file / "deeper" / "base")
    assert "--seed -1 is not a seed" in refused("pretrain", "--out", tmp_path / "base", "--seed=-1")
    (tmp_path / "card.json").write_text("[1]")
    assert "card.json is not the card of a base" in refused("pretrain", "--out", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.json", "file"]


def test_a_sheet_needs_the_name_of_a_picture(tmp_path):
    assert f"{tmp_path} is a folder" in refused("sheet", "--out", tmp_path)
    assert "has no image suffix" in refused("sheet", "--out", tmp_path / "sheet.txt")
    assert "--columns 0 must be at least 1" in refused("sheet", "--out", tmp_path / "sheet.png", "--columns", "0")
    deeper = tmp_path / "deeper" / "sheet.png"
    assert run("sheet", "--out", str(deeper), "--columns", "1").exit_code == 0
    assert deeper.is_file()


WHOLE = json.loads((shipped_base("qwen3_vl") / "card.json").read_text())


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ('{"world"', "card.json is not JSON"),
        (b"\xff\xfe", "card.json is not JSON"),
        ("[]", "is not the card of a base"),
        (json.dumps({**WHOLE, "world": 3}), "is not the card of a base"),
        (json.dumps({**WHOLE, "world": {**WHOLE["world"], "gravity": 2}}), "gravity"),
        (json.dumps({**WHOLE, "world": {**WHOLE["world"], "noise": [1], "black_share": "x"}}), "not the card"),
        (json.dumps({**WHOLE, "measured": []}), "is not the card of a base"),
        (json.dumps({name: value for name, value in WHOLE.items() if name != "seconds"}), "lacks 'seconds'"),
        (json.dumps({"family": "qwen3_vl"}), "lacks 'world'"),
    ],
)
def test_a_base_whose_card_is_broken_is_not_measured(card, words, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "measure_folder", lambda *given, **more: pytest.fail("measured all the same"))
    path = tmp_path / "card.json"
    path.write_bytes(card if isinstance(card, bytes) else card.encode())
    assert words in refused("measure", tmp_path)


def test_no_questions_measure_nothing():
    assert "--num 0 must be at least 1" in refused("measure", shipped_base("qwen3_vl"), "--num", "0")


def test_a_family_without_a_shipped_base_is_refused():
    with pytest.raises(ConfigError, match=r"no base of the family 'llava' is shipped .*vcsd world pretrain"):
        shipped_base("llava")


def test_measuring_writes_the_numbers_into_the_card(tmp_path, monkeypatch):
    def gates(model, processor, *, num, split, parameters, bar):
        assert parameters.digest() == Curriculum("qwen3_vl", "small", 1).identity()["parameters"]
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
    monkeypatch.setitem(Speaker.answers.__kwdefaults__, "longest", 6)  # such a model never ends its answer
    short = ["batch=6", "sight_steps=1", "answer_steps=1", "sway_steps=1"]
    changes = [word for change in short for word in ("--set", change)]
    result = run("pretrain", "--size", "tiny", "--device", "cpu", "--seed", "3", "--out", str(tmp_path), *changes)
    assert result.exit_code == 0, result.exception
    assert "for its scores" in " ".join(result.output.split())
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["command"] == (
        "vcsd world pretrain --family qwen3_vl --size tiny --seed 3 "
        "--set batch=6 --set sight_steps=1 --set answer_steps=1 --set sway_steps=1 --out FOLDER"
    )
    assert (tmp_path / "model.safetensors").exists()
