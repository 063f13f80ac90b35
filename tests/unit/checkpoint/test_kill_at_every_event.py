"""A process that dies at any file system event of a save leaves whole checkpoints, and the next save cleans up."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from faulty_disk import faulty_disk
from tiny_lora import lora_trainer, write_base
from tiny_step import make_trainer
from vcsd.checkpoint import Contents, TensorFile, check_checkpoint, checkpoints_of, latest_checkpoint, write_checkpoint
from vcsd.errors import RunError

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "shutil.rmtree"}
DIED = 77


def contents(step, value=None):
    def copy_files(folder):
        (folder / "more").mkdir()
        (folder / "more" / "copied.txt").write_text("copied")

    tensors = {"a.safetensors": {"x": torch.full((4,), float(value or step))}}
    return Contents(tensors, {"b.json": "{}"}, {"seed": 0}, copy_files)


def value_of(folder):
    check_checkpoint(folder, {"seed": 0})
    return TensorFile(folder / "a.safetensors")["x"][0].item()


def save_and_die(root, step, limit, at, given=None):
    """Save in another process, which ends at the event of this number, and return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count, sync = [0], os.fsync

    def tick():
        if count[0] == at:
            os._exit(DIED)
        count[0] += 1

    def slow_sync(descriptor):
        tick()
        sync(descriptor)

    code = 1
    try:
        os.fsync = slow_sync
        sys.addaudithook(lambda event, given: tick() if event in EVENTS else None)
        write_checkpoint(root, step, given or contents(step), limit=limit)
        code = 0
    finally:
        os._exit(code)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # the child only writes files
@pytest.mark.parametrize("limit", [None, 1, 2])
def test_whatever_the_event_every_checkpoint_is_whole_and_the_next_save_cleans_up(tmp_path, limit):
    before = tmp_path / "before"
    for step in (1, 2):
        write_checkpoint(before, step, contents(step))
    kept = {None: [1, 2, 3], 1: [3], 2: [2, 3]}[limit]
    at, code = 0, DIED
    while code == DIED:
        root = tmp_path / f"killed-{at}"
        shutil.copytree(before, root)
        code = save_and_die(root, 3, limit, at)
        steps = list(checkpoints_of(root))
        assert steps[-1] == 3 or steps == [1, 2], at
        for step, folder in checkpoints_of(root).items():
            assert value_of(folder) == step
        write_checkpoint(root, 3, contents(3), limit=limit)
        assert sorted(path.name for path in root.iterdir()) == [f"checkpoint-{step}" for step in kept], at
        at += 1
    assert code == 0
    assert at > 20


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_whatever_the_event_a_step_that_is_saved_again_has_its_old_checkpoint_or_its_new_one(tmp_path):
    before = tmp_path / "before"
    write_checkpoint(before, 1, contents(1, value=10))
    at, code, values, hidden = 0, DIED, [], 0
    while code == DIED:
        root = tmp_path / f"killed-{at}"
        shutil.copytree(before, root)
        code = save_and_die(root, 1, None, at, contents(1, value=20))
        hidden += not (root / "checkpoint-1").exists()
        values.append(value_of(latest_checkpoint(root)))
        with faulty_disk(root, 5), pytest.raises(RunError):  # the next save fails, and must not lose it either
            write_checkpoint(root, 2, contents(2))
        assert value_of(latest_checkpoint(root)) == values[-1]
        write_checkpoint(root, 2, contents(2))
        assert sorted(path.name for path in root.iterdir()) == ["checkpoint-1", "checkpoint-2"], at
        at += 1
    assert code == 0
    assert sorted(values) == values
    assert {*values} == {10.0, 20.0}
    assert hidden > 0


SAVES = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}


def lora_run(folder):
    write_base(folder / "base")
    return lora_trainer(folder / "run", folder / "base", arguments=SAVES)


def offloaded_run(folder):
    return make_trainer(folder / "run", offload=True, arguments={"bf16": True, **SAVES})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:the checkpoint has no processor files")
@pytest.mark.parametrize("make", [lora_run, offloaded_run])
def test_a_trainers_save_that_dies_at_any_event_leaves_whole_checkpoints(tmp_path, make):
    trainer = make(tmp_path)
    trainer.train()
    root, given = Path(trainer.args.output_dir), trainer.contents()
    at, code = 0, DIED
    while code == DIED:
        code = save_and_die(root, 2, 1, at, given)
        steps = list(checkpoints_of(root))
        assert steps in ([1], [1, 2], [2]), at
        for folder in checkpoints_of(root).values():
            check_checkpoint(folder, given.identity)
        if 2 in steps:
            shutil.rmtree(root / "checkpoint-2")
            write_checkpoint(root, 1, given)
        at += 1
    assert code == 0
    assert at > 30
