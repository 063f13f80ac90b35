"""A person who waits for torch is told so; a pipe, another rank and `--help` are not."""

import os
import subprocess
import sys

import pytest

LINE = "Loading torch and transformers ..."


def on_terminal(*arguments, **environment):
    """What a command writes to a terminal as stderr. Its torch is an empty module, which is found first."""
    terminal, end = os.openpty()
    subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=end,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
        timeout=600,
    )
    os.close(end)
    written = b""
    try:
        while piece := os.read(terminal, 4096):
            written += piece
    except OSError:  # Linux says so at the end of a terminal
        pass
    os.close(terminal)
    return written.decode()


@pytest.fixture
def first(tmp_path):
    (tmp_path / "torch.py").touch()
    return os.pathsep.join([str(tmp_path), *filter(None, sys.path)])


CODE = "from vcsd.terminal import announce_slow_import as a; a(); print(); import torch; import torch"


def test_the_import_of_torch_is_announced_once_on_a_terminal(first):
    assert on_terminal("-c", CODE, PYTHONPATH=first).count(LINE) == 1


def test_another_rank_announces_nothing(first):
    assert on_terminal("-c", CODE, PYTHONPATH=first, RANK="1") == ""


def test_a_pipe_gets_nothing(first):
    environment = {**os.environ, "PYTHONPATH": first}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "--nope"], ["trian"]], ids=" ".join)
def test_help_and_wrong_options_do_not_import_torch(arguments, first):
    written = on_terminal("-m", "vcsd", *arguments, PYTHONPATH=first)
    assert LINE not in written
    assert "Traceback" not in written


def test_a_command_that_imports_torch_says_so_first():
    written = on_terminal("-m", "vcsd", "eval", "./nope", "--benchmarks", "world")
    assert -1 < written.find(LINE) < written.find("error:")


def test_a_recipe_that_does_not_exist_is_refused_without_torch(first):
    written = on_terminal("-m", "vcsd", "config", "nope.yaml", PYTHONPATH=first)
    assert "'nope.yaml' cannot be read" in written
    assert LINE not in written
