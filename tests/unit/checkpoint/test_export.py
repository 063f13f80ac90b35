"""An export tells how far it is: files checked, tensors read, and bytes written. It warns of what bfloat16 drops."""

import shutil
import sys
from pathlib import Path
from threading import Event

import pytest

from vcsd.checkpoint import Contents, TensorFile, write_checkpoint
from vcsd.checkpoint import export as module
from vcsd.checkpoint.export import ExportProgress, export, warn_of_rounding
from vcsd.cli import app
from vcsd.lora.base_record import BASE

OLD = Path(__file__).parents[2] / "golden" / "old_checkpoint" / "checkpoint-2"
STUDENT = "student.safetensors"
MIB = 2**20


def copy_files(folder):
    for name in ("config.json", "generation_config.json"):
        shutil.copyfile(OLD / name, folder / name)
    (folder / "tokenizer_config.json").write_text("{}")


def test_an_export_tells_its_stages_in_order_up_to_the_end_and_shows_no_bar_of_transformers(tmp_path, capfd):
    write_checkpoint(tmp_path / "run", 2, Contents({STUDENT: TensorFile(OLD / STUDENT)}, {}, {}, copy_files))
    told = []
    export(tmp_path / "run", tmp_path / "out", tell=lambda *progress: told.append(progress))
    stages = [title.split()[0] for _, _, title in told]
    assert list(dict.fromkeys(stages)) == ["checking", "reading", "writing"]
    assert stages.count("reading") == len(TensorFile(OLD / STUDENT))
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1]
    assert "shards" not in capfd.readouterr().err


def test_the_share_done_follows_the_bytes_of_each_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    checkpoint.mkdir()
    out.mkdir()
    (checkpoint / STUDENT).write_bytes(bytes(2 * MIB))
    (checkpoint / "optimizer.safetensors").write_bytes(bytes(4 * MIB))
    told, is_half = [], Event()

    def tell(*progress):
        told.append(progress)
        if progress == (9, 10, "writing (MiB)"):
            is_half.set()

    progress = ExportProgress(tell)
    progress.plan(checkpoint, checkpoint / STUDENT)  # 6 to check, 2 to read, 2 to write
    progress.checked(4 * MIB)
    progress.checked(2 * MIB)
    progress.read(MIB)
    assert [done for done, _, _ in told] == [0, 4, 6, 7]
    with progress.writing(out, MIB):  # the model is written with half as many bytes as it was read
        (out / "model.safetensors").write_bytes(bytes(MIB // 2))
        assert is_half.wait(60)
    assert told[-1] == (10, 10, "writing (MiB)")


@pytest.mark.parametrize(
    ("identity", "texts", "is_warned"),
    [
        ({"trainer": {"bf16": False}}, {}, True),
        ({"trainer": {"bf16": True}}, {}, False),  # every pass of the run rounded these weights in the same way
        ({"trainer": {"bf16": True}}, {BASE: "{}"}, True),  # no pass of the run rounded merged weights
        ({}, {}, False),
    ],
)
def test_weights_that_the_run_did_not_round_are_warned_of(identity, texts, is_warned, tmp_path, caplog):
    checkpoint = write_checkpoint(tmp_path, 2, Contents({}, texts, identity, lambda _: None))
    warn_of_rounding(checkpoint)
    assert ("Rounding to bfloat16 may lose small updates" in caplog.text) == is_warned


@pytest.mark.parametrize(("dtype", "is_warned"), [("bfloat16", True), ("float32", False)])
def test_the_command_warns_of_a_run_in_float32_unless_it_exports_float32(
    dtype, is_warned, tmp_path, monkeypatch, caplog
):
    contents = Contents({STUDENT: TensorFile(OLD / STUDENT)}, {}, {"trainer": {"bf16": False}}, copy_files)
    write_checkpoint(tmp_path / "run", 2, contents)
    monkeypatch.setattr(sys, "argv", ["vcsd", "export", str(tmp_path / "run"), "--dtype", dtype])
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 0
    assert ("vcsd export --dtype float32 keeps them" in caplog.text) == is_warned
