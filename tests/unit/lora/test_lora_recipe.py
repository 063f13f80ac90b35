"""The `lora` section of a recipe: from files to a run, a dry run and an exported model."""

import json
import shutil

import pytest
import torch

from tiny_examples import picture
from tiny_lora import FAMILIES, lora_model, write_base
from tiny_models import build_model
from tiny_step import make_trainer
from vcsd import run
from vcsd.checkpoint.export import export
from vcsd.cli.preview import preview, preview_loaded
from vcsd.config.recipe import build_recipe
from vcsd.errors import ConfigError
from vcsd.models.freeze import is_adapter, part_of
from vcsd.projection.project import Sizes
from vcsd.teacher import own_tensors

pytestmark = pytest.mark.filterwarnings("ignore:.* is not of a family that shares prefixes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    for family in FAMILIES:
        write_base(folder / family, family)
    rows = []
    for index in range(4):
        picture(64 + 32 * (index % 2), 64).save(folder / f"{index}.png")
        rows.append({"id": f"row-{index}", "question": f"how many, {index}?", "image": f"{index}.png"})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def recipe_of(folder, out, *overrides, family="qwen3_vl"):
    tree = {
        "model": {"path": str(folder / family)},
        "lora": {"rank": 4},
        "data": {"path": str(folder / "train.jsonl")},
        "rollout": {"num_per_prompt": 2, "max_new_tokens": 5},
        "prompts_per_step": 2,
        "token_budget": 4000,
        "guard": "off",
        "trainer": {"max_steps": 2, "save_steps": 2, "learning_rate": 1e-3, "warmup_steps": 0, "use_cpu": True}
        | {"bf16": False, "output_dir": str(out)},
    }
    return build_recipe(tree, overrides)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recipe_trains_b_on_the_language_model_and_exports(folder, tmp_path, family):
    trainer = run.train(run.load(recipe_of(folder, tmp_path / "run", family=family)))
    trained = [name for name, p in trainer.model.named_parameters() if p.requires_grad]
    assert all(".lora_B." in name and part_of(name) == "language" for name in trained)
    assert all(tensor.any() for tensor in own_tensors(trainer.teacher.module).values())
    export(tmp_path / "run", tmp_path / "out", dtype="float32")
    plain = type(build_model(family)).from_pretrained(tmp_path / "out")
    merged = dict(trainer.model.merge_and_unload().named_parameters())
    assert all(torch.equal(p, merged[name]) for name, p in plain.named_parameters())


def test_a_recipe_may_adapt_the_tower_and_train_both_factors(folder, tmp_path):
    trainer = run.train(
        run.load(recipe_of(folder, tmp_path, "lora.vision=true", "lora.train_a=true", "lora.scale=1.5"))
    )
    trained = [name for name, p in trainer.model.named_parameters() if p.requires_grad]
    assert {part_of(name) for name in trained} == {"language", "vision", "projector"}
    assert any(".lora_A." in name for name in trained)
    assert trainer.model.peft_config["default"].lora_alpha == 1.5 * 4


def test_the_base_of_a_run_in_bfloat16_is_in_bfloat16(folder, tmp_path):
    trainer = run.train(run.load(recipe_of(folder, tmp_path, "trainer.bf16=true")))
    kinds = {(is_adapter(name), p.dtype) for name, p in trainer.model.named_parameters()}
    assert kinds == {(False, torch.bfloat16), (True, torch.float32)}
    record = json.loads((tmp_path / "checkpoint-2" / "base.json").read_text())
    assert (record["path"], record["dtype"]) == (str(folder / "qwen3_vl"), "bfloat16")


def test_a_dry_run_counts_adapters_and_one_base(folder, tmp_path):
    sizes = preview_loaded(run.load(recipe_of(folder, tmp_path))).job.sizes
    model = lora_model()
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    assert (sizes.num_parameters, sizes.num_trained) == (total, trained)


def test_a_checkpoint_of_adapters_is_as_large_as_was_said(tmp_path):
    trainer = make_trainer(tmp_path, model=lora_model())
    sizes = Sizes.of(trainer.model, has_teacher=True, has_half_copy=False)
    trainer.train()
    assert trainer.contents().num_bytes == pytest.approx(sizes.checkpoint_bytes, rel=0.2)
    assert sizes.checkpoint_bytes < Sizes.of(build_model(), has_teacher=True, has_half_copy=False).checkpoint_bytes / 10


def test_memory_holds_one_base_and_what_each_model_has_for_itself(tmp_path):
    trainer = make_trainer(tmp_path, model=lora_model(dtype=torch.bfloat16), arguments={"bf16": True})
    sizes = Sizes.of(trainer.model, has_teacher=True, has_half_copy=False, base_bytes=2)
    trainer.train()
    models = (trainer.model, trainer.teacher.module)
    tensors = {p.data_ptr(): p.nbytes for model in models for p in model.parameters()}
    moments = [value for state in trainer.optimizer.state.values() for value in state.values() if value.ndim]
    gradients = sum(p.nbytes for p in trainer.model.parameters() if p.requires_grad)
    assert sizes.memory_bytes == sum(tensors.values()) + sum(m.nbytes for m in moments) + gradients


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["lora.rank=null", "lora.vision=true"], "lora.vision has no effect without lora.rank. Set lora.rank"),
        (["lora.rank=0"], "lora.rank = 0"),
        (["lora.rnk=8"], "lora.rnk is not a key. Did you mean 'rank'?"),
        (["model.freeze_vision=true"], "model.freeze_vision = true has no effect with lora.rank"),
    ],
)
def test_settings_that_contradict_lora_are_refused(folder, tmp_path, overrides, message):
    with pytest.raises(ConfigError) as error:
        recipe_of(folder, tmp_path, *overrides)
    assert message in str(error.value)


@pytest.mark.parametrize("rank", ["lora.rank=4", "lora.rank=null"])
@pytest.mark.parametrize("part", ["config", "text_config"])
def test_a_folder_of_quantized_weights_is_refused_by_a_run_and_a_dry_run(folder, tmp_path, rank, part):
    shutil.copytree(folder / "qwen3_vl", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    place = config if part == "config" else config[part]
    place["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    path.write_text(json.dumps(config))
    recipe = recipe_of(folder, tmp_path / "run", f"model.path={tmp_path / 'model'}", rank)
    without_data = recipe_of(folder, tmp_path / "run", f"model.path={tmp_path / 'model'}", rank, "data.path=nowhere")
    refused = r"are quantized \(bitsandbytes\): config.json has .* Name the folder of the original weights."
    for opens, settings in ((run.load, recipe), (preview, recipe), (preview, without_data)):
        with pytest.raises(ConfigError, match=refused):
            opens(settings)


def test_adapters_need_a_learning_rate_of_their_own():
    tree = {"model": {"path": "m"}, "data": {"path": "d"}, "lora": {"rank": 8}}
    with pytest.raises(ConfigError, match=r"lora.rank = 8 needs trainer.learning_rate: the default, 2e-06, is the pap"):
        build_recipe(tree)
    resolved = build_recipe(tree, ["trainer.learning_rate=1e-4"])
    assert build_recipe(json.loads(resolved.to_json())) == resolved
