import logging
import warnings

import pytest
from PIL import Image
from rich.console import Console

from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.terminal import guard_terminal, plain, say
from vcsd.views.original import MAX_IMAGE_PIXELS

HOSTILE = "x[/red]\x1b[31m\x9b:bug:\u202e\ud800"
SHOWN = r"x[/red]\x1b[31m\x9b:bug:\u202e\ud800"


@pytest.fixture
def guarded():
    factory, form = logging.getLogRecordFactory(), warnings.formatwarning
    guard_terminal()
    yield
    logging.setLogRecordFactory(factory)
    warnings.formatwarning = form


def test_what_is_said_is_shown_as_it_is(capsys):
    say(HOSTILE)
    say(HOSTILE, style="dim", to_stderr=True)
    assert capsys.readouterr() == (SHOWN + "\n", SHOWN + "\n")


def test_what_is_said_is_not_wrapped(capsys):
    say("path/" * 100)
    assert capsys.readouterr().out == "path/" * 100 + "\n"


def test_a_terminal_without_unicode_shows_other_characters_as_escapes(monkeypatch, capsys):
    monkeypatch.setattr(Console, "encoding", "ascii")
    say("naïve")
    assert capsys.readouterr().out == r"na\xefve" + "\n"


def test_every_log_message_is_made_visible(guarded, caplog):
    logging.getLogger("another.library").warning("prompt: %s", HOSTILE)
    assert caplog.messages == [f"prompt: {SHOWN}"]


def test_every_warning_is_made_visible(guarded):
    assert SHOWN in warnings.formatwarning(HOSTILE, UserWarning, "file.py", 1, "")


def test_pillow_does_not_warn_of_an_image_that_is_refused(tmp_path):
    path = tmp_path / "large.png"
    Image.new("1", (9500, 9500)).save(path)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        Image.open(path).close()
        assert [one.category for one in shown] == [Image.DecompressionBombWarning]
        guard_terminal()
        Image.open(path).close()
    assert len(shown) == 1
    assert MAX_IMAGE_PIXELS < 9500**2


def test_a_bar_shows_its_title_as_it_is():
    console = Console(force_terminal=True, width=200, record=True, color_system=None)
    with console.capture() as printed, AskingBar(HOSTILE, console) as bar:
        bar.begin(0, 2)
        bar.step(is_failed=False)
    assert SHOWN in printed.get()


def test_plain_text_keeps_its_style():
    assert (plain("a", "bold").plain, plain("a", "bold").style) == ("a", "bold")
