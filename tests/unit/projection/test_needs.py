"""What a recipe needs, without weights, data or a GPU."""

import sys

import pytest
import torch

from toy_benchmarks import coded, write_tsv
from vcsd.cli.preview import preview
from vcsd.config import build_recipe, load_recipe
from vcsd.config.shipped import shipped_names
from vcsd.errors import ConfigError, install_command
from vcsd.projection.machines import parse_machine
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.outlook import screen


def shown(recipe, machine=None):
    """The screen of a recipe on a machine; it fits 80 x 24."""
    lines = screen(preview(recipe, None if machine is None else parse_machine(machine)))
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_recipe_can_be_projected_on_a_machine_that_has_nothing(name, tmp_path, monkeypatch):
    if not name.startswith("world/"):  # whose bases ship in a folder of the checkout
        monkeypatch.chdir(tmp_path)
    told = shown(load_recipe(name))
    assert "the smallest that fits (projected" in told
    assert "not on this machine" in told
    assert "per step" in told
    sizes = {"24gb": "RTX 4090", "48gb": "L40S", "80gb": "L40S"}
    if name.startswith("lora/"):
        assert f"machine {sizes[name.rpartition('_')[2]]}," in told
    elif "_2b" in name or name.startswith(("ablations/", "curves/")):
        assert "machine A100 80 GB," in told
    assert not list(tmp_path.iterdir())


def test_bf16_is_no_error_on_a_machine_without_a_gpu():
    recipe = load_recipe("paper/qwen3_vl_2b")
    assert recipe.trainer["bf16"]
    assert recipe.training_arguments(on_any_machine=True).bf16 == torch.cuda.is_available()


def test_own_questions_are_checked_without_the_data_and_may_be_on_another_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = ["evaluation.every=30", "evaluation.tsv=mine.tsv"]
    assert "eval mine.tsv: not on this machine." in shown(load_recipe("paper/qwen3_vl_2b", keys))
    row = {"index": "1", "image": coded(1), "question": "Is it red?", "answer": "Yes"}
    write_tsv(tmp_path / "mine.tsv", [row])
    assert "eval 1 questions before the first step, every 30 steps" in shown(load_recipe("paper/qwen3_vl_2b", keys))
    beside = load_recipe("paper/qwen3_vl_2b", [*keys, "evaluation.benchmarks=[BLINK, world]"])
    assert "eval 1 questions and those of BLINK, world before the first step" in shown(beside)
    write_tsv(tmp_path / "mine.tsv", [{**row, "answer": ""}])
    with pytest.raises(ConfigError, match=r"evaluation\.tsv: .* has nothing under 'answer'"):
        preview(load_recipe("paper/qwen3_vl_2b", keys))


def test_what_the_trainer_refuses_is_refused_in_a_dry_run_too():
    recipe = load_recipe("paper/qwen3_vl_2b", ["trainer.optim=sgd"])
    with pytest.raises(ConfigError, match="cannot be resumed from"):
        preview(recipe)


def test_the_command_for_several_gpus_can_be_run_dry_without_them():
    assert "machine 8x H100 80 GB: fits" in shown(load_recipe("paper/qwen3_vl_8b", ["trainer.fsdp=true"]), "8xh100")


def test_ranks_that_sample_with_vllm_are_those_of_the_machine_that_was_asked_for():
    assert "vllm 8 ranks; each trains and samples" in shown(load_recipe("vllm/8gpus"), "8xh100")


@pytest.mark.parametrize("sharded", ["trainer.fsdp=true", "lora.rank=8 trainer.learning_rate=6e-5"])
def test_offload_is_refused_in_a_dry_run_where_a_run_would_refuse_it(sharded):
    with pytest.raises(ConfigError, match="offload = true"):
        preview(load_recipe("paper/qwen3_vl_8b", ["offload=true", *sharded.split()]))


def test_checkpoints_that_would_leave_adapters_untrained_are_refused_in_a_dry_run():
    adapters = ["lora.rank=8", "lora.vision=true", "trainer.learning_rate=6e-5"]
    reentrant = ["trainer.gradient_checkpointing=true", "trainer.gradient_checkpointing_kwargs={use_reentrant: true}"]
    with pytest.raises(ConfigError, match="adapters of the vision tower untrained"):
        preview(load_recipe("paper/qwen3_vl_8b", [*adapters, *reentrant]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("lora.rank=8 trainer.learning_rate=6e-5", r"has no effect with LoRA: .*\. Set model\.dither: false\."),
        ("trainer.bf16=false", r"has no effect, because trainer\.bf16 is false: .* Set trainer\.bf16: true, or"),
    ],
)
def test_dither_is_refused_in_a_dry_run_where_a_run_would_refuse_it(overrides, message):
    with pytest.raises(ConfigError, match=rf"model\.dither = true {message}"):
        preview(load_recipe("paper/qwen3_vl_8b", ["model.dither=true", *overrides.split()]))


def test_another_engine_is_refused_in_a_dry_run_before_transformers_asks_to_install_it(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ConfigError, match=r"DeepSpeed is not supported\. Use FSDP2"):
        preview(load_recipe("paper/qwen3_vl_2b"))


