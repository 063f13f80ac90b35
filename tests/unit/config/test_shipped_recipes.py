"""The shipped recipes: every model with every method, every ablation, every value with its source."""

import re

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from vcsd.config import load_recipe
from vcsd.config.shipped import shipped_folder, shipped_names
from vcsd.method import METHODS
from vcsd.models.shapes import SHAPES

ABLATIONS = {
    **{f"alpha_{alpha}": {"alpha": float(alpha)} for alpha in ("0", "0.5", "1.25", "1.5", "2")},
    "no_support": {"beta": 0.0},
    "support": {},
    "no_anchor": {"anchor": 0.0},
    "reverse_kl": {"divergence": "reverse_kl"},
    "jsd": {"divergence": "jensen_shannon"},
    **{view: {"contrast_view": view} for view in ("noise", "blur", "no_image")},
}
LABEL = re.compile(r"# (paper|authors' code|ours)\b")


def names(folder):
    return [name.partition("/")[2] for name in shipped_names() if name.startswith(f"{folder}/")]


def values(method):
    return {key: value for key, value in vars(method).items() if key != "name"}


@pytest.mark.parametrize("folder", ["paper", "opsd", "opsd_published", "author_code"])
def test_every_model_of_the_paper_has_a_recipe(folder):
    assert sorted(names(folder)) == sorted(SHAPES)
    for name in names(folder):
        recipe = load_recipe(f"{folder}/{name}")
        assert recipe.model.path == SHAPES[name].hub_id
        method = (
            METHODS["vcsd"].preset("author_code") if folder == "author_code" else METHODS.get(folder, METHODS["vcsd"])
        )
        assert recipe.method == method
        assert (recipe.prompts_per_step, recipe.rollout.num_per_prompt, recipe.rollout.max_new_tokens) == (32, 8, 1024)
        assert recipe.data.max_prompt_tokens == (6144 if name in ("qwen3_vl_2b", "qwen3_vl_8b") else 4096)
        thinks = {} if SHAPES[name].family == "qwen3_vl" else {"enable_thinking": False}
        assert recipe.model.chat_template_kwargs == thinks


def test_the_training_configuration_is_the_papers_completed_by_the_authors_code():
    trainer = load_recipe("paper/qwen3_5_9b").trainer
    expected = {
        **{"max_steps": 90, "learning_rate": 2e-6, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 10},
        **{"weight_decay": 0.01, "max_grad_norm": 1.0, "bf16": True},
    }
    assert {key: trainer[key] for key in expected} == expected


def test_each_ablation_changes_the_value_that_it_is_named_after_and_no_other():
    assert sorted(names("ablations")) == sorted(ABLATIONS)
    for name, changed in ABLATIONS.items():
        recipe = load_recipe(f"ablations/{name}")
        assert values(recipe.method) == {**values(METHODS["vcsd"]), **changed}, name
        assert recipe.trainer["max_steps"] == (300 if "support" in name else 90)
        assert recipe.model == load_recipe("paper/qwen3_vl_2b").model


@pytest.mark.parametrize("name", ["qwen3_vl_2b_24gb", "qwen3_vl_4b_24gb", "qwen3_vl_8b_48gb", "qwen3_vl_8b_80gb"])
def test_lora_recipes_change_how_and_not_what_is_learned(name):
    recipe, whole = load_recipe(f"lora/{name}"), load_recipe(f"paper/{name.rpartition('_')[0]}")
    assert sorted(names("lora")) == ["qwen3_vl_2b_24gb", "qwen3_vl_4b_24gb", "qwen3_vl_8b_48gb", "qwen3_vl_8b_80gb"]
    assert (recipe.lora.rank, recipe.lora.vision) == (32, name.endswith("80gb"))
    changed = {key for key, value in recipe.trainer.items() if value != whole.trainer.get(key)}
    assert changed == {"output_dir", "learning_rate"}
    assert (recipe.method, recipe.model, recipe.data) == (whole.method, whole.model, whole.data)


def test_training_curves_are_evaluated_every_ten_steps():
    assert sorted(names("curves")) == ["opsd_published", "vcsd"]
    for name in names("curves"):
        recipe = load_recipe(f"curves/{name}")
        assert (recipe.evaluation.every, recipe.evaluation.benchmarks) == (10, ["all"])
        assert recipe.method == METHODS[name]


@pytest.mark.parametrize(("name", "num_machines"), [("8gpus", 1), ("2nodes", 2)])
def test_accelerate_reads_its_configs_as_fsdp2_on_eight_gpus_per_node(name, num_machines):
    config = load_config_from_file(str(shipped_folder() / "accelerate" / f"{name}.yaml"))
    assert (config.num_machines, config.num_processes) == (num_machines, 8 * num_machines)
    assert (config.distributed_type, config.fsdp_config["fsdp_version"]) == ("FSDP", 2)
    refused = ("fsdp_offload_params", "fsdp_activation_checkpointing")
    assert not any(config.fsdp_config[key] for key in refused), "vcsd refuses these"


def test_no_two_recipes_share_a_run_folder():
    folders = [load_recipe(name).trainer["output_dir"] for name in shipped_names()]
    assert len(set(folders)) == len(folders)


@pytest.mark.parametrize("name", shipped_names())
def test_every_line_says_where_its_value_comes_from_and_most_recipes_are_short(name):
    lines = (shipped_folder() / f"{name}.yaml").read_text().splitlines()
    code = [line for line in lines if not line.startswith("#")]
    leaves = [line for line in code if re.match(r"\s*\w+: \S", line) and not re.match(r"\s*(base|output_dir):", line)]
    assert [line for line in leaves if not LABEL.search(line)] == []
    assert lines[0].startswith("# ")
    assert name == "paper/qwen3_vl_2b" or name.startswith("world/") or 3 <= len(code) <= 9
