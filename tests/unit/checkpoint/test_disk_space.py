"""What the checkpoints of a run need, and a disk that is too small for one or for all of them."""

import logging
import shutil
from types import SimpleNamespace

import pytest
from transformers import TrainingArguments

from tiny_lora import lora_model
from tiny_processor import build_processor
from tiny_ranks import on_ranks
from tiny_step import make_trainer
from vcsd.checkpoint.disk_space import SPARE_BYTES, DiskNeeds, num_saves_after
from vcsd.errors import RunError
from vcsd.method import METHODS
from vcsd.monitor import Watch
from vcsd.monitor.guard import Guard
from vcsd.parallel.ranks import is_first

STEPS = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1}


@pytest.fixture
def disk(monkeypatch):
    """A disk whose free space a test sets."""
    disk = SimpleNamespace(free=2**40)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    return disk


@pytest.mark.parametrize(
    ("step", "arguments", "number"),
    [
        (0, {"max_steps": 20, "save_steps": 10}, 2),
        (0, {"max_steps": 25, "save_steps": 10}, 3),
        (10, {"max_steps": 25, "save_steps": 10}, 2),
        (13, {"max_steps": 25, "save_steps": 10}, 2),
        (25, {"max_steps": 25, "save_steps": 10}, 0),
        (0, {"max_steps": 5, "save_steps": 10}, 1),
        (0, {"max_steps": 25, "save_steps": 0.2}, 5),
        (0, {"max_steps": 25, "save_strategy": "no"}, 0),
        (0, {"max_steps": 25, "save_strategy": "epoch"}, 4),
        (0, {"num_train_epochs": 2.5, "save_strategy": "epoch"}, 3),
    ],
)
def test_the_checkpoints_that_a_run_will_write_are_counted(tmp_path, step, arguments, number):
    args = TrainingArguments(tmp_path, use_cpu=True, **{"save_strategy": "steps", **arguments})
    assert num_saves_after(step, args, steps_per_epoch=8) == number


@pytest.mark.parametrize("limit", [1, 2, 3, None])
def test_as_many_checkpoints_are_there_at_one_time_as_was_said(tmp_path, monkeypatch, limit):
    trainer = make_trainer(tmp_path, arguments={**STEPS, "save_total_limit": limit})
    said, most = trainer.disk_needs(None), []
    copy_files = trainer._copy_files

    def count(folder):
        most.append(len(list(tmp_path.glob("checkpoint-*"))) + 1)  # and the one that is being written
        copy_files(folder)

    monkeypatch.setattr(trainer, "_copy_files", count)
    trainer.train()
    assert said.num_more == max(most)
    assert trainer.disk_needs(str(tmp_path / "checkpoint-4")).num_more == 0


class Alarmed:
    """A monitor that raised an alarm after step 1 and still does."""

    last_good_step = 1

    def observe(self, seen):
        return {}

    def state(self):
        return {}


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_checkpoint_that_is_kept_after_an_alarm_is_counted(tmp_path, monkeypatch, limit):
    trainer = make_trainer(tmp_path, arguments={**STEPS, "max_steps": 7, "save_total_limit": limit})
    trainer.monitors = [Alarmed()]
    said, most = trainer.disk_needs(None), []
    copy_files = trainer._copy_files

    def count(folder):
        most.append(len(list(tmp_path.glob("checkpoint-*"))) + 1)  # and the one that is being written
        copy_files(folder)

    monkeypatch.setattr(trainer, "_copy_files", count)
    trainer.train()
    assert (tmp_path / "checkpoint-1").is_dir()
    assert said.num_more == max(most) == max(limit, 2) + 2


@pytest.mark.parametrize(("guard", "number"), [(None, 4), (Guard(()), 3)])
def test_a_guard_that_watches_nothing_keeps_no_checkpoint(tmp_path, guard, number):
    trainer = make_trainer(tmp_path, arguments={**STEPS, "max_steps": 7, "save_total_limit": 2})
    with Watch(tmp_path, build_processor().tokenizer, max_steps=7, guard=guard) as watch:
        trainer.monitors = [watch]
        assert trainer.disk_needs(None).num_more == number


@pytest.mark.parametrize("changes", [{}, {"method": METHODS["opsd"]}, {"model": "lora"}], ids=["ema", "opsd", "lora"])
def test_a_checkpoint_is_as_large_as_was_said_before_the_first_step(tmp_path, changes):
    model = {"model": lora_model()} if "model" in changes else {}
    trainer = make_trainer(tmp_path, arguments={**STEPS, "max_steps": 1}, **{**changes, **model})
    said = trainer.disk_needs(None).checkpoint_bytes
    trainer.train()
    random_and_texts = 50_000
    assert 0 < trainer.contents().num_bytes - said < random_and_texts


