"""Checkpoints of tensors that are spread over ranks: written by any number of ranks, read by any other."""

import json
import os
import re
import shutil
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from faulty_disk import faulty_disk
from tiny_ranks import on_ranks, optimizer_of, shard, tiny_model, train, whole
from vcsd.checkpoint import (
    Contents,
    TensorFile,
    check_checkpoint,
    checkpoints_of,
    latest_whole,
    move_aside,
    own_file,
    write_checkpoint,
)
from vcsd.checkpoint import shards as shards_module
from vcsd.checkpoint.export import export
from vcsd.checkpoint.state import load_optimizer, load_weights, optimizer_state
from vcsd.errors import ConfigError, RunError
from vcsd.parallel.ranks import gathered
from vcsd.teacher import named_tensors

OLD = Path(__file__).parents[2] / "golden" / "old_checkpoint" / "checkpoint-2"
"""A checkpoint of a tiny Qwen3-VL, written by one process."""

STUDENT, OPTIMIZER, RANDOM = "student.safetensors", "optimizer.safetensors", "random.safetensors"
NEEDS = (STUDENT, OPTIMIZER, RANDOM)
FIRST, SECOND = (f"student/shard-0000{number}-model-00001-of-00001.safetensors" for number in (1, 2))


def ranks():
    return dist.get_world_size() if dist.is_initialized() else 1


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def made(seed):
    """A model, sharded if there are ranks, and its optimizer."""
    model = tiny_model(seed)
    model = shard(model) if dist.is_initialized() else model
    return model, optimizer_of(model)


def contents(model, optimizer):
    moments, settings = optimizer_state(optimizer, model)
    tensors = {STUDENT: named_tensors(model), OPTIMIZER: moments, RANDOM: {"rank": torch.tensor(rank())}}
    return Contents(tensors, {"run.json": json.dumps(settings)}, {"seed": 0}, of_rank={RANDOM})


def load(folder, model, optimizer):
    check_checkpoint(folder, {"seed": 0}, needs=NEEDS)
    load_weights(model, TensorFile(folder / STUDENT), "student")
    load_optimizer(optimizer, model, TensorFile(folder / OPTIMIZER), json.loads((folder / "run.json").read_text()))


def state_of(model, optimizer):
    moments, _ = optimizer_state(optimizer, model)
    return whole({**named_tensors(model), **moments})


def save_run(root):
    """Three steps, a checkpoint, and two more steps, with what each of them reached."""
    model, optimizer = made(seed=0)
    train(model, optimizer, 3)
    write_checkpoint(root, 3, contents(model, optimizer))
    at_3 = state_of(model, optimizer)
    train(model, optimizer, 2)
    at_5 = state_of(model, optimizer)
    if rank() == 0:
        torch.save([at_3, at_5], root / "reached.pt")
    write_checkpoint(root / "later", 5, contents(model, optimizer))


def resume_run(root, same_size):
    """A run with other first weights resumes: what it restores is exact, and so is what it reaches at the same size."""
    at_3, at_5 = torch.load(root / "reached.pt", weights_only=True)
    model, optimizer = made(seed=1)
    load(root / "checkpoint-3", model, optimizer)
    restored = state_of(model, optimizer)
    assert restored.keys() == at_3.keys()
    for name, tensor in restored.items():
        assert torch.equal(tensor, at_3[name]), name
    train(model, optimizer, 2)
    for name, tensor in state_of(model, optimizer).items():
        if same_size:
            assert torch.equal(tensor, at_5[name]), name
        torch.testing.assert_close(tensor, at_5[name], rtol=1e-4, atol=1e-7)
    if dist.is_initialized():
        weight = dict(model.named_parameters())["0.weight"]
        assert isinstance(weight, DTensor)
        assert weight.to_local().numel() < weight.numel(), "a rank holds its part only"


@pytest.fixture(scope="module")
def by_two(tmp_path_factory):
    """A run on two ranks, and what the functions found that two ranks called; they share one start of the ranks."""
    root = tmp_path_factory.mktemp("two")
    (root / "alone").mkdir()
    save_run(root / "alone")
    on_ranks(2, on_two_ranks, root)
    return root


