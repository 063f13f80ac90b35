"""The clock of the machine may jump back, during a run and before it resumes: the run is the same."""

import itertools
import time

from tiny_step import losses_of, make_trainer
from vcsd.checkpoint import checkpoints_of

SAVES = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}


def test_a_clock_that_goes_backwards_changes_no_run_and_no_resume(tmp_path, monkeypatch):
    whole = make_trainer(tmp_path / "whole", arguments=SAVES)
    whole.train()
    hours = itertools.count(0, -3600.0)
    monkeypatch.setattr(time, "time", lambda: 2e9 + next(hours))
    make_trainer(tmp_path / "back", arguments={**SAVES, "max_steps": 2}).train()
    assert list(checkpoints_of(tmp_path / "back")) == [2]
    hours = itertools.count(-1e9, -3600.0)
    resumed = make_trainer(tmp_path / "back", arguments=SAVES)
    resumed.train("auto")
    assert list(checkpoints_of(tmp_path / "back")) == list(checkpoints_of(tmp_path / "whole"))
    assert losses_of(resumed) == losses_of(whole)
