"""The training bar shows the step and the time left at any width, and drops numbers that do not fit."""

import io
import re

import pytest
from rich.console import Console

from vcsd.monitor.training_bar import TrainingBar

METRICS = {
    "loss": 0.71234,
    "realised_contrast": 0.52,
    "gradient_norm": 1.3,
    "length": 301.2,
    "repetition": 0.0125,
    "language_drift": 0.0,
}


def last_line(width, step=120, steps=200):
    screen = io.StringIO()
    bar = TrainingBar(Console(file=screen, force_terminal=True, width=width, color_system=None))
    bar.begin(step - 20, steps)
    bar.step(step, METRICS)
    bar.end()
    lines = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n").splitlines()
    return [line for line in lines if f"{step}/{steps}" in line.replace(" ", "")][-1]


def test_without_a_terminal_and_without_logging_the_lines_are_printed(monkeypatch, caplog):
    caplog.set_level("INFO", logger="vcsd")
    screen = io.StringIO()

    def trained():
        bar = TrainingBar(Console(file=screen, force_terminal=False, width=40))
        bar.begin(0, 2)
        bar.step(1, METRICS)
        bar.end()
        return screen.getvalue()

    line = "step 1 of 2  loss 0.7123 contrast 0.52 grad 1.3 length 301 repeat 1.2% drift 0.0%"
    assert not trained()
    assert caplog.messages == [line]
    monkeypatch.setattr("logging.Logger.hasHandlers", lambda logger: False)
    assert trained() == f"{line}\n"


@pytest.mark.parametrize("width", [20, 24, 30, 40, 60, 79, 80, 110, 200])
@pytest.mark.parametrize("steps", [(120, 200), (12_000, 20_000)])
def test_the_step_and_the_time_left_fit_any_terminal(width, steps):
    line = last_line(width, *steps)
    assert ":" in line  # the time left, or a dash for it
    assert len(line.rstrip()) <= width
    assert "…" not in line


@pytest.mark.parametrize(("width", "shown"), [(24, 0), (30, 1), (40, 1), (60, 3), (80, 5), (110, 6)])
def test_whole_numbers_give_way_from_the_end(width, shown):
    names = ("loss 0.7123", "contrast 0.52", "grad 1.3", "length 301", "repeat 1.2%", "drift 0.0%")
    assert [name in last_line(width) for name in names].count(True) == shown
