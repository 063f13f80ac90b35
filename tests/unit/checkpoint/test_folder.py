import json
import os
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vcsd.checkpoint import (
    Contents,
    DamagedCheckpointError,
    TensorFile,
    check_checkpoint,
    checkpoints_of,
    latest_checkpoint,
    write_checkpoint,
)
from vcsd.checkpoint import folder as folder_module
from vcsd.checkpoint.tensors import write_tensors
from vcsd.errors import ConfigError, RunError

TENSORS = {
    "odd": torch.arange(5, dtype=torch.uint8),
    "weight": torch.randn(3, 4),
    "half": torch.randn(7).bfloat16(),
    "number": torch.tensor(3.5, dtype=torch.float64),
    "flag": torch.tensor([True, False, True]),
    "none": torch.empty(0, 4),
    "strided": torch.randn(4, 6).T,
    "counts": torch.tensor([2**40, -1]),
}


def contents(value=1.0, **identity):
    return Contents({"a.safetensors": {"x": torch.full((4,), value)}}, {"b.json": "{}"}, identity or {"seed": 0})


def test_a_written_file_is_read_back_by_safetensors_itself(tmp_path):
    size, digest = write_tensors(tmp_path / "t.safetensors", TENSORS)
    assert size == (tmp_path / "t.safetensors").stat().st_size
    assert len(digest) == 64
    for found in (load_file(tmp_path / "t.safetensors"), dict(TensorFile(tmp_path / "t.safetensors"))):
        assert found.keys() == TENSORS.keys()
        for name, tensor in TENSORS.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor), name


def test_tensors_larger_than_a_piece_are_whole(tmp_path, monkeypatch):
    big = torch.arange(1000, dtype=torch.float32)
    monkeypatch.setattr("vcsd.teacher.raw_bytes.__defaults__", (64,))
    write_tensors(tmp_path / "t.safetensors", {"big": big})
    assert torch.equal(load_file(tmp_path / "t.safetensors")["big"], big)


def test_a_checkpoint_is_whole_and_of_its_run(tmp_path):
    path = write_checkpoint(tmp_path, 10, contents(seed=3))
    assert path == tmp_path / "checkpoint-10" == latest_checkpoint(tmp_path)
    assert check_checkpoint(path, {"seed": 3})["step"] == 10
    with pytest.raises(ConfigError, match="belongs to another run: seed was 3 and is now 4"):
        check_checkpoint(path, {"seed": 4})


@pytest.mark.parametrize("harm", ["missing file", "shorter file", "changed byte", "no manifest", "half a manifest"])
def test_a_checkpoint_that_is_not_whole_is_refused(tmp_path, harm):
    path = write_checkpoint(tmp_path, 10, contents())
    file = path / "a.safetensors"
    if harm == "missing file":
        file.unlink()
    elif harm == "shorter file":
        file.write_bytes(file.read_bytes()[:-1])
    elif harm == "changed byte":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    elif harm == "no manifest":
        (path / "manifest.json").unlink()
    else:
        (path / "manifest.json").write_text((path / "manifest.json").read_text()[:40])
    with pytest.raises(ConfigError, match="Remove the folder"):
        check_checkpoint(path, {"seed": 0})


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    path = write_checkpoint(tmp_path, 10, contents())
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ConfigError, match="has format 99"):
        check_checkpoint(path)


@pytest.mark.parametrize("place", ["tensors", "texts", "manifest", "rename"])
def test_a_crash_inside_a_save_leaves_the_checkpoints_before_it(tmp_path, monkeypatch, place):
    """Whatever the moment: the earlier checkpoint is the latest, and the next save removes what was left."""
    write_checkpoint(tmp_path, 1, contents())
    names = {"tensors": "write_tensors", "texts": "write_text", "manifest": "sha256"}

    class Crash(BaseException):
        pass

    def crash(*given, **more):
        raise Crash

    with monkeypatch.context() as patch:
        if place == "rename":
            patch.setattr("pathlib.Path.rename", crash)
        else:
            patch.setattr(folder_module, names[place], crash)
        copied = Contents(contents().tensors, contents().texts, {}, lambda folder: (folder / "c").write_text("x"))
        with pytest.raises(Crash):
            write_checkpoint(tmp_path, 2, copied)
    assert list(checkpoints_of(tmp_path)) == [1]
    check_checkpoint(tmp_path / "checkpoint-1", {"seed": 0})
    assert any(path.name.startswith(".partial-") for path in tmp_path.iterdir())
    write_checkpoint(tmp_path, 2, contents())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "checkpoint-2"]


def test_everything_is_on_the_disk_before_the_rename(tmp_path, monkeypatch):
    events = []
    original = os.fsync

    def note(descriptor):
        events.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_checkpoint(tmp_path, 2, contents())
    names = [event.removeprefix(str(tmp_path)) for event in events]
    partial = "/.partial-checkpoint-2"
    assert set(names) == {f"{partial}/a.safetensors", f"{partial}/b.json", f"{partial}/manifest.json", partial, ""}
    assert names[-2:] == [partial, ""]


