"""The picture of who works when: which bars it shows, and on which scale."""

import subprocess
import sys

import pytest

from vcsd.monitor.lines import read_lines
from vcsd.monitor.timeline import TIMELINE, Timeline
from vcsd.report.timeline_figure import SAMPLER, TRAINER, Bar, bars_of, draw_timeline

LINES = [
    {"step": 1, "trainer": [["rollout", 0.0, 2.0], ["distill", 2.0, 3.0]], "sampler": [["draw", 1, 0.5, 2.0]]},
    {"step": 2, "trainer": [["rollout", 3.0, 3.5], ["distill", 3.5, 5.0]], "sampler": [["draw", 2, 2.0, 3.2]]},
    {"step": 3, "trainer": [["rollout", 5.0, 5.1], ["distill", 5.1, 6.0]], "sampler": [["draw", 3, 3.6, 4.9]]},
]


def test_bars_start_with_the_first_step_shown():
    bars = bars_of(LINES, 2, 2)
    assert [(bar.row, bar.phase, bar.step) for bar in bars] == [
        (TRAINER, "rollout", 2),
        (TRAINER, "distill", 2),
        (SAMPLER, "draw", 3),
    ]
    assert [round(bar.start, 2) for bar in bars] == [0.0, 0.5, 0.6]
    assert bars_of(LINES, 7, 9) == []


def test_times_before_a_resume_are_left_out():
    resumed = [*LINES, {"step": 4, "trainer": [["distill", 0.5, 1.0]], "sampler": []}]
    assert bars_of(resumed, 1, 9) == [Bar(TRAINER, "distill", 4, 0.0, 0.5)]


def test_a_resumed_run_drops_the_lines_of_steps_that_it_repeats(tmp_path):
    timeline = Timeline(tmp_path, 0)
    for step in (1, 2, 3):
        timeline.note(step, [("rollout", timeline._start + 1, timeline._start + 2)], [])
    Timeline(tmp_path, 1)
    assert list(read_lines(tmp_path / TIMELINE)) == [{"step": 1, "trainer": [["rollout", 1.0, 2.0]], "sampler": []}]


def test_every_bar_is_drawn():
    figure = draw_timeline([("now", bars_of(LINES, 1, 3)), ("ahead", bars_of(LINES, 2, 2))])
    assert [len(panel.patches) for panel in figure.axes] == [9, 3]


@pytest.mark.parametrize("arguments", [[], ["--names", "a", "b"]])
def test_a_run_without_times_is_one_sentence(tmp_path, arguments):
    command = [sys.executable, "-m", "vcsd.report.timeline_figure", str(tmp_path), "--out", str(tmp_path / "x.png")]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    wanted = "2 names for 1 runs" if arguments else "has no steps 2 to 5. Only runs with vLLM write it."
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