def on_two_ranks(root):
    save_run(root)
    dist.barrier()  # rank 0 has written what was reached
    findings = {}
    for look in (
        resume_as_two,
        resume_one_on_two,
        fail_on_rank_one,
        fill_up_rank_0,
        fill_up_rank_1,
        find_damage_together,
        write_small_files,
        write_model,
    ):
        try:
            look(root)
        except (AssertionError, pytest.fail.Exception):
            findings[look.__name__] = traceback.format_exc()
    (root / f"findings-{rank()}.json").write_text(json.dumps(findings))


def found(root, look):
    """What went wrong in a function, on either rank."""
    return [json.loads((root / f"findings-{number}.json").read_text()).get(look.__name__) for number in range(2)]


def resume_as_two(root):
    resume_run(root, same_size=True)


def test_a_checkpoint_of_two_ranks_resumes_on_two_bit_for_bit(by_two):
    assert found(by_two, resume_as_two) == [None, None]


def resume_one_on_two(root):
    assert (root / "alone" / "checkpoint-3" / STUDENT).is_file()
    resume_run(root / "alone", same_size=False)


def test_a_checkpoint_of_one_process_resumes_on_two_ranks(by_two):
    assert found(by_two, resume_one_on_two) == [None, None]


def test_a_checkpoint_of_two_ranks_resumes_in_one_process(by_two):
    resume_run(by_two, same_size=False)


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_resumes_on_four(by_two):
    on_ranks(4, resume_run, by_two, False)


def test_each_rank_writes_its_part_and_its_own_files(by_two):
    folder = by_two / "checkpoint-3"
    manifest = check_checkpoint(folder, needs=NEEDS)
    assert manifest["format"] == 2, "an earlier version must not read it"
    parts = [
        f"{kind}/shard-0000{number}-model-00001-of-00001.safetensors"
        for kind in ("optimizer", "student")
        for number in (1, 2)
    ]
    assert sorted(manifest["files"]) == sorted([*parts, RANDOM, "random-rank-1.safetensors", "run.json"])
    for number in range(2):
        assert TensorFile(folder / own_file(RANDOM, number))["rank"] == number
        with safe_open(folder / parts[2 + number], framework="pt") as file:
            assert file.get_slice("0.weight").get_shape() == [[4, 5], [3, 5]][number]


def test_equal_shards_have_equal_hashes(by_two):
    for path in (by_two / "checkpoint-3").glob("*/*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        assert list(header["__metadata__"]) == sorted(header["__metadata__"]), "else the hash changes with the order"


def test_whole_tensors_are_read_by_name(by_two):
    saved, (at_3, _) = (
        TensorFile(by_two / "checkpoint-3" / STUDENT),
        torch.load(by_two / "reached.pt", weights_only=True),
    )
    assert saved.keys() == set(named_tensors(tiny_model()))
    for name, tensor in saved.items():
        assert torch.equal(tensor, at_3[name])


def test_shards_of_another_model_are_refused(by_two):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7))
    with pytest.raises(ConfigError, match="the student of the checkpoint has different weights"):
        load_weights(model, TensorFile(by_two / "checkpoint-3" / STUDENT), "student")


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_a_damaged_shard_is_found(by_two, tmp_path, harm):
    folder = shutil.copytree(by_two / "checkpoint-3", tmp_path / "checkpoint-3")
    file = folder / "student" / "shard-00002-model-00001-of-00001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    if harm == "missing":
        file.unlink()
    with pytest.raises(ConfigError, match=r"student/shard-00002\S* (is missing|has a different hash)"):
        check_checkpoint(folder, needs=NEEDS)


def lose_shard(folder):
    (folder / FIRST).unlink()


