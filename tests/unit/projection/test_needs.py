"""What a recipe needs, without weights, data or a GPU."""

import json

import pytest
import torch

from vcsd import run
from vcsd.config import build_recipe, load_recipe
from vcsd.config.shipped import shipped_names
from vcsd.errors import ConfigError
from vcsd.projection.machines import parse_machine
from vcsd.projection.needs import empty_model, job_of


def lines(recipe, machine=None):
    config, *rest = run.preview(recipe, machine)
    assert json.loads(config)["method"]["name"]
    return rest


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_recipe_can_be_projected_on_a_machine_that_has_nothing(name, tmp_path, monkeypatch):
    if not name.startswith("world/"):  # whose bases ship in a folder of the checkout
        monkeypatch.chdir(tmp_path)
    told = lines(load_recipe(name))
    (machine,) = [line for line in told if line.startswith("smallest machine that fits: ")]
    assert "there is no data at" in "".join(told)
    assert any(line.startswith("memory per GPU: ") for line in told)
    assert any(line.startswith("time, roughly: ") for line in told)
    sizes = {"24gb": "RTX 4090", "48gb": "L40S", "80gb": "L40S"}
    if name.startswith("lora/"):
        assert sizes[name.rpartition("_")[2]] in machine
    elif "_2b" in name or name.startswith(("ablations/", "curves/")):
        assert "A100 80 GB" in machine
    assert not list(tmp_path.iterdir())


def test_bf16_is_no_error_on_a_machine_without_a_gpu():
    recipe = load_recipe("paper/qwen3_vl_2b")
    assert recipe.trainer["bf16"]
    assert recipe.training_arguments(on_any_machine=True).bf16 == torch.cuda.is_available()


def test_what_the_trainer_refuses_is_refused_in_a_dry_run_too():
    recipe = load_recipe("paper/qwen3_vl_2b", ["trainer.optim=sgd"])
    with pytest.raises(ConfigError, match="cannot be resumed from"):
        lines(recipe)


def test_a_card_that_is_too_small_is_said_with_one_that_is_not():
    told = lines(load_recipe("paper/qwen3_vl_2b"), parse_machine("24GB"))
    assert "machine: RTX 4090 is too small" in told[-2]
    assert told[-1] == "smallest machine that fits: A100 80 GB"
    assert "machine: 8x H100 80 GB (projected" in lines(load_recipe("paper/qwen3_5_9b"), parse_machine("8xh100"))[-3]


def test_assumed_shapes_are_said_to_be_assumed():
    assert "its config.json was not seen" in lines(load_recipe("paper/qwen3_5_4b"))[0]
    assert "the released config.json" in lines(load_recipe("paper/qwen3_vl_4b"))[0]


def test_a_model_that_is_neither_here_nor_known_is_an_error():
    recipe = build_recipe({"model": {"path": "nobody/nothing"}, "data": {"path": "nowhere"}})
    with pytest.raises(ConfigError, match=r"model.path = 'nobody/nothing' is neither a folder nor a model"):
        empty_model(recipe)


def test_the_job_is_the_recipes():
    vcsd, opsd = (
        load_recipe("paper/qwen3_vl_2b"),
        load_recipe("opsd_published/qwen3_vl_2b", ["model.freeze_vision=true"]),
    )
    model, _ = empty_model(vcsd)
    job = job_of(vcsd, model)
    assert (job.step.num_prompts, job.step.num_rollouts, job.step.response_tokens) == (32, 8, 1024)
    assert (job.longest_prompt, job.num_looks, job.is_checkpointed, job.loss_factor) == (6144, 2, True, 1.0)
    other = job_of(opsd, empty_model(opsd)[0])
    assert (other.num_looks, other.loss_factor) == (1, 3.0)
    assert other.sizes.num_trained < job.sizes.num_trained == job.sizes.num_parameters
    assert job_of(vcsd, model, prompt_tokens=500).step.prompt_tokens == 500
