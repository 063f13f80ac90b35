"""Checkpoints of adapters that something else has written or changed, with hashes that fit: one sentence each."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny_lora import lora_trainer, write_base
from vcsd.checkpoint.export import export
from vcsd.checkpoint.folder import MANIFEST
from vcsd.errors import ConfigError

SAVES = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1, "warmup_steps": 0, "lr_scheduler_type": "constant"}
STUDENT, CONFIG, BASE = "student.safetensors", "adapter_config.json", "base.json"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_base(folder)
    return folder


@pytest.fixture(scope="module")
def run(base, tmp_path_factory):
    trainer = lora_trainer(tmp_path_factory.mktemp("run"), base, arguments=SAVES)
    trainer.train()
    return Path(trainer.args.output_dir)


def forged(run, folder, change):
    """A copy of the run whose checkpoint is changed and has new hashes, as a forger would write them."""
    shutil.copytree(run, folder)
    checkpoint = folder / "checkpoint-1"
    change(checkpoint)
    path = checkpoint / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"] = {
        name: {"bytes": (checkpoint / name).stat().st_size, "sha256": digest(checkpoint / name)}
        for name in manifest["files"]
        if (checkpoint / name).is_file()
    }
    path.write_text(json.dumps(manifest))
    return folder


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tensors(change):
    def change_file(checkpoint):
        held = load_file(checkpoint / STUDENT)
        change(held)
        save_file(held, checkpoint / STUDENT)

    return change_file


def fields(name, **values):
    def change_file(checkpoint):
        content = json.loads((checkpoint / name).read_text())
        (checkpoint / name).write_text(json.dumps({**content, **values}))

    return change_file


def text(name, content):
    return lambda checkpoint: (checkpoint / name).write_text(content)


def first(held):
    return sorted(held)[0]


WEIGHTS = {
    "a NaN": (tensors(lambda held: held[first(held)].fill_(float("nan"))), "ruined"),
    "another tensor": (tensors(lambda held: held.update(evil=torch.ones(2))), "evil"),
    "a tensor less": (tensors(lambda held: held.pop(first(held))), "different weights|has no counterpart"),
    "another shape": (tensors(lambda held: held.update({first(held): torch.ones(3, 3)})), "ranks|as "),
    "half a file": (lambda checkpoint: (checkpoint / STUDENT).write_bytes(b"\x08"), "cannot be read"),
}


@pytest.mark.parametrize("adapter", [False, True], ids=["merged", "adapter"])
@pytest.mark.parametrize("damage", WEIGHTS)
def test_damaged_weights_are_not_exported(run, tmp_path, damage, adapter):
    change, message = WEIGHTS[damage]
    folder = forged(run, tmp_path / "run", change)
    with pytest.raises(ConfigError, match=message):
        export(folder, tmp_path / "out", adapter=adapter)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


SETTINGS = {
    "no JSON": (text(CONFIG, "{"), "adapter_config.json cannot be read"),
    "a list": (text(CONFIG, "[]"), "adapter_config.json cannot be read"),
    "no file": (lambda checkpoint: (checkpoint / CONFIG).unlink(), "adapter_config.json cannot be read"),
    "another method": (fields(CONFIG, peft_type="IA3"), "which is not LoRA"),
    "a list as method": (fields(CONFIG, peft_type=[1]), "cannot be read"),
    "a huge rank": (fields(CONFIG, r=10**9), "is not a rank"),
    "a text as rank": (fields(CONFIG, r="x"), "is not a rank|cannot be read"),
    "DoRA": (fields(CONFIG, use_dora=True), "cannot be trained"),
    "a broken pattern": (fields(CONFIG, target_modules="(("), "does not fit the model"),
    "an endless pattern": (fields(CONFIG, target_modules="(.+)+x"), "could take years to match"),
    "an endless pattern of ranks": (fields(CONFIG, rank_pattern={"([a-z_.0-9]+)*x": 4}), "could take years to match"),
    "an endless pattern of scales": (fields(CONFIG, alpha_pattern={"((.|.)+)+x": 4}), "could take years to match"),
    "an endless pattern to exclude": (fields(CONFIG, exclude_modules="(a|.)*x"), "could take years to match"),
    "a huge pattern": (fields(CONFIG, target_modules="a|" * 1000 + "a"), "could take years to match"),
    "many repeats": (fields(CONFIG, target_modules=".*" * 30 + "x"), "could take years to match"),
    "a base without fields": (text(BASE, "{}"), "does not name a base model"),
    "a base that is a list": (text(BASE, "[]"), "does not name a base model"),
    "a function as type": (fields(BASE, dtype="load"), "does not name a base model"),
    "another base": (fields(BASE, weights="0"), "is not the one the adapters were trained on"),
}


@pytest.mark.parametrize("damage", SETTINGS)
@pytest.mark.filterwarnings("ignore:Unexpected keyword arguments", "ignore:.*peft.*", "ignore:Configuration class")
def test_hostile_settings_are_refused_in_one_sentence(run, tmp_path, damage):
    change, message = SETTINGS[damage]
    folder = forged(run, tmp_path / "run", change)
    with pytest.raises(ConfigError, match=message):
        export(folder, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


STATES = {
    "an empty run state": text("run_state.json", "{}"),
    "a list as run state": text("run_state.json", "[]"),
    "a step that is a text": text("trainer_state.json", '{"global_step": "x"}'),
    "no trainer state": text("trainer_state.json", "{"),
    "an empty provenance": text("provenance.json", "{}"),
    "a list as provenance": text("provenance.json", "[]"),
}


@pytest.mark.parametrize("damage", STATES)
def test_a_damaged_state_is_a_damaged_checkpoint(run, base, tmp_path, damage):
    folder = forged(run, tmp_path / "run", STATES[damage])
    trainer = lora_trainer(folder, base, arguments=SAVES)
    with pytest.raises(ConfigError, match=r"no checkpoint in .* is whole: checkpoint-1: its state"):
        trainer.check_resume("auto")


def test_a_ruined_student_is_not_resumed_from(run, base, tmp_path):
    folder = forged(run, tmp_path / "run", WEIGHTS["a NaN"][0])
    trainer = lora_trainer(folder, base, arguments={**SAVES, "max_steps": 2})
    with pytest.raises(ConfigError, match="the student of the checkpoint is ruined"):
        trainer.train("auto")


@pytest.mark.parametrize("name", ["../other/student.safetensors", "/etc/passwd"])
def test_a_manifest_may_not_list_files_elsewhere(run, tmp_path, name):
    folder = forged(run, tmp_path / "run", lambda checkpoint: None)
    path = folder / "checkpoint-1" / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"bytes": 0, "sha256": ""}
    path.write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="which is outside of it"):
        export(folder, tmp_path / "out")