def test_a_card_that_is_too_small_is_said_with_what_would_fit():
    told = shown(load_recipe("paper/qwen3_vl_2b"), "24GB")
    assert "machine RTX 4090: does not fit (projected)" in told
    assert "memory needs 55 GiB, has 24 GiB" in told
    assert "lora.rank=32 trainer.learning_rate=6e-5 7.9 GiB, about 4 hours; LoRA, not all weights" in told
    assert "Unchanged, it fits on A100 80 GB: 55 GiB, about 2 hours." in told
    assert "time " not in told.split("What would fit")[0]
    assert "8x H100 80 GB: fits (projected)" in shown(load_recipe("paper/qwen3_5_9b"), "8xh100")


def test_assumed_shapes_are_said_to_be_assumed():
    assert "its config.json was not seen" in shown(load_recipe("paper/qwen3_5_4b"))
    assert "the released config.json" in shown(load_recipe("paper/qwen3_vl_4b"))


def test_float32_on_a_card_is_said_to_be_slower():
    assert "longer in float32 (trainer.bf16 is false)" in shown(
        load_recipe("paper/qwen3_vl_2b", ["trainer.bf16=false"]), "h200"
    )


@pytest.mark.parametrize(
    "override",
    [
        *("trainer.max_steps=1000000000000", "prompts_per_step=1000000000", "rollout.num_per_prompt=100000000"),
        *("rollout.max_new_tokens=1000000000", "data.max_prompt_tokens=1000000000", "token_budget=1000000000000"),
        *("lora.rank=1000000", "trainer.max_steps=-5", "trainer.max_steps=0", "rollout.max_new_tokens=0"),
    ],
)
def test_a_size_that_no_run_has_is_an_error_that_names_the_limit(override):
    with pytest.raises(ConfigError, match=rf"{override.replace('=', ' = ')} must be at (most|least) \d"):
        load_recipe("paper/qwen3_vl_2b", [override])


def test_a_run_of_years_is_said_to_be_too_long():
    told = shown(load_recipe("paper/qwen3_vl_2b", ["trainer.max_steps=1000000000"]))
    assert "time more than 100 years, 80 seconds per step" in told
    assert "too long for one run: lower trainer.max_steps, prompts_per_step or rollout.max_new_tokens" in told
    assert "too long" not in shown(load_recipe("paper/qwen3_vl_2b", ["trainer.max_steps=100000"]))


def test_a_prompt_is_assumed_to_end_where_the_positions_of_the_model_end():
    assert "at most 261,120" in shown(load_recipe("paper/qwen3_vl_2b", ["data.max_prompt_tokens=1000000"]))


def test_a_row_that_cannot_hold_a_prompt_is_an_error_without_data_too():
    with pytest.raises(ConfigError, match=r"token_budget = 1024 leaves no room for a prompt .* \(1024 tokens\)"):
        preview(load_recipe("paper/qwen3_vl_2b", ["token_budget=1024"]))


def test_a_row_that_cannot_hold_an_assumed_prompt_is_a_note_and_no_error():
    short = ["rollout.max_new_tokens=64"]
    note = "With one full response they are longer than token_budget (1,000): check it against your data"
    assert note in shown(load_recipe("paper/qwen3_vl_2b", ["token_budget=1000", *short]))
    assert "check it" not in shown(load_recipe("paper/qwen3_vl_2b", ["token_budget=1128", *short]))


def test_a_run_that_saves_once_is_said_to():
    told = shown(load_recipe("paper/qwen3_vl_2b", ["trainer.save_steps=1000000000000"]))
    assert "per checkpoint, after the last step, keeping 2" in told


def test_a_recipe_that_fits_nowhere_is_said_to():
    recipe = load_recipe("paper/qwen3_5_9b", ["rollout.max_new_tokens=200000", "token_budget=2000000"])
    assert "the largest known, and it is too small" in shown(recipe)


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


@pytest.mark.parametrize("overrides", [(), ("lora.train_a=false",)])
def test_adapters_are_counted_without_peft_as_with_it(overrides, monkeypatch):
    recipe = load_recipe("lora/qwen3_vl_2b_24gb", overrides)
    job = job_of(recipe, empty_model(recipe)[0])
    monkeypatch.setitem(sys.modules, "peft", None)
    assert job_of(recipe, empty_model(recipe)[0]).sizes == job.sizes
    assert job.sizes.num_adapter > 0


def test_without_peft_a_plan_that_may_use_adapters_says_first_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, adapters = load_recipe("paper/qwen3_vl_2b"), load_recipe("lora/qwen3_vl_2b_24gb")
    assert "which is missing here" not in shown(whole, "24GB") + shown(adapters, "24GB")
    monkeypatch.setitem(sys.modules, "peft", None)
    missing = f"LoRA needs the package peft, which is missing here. Install it: {install_command('peft')}"
    assert missing in shown(adapters, "24GB")
    told = shown(whole, "24GB")
    assert told.index(missing) < told.index("What would fit") < told.index("lora.rank=32")
    assert missing not in shown(whole, "h200")
