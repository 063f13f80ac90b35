"""A run folder belongs to one process at a time."""

import fcntl
import os

import pytest

from forked_python import run_python, start_python
from vcsd.checkpoint import lock
from vcsd.checkpoint.lock import NAME, InUseError, only_process, process_in, refuse_in_use
from vcsd.errors import ConfigError, RunError

HOLD = """
import pathlib, sys, time
from vcsd.checkpoint.lock import only_process
with only_process(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def hold(tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "hold.py"
    script.write_text(HOLD)
    return script


@pytest.fixture
def other(hold, tmp_path):
    python = start_python(hold, tmp_path, 3600)
    try:
        python.wait_for_output("held")
        yield python
    finally:
        python.kill()


def test_a_folder_in_use_is_refused_and_its_owner_named(tmp_path, other):
    with pytest.raises(RunError, match=f"in use by process {other.process.pid} on"), only_process(tmp_path):
        pass


def test_a_killed_process_frees_its_folder(tmp_path, other):
    other.kill()
    with only_process(tmp_path):
        assert str(os.getpid()) in (tmp_path / NAME).read_text()


def test_a_process_may_enter_its_own_folder_again_and_leaves_it_free(hold, tmp_path):
    with only_process(tmp_path), only_process(tmp_path):
        pass
    assert run_python(hold, tmp_path, 0).stdout == "held\n"


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "taken").write_text("a file")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "inside"):
        with pytest.raises(ConfigError, match="cannot be written to"), only_process(folder):
            pass


def test_a_look_at_a_folder_names_its_process_and_disturbs_nobody(tmp_path, other):
    assert process_in(tmp_path).startswith(f"process {other.process.pid} on")
    other.kill()
    assert process_in(tmp_path) is None
    assert process_in(tmp_path / "nowhere") is None


def test_a_look_before_a_run_starts_refuses_a_folder_in_use_but_not_the_own_one(tmp_path, other):
    with pytest.raises(InUseError, match=f"in use by process {other.process.pid} on"):
        refuse_in_use(tmp_path)
    other.kill()
    refuse_in_use(tmp_path)
    with only_process(tmp_path):
        refuse_in_use(tmp_path)


def test_a_run_may_start_while_others_look_at_its_folder(tmp_path, monkeypatch):
    path = tmp_path / NAME
    path.write_text("process 1 on a machine\n")
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as `process_in` does for a moment
        pauses = []

        def pause(seconds):
            pauses.append(seconds)
            if len(pauses) == 3:
                fcntl.flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr(lock.time, "sleep", pause)
        with only_process(tmp_path):
            assert str(os.getpid()) in path.read_text()
    assert len(pauses) == 3
