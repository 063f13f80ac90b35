"""The capsule in examples/capsule has the seal that the page gives, and repeats: to the bit where it was made.

On other processors and with other versions it is compared as `vcsd replay` compares there. Rounding may then take a
token elsewhere, and losses with it, so only what the page promises on every machine is required.
"""

import re
import sys
from pathlib import Path

import pytest

from vcsd.cli import app
from vcsd.monitor.machine import environment
from vcsd.publish.capsule import read_capsule
from vcsd.publish.replay import sessions_in

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "capsule"
FILE = FOLDER / "world.capsule.json"

pytestmark = pytest.mark.e2e


def published_seal():
    page = (ROOT / "docs" / "reproduce.md").read_text()
    (seal,) = re.findall(r"--seal ([0-9a-f]{64})", page)
    return seal


def test_the_shipped_capsule_has_the_seal_on_the_page_and_starts_from_a_shipped_base():
    capsule = read_capsule(FILE, published_seal())
    assert capsule["last_step"] == 6
    assert capsule["recipe"]["model"]["path"] == "qwen3_vl-small-1"
    assert capsule["recipe"]["data"]["path"] == "examples/capsule/train.jsonl"
    assert (ROOT / capsule["recipe"]["data"]["path"]).is_file()
    assert FILE.stat().st_size < 2**14


@pytest.mark.slow  # half a minute where others use the cores too
def test_the_shipped_capsule_is_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    options = ("--model", "world", "--seal", published_seal(), "--out", str(tmp_path / "again"))
    monkeypatch.setattr(sys, "argv", ["vcsd", "replay", str(FILE), *options])
    with pytest.raises(SystemExit) as stop:
        app.main()
    out = " ".join(capsys.readouterr().out.split())
    (session,) = sessions_in(read_capsule(FILE))
    if {"ranks": 1, **session["environment"]} == environment():  # it was packed before ranks were recorded
        assert stop.value.code == 0
        assert "Compared 6 steps bit for bit, 0 evaluations and 4 files of weights. The capsule was repeated." in out
        return
    assert "NOT compared: the weights and all other metrics." in out
    if stop.value.code == 1:  # a token that was sampled differently takes losses along, but no rows
        differences = re.findall(r"step \d+: (\w+) was", out)
        assert differences
        assert set(differences) <= {"loss", "gradient_norm"}
