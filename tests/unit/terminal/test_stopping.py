"""A signal ends a command with one sentence and its exit code, whatever the command does when it comes."""

import os
import pty
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Annotated

import pytest
import typer
from pydantic import PlainSerializer, TypeAdapter

from vcsd.cli import app
from vcsd.terminal import stopping
from vcsd.terminal.stopping import Stopped, stoppable

pytestmark = pytest.mark.usefixtures("_default_interrupt")

NUMBERS = [signal.SIGTERM, signal.SIGINT]

PLACES = {
    "import": "import interrupted",
    "dropped": """
import weakref
class Gone: pass
gone = Gone()
reference = weakref.ref(gone, lambda reference: signal.raise_signal(number))
del gone
""",
    "cleaning up": """
stopping.SAME_SECONDS = 0
try:
    signal.raise_signal(number)
finally:
    signal.raise_signal(number)
""",
}
MODULE = """
import signal, sys
try:
    signal.raise_signal(signal.Signals(int(sys.argv[1])))
except BaseException:
    pass  # as libraries in C++ or Rust might, or abort
"""
SCRIPT = """
import signal, sys
from vcsd.terminal import stopping
number = int(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background without it
with stopping.stoppable():
    {}
    print("not stopped")
"""


def python(*given):
    return subprocess.run([sys.executable, *map(str, given)], capture_output=True, text=True, check=False)


def main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return stop.value.code


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_where_nothing_may_be_raised_ends_the_process_at_once(tmp_path, place, number):
    (tmp_path / "interrupted.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT.format(PLACES[place].strip().replace("\n", "\n    ")))
    ended = python(tmp_path / "script.py", int(number))
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", f"Stopped by {number.name}.\n")


@pytest.fixture
def while_importing(tmp_path):
    """The command of a process that gets Ctrl-C while it imports a module."""
    (tmp_path / "interrupted.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT.format(PLACES["import"]))
    return [sys.executable, tmp_path / "script.py", str(int(signal.SIGINT))]


def test_a_process_that_ends_at_once_shows_the_cursor_that_a_progress_bar_hid(while_importing):
    terminal, end = pty.openpty()
    with os.fdopen(terminal, "rb", 0) as shown, os.fdopen(end, "wb") as stderr:
        subprocess.run(while_importing, stdout=subprocess.DEVNULL, stderr=stderr, check=False)
        assert shown.read(100) == b"\x1b[?25hStopped by SIGINT.\r\n"


def test_a_process_that_ends_at_once_needs_nobody_who_reads_why(while_importing):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as stderr:
        assert subprocess.run(while_importing, stderr=stderr, check=False).returncode == 130


def test_a_signal_to_the_process_and_then_to_its_group_counts_as_one(monkeypatch):
    monkeypatch.setattr(stopping, "SAME_SECONDS", 3600)
    cleaned = []

    def clean_up():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned.append(True)

    with stoppable(), pytest.raises(Stopped, match="stopped by SIGTERM"):
        clean_up()
    assert cleaned


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_pydantic_makes_another_error_of_stops_the_command(monkeypatch, capsys, number):
    def read(*_):
        TypeAdapter(Annotated[int, PlainSerializer(lambda value: signal.raise_signal(number))]).dump_json(1)

    monkeypatch.setattr("vcsd.config.recipe.load_recipe", read)
    assert main(monkeypatch, "config", "recipe.yaml") == 128 + number
    assert tuple(capsys.readouterr()) == ("", f"Stopped by {number.name}.\n")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_a_library_catches_stops_the_command(monkeypatch, capsys, number):
    """As gradio's does while `vcsd ui` serves a page."""

    def read(*_):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            return SimpleNamespace(to_json=str)

    monkeypatch.setattr("vcsd.config.recipe.load_recipe", read)
    assert main(monkeypatch, "config", "recipe.yaml") == 128 + number
    assert capsys.readouterr().err == f"Stopped by {number.name}.\n"


def test_of_several_processes_the_first_says_that_a_signal_stopped_them(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("vcsd.config.recipe.load_recipe", lambda *_: signal.raise_signal(signal.SIGTERM))
    assert main(monkeypatch, "config", "recipe.yaml") == 143
    assert capsys.readouterr().err == ""


def test_ctrl_c_at_a_question_stops_the_command(monkeypatch, capsys):
    def ask(*_, **__):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise typer.Abort from None

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", ask)
    assert main(monkeypatch, "init") == 130
    assert capsys.readouterr().err == "Stopped by SIGINT.\n"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_the_command_line_is_built_stops_it(monkeypatch, capsys, number):
    monkeypatch.setattr(app, "app", lambda: signal.raise_signal(number))
    before = [signal.getsignal(each) for each in NUMBERS]
    assert main(monkeypatch) == 128 + number
    assert capsys.readouterr().err == f"Stopped by {number.name}.\n"
    assert [signal.getsignal(each) for each in NUMBERS] == before


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_a_command_ends_shows_no_traceback(tmp_path, number):
    (tmp_path / "script.py").write_text(
        """
import signal, sys
from vcsd.cli import app
from vcsd.terminal import stopping
def restore(number, handler):
    if handler is not stopping.stop:
        signal.raise_signal(int(sys.argv[1]))
    set_handler(number, handler)
signal.signal(signal.SIGINT, signal.default_int_handler)
set_handler, signal.signal = signal.signal, restore
app.app = lambda: None
app.main()
"""
    )
    ended = python(tmp_path / "script.py", int(number))
    assert (ended.returncode, ended.stderr) == (128 + number, f"Stopped by {number.name}.\n")


@pytest.mark.parametrize("place", ["typer", "atexit"])
def test_ctrl_c_while_python_starts_or_ends_shows_no_traceback(tmp_path, place):
    (tmp_path / "script.py").write_text(
        """
import atexit, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from vcsd.cli import main
if sys.argv.pop() == "atexit":
    atexit.register(signal.raise_signal, signal.SIGINT)
else:
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "typer":
                signal.raise_signal(signal.SIGINT)
    sys.meta_path.insert(0, Finder())
sys.argv.append("--version")
main()
"""
    )
    ended = python(tmp_path / "script.py", place)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_signals_that_the_program_ignores_are_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