def test_a_file_is_whole_when_it_is_flushed_to_the_disk(tmp_path, monkeypatch):
    sizes = {}

    def note(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file():
            sizes[path.name] = path.stat().st_size

    monkeypatch.setattr(os, "fsync", note)
    folder = write_checkpoint(tmp_path, 2, contents())
    assert sizes == {path.name: path.stat().st_size for path in folder.iterdir()}


def test_the_oldest_go_first_and_protected_ones_stay(tmp_path):
    for step in range(1, 6):
        write_checkpoint(tmp_path, step, contents(), limit=2, protected={2})
    assert list(checkpoints_of(tmp_path)) == [2, 4, 5]


def test_steps_are_ordered_by_number(tmp_path):
    for step in (9, 10, 100):
        write_checkpoint(tmp_path, step, contents())
    (tmp_path / "checkpoint-final").mkdir()
    assert list(checkpoints_of(tmp_path)) == [9, 10, 100]


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path):
    write_checkpoint(tmp_path, 1, contents(1.0))
    path = write_checkpoint(tmp_path, 1, contents(2.0))
    assert TensorFile(path / "a.safetensors")["x"][0] == 2.0
    check_checkpoint(path)


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1))
    with pytest.raises(RunError, match="a checkpoint needs"):
        write_checkpoint(tmp_path, 1, contents())
    assert list(tmp_path.iterdir()) == []


def test_no_folder_has_no_checkpoints(tmp_path):
    assert checkpoints_of(tmp_path / "nowhere") == {}
    assert latest_checkpoint(tmp_path) is None


def test_a_disk_that_fills_up_while_a_checkpoint_is_written_leaves_the_ones_before_and_no_rest(tmp_path):
    def fill(folder):
        (folder / "more").write_text("a part of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match=r"on device\. There is no earlier one; the same command starts again"):
        write_checkpoint(tmp_path, 10, replace(contents(), copy_files=fill))
    write_checkpoint(tmp_path, 10, contents())
    with pytest.raises(RunError, match=r"checkpoint-20 could not be written: .*No space left on device\. The earlier"):
        write_checkpoint(tmp_path, 20, replace(contents(), copy_files=fill), limit=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-10"]
    check_checkpoint(tmp_path / "checkpoint-10")


def test_a_folder_that_can_be_neither_written_nor_listed_is_the_error_of_the_write(tmp_path, monkeypatch):
    """As on a network disk that is gone."""

    def gone(*_):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(Path, "iterdir", gone)
    with pytest.raises(RunError, match=r"checkpoint-10 could not be written: .*Stale file handle\. The earlier"):
        write_checkpoint(tmp_path, 10, contents())


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "3", '{"format": "1"}', '{"format": 1}', "[" * 100_000, "\xff"),
        '{"format": 1, "step": 10, "identity": {}, "files": []}',
        '{"format": 1, "step": "x", "identity": {}, "files": {}}',
        '{"format": 1, "step": 10, "identity": [], "files": {}}',
        '{"step": 10, "identity": {}, "files": {}}',
        '{"format": 1, "step": 10, "identity": {}, "files": {"a.safetensors": 5}}',
        '{"format": 1, "step": 10, "identity": {}, "files": {"a\\u0000": {"bytes": 1, "sha256": ""}}}',
    ],
    ids=range(12),
)
def test_a_damaged_manifest_is_named_as_such(tmp_path, text):
    path = write_checkpoint(tmp_path, 10, contents())
    (path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DamagedCheckpointError, match="checkpoint-10 is damaged: "):
        check_checkpoint(path, {"seed": 0})


def test_what_others_left_in_the_folder_stays_and_leftovers_of_any_kind_go(tmp_path):
    target = tmp_path.with_name(f"{tmp_path.name}-target")
    target.mkdir()
    (target / "precious").write_text("kept")
    (tmp_path / ".partial-foo").write_text("not ours")
    (tmp_path / ".old-checkpoint-3").symlink_to(target)
    (tmp_path / ".partial-checkpoint-1").write_text("a file where a folder was")
    (tmp_path / ".old-checkpoint-9").symlink_to("nowhere")
    (tmp_path / "checkpoint-1").symlink_to(target)
    (tmp_path / "checkpoint-2").write_text("a file of this name")
    for step in (1, 2):
        write_checkpoint(tmp_path, step, contents())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".partial-foo", "checkpoint-1", "checkpoint-2"]
    assert (target / "precious").read_text() == "kept"
    for step in (1, 2):
        check_checkpoint(tmp_path / f"checkpoint-{step}", {"seed": 0})


def test_a_folder_without_a_manifest_is_neither_counted_nor_removed(tmp_path):
    (tmp_path / "checkpoint-99").mkdir()
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, contents(), limit=2)
    assert list(checkpoints_of(tmp_path)) == [2, 3, 99]


def test_a_run_folder_that_vanished_is_made_again(tmp_path):
    write_checkpoint(tmp_path / "run", 1, contents())
    shutil.rmtree(tmp_path / "run")
    check_checkpoint(write_checkpoint(tmp_path / "run", 2, contents()))


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path):
    (tmp_path / "run").write_text("a file where the folder was")
    with pytest.raises(RunError, match=r"checkpoint-2 could not be written: .*run"):
        write_checkpoint(tmp_path / "run", 2, contents())


def test_an_old_checkpoint_that_cannot_be_removed_does_not_stop_the_run(tmp_path, monkeypatch, caplog):
    def refuse(path, **given):
        raise PermissionError(13, "Permission denied")

    write_checkpoint(tmp_path, 1, contents())
    monkeypatch.setattr(shutil, "rmtree", refuse)
    write_checkpoint(tmp_path, 2, contents(), limit=1)
    assert "checkpoint-1 is beyond save_total_limit, but cannot be removed" in caplog.text
    check_checkpoint(write_checkpoint(tmp_path, 3, contents(), limit=1))
    assert ".old-checkpoint-1 is left from an earlier run and cannot be removed" in caplog.text
