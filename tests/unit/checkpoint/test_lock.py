"""A run folder belongs to one process at a time."""

import os
import subprocess
import sys

import pytest

from vcsd.checkpoint.lock import NAME, only_process, process_in
from vcsd.errors import ConfigError, RunError

HOLD = """
import sys, pathlib
from vcsd.checkpoint.lock import only_process
with only_process(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


@pytest.fixture
def other(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], **PIPES) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_in_use_is_refused_and_its_owner_named(tmp_path, other):
    with pytest.raises(RunError, match=f"in use by process {other.pid} on"), only_process(tmp_path):
        pass


def test_a_killed_process_frees_its_folder(tmp_path, other):
    other.kill()
    other.wait()
    with only_process(tmp_path):
        assert str(os.getpid()) in (tmp_path / NAME).read_text()


def test_a_process_may_enter_its_own_folder_again_and_leaves_it_free(tmp_path):
    with only_process(tmp_path), only_process(tmp_path):
        pass
    command = [sys.executable, "-c", HOLD.replace("sys.stdin.read()", "pass"), tmp_path]
    assert subprocess.check_output(command, text=True) == "held\n"


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "taken").write_text("a file")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "inside"):
        with pytest.raises(ConfigError, match="cannot be written to"), only_process(folder):
            pass


def test_a_look_at_a_folder_names_its_process_and_disturbs_nobody(tmp_path, other):
    assert process_in(tmp_path).startswith(f"process {other.pid} on")
    other.kill()
    other.wait()
    assert process_in(tmp_path) is None
    assert process_in(tmp_path / "nowhere") is None
