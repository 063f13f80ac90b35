"""A new folder appears whole or not at all, and what a killed process left is removed."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError
from typer.testing import CliRunner

from vcsd.checkpoint import lock
from vcsd.checkpoint.lock import InUseError, process_in
from vcsd.checkpoint.new_folder import new_folder, new_place
from vcsd.cli import app
from vcsd.errors import ConfigError, RunError

HOLD = """
import sys, pathlib
from vcsd.checkpoint.new_folder import new_folder
with new_folder(pathlib.Path(sys.argv[1])) as partial:
    (partial / "half.bin").write_bytes(b"half")
    print("held", flush=True)
    sys.stdin.read()
"""
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_it_is_complete_without_its_lock(tmp_path):
    with new_folder(tmp_path / "deep" / "out") as partial:
        (partial / "a.txt").write_text("a")
        assert not (tmp_path / "deep" / "out").exists()
    assert names(tmp_path / "deep") == ["out"]
    assert names(tmp_path / "deep" / "out") == ["a.txt"]


def test_a_folder_is_locked_until_it_has_its_name_and_what_comes_after_it_is_left_alone(tmp_path, monkeypatch):
    rename, processes = Path.rename, []

    def watched(path, target):
        processes.append(process_in(path))
        renamed = rename(path, target)
        path.mkdir()
        (path / "half.bin").write_bytes(b"of the next process")
        return renamed

    monkeypatch.setattr(Path, "rename", watched)
    with new_folder(tmp_path / "out") as partial:
        (partial / "a.txt").write_text("a")
    assert len(processes) == 1
    assert processes[0].startswith(f"process {os.getpid()} on ")
    assert names(partial) == ["half.bin"]
    assert names(tmp_path / "out") == ["a.txt"]


def test_an_empty_folder_is_replaced_and_a_full_one_refused(tmp_path):
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out") as partial:
        (partial / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="is not an empty folder"), new_folder(tmp_path / "out"):
        pass
    assert names(tmp_path) == ["out"]


def test_a_command_whose_folder_is_full_names_the_option_that_chooses_another(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match=r"Choose a new one, or remove it"):
        new_place(tmp_path)
    exported = CliRunner().invoke(app.app, ["export", str(tmp_path / "run"), "--out", str(tmp_path)])
    assert "is not an empty folder. Choose a new one (--out), or remove it." in str(exported.exception)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), RunError),
        (SafetensorError("Error while serializing: I/O error: No space left on device"), RunError),
        (ConfigError(["something else"]), ConfigError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failure_leaves_nothing_behind(tmp_path, error, raised):
    def write():
        with new_folder(tmp_path / "out") as partial:
            (partial / "half.bin").write_bytes(b"half")
            raise error

    with pytest.raises(raised):
        write()
    assert names(tmp_path) == []


def test_a_disk_without_room_for_the_lock_is_one_sentence(tmp_path, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lock.socket, "gethostname", full)  # called while the lock is written
    with pytest.raises(RunError, match=r"out cannot be written: .*No space left"), new_folder(tmp_path / "out"):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("place", ["/proc/out", "/sys/out", "/dev/null/out"])
def test_a_place_that_holds_no_folders_is_one_sentence(place):
    if not Path(place).parent.exists():
        pytest.skip(f"no {Path(place).parent} here")
    with (
        pytest.raises(RunError, match=rf"{place} cannot be written: .* choose another folder"),
        new_folder(Path(place)),
    ):
        pass


def test_a_second_process_is_refused_and_a_killed_one_is_cleaned_up_after(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "out"], **PIPES) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(InUseError, match=f"in use by process {process.pid} on"), new_folder(tmp_path / "out"):
            pass
        with new_folder(tmp_path / "other"):
            pass
        assert names(tmp_path) == [".partial-out", "other"]  # in use, so it is left alone
        process.kill()
    (tmp_path / ".partial-checkpoint-3").mkdir()  # of a training run: another's business
    with new_folder(tmp_path / "third") as partial:
        (partial / "a.txt").write_text("a")
    assert names(tmp_path) == [".partial-checkpoint-3", "other", "third"]


def test_the_same_folder_can_be_made_after_a_kill(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "out"], **PIPES) as process:
        assert process.stdout.readline() == "held\n"
        process.kill()
    with new_folder(tmp_path / "out") as partial:
        (partial / "a.txt").write_text("a")
    assert names(tmp_path / "out") == ["a.txt"]
    assert names(tmp_path) == ["out"]


def test_a_link_to_itself_is_one_sentence(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises((ConfigError, RunError), match="loop"), new_folder(tmp_path / "loop" / "out"):
        pass


def test_the_working_directory_can_be_the_new_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with new_folder(Path()) as partial:
        (partial / "a.txt").write_text("a")
    assert names(tmp_path / "here") == ["a.txt"]


def test_where_files_cannot_be_locked_nothing_counts_as_abandoned(tmp_path, monkeypatch):
    other = tmp_path / ".partial-out"
    other.mkdir()
    (other / lock.NAME).write_text("process 7 on another\n")

    def flock(file, operation):
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    with new_folder(tmp_path / "third"):
        pass
    assert names(tmp_path) == [".partial-out", "third"]


@pytest.mark.parametrize("read", [lambda path: path.read_text(), lambda path: shutil.copyfile(path, "/dev/null")])
def test_a_file_that_cannot_be_read_is_not_called_unwritable(tmp_path, read):
    def write():
        with new_folder(tmp_path / "out"):
            read(tmp_path / "gone.json")

    with pytest.raises(
        RunError, match=r"gone.json cannot be read: No such file or directory. Nothing is left of .*out"
    ):
        write()
    assert names(tmp_path) == []


def test_a_copy_that_finds_no_room_names_the_new_folder_though_the_error_names_its_source(tmp_path):
    def write():
        with new_folder(tmp_path / "out") as partial:
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "a"), None, str(partial / "a"))

    with pytest.raises(RunError, match="out cannot be written: "):
        write()
