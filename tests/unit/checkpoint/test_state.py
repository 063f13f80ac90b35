import random

import numpy as np
import pytest
import torch
from torch import nn

from vcsd.checkpoint.saved import TensorFile
from vcsd.checkpoint.state import load_optimizer, load_weights, optimizer_state, random_state, set_random_state
from vcsd.checkpoint.tensors import write_tensors
from vcsd.errors import ConfigError
from vcsd.teacher import named_tensors


def draw():
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(3).tolist()


@pytest.mark.parametrize("num_before", [0, 1])
def test_generators_go_on_where_they_were(num_before):
    """After an odd number of normals, half a pair of them is pending."""
    for _ in range(num_before):
        draw()
    state = random_state()
    first = [draw() for _ in range(3)]
    set_random_state(state)
    assert [draw() for _ in range(3)] == first


def trained(num_steps, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.1}])
    for _ in range(num_steps):
        step(model, optimizer)
    return model, optimizer


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def in_file(path, tensors):
    write_tensors(path, tensors)
    return TensorFile(path)


def test_an_optimizer_goes_on_where_another_was(tmp_path):
    model, optimizer = trained(3)
    tensors, settings = optimizer_state(optimizer, model)
    other, fresh = trained(0)
    load_weights(other, in_file(tmp_path / "student.safetensors", named_tensors(model)), "student")
    load_optimizer(fresh, other, in_file(tmp_path / "optimizer.safetensors", tensors), settings)
    for pair in ((model, optimizer), (other, fresh)):
        step(*pair)
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_an_optimizer_of_other_parameters_is_refused(tmp_path):
    model, optimizer = trained(1)
    tensors, settings = optimizer_state(optimizer, model)
    other = torch.optim.AdamW(model[0].parameters())
    with pytest.raises(ConfigError, match="Freeze the same parts"):
        load_optimizer(other, model, in_file(tmp_path / "optimizer.safetensors", tensors), settings)


def test_weights_of_another_model_are_refused(tmp_path):
    model, _ = trained(0)
    with pytest.raises(ConfigError, match="the teacher of the checkpoint has different weights"):
        load_weights(model, in_file(tmp_path / "one.safetensors", {"0.weight": torch.zeros(3, 3)}), "teacher")
    wrong = {**named_tensors(model), "0.weight": torch.zeros(2, 2)}
    with pytest.raises(ConfigError, match=r"has 0.weight as \(\(2, 2\)"):
        load_weights(model, in_file(tmp_path / "other.safetensors", wrong), "teacher")


def test_the_generators_of_more_than_ten_gpus_go_back_to_their_gpus(monkeypatch):
    states, restored = [torch.tensor([index], dtype=torch.uint8) for index in range(12)], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(states))
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.extend)
    set_random_state(dict(sorted(random_state().items())))  # as a file lists them: the tenth before the second
    assert restored == states
    restored.clear()
    saved, states = random_state(), states[:11]
    set_random_state(saved)
    assert restored == [], "generators of other GPUs"