def cut_shard(folder):
    os.truncate(folder / SECOND, (folder / SECOND).stat().st_size // 2)


def mix_saves(folder):
    shutil.copyfile(folder.with_name("checkpoint-3") / SECOND, folder / SECOND)


def forget_rank(folder, shard):
    """Leave a rank out, in the manifest too, as if fewer ranks had saved."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"][shard]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / shard).unlink()


def forget_rank_0(folder):
    forget_rank(folder, FIRST)


def test_shards_without_those_of_the_last_rank_are_smaller_tensors_which_no_model_takes(by_two, tmp_path):
    folder = shutil.copytree(by_two / "checkpoint-3", tmp_path / "checkpoint-3")
    forget_rank(folder, SECOND)
    with pytest.raises(ConfigError, match=r"the student of the checkpoint has (different weights|\S+ as \(\(\d+)"):
        load_weights(tiny_model(), TensorFile(folder / STUDENT), "student")


@pytest.mark.parametrize(
    ("harm", "damage"),
    [
        (lose_shard, "student/shard-00001-model-00001-of-00001.safetensors is missing"),
        (cut_shard, "student/shard-00002-model-00001-of-00001.safetensors has .* bytes instead of "),
        (mix_saves, "student/shard-00002-model-00001-of-00001.safetensors has a different hash"),
        (forget_rank_0, "student.safetensors: the shards lack a part of "),
    ],
)
def test_a_harmed_save_of_ranks_is_moved_aside_for_the_one_before_it(by_two, tmp_path, harm, damage):
    for folder in (by_two / "checkpoint-3", by_two / "later" / "checkpoint-5"):
        shutil.copytree(folder, tmp_path / folder.name)
    harm(tmp_path / "checkpoint-5")
    last, damaged = latest_whole(tmp_path, lambda folder: check_checkpoint(folder, {"seed": 0}, needs=NEEDS))
    assert last == tmp_path / "checkpoint-3"
    (error,) = damaged
    assert re.search(damage, error.damage)
    assert move_aside(error.folder).name == "damaged-checkpoint-5"
    assert list(checkpoints_of(tmp_path)) == [3]


def fail_on_rank_one(root):
    """The disk of rank 1 is full: at first while it writes its part, then while it writes its own file."""
    root = root / "full"
    model, optimizer = made(seed=0)
    train(model, optimizer, 1)
    write_checkpoint(root, 1, contents(model, optimizer))
    sync = os.fsync
    for last in (STUDENT, RANDOM):

        def full(descriptor, last=last):
            name = Path(f"/proc/self/fd/{descriptor}").readlink()
            if rank() == 1 and Path(last).stem in str(name.relative_to(root)):
                raise OSError(28, "No space left on device")
            sync(descriptor)

        os.fsync = full
        with pytest.raises(RunError, match=r"checkpoint-2 could not be written: .*No space left on device"):
            write_checkpoint(root, 2, contents(model, optimizer), limit=1)
    os.fsync = sync
    dist.barrier()  # rank 0 removes what was written after it has told the others
    assert [path.name for path in root.iterdir()] == ["checkpoint-1"]
    dist.barrier()
    write_checkpoint(root, 2, contents(model, optimizer), limit=1)
    assert list(checkpoints_of(root)) == [2]
    check_checkpoint(root / "checkpoint-2", {"seed": 0}, needs=NEEDS)


def test_an_error_on_one_rank_is_an_error_on_all_and_leaves_the_earlier_checkpoint(by_two):
    assert found(by_two, fail_on_rank_one) == [None, None]


def fill_up_at_every_event(root, failing):
    """The disk of one rank is full from one event of a save on, which may be any."""
    root = root / f"full-{failing}"
    model, optimizer = made(seed=0)
    given = contents(model, optimizer)
    write_checkpoint(root, 1, given)
    at, outcomes, any_failed = 0, [], True
    while any_failed:
        outcome = "saved"
        with faulty_disk(root if rank() == failing else Path("/nowhere"), at) as failed:
            try:
                write_checkpoint(root, 2, given)
            except RunError as error:
                outcome = str(error)
        any_failed = any(gathered(bool(failed)))
        assert outcome == "saved" or re.search(
            r"checkpoint-2 could not be written: .*No space left on device", outcome
        ), (at, outcome)
        outcomes.append(outcome == "saved")
        assert len({*gathered(outcomes[-1])}) == 1, at
        steps = list(checkpoints_of(root))
        dist.barrier()
        assert steps in ([1], [1, 2]), at
        assert 2 in steps or not outcomes[-1], at
        for step in steps:
            check_checkpoint(root / f"checkpoint-{step}", {"seed": 0}, needs=NEEDS)
        dist.barrier()
        if rank() == 0:
            shutil.rmtree(root / "checkpoint-2", ignore_errors=True)
        dist.barrier()
        at += 1
    assert outcomes[-1]
    assert outcomes.count(False) >= 3


def fill_up_rank_0(root):
    fill_up_at_every_event(root, failing=0)


def fill_up_rank_1(root):
    fill_up_at_every_event(root, failing=1)


@pytest.mark.parametrize("look", [fill_up_rank_0, fill_up_rank_1])
def test_a_full_disk_of_either_rank_at_any_event_of_a_save_leaves_whole_checkpoints(by_two, look):
    assert found(by_two, look) == [None, None]


def find_damage_together(root):
    """One rank alone reads the damaged file, and both ranks name it."""
    if rank() == 0:
        copy = shutil.copytree(root / "checkpoint-3", root / "damaged")
        (copy / "run.json").write_text((copy / "run.json").read_text()[:-1] + " ")
    dist.barrier()
    with pytest.raises(ConfigError, match=r"run.json has a different hash"):
        check_checkpoint(root / "damaged")
    with pytest.raises(ConfigError, match="belongs to another run: seed was 0 and is now 1"):
        check_checkpoint(root / "checkpoint-3", {"seed": 1})
    with pytest.raises(ConfigError, match=r"has scale as .*float32\), this model as .*float64"):
        load_weights(shard(tiny_model().double()), TensorFile(root / "checkpoint-3" / STUDENT), "student")


def test_all_ranks_name_the_same_damage(by_two):
    assert found(by_two, find_damage_together) == [None, None]


def write_small_files(root):
    shards_module.split.__defaults__ = (100,)
    tensors = named_tensors(made(seed=0)[0])
    write_checkpoint(root / "small", 1, Contents({STUDENT: tensors}, {}, {}))
    expected, saved = whole(tensors), TensorFile(root / "small" / "checkpoint-1" / STUDENT)
    assert saved.keys() == expected.keys()
    for name, tensor in saved.items():
        assert torch.equal(tensor, expected[name]), name


def test_files_are_split_by_size(by_two):
    assert found(by_two, write_small_files) == [None, None]
    names = sorted(path.name for path in (by_two / "small" / "checkpoint-1" / "student").iterdir())
    assert names == [f"shard-0000{rank}-model-0000{file}-of-00003.safetensors" for rank in (1, 2) for file in (1, 2, 3)]


def copy_files(folder):
    for name in ("config.json", "generation_config.json"):
        shutil.copyfile(OLD / name, folder / name)
    (folder / "tokenizer_config.json").write_text("{}")


def write_model(root):
    """The same weights as in an old checkpoint, spread over two ranks."""
    mesh = init_device_mesh("cpu", (2,))
    tensors = {name: distribute_tensor(t, mesh, [Shard(0)]) for name, t in TensorFile(OLD / STUDENT).items()}
    write_checkpoint(root / "model", 2, Contents({STUDENT: tensors}, {}, {}, copy_files))


def test_an_export_of_shards_is_that_of_whole_weights(by_two, tmp_path):
    assert found(by_two, write_model) == [None, None]
    write_checkpoint(tmp_path, 2, Contents({STUDENT: TensorFile(OLD / STUDENT)}, {}, {}, copy_files))
    outs = [tmp_path / "of shards", tmp_path / "of a file"]
    for run, out in zip((by_two / "model", tmp_path), outs, strict=True):
        export(run, out)
    assert (outs[0] / "model.safetensors").read_bytes() == (outs[1] / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="has no teacher: the student was its own teacher"):
        export(by_two / "model", tmp_path / "teacher", what="teacher")
