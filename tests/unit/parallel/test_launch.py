"""How a run may be launched: other engines and old versions are refused with what to use instead."""

import logging
import os
from unittest import mock

import pytest
from transformers import TrainingArguments

from vcsd.parallel.launch import (
    launch_problems,
    refused_engines,
    wants_shards,
    without_accelerates_fsdp,
    without_wrong_advice,
)


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        monkeypatch.delenv(name)
    return TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])


def test_one_process_is_fine(arguments):
    assert launch_problems(arguments) == []
    assert not wants_shards(arguments)


@pytest.mark.parametrize("engine", ["DeepSpeed", "Megatron-LM"])
def test_other_engines_are_refused_with_advice(arguments, monkeypatch, engine):
    monkeypatch.setenv(f"ACCELERATE_USE_{engine.upper().replace('-', '_')}", "true")
    (problem,) = refused_engines()
    assert engine in problem
    assert "trainer.fsdp=true" in problem
    assert launch_problems(arguments) == [problem]


@pytest.mark.parametrize(("backend", "is_refused"), [("INDUCTOR", True), ("NO", False), ("no", False)])
def test_a_compiler_of_accelerates_launcher_is_refused_with_advice(arguments, monkeypatch, backend, is_refused):
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", backend)
    problems = launch_problems(arguments)
    assert [problem.rpartition("Set ")[2] for problem in problems] == ["dynamo_backend: no."] * is_refused
    assert launch_problems(arguments, is_dry=True) == []


def test_accelerates_fsdp_is_seen_and_hidden(arguments, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("RANK", "0")
    assert wants_shards(arguments)
    assert launch_problems(arguments) == []
    with without_accelerates_fsdp():
        assert "ACCELERATE_USE_FSDP" not in os.environ
    assert os.environ["ACCELERATE_USE_FSDP"] == "true"


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("FSDP_VERSION", "1", "fsdp_version: 2"),
        ("FSDP_OFFLOAD_PARAMS", "true", "fsdp_offload_params"),
        ("FSDP_ACTIVATION_CHECKPOINTING", "true", "trainer.gradient_checkpointing: true"),
    ],
)
def test_what_fsdp_settings_would_be_ignored_is_refused(arguments, monkeypatch, name, value, advice):
    for variable, setting in {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "RANK": "0", name: value}.items():
        monkeypatch.setenv(variable, setting)
    (problem,) = launch_problems(arguments)
    assert advice in problem


def test_sharding_needs_ranks(arguments):
    arguments.fsdp = True
    (problem,) = launch_problems(arguments)
    assert "torchrun --nproc-per-node N" in problem
    assert launch_problems(arguments, is_dry=True) == []
    arguments.fsdp_config = {"version": 1}
    assert launch_problems(arguments, is_dry=True) == ["fsdp_version = 1 is not supported. Set fsdp_version: 2."]


def test_a_dry_run_may_see_several_gpus(arguments):
    arguments._n_gpu = 8  # the GPUs that transformers has counted
    (problem,) = launch_problems(arguments)
    assert "one process sees 8 GPUs" in problem
    assert launch_problems(arguments, is_dry=True) == []


@mock.patch.dict(os.environ)  # transformers sets variables for FSDP
def test_only_the_advice_to_use_what_is_refused_is_hidden(tmp_path):
    logger, told = logging.getLogger("transformers.training_args"), []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    settings = {"use_cpu": True, "report_to": [], "fsdp": True, "gradient_checkpointing": True}
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)  # a command in another test may have made transformers quiet
    try:
        TrainingArguments(str(tmp_path), **settings)
        (advice,) = [text for text in told if "activation_checkpointing" in text]
        told.clear()
        with without_wrong_advice():
            TrainingArguments(str(tmp_path), **settings)
            logger.warning("another")
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
    assert "another" in told
    assert advice not in told


def test_an_unknown_key_of_the_fsdp_configuration_is_refused(arguments, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    arguments.fsdp, arguments.fsdp_config = True, {"version": 2, "forward_prefetch": True}
    (problem,) = launch_problems(arguments)
    assert "forward_prefetch" in problem