def test_a_disk_without_space_for_one_checkpoint_is_refused_before_the_first_step(tmp_path, disk):
    trainer = make_trainer(tmp_path, arguments=STEPS)
    disk.free = trainer.disk_needs(None).checkpoint_bytes + SPARE_BYTES - 1
    with pytest.raises(RunError, match=r"a checkpoint needs .* has 0\.\d\d GiB left"):
        trainer.check_resume(resume=True)
    with pytest.raises(RunError, match="a checkpoint needs"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_what_a_killed_save_left_counts_as_free_since_the_next_save_removes_it(tmp_path, disk):
    trainer = make_trainer(tmp_path, arguments={**STEPS, "max_steps": 1})
    (tmp_path / ".partial-checkpoint-2").mkdir()
    (tmp_path / ".partial-checkpoint-2" / "student.safetensors").write_bytes(bytes(100_000))
    needs = trainer.disk_needs(None)
    disk.free = needs.checkpoint_bytes + SPARE_BYTES - 100_000
    trainer.check_resume(resume=True)
    disk.free -= 1
    with pytest.raises(RunError, match="a checkpoint needs"):
        trainer.check_resume(resume=True)


def test_a_run_that_plans_no_checkpoint_starts_but_is_warned_that_a_stop_would_lose_it(tmp_path, disk, caplog):
    trainer = make_trainer(tmp_path, arguments={"max_steps": 1, "save_strategy": "no"})
    disk.free = trainer.disk_needs(None).checkpoint_bytes + SPARE_BYTES - 1
    with caplog.at_level(logging.WARNING, logger="vcsd"):
        trainer.train()
    assert trainer.state.global_step == 1
    assert not list(tmp_path.glob("checkpoint-*"))
    (warning,) = [record.message for record in caplog.records if "left: too little" in record.message]
    assert "too little for the checkpoint of 0.01 GiB that is written if this run is stopped before its end" in warning


def test_a_run_that_plans_no_checkpoint_is_not_warned_if_one_fits(tmp_path, disk):
    needs = make_trainer(tmp_path, arguments={"max_steps": 1, "save_strategy": "no"}).disk_needs(None)
    assert (needs.num_saves, needs.num_more) == (0, 1)
    disk.free = needs.num_bytes + SPARE_BYTES
    assert needs.warning(tmp_path) is None


def test_a_disk_without_space_for_all_checkpoints_is_warned_of_and_the_run_starts(tmp_path, disk, caplog):
    trainer = make_trainer(tmp_path, arguments={**STEPS, "max_steps": 2})
    disk.free = trainer.disk_needs(None).checkpoint_bytes + SPARE_BYTES + 50_000
    with caplog.at_level(logging.WARNING, logger="vcsd"):
        trainer.train()
    warnings = [record.message for record in caplog.records if "left: enough for" in record.message]
    assert len(warnings) == 1
    assert "enough for 1 of the 2 checkpoints of 0.01 GiB that this run may add at one time" in warnings[0]
    assert "save_total_limit" not in warnings[0]  # both would be kept anyway


def test_an_export_that_would_not_fit_is_warned_of(tmp_path, disk):
    needs = DiskNeeds(checkpoint_bytes=2**20, export_bytes=2**34, num_there=0, num_saves=2, limit=2)
    disk.free = 2**30
    assert "not for an export of 16.00 GiB after it." in needs.warning(tmp_path)
    disk.free = 2**35
    assert needs.warning(tmp_path) is None


def test_the_limit_is_named_only_where_a_lower_one_would_help(tmp_path, disk):
    disk.free = 2 * 2**30
    some = {"checkpoint_bytes": 2**30, "export_bytes": 0, "num_there": 0, "num_saves": 9}
    assert "save_total_limit" not in DiskNeeds(**some, limit=2).warning(tmp_path)
    assert "set trainer.save_total_limit=2" in DiskNeeds(**some, limit=5).warning(tmp_path)
    assert "set trainer.save_total_limit=2" in DiskNeeds(**some, limit=None).warning(tmp_path)


def refused_on_both(folder):
    shutil.disk_usage = lambda path: SimpleNamespace(free=0 if is_first() else pytest.fail("rank 1 looked"))
    trainer = make_trainer(folder, arguments=STEPS)
    with pytest.raises(RunError, match="a checkpoint needs"):
        trainer.check_resume(resume=True)


def test_the_first_of_several_ranks_looks_at_the_disk_and_all_stop(tmp_path):
    on_ranks(2, refused_on_both, str(tmp_path))
