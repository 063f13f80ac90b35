"""Long work shows its count and the time left at any width, and without a terminal a line now and then."""

import io

import pytest
from rich.console import Console

from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.monitor import work_bar
from vcsd.monitor.work_bar import WorkBar

TITLE = "contrast decoding [/] of \x1b[31m MathVista"


def shown(width, use):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    use(console)
    return screen.getvalue()


def work(console):
    with WorkBar(TITLE, console) as bar:
        bar.begin(100, 200)
        bar.step(20)


def answer(console):
    with AskingBar(TITLE, console) as bar:
        bar.begin(119, 200)
        bar.step(is_failed=True)


def pretrain(console):
    with WorkBar("pre-training", console) as bar:
        bar.advance(119, 200, TITLE)
        bar.advance(120, 200, TITLE)


@pytest.mark.parametrize("use", [work, answer, pretrain])
@pytest.mark.parametrize("width", [20, 24, 40, 60, 80, 200])
def test_the_count_and_the_time_left_fit_any_terminal(width, use):
    lines = shown(width, use).replace("\r", "\n").splitlines()
    last = [line for line in lines if "120/200" in line][-1]
    assert ":" in last  # the time left, or a dash for it
    assert "\x1b[31m" not in last
    assert ("contrast" in last) == (width >= 60 or (width >= 40 and use is not answer))


def test_without_a_terminal_a_line_comes_from_time_to_time(monkeypatch, caplog):
    caplog.set_level("INFO", logger="vcsd")
    now = [0.0]
    monkeypatch.setattr(work_bar.time, "monotonic", lambda: now[0])
    with WorkBar("tiles", Console(file=io.StringIO(), force_terminal=False)) as bar:
        bar.begin(0, 100)
        for _ in range(70):
            now[0] += 1.0
            bar.step()
    assert [record.getMessage() for record in caplog.records] == [
        "tiles: 30 of 100, 0:01:10 left",
        "tiles: 60 of 100, 0:00:40 left",
    ]
