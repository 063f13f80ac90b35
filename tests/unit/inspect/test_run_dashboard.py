"""The dashboard of a live run: what is left, how numbers move, and when it ends."""

import re
from io import StringIO

import pytest
from rich.console import Console

from toy_runs import write_fallen, write_run
from vcsd.checkpoint.lock import only_process
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.scorecard import BenchmarkScore, Counts, Scorecard
from vcsd.evaluation.scoring.uncertainty import Interval
from vcsd.inspect.run_dashboard import dashboard, seconds_left, spark, watch_run
from vcsd.inspect.run_folder import read_run


def shown(run):
    console = Console(file=StringIO(), width=100)
    console.print(dashboard(run))
    return console.file.getvalue()


def test_the_time_left_follows_from_the_latest_steps(tmp_path):
    run = read_run(write_run(tmp_path / "a", num_steps=5))
    assert seconds_left(run) == pytest.approx(15 * 3.0)
    assert seconds_left(read_run(write_run(tmp_path / "b", num_steps=0))) is None


def test_a_course_is_averaged_and_a_constant_one_is_flat():
    assert spark([1.0] * 5) == "\u2581" * 5
    assert spark(list(range(64)), width=4) == "\u2581\u2583\u2586\u2588"
    assert spark([]) == ""


def test_the_dashboard_shows_metrics_phases_alarms_and_samples(tmp_path):
    folder = write_run(tmp_path / "a", num_steps=10, guard={9: "warn"}, response="[red]It[/] is \x1b[31m red.")
    text = shown(read_run(folder))
    assert "stopped  step 10 of 20" in text
    assert "contrast   +0.100  +0.010" in text
    assert re.search(r"rollout +2 +3\.0", text)
    assert "guard: warn at step 9: length grew at 9 (1 steps in all)" in text
    assert "step 9, row-9: What color is it?\n[red]It[/] is \\x1b[31m red." in text


def test_the_dashboard_shows_what_the_last_evaluation_has_lost(tmp_path):
    text = " ".join(shown(read_run(write_fallen(tmp_path / "a"))).split())
    assert "evaluation at step 20: BLINK -20.00 (95% -24.00 to -16.00) since the first evaluation, at step 0" in text
    assert "BLINK -30.00 (95% -34.00 to -26.00) since its best evaluation, at step 10" in text


def test_a_run_that_has_ended_is_shown_once(tmp_path):
    console = Console(file=StringIO(), width=100, force_terminal=True)
    assert watch_run(write_run(tmp_path / "a"), console, pause=pytest.fail).state == "finished"


def test_a_model_that_was_only_evaluated_is_shown_with_its_score(tmp_path):
    (tmp_path / "base").mkdir()
    tally = Tally(("a", "b"), (True, False), (0, 1), {"accuracy": (0, 1)})
    limits, counts = Interval(9.5, 90.5), Counts(0, 0, 0, 0, 0)
    score = BenchmarkScore("mine", "mine", 50.0, limits, 2, None, counts, {"accuracy": 50.0}, {}, "official", tally)
    Scorecard("final", "2026-06", 50.0, limits, {"mine": score}).save(tmp_path / "base" / "scorecard.json")
    console = Console(file=StringIO(), width=100)
    watch_run(tmp_path / "base", console, pause=pytest.fail)
    assert console.file.getvalue() == "base  evaluated, not trained: Acc 50.00\n"


def test_a_live_run_is_followed_until_it_ends(tmp_path):
    folder = write_run(tmp_path / "a", num_steps=3)
    lock = only_process(folder)
    lock.__enter__()
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        write_run(folder, num_steps=3 + len(pauses))
        if len(pauses) == 3:
            lock.__exit__(None, None, None)

    console = Console(file=StringIO(), width=100, force_terminal=True)
    run = watch_run(folder, console, pause=pause)
    assert (run.state, run.last_step, len(pauses)) == ("stopped", 6, 4)
    assert "step 5 of 20" in console.file.getvalue()
