"""A disk that is full, or fails once, at any event of a save leaves every earlier checkpoint whole."""

import errno
import os
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from faulty_disk import faulty_disk
from tiny_lora import lora_trainer, write_base
from tiny_step import make_trainer
from vcsd.checkpoint import Contents, TensorFile, check_checkpoint, checkpoints_of, write_checkpoint
from vcsd.errors import RunError


def contents(step, value=None):
    def copy_files(folder):
        (folder / "more").mkdir()
        (folder / "more" / "copied.txt").write_text("copied")

    tensors = {"a.safetensors": {"x": torch.full((64,), float(value or step))}}
    return Contents(tensors, {"b.json": "{}"}, {"seed": 0}, copy_files)


def value_of(folder):
    check_checkpoint(folder, {"seed": 0})
    return TensorFile(folder / "a.safetensors")["x"][0].item()


def saved_or_refused(root, step, given, limit):
    """Save, and say whether it worked; an error must be one sentence that names the checkpoint."""
    message = ""
    try:
        write_checkpoint(root, step, given, limit=limit)
    except RunError as error:
        message = str(error)
    assert not message or f"checkpoint-{step} could not be written: " in message
    assert "\n" not in message
    return not message


@pytest.mark.parametrize("once", [True, False], ids=["one error", "full from then on"])
@pytest.mark.parametrize("limit", [None, 1])
def test_an_error_at_any_event_keeps_the_earlier_checkpoints(tmp_path, limit, once):
    before = tmp_path / "before"
    for step in (1, 2):
        write_checkpoint(before, step, contents(step))
    at, failed, refused = 0, ["some"], 0
    while failed:
        root = shutil.copytree(before, tmp_path / f"faulty-{at}")
        with faulty_disk(root, at, once=once) as failed:
            is_saved = saved_or_refused(root, 3, contents(3), limit)
        refused += not is_saved
        steps = list(checkpoints_of(root))
        assert steps[-1] == 3 if is_saved else steps in ([1, 2], [1, 2, 3]), at
        assert [value_of(folder) for folder in checkpoints_of(root).values()] == steps
        write_checkpoint(root, 3, contents(3), limit=limit)
        kept = [1, 2, 3] if limit is None else [3]
        assert sorted(path.name for path in root.iterdir()) == [f"checkpoint-{step}" for step in kept], at
        at += 1
    assert refused > 10


@pytest.mark.parametrize("once", [True, False], ids=["one error", "full from then on"])
def test_a_step_that_is_saved_again_keeps_its_old_checkpoint_or_has_its_new_one(tmp_path, once):
    before = tmp_path / "before"
    write_checkpoint(before, 1, contents(1, value=10))
    at, failed, values = 0, ["some"], set()
    while failed:
        root = shutil.copytree(before, tmp_path / f"faulty-{at}")
        with faulty_disk(root, at, once=once) as failed:
            is_saved = saved_or_refused(root, 1, contents(1, value=20), None)
        values.add(value_of(root / "checkpoint-1"))
        assert not is_saved or value_of(root / "checkpoint-1") == 20, at
        at += 1
    assert values == {10.0, 20.0}


@contextmanager
def files_of_at_most(num_bytes):
    """Let no file grow beyond a size, so that a write stops in its middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_stops_growing_in_its_middle_is_no_checkpoint(tmp_path):
    write_checkpoint(tmp_path, 1, contents(1))
    for num_bytes in (0, 1, 2, 8, 60, 200, 300):
        with files_of_at_most(num_bytes):
            assert not saved_or_refused(tmp_path, 2, contents(2), 1), num_bytes
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]
    assert value_of(tmp_path / "checkpoint-1") == 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trainers of whole weights, with a teacher in host memory, and of adapters, after one step that was saved."""
    root = tmp_path_factory.mktemp("trained")
    write_base(root / "base")
    saves = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    made = {
        "whole": make_trainer(root / "whole", arguments=saves),
        "offloaded": make_trainer(root / "offloaded", offload=True, arguments={"bf16": True, **saves}),
        "lora": lora_trainer(root / "lora", root / "base", arguments=saves),
    }
    for trainer in made.values():
        trainer.train()
    return made


@pytest.mark.filterwarnings("ignore:the checkpoint has no processor files")
@pytest.mark.parametrize("kind", ["whole", "offloaded", "lora"])
def test_a_trainers_save_on_a_disk_that_fills_up_keeps_its_last_checkpoint(trained, kind):
    trainer = trained[kind]
    root, given, at, failed = Path(trainer.args.output_dir), trainer.contents(), 0, ["some"]
    while failed:
        with faulty_disk(root, at) as failed:
            is_saved = saved_or_refused(root, 2, given, None)
        assert is_saved == (not failed), at
        later = root / "checkpoint-2"
        assert later.exists() or not is_saved, at
        if later.exists():
            check_checkpoint(later, given.identity)
            shutil.rmtree(later)
        assert list(checkpoints_of(root)) == [1], at
        at += 1
    check_checkpoint(root / "checkpoint-1", given.identity)
    assert at > 20


def test_a_read_only_folder_is_one_sentence(tmp_path):
    write_checkpoint(tmp_path, 1, contents(1))
    with faulty_disk(tmp_path, code=errno.EROFS) as failed, pytest.raises(RunError, match=os.strerror(errno.EROFS)):
        write_checkpoint(tmp_path, 2, contents(2), limit=1)
    assert failed
    assert value_of(tmp_path / "checkpoint-1") == 1
