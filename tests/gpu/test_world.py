"""On CUDA: a pre-training step recorded as a graph equals the plain step."""

import pytest
import torch

from vcsd.bases.curriculum import Curriculum
from vcsd.bases.pretrain import Pretraining
from vcsd.world.parameters import PARAMETERS

pytestmark = pytest.mark.gpu

FEW = PARAMETERS.changed(["batch=32", "sight_steps=0", "answer_steps=8", "sway_steps=0", "warmup_steps=1"])


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_recorded_steps_have_the_losses_of_plain_steps(family, tmp_path, monkeypatch):
    losses = {}
    for name, eager in (("recorded", 3), ("plain", 100)):
        monkeypatch.setattr("vcsd.bases.recorded._EAGER_STEPS", eager)
        run = Pretraining(Curriculum(family, "tiny", 1, FEW), tmp_path / name, torch.device("cuda"), lambda *told: None)
        losses[name] = [float(loss) for loss in run._steps("answer")]
    assert losses["recorded"] == pytest.approx(losses["plain"], rel=2e-3)
    assert losses["plain"][-1] < losses["plain"][0]
