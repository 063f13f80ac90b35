"""On a GPU: dither draws the offsets that it draws on the CPU, and passes in bfloat16 see small updates."""

import pytest
import torch

from tiny_models import build_model, rounded
from tiny_step import losses_of, make_trainer
from vcsd.models.weights.dither import add_offsets

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SMALL = {"use_cpu": False, "bf16": True, "learning_rate": 2e-6, "warmup_steps": 0, "max_steps": 3}
"""The paper's learning rate."""


def flat(model, dtype=torch.float32):
    return torch.cat([weight.detach().to(dtype).double().flatten().cpu() for weight in model.parameters()])


def test_offsets_are_those_of_the_cpu():
    on_cpu, on_gpu = rounded(build_model()), rounded(build_model()).cuda()
    assert add_offsets(on_cpu, seed=3) == add_offsets(on_gpu, seed=3) > 0
    assert torch.equal(flat(on_cpu), flat(on_gpu))


def test_passes_see_updates_that_are_rounded_away_without_dither(tmp_path):
    shares_seen = {}
    for dither in (False, True):
        trainer = make_trainer(tmp_path / str(dither), model=rounded(build_model()), dither=dither, arguments=SMALL)
        before, seen_before = flat(trainer.model), flat(trainer.model, torch.bfloat16)
        trainer.train()
        assert len(losses_of(trainer)) == 3
        moves, seen = flat(trainer.model) - before, flat(trainer.model, torch.bfloat16) - seen_before
        shares_seen[dither] = float(seen @ moves / (moves @ moves))
    assert shares_seen[False] < 0.1
    assert shares_seen[True] == pytest.approx(1, abs=0.1)
