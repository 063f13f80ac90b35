"""A checkpoint written by an earlier version loads and resumes as it did then.

old_checkpoint/checkpoint-2     the run of `make_old_run` after two of its four steps
old_checkpoint/result.json      what that version reached: losses, fingerprints, and the machine it ran on

Weights and losses are compared everywhere. Bits after new steps are compared where versions, instruction set and a
probe of torch's arithmetic are those of the recording; none of these depends on vcsd, so that a change of vcsd cannot
turn the comparison off.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from transformers import TrainerCallback

from tiny_models import _qwen, build_model
from tiny_step import losses_of, make_trainer
from vcsd.checkpoint import refuse_other_run
from vcsd.checkpoint.state import optimizer_state
from vcsd.teacher import fingerprint, named_tensors

FOLDER = Path(__file__).parent / "old_checkpoint"
RESULT = json.loads((FOLDER / "result.json").read_text())


def make_old_run(folder, **arguments):
    settings = _qwen("qwen3_vl")
    text = {**settings["text_config"], "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    vision = {**settings["vision_config"], "out_hidden_size": 32, "depth": 2, "hidden_size": 16}
    vision |= {"intermediate_size": 24, "deepstack_visual_indexes": [0]}
    model = build_model(text_config=text, vision_config=vision)
    saves = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "warmup_steps": 5}
    return make_trainer(folder, model=model, arguments={**saves, **arguments})


def weights(trainer):
    modules = {"student": trainer.model, "teacher": trainer.teacher.module}
    return {name: fingerprint(named_tensors(module)) for name, module in modules.items()}


def arithmetic():
    """A hash of what torch computes in a small layer of each kind, forward, backward and in a step of AdamW."""
    torch.manual_seed(0)
    patches = nn.Conv3d(3, 32, (2, 16, 16), stride=(2, 16, 16))
    layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, activation="gelu", batch_first=True)
    head = nn.Linear(32, 512)
    model = nn.Sequential(patches, nn.Flatten(2), nn.Linear(4, 32), layer, nn.SiLU(), nn.RMSNorm(32), head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(2):
        loss = model(torch.randn(5, 3, 2, 32, 32)).log_softmax(-1).exp().square().sum().sqrt().log()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return fingerprint(named_tensors(model))


def machine():
    """What decides the bits of a result, apart from vcsd."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {**versions, "instructions": torch.backends.cpu.get_cpu_capability(), "arithmetic": arithmetic()}


def require_same_machine():
    now = machine()
    differences = [
        f"{name} was {then}, is {now[name]}" for name, then in RESULT["machine"].items() if then != now[name]
    ]
    if differences:
        pytest.skip(f"this machine computes other bits than the recording's: {'; '.join(differences)}")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """The old run resumed to its end, and the fingerprints of what was restored."""
    folder = tmp_path_factory.mktemp("old") / "run"
    shutil.copytree(FOLDER, folder)
    torch.manual_seed(99)  # the global generators are part of the checkpoint
    trainer, restored = make_old_run(folder), {}

    class Look(TrainerCallback):
        def on_train_begin(self, args, state, control, **given):
            restored.update(weights(trainer), step=state.global_step)

    trainer.add_callback(Look())
    trainer.train("auto")
    return trainer, restored


def test_its_student_and_teacher_are_restored_exactly(resumed):
    _, restored = resumed
    assert restored == {**RESULT["at_step_2"], "step": 2}


def test_the_resumed_run_reaches_the_recorded_losses(resumed):
    trainer, _ = resumed
    assert losses_of(trainer) == pytest.approx(RESULT["losses"], rel=1e-6)
    assert (trainer.progress.cursor, trainer.teacher.num_updates) == (RESULT["cursor"], RESULT["updates"])


def test_the_resumed_run_is_the_recorded_one_bit_for_bit(resumed):
    require_same_machine()
    trainer, _ = resumed
    moments, _ = optimizer_state(trainer.optimizer, trainer.model)
    reached = {**weights(trainer), "optimizer": fingerprint(dict(sorted(moments.items())))}
    assert losses_of(trainer) == RESULT["losses"]
    assert reached == {name: RESULT[name] for name in reached}


SAME_BYTES = [
    *("student.safetensors", "teacher.safetensors", "optimizer.safetensors", "random.safetensors"),
    *("config.json", "generation_config.json", "run_state.json"),
]


def test_a_run_from_scratch_writes_the_same_checkpoint(tmp_path):
    require_same_machine()
    make_old_run(tmp_path, max_steps=2).train()
    old, new = (root / "checkpoint-2" for root in (FOLDER, tmp_path))
    for name in SAME_BYTES:
        assert (new / name).read_bytes() == (old / name).read_bytes(), name
    manifests, states = (
        [json.loads((folder / name).read_text()) for folder in (old, new)]
        for name in ("manifest.json", "trainer_state.json")
    )
    files, identities = ([manifest.pop(key) for manifest in manifests] for key in ("files", "identity"))
    assert manifests[0] == manifests[1]
    refuse_other_run(new, *identities)  # later versions may add settings, which are off in an old run
    assert files[0].keys() <= files[1].keys(), "later versions may add files"
    assert files[0]["run_state.json"] == files[1]["run_state.json"]
    logs = [state.pop("log_history") for state in states]  # with times
    assert states[0] == states[1]
    assert [entry.keys() for entry in logs[0]] == [entry.keys() for entry in logs[1]]
