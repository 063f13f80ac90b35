"""One of two ranks dies at any file system event of a save: the other stops, and every checkpoint is whole."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from tiny_ranks import exit_codes, on_ranks
from vcsd.checkpoint import Contents, TensorFile, check_checkpoint, checkpoints_of, write_checkpoint
from vcsd.errors import RunError

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "shutil.rmtree"}
FILE, RANDOM = "student.safetensors", "random.safetensors"
DIED, STOPPED, DONE = 77, 3, 0


def contents(step):
    weight = distribute_tensor(torch.full((3, 2), float(step)), init_device_mesh("cpu", (2,)), [Shard(0)])
    tensors = {FILE: {"weight": weight}, RANDOM: {"rank": torch.tensor(dist.get_rank())}}
    return Contents(tensors, {"b.json": "{}"}, {"seed": 0}, of_rank={RANDOM})


def save_twice(root):
    for step in (1, 2):
        write_checkpoint(root, step, contents(step))


def save_and_die(root, victim, at):
    """Save step 3. The victim ends at the event of this number; the other rank must notice and stop."""
    to_save, count, sync, is_victim = contents(3), [0], os.fsync, dist.get_rank() == victim

    def tick(path):
        if is_victim and (str(root) in path or not path.startswith("/")):  # a removal names files within a folder
            if count[0] == at:
                os._exit(DIED)
            count[0] += 1

    def slow_sync(descriptor):
        tick(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    os.fsync = slow_sync
    sys.addaudithook(lambda event, given: tick(str(given[0])) if event in EVENTS else None)
    try:
        write_checkpoint(root, 3, to_save, limit=2)
    except RunError:
        os._exit(STOPPED)
    os._exit(DONE)


def save_again(*roots):
    for root in roots:
        write_checkpoint(root, 3, contents(3), limit=2)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_whatever_the_event_every_checkpoint_is_whole_and_the_next_save_cleans_up(tmp_path, victim):
    before = tmp_path / "before"
    on_ranks(2, save_twice, before)
    roots, codes = [], [DIED]
    while DIED in codes:
        root = tmp_path / f"killed-{len(roots)}"
        shutil.copytree(before, root)
        codes = exit_codes(2, save_and_die, root, victim, len(roots))
        if DIED in codes:
            assert codes[victim] == DIED
            assert codes[1 - victim] in (STOPPED, DONE), "it did not notice"
        steps = list(checkpoints_of(root))
        assert steps[-1] == 3 or steps == [1, 2], len(roots)
        for step, folder in checkpoints_of(root).items():
            check_checkpoint(folder, {"seed": 0}, needs=[FILE, RANDOM])
            assert (TensorFile(folder / FILE)["weight"] == step).all()
        roots.append(root)
    assert codes == [DONE, DONE]
    assert len(roots) > (30 if victim == 0 else 4)
    on_ranks(2, save_again, *roots)
    for root in roots:
        assert sorted(path.name for path in root.iterdir()) == ["checkpoint-2", "checkpoint-3"], root
