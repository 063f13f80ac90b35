"""On a GPU: `vcsd eval` answers every question of the stand-ins."""

import json
import sys

import pytest
import torch

from tiny_models import build_model
from tiny_processor import write_processor_files
from toy_benchmarks import ROWS, write_tsvs
from vcsd.cli import app

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_all_seven_are_answered_and_nothing_is_asked_twice(family, tmp_path, monkeypatch, capsys):
    build_model(family).save_pretrained(tmp_path / "model")
    write_processor_files(tmp_path / "model", family)
    write_tsvs(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    command = "vcsd eval model --data data --out out --sampling paper,max_new_tokens=70 --mode exact"
    monkeypatch.setattr(sys, "argv", [*command.split(), "--allow-unknown-data"])
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 0, capsys.readouterr().err
    written = (tmp_path / "out" / "predictions.jsonl").read_bytes()
    predictions = list(map(json.loads, written.splitlines()))
    assert len(predictions) == sum(map(len, ROWS.values()))
    assert not any(prediction.get("error") for prediction in predictions)
    assert torch.cuda.max_memory_allocated() > before
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 0
    assert (tmp_path / "out" / "predictions.jsonl").read_bytes() == written
