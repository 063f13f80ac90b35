"""Every field of TrainingArguments works, or is refused with a fix before the first step. None is ignored."""

from dataclasses import fields

import pytest
from transformers import TrainingArguments

from tiny_step import make_trainer, training_arguments
from vcsd.errors import ConfigError
from vcsd.trainer.arguments import REFUSED, own_arguments

WORKS = {
    # what the optimizer does
    *("max_steps", "num_train_epochs", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    *("optim", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    # how it computes
    *("bf16", "tf32", "gradient_checkpointing", "gradient_checkpointing_kwargs", "full_determinism", "use_cpu"),
    *("activation_checkpointing", "activation_checkpointing_kwargs"),  # their names since transformers 5.23
    *("seed", "data_seed", "debug", "skip_memory_metrics"),
    # where it runs
    *("fsdp", "fsdp_config", "ddp_bucket_cap_mb", "ddp_static_graph", "ddp_backend", "ddp_timeout", "local_rank"),
    # what it writes
    *("output_dir", "save_strategy", "save_steps", "save_total_limit", "metric_for_best_model", "greater_is_better"),
    *("logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node", "log_level", "log_level_replica"),
    *("disable_tqdm", "report_to", "run_name", "project"),
    *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
}
"""Fields that the trainer or transformers' own loop reads."""

SET_HERE = {"remove_unused_columns", "logging_nan_inf_filter"}
"""Fields whose other value is the one that the trainer sets anyway."""

NO_MATTER = {"do_train", "dataloader_pin_memory"}
"""A note to a script that says what happens anyway; and one that transformers itself changes with the device."""

REFUSED_ELSEWHERE = {
    **{
        "ddp_find_unused_parameters": True,
        "ddp_broadcast_buffers": True,
        "accelerator_config": {"split_batches": True},
    },
    **{"torch_compile_backend": "inductor", "torch_compile_mode": "default"},
}
"""Fields with a rule of their own, and a value that is refused."""


def test_every_field_is_accounted_for_once():
    names = {field.name for field in fields(TrainingArguments) if field.init}
    groups = (WORKS, SET_HERE, NO_MATTER, set(REFUSED), set(REFUSED_ELSEWHERE))
    assert names <= set().union(*groups), names - set().union(*groups)
    counted = [name for group in groups for name in group]
    assert len(counted) == len(set(counted))


def other_than(default):
    """A value of the same kind that is not the default."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return type(default)(default + 1)
    return ["loss"] if isinstance(default, list) else "other"


VALUES = {
    **{"eval_strategy": "epoch", "hub_strategy": "end", "include_num_input_tokens_seen": "all", "eval_steps": 5},
    **{"train_sampling_strategy": "group_by_length", "dataloader_prefetch_factor": 2, "neftune_noise_alpha": 5.0},
    **{"torch_empty_cache_steps": 3, "label_names": ["labels"], "liger_kernel_config": {"rope": False}},
}
"""Values that transformers itself accepts, where any text would not do."""


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_field_that_would_be_ignored_is_refused_with_advice(name, tmp_path):
    arguments = training_arguments(tmp_path)
    if not hasattr(arguments, name):
        pytest.skip(f"this transformers has no {name}")
    default, advice = REFUSED[name]
    assert getattr(arguments, name) == default, "the default is refused"
    setattr(arguments, name, VALUES.get(name, other_than(default)))
    with pytest.raises(ConfigError) as error:
        own_arguments(arguments, prompts_per_step=3)
    assert f"trainer.{name} = " in str(error.value)
    assert advice in str(error.value)


@pytest.mark.parametrize("name", sorted(REFUSED_ELSEWHERE))
def test_a_field_with_a_rule_of_its_own_is_refused(name, tmp_path):
    arguments = training_arguments(tmp_path, **{name: REFUSED_ELSEWHERE[name]})
    with pytest.raises(ConfigError, match=r"cannot be set|Packed rows"):
        own_arguments(arguments, prompts_per_step=3)


def test_the_defaults_of_transformers_are_all_accepted(tmp_path):
    own_arguments(TrainingArguments(str(tmp_path), use_cpu=True), prompts_per_step=3)


@pytest.mark.parametrize("launched_with", ["no", "fp16", "bf16"])
def test_bf16_alone_decides_the_precision_whatever_accelerate_was_launched_with(tmp_path, monkeypatch, launched_with):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched_with)
    for is_half in (True, False):
        trainer = make_trainer(tmp_path, arguments={"bf16": is_half})
        assert trainer.accelerator.mixed_precision == ("bf16" if is_half else "no")


def test_a_refused_token_is_not_shown(tmp_path):
    with pytest.raises(ConfigError, match=r"trainer.hub_token = \*\*\* cannot be set") as refused:
        own_arguments(training_arguments(tmp_path, hub_token="hf_secret"), 1)
    assert "hf_secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"learning_rate": -1.0}, r"trainer.learning_rate = -1 must be at least 0"),
        ({"learning_rate": float("nan")}, r"trainer.learning_rate = nan must be at least 0"),
        ({"save_strategy": "steps", "save_steps": 0}, r"trainer.save_steps = 0 would never save"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(tmp_path, given, told):
    with pytest.raises(ConfigError, match=told):
        own_arguments(training_arguments(tmp_path, **given), prompts_per_step=2)
