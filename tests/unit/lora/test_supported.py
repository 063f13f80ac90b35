"""Which adapters can be trained, and the one sentence that refuses each of the others."""

import re
from types import SimpleNamespace

import peft
import pytest

from tiny_models import build_model
from tiny_step import losses_of, make_trainer
from vcsd.errors import ConfigError
from vcsd.lora.attach import with_adapters
from vcsd.models.family import family_of

ON_Q = {"r": 2, "target_modules": ["q_proj"]}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (peft.LoraConfig(**ON_Q, use_dora=True), "use_dora = True cannot be trained. An average of DoRA's magnitudes"),
        (peft.LoraConfig(**ON_Q, modules_to_save=["lm_head"]), "Put the modules' linear layers into target_modules"),
        (peft.LoraConfig(**ON_Q, trainable_token_indices=[1, 2]), "trainable_token_indices = [1, 2] cannot be trained"),
        (peft.LoraConfig(**ON_Q, target_parameters=["experts.down_proj"]), "not the parameters of experts"),
        (peft.LoraConfig(**ON_Q, lora_dropout=0.1), "would get one mask for all. Set it to 0."),
        (peft.LoraConfig(**ON_Q, bias="all"), "bias = 'all' cannot be trained. The base stays frozen"),
        (peft.LoraConfig(**ON_Q, init_lora_weights="pissa"), "init_lora_weights = 'pissa' changes the base"),
        (peft.LoraConfig(**ON_Q, use_qalora=True), "use_qalora selects a variant of LoRA"),
        (peft.LoraConfig(r=2, target_modules=["no_such"]), "peft_config does not fit the model: Target modules"),
        (peft.LoraConfig(r=2, target_modules=["embed_tokens"]), "Leave embed_tokens out of target_modules"),
        (peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[]), "IA3Config (IA3), which is not LoRA"),
        (peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"), "which learns a prompt"),
        (peft.LoHaConfig(target_modules=["q_proj"]), "LoHaConfig (LOHA), which is not LoRA. Use peft.LoraConfig."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore::UserWarning:peft")
def test_other_adapters_are_refused_in_one_sentence(tmp_path, config, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_trainer(tmp_path, peft_config=config)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_a_head_with_an_adapter_is_refused_tied_or_not(tmp_path, is_tied):
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "lm_head"])
    with pytest.raises(ConfigError, match="the head has an adapter"):
        make_trainer(tmp_path, model=build_model(tie_word_embeddings=is_tied), peft_config=config)


@pytest.mark.parametrize("where", ["config", "model"])
def test_a_quantized_base_is_refused(tmp_path, where):
    model = build_model()
    if where == "config":
        model.config.quantization_config = {"load_in_4bit": True, "quant_method": "bitsandbytes"}
    else:
        model.hf_quantizer = SimpleNamespace(quantization_config=None)
    with pytest.raises(ConfigError, match=r"the base is quantized.*Load the base with dtype=torch.bfloat16"):
        with_adapters(model, peft.LoraConfig(**ON_Q))


def test_several_adapters_are_refused(tmp_path):
    model = peft.get_peft_model(build_model(), peft.LoraConfig(**ON_Q))
    model.add_adapter("second", peft.LoraConfig(**ON_Q))
    with pytest.raises(ConfigError, match=r"2 adapters \(default, second\). Keep one"):
        make_trainer(tmp_path, model=model)


def test_an_adapter_of_another_name_is_refused(tmp_path):
    model = peft.get_peft_model(build_model(), peft.LoraConfig(**ON_Q), adapter_name="mine")
    with pytest.raises(ConfigError, match=r"the adapter is named 'mine'. Load it as 'default'"):
        make_trainer(tmp_path, model=model)


def test_layers_of_peft_without_their_settings_are_refused(tmp_path):
    model = peft.inject_adapter_in_model(peft.LoraConfig(**ON_Q), build_model())
    with pytest.raises(ConfigError, match=r"PEFT layers without being a PeftModel.*Pass the plain model and peft_conf"):
        make_trainer(tmp_path, model=model)


def test_a_second_adapter_on_a_model_with_one_is_refused(tmp_path):
    model = peft.get_peft_model(build_model(), peft.LoraConfig(**ON_Q))
    with pytest.raises(ConfigError, match=r"already has PEFT adapters.*merge_and_unload"):
        make_trainer(tmp_path, model=model, peft_config=peft.LoraConfig(**ON_Q))


@pytest.mark.parametrize(("how", "advice"), [("frozen", "is_trainable=True"), ("merged", r"unmerge_adapter\(\)")])
def test_an_adapter_that_does_not_train_or_is_merged_is_refused(tmp_path, how, advice):
    model = peft.get_peft_model(build_model(), peft.LoraConfig(**ON_Q))
    if how == "frozen":
        model.requires_grad_(False)
    else:
        model.merge_adapter()
    with pytest.raises(ConfigError, match=advice):
        make_trainer(tmp_path, model=model)


@pytest.mark.parametrize(
    "settings",
    [
        {"rank_pattern": {"up_proj": 6}, "alpha_pattern": {"up_proj": 3}},
        {"use_rslora": True},
        {"lora_bias": False, "init_lora_weights": "gaussian"},
    ],
    ids=str,
)
def test_patterns_of_ranks_and_plain_options_of_lora_train(tmp_path, settings):
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], **settings)
    trainer = make_trainer(tmp_path, peft_config=config, arguments={"max_steps": 2})
    trainer.train()
    assert len(losses_of(trainer)) == 2
    assert trainer.teacher.distance() > 0
    shapes = {len(p) for name, p in trainer.model.named_parameters() if "up_proj.lora_A" in name}
    assert shapes == {6 if "rank_pattern" in settings else 2}


def test_a_users_settings_are_left_alone_and_a_plain_model_stays_plain(tmp_path):
    config = peft.LoraConfig(r=2, target_modules="all-linear")
    make_trainer(tmp_path, peft_config=config)
    assert config.target_modules == "all-linear"
    model = build_model()
    assert with_adapters(model) is model
    assert family_of(model).name == "qwen3_vl"
