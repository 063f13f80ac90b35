"""A process that dies at any file system event of a save leaves whole checkpoints, and the next save cleans up."""

import os
import shutil
import sys

import pytest
import torch

from vcsd.checkpoint import Contents, TensorFile, check_checkpoint, checkpoints_of, write_checkpoint

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "shutil.rmtree"}
DIED = 77


def contents(step):
    def copy_files(folder):
        (folder / "more").mkdir()
        (folder / "more" / "copied.txt").write_text("copied")

    return Contents({"a.safetensors": {"x": torch.full((4,), float(step))}}, {"b.json": "{}"}, {"seed": 0}, copy_files)


def save_and_die(root, step, limit, at):
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
        write_checkpoint(root, step, contents(step), limit=limit)
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
            check_checkpoint(folder, {"seed": 0})
            assert TensorFile(folder / "a.safetensors")["x"][0] == step
        write_checkpoint(root, 3, contents(3), limit=limit)
        assert sorted(path.name for path in root.iterdir()) == [f"checkpoint-{step}" for step in kept], at
        at += 1
    assert code == 0
    assert at > 20
