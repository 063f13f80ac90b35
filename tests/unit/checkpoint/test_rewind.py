"""A run can go back to an earlier checkpoint; later ones are moved aside, not lost."""

import pytest

from vcsd.checkpoint.folder import latest_checkpoint
from vcsd.checkpoint.rewind import last_good_step, rewind
from vcsd.errors import ConfigError


@pytest.fixture
def run(tmp_path):
    for step in (10, 20, 30):
        (tmp_path / f"checkpoint-{step}").mkdir()
    return tmp_path


def test_later_checkpoints_are_moved_aside(run):
    rewind(run, 10)
    assert latest_checkpoint(run) == run / "checkpoint-10"
    assert {path.name for path in run.iterdir()} == {
        *("checkpoint-10", "set-aside-checkpoint-20", "set-aside-checkpoint-30")
    }


def test_going_back_twice_keeps_what_was_set_aside_before_and_the_names_of_earlier_versions(run):
    (run / "damaged-checkpoint-20").mkdir()  # an earlier version gave this name to whole ones, too
    rewind(run, 20)
    (run / "checkpoint-30").mkdir()
    rewind(run, 20)
    assert {path.name for path in run.iterdir()} == {
        *("checkpoint-10", "checkpoint-20", "damaged-checkpoint-20"),
        *("set-aside-checkpoint-30", "set-aside-checkpoint-30-2"),
    }


def test_a_step_without_a_checkpoint_is_refused_with_those_that_have_one(run):
    with pytest.raises(ConfigError, match=r"has no checkpoint-15. Its checkpoints are of steps: 10, 20, 30."):
        rewind(run, 15)


def test_the_last_good_step_is_the_last_checkpoint_before_the_alarm(run):
    records = [{"step": step, "is_taken": True} for step in range(1, 26)]
    alarms = [{"step": step, "is_taken": True, "guard": "warn"} for step in range(26, 40)]
    assert last_good_step(run, records + alarms) == 20
    with pytest.raises(ConfigError, match="no checkpoint at or before step 5"):
        last_good_step(run, records[:5] + alarms)
