"""On a GPU: the token budget is measured, rollouts come from the half-precision copy, and a run resumes."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts; needed for reproducibility

import pytest
import torch
from accelerate.state import AcceleratorState

from tiny_lora import lora_model
from tiny_step import losses_of, make_trainer
from vcsd.models.freeze import is_adapter
from vcsd.rollout.sampling import Sampling
from vcsd.step import RolloutSettings

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

ON_GPU = {"use_cpu": False, "bf16": True, "save_strategy": "steps", "save_steps": 2, "max_steps": 4}


def test_a_run_measures_its_budget_and_trains(tmp_path):
    trainer = make_trainer(tmp_path, arguments=ON_GPU)
    trainer.train()
    assert trainer.half is not None
    assert trainer.progress.token_budget >= 256
    assert len(losses_of(trainer)) == 4
    assert trainer.state.log_history[0]["peak_bytes/backward"] > 0
    assert trainer.teacher.num_updates == 4
    assert not torch.is_autocast_enabled("cuda")


def test_long_rollouts_are_decoded_with_graphs(tmp_path):
    rollout = RolloutSettings(Sampling(max_new_tokens=80), 3, seed=0)
    trainer = make_trainer(tmp_path, arguments=ON_GPU, rollout=rollout)
    trainer.train()
    assert trainer.engine.use_graph
    assert len(losses_of(trainer)) == 4


def test_losses_are_near_those_of_the_cpu(tmp_path):
    on_gpu = make_trainer(tmp_path / "gpu", arguments={**ON_GPU, "bf16": False, "max_steps": 1})
    on_gpu.train()
    AcceleratorState._reset_state(reset_partial_state=True)  # it remembers the device for the whole process
    on_cpu = make_trainer(tmp_path / "cpu", arguments={"max_steps": 1})
    on_cpu.train()
    AcceleratorState._reset_state(reset_partial_state=True)
    assert losses_of(on_gpu) == pytest.approx(losses_of(on_cpu), rel=1e-2)


def test_a_resumed_run_goes_on_like_the_uninterrupted_one(tmp_path):
    """Near, not equal: kernels may add in another order. `full_determinism` is for equality."""
    whole = make_trainer(tmp_path / "whole", arguments=ON_GPU, token_budget=2000)
    whole.train()
    make_trainer(tmp_path / "parts", arguments={**ON_GPU, "max_steps": 2}, token_budget=2000).train()
    resumed = make_trainer(tmp_path / "parts", arguments=ON_GPU, token_budget=2000)
    resumed.train("auto")
    assert losses_of(resumed) == pytest.approx(losses_of(whole), rel=1e-2)
    for mine, theirs in zip(resumed.teacher.module.parameters(), whole.teacher.module.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)


def test_with_full_determinism_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    exact = {**ON_GPU, "full_determinism": True}
    try:
        whole = make_trainer(tmp_path / "whole", arguments=exact, token_budget=2000)
        whole.train()
        make_trainer(tmp_path / "parts", arguments={**exact, "max_steps": 2}, token_budget=2000).train()
        resumed = make_trainer(tmp_path / "parts", arguments=exact, token_budget=2000)
        resumed.train("auto")
    finally:
        torch.use_deterministic_algorithms(False)
    assert losses_of(resumed) == losses_of(whole)
    for model, other in ((resumed.model, whole.model), (resumed.teacher.module, whole.teacher.module)):
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_adapters_train_on_one_base_that_all_copies_share(tmp_path):
    """Also after the move to the device, with rollouts as graphs and gradient checkpointing."""
    trainer = make_trainer(
        tmp_path,
        model=lora_model(dtype=torch.bfloat16),
        arguments={**ON_GPU, "gradient_checkpointing": True},
        rollout=RolloutSettings(Sampling(max_new_tokens=80), 3, seed=0),
    )
    trainer.train()
    assert len(losses_of(trainer)) == 4
    named = [dict(model.named_parameters()) for model in (trainer.teacher.module, trainer.half.module)]
    for name, parameter in trainer.model.named_parameters():
        assert parameter.is_cuda
        if not is_adapter(name):
            assert all(copy[name].data_ptr() == parameter.data_ptr() for copy in named), name
