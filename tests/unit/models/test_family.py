"""The families: their tokens, positions and heads."""

import peft
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tiny_groups import make_prompt
from tiny_models import build_model, image_token_id
from tiny_processor import build_tokenizer
from vcsd.errors import ConfigError
from vcsd.models.family import family_of
from vcsd.models.inside import inside, with_head


@pytest.mark.parametrize(
    ("family", "name", "shares"),
    [
        ("qwen3_vl", "qwen3_vl", True),
        ("qwen3_vl_moe", "qwen3_vl", True),
        ("qwen3_5", "qwen3_5", True),
        ("qwen3_5_moe", "qwen3_5", True),
        ("llava", "fallback", False),
    ],
)
def test_the_family_is_found_from_the_configuration(family: str, name: str, shares: bool) -> None:
    found = family_of(build_model(family))
    assert (found.name, found.shares_prefix) == (name, shares)


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "llava"])
def test_vision_tokens_are_the_placeholders_of_images_and_videos(family: str) -> None:
    model = build_model(family)
    expected = {image_token_id(family)}
    if family != "llava":
        expected.add(build_tokenizer().convert_tokens_to_ids("<|video_pad|>"))
    assert family_of(model).vision_token_ids(model) == expected


def test_end_tokens_are_those_of_the_generation_config_and_the_tokenizer() -> None:
    model, tokenizer = build_model(), build_tokenizer()
    model.generation_config.eos_token_id = 7
    assert family_of(model).end_token_ids(model, tokenizer) == {7, tokenizer.eos_token_id}
    assert family_of(model).end_token_ids(model) == {7}
    model.generation_config.eos_token_id = [7, 8]
    assert family_of(model).end_token_ids(model) == {7, 8}
    model.generation_config.eos_token_id = None
    with pytest.raises(ConfigError, match="name no end token"):
        family_of(model).end_token_ids(model)


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_positions_of_an_image_are_its_grid_and_text_goes_on_after_its_longer_side(family: str) -> None:
    model = build_model(family)
    prompt = make_prompt(family, grids=((4, 8),), num_before=2, num_after=1)
    time, height, width = family_of(model).prompt_positions(model, prompt).tolist()
    assert time == [0, 1, *(8 * [2]), 6, 7]
    assert height == [0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 6, 7]
    assert width == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_gives_the_models_logits(tied: bool) -> None:
    model = build_model("qwen3_vl", tie_word_embeddings=tied)
    family = family_of(model)
    family.prepare(model)
    hidden = torch.randn(3, 96)
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    assert torch.equal(with_head(model, lambda head: hidden @ head.weight_VD.T), model.lm_head(hidden))


ON_THE_HEAD = {"target_modules": ["q_proj", "lm_head"]}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (peft.LoraConfig(r=2, **ON_THE_HEAD), r"\(lora\).*Leave lm_head out"),
        (peft.IA3Config(feedforward_modules=[], **ON_THE_HEAD), r"\(ia3\).*Leave lm_head out"),
        (peft.LoHaConfig(r=2, **ON_THE_HEAD), r"\(loha\).*Leave lm_head out"),
        (peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"), "'default' learns a prompt"),
    ],
)
def test_adapters_that_scoring_would_leave_out_are_refused(config: peft.PeftConfig, message: str) -> None:
    model = peft.get_peft_model(build_model(tie_word_embeddings=False), config)
    for refused in (family_of(model).prepare, family_of(model).head):
        with pytest.raises(ConfigError, match=message):
            refused(model)


def test_a_head_that_is_trained_whole_is_taken_and_so_is_lora_elsewhere() -> None:
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"])
    model = peft.get_peft_model(build_model(tie_word_embeddings=False), config)
    family_of(model).prepare(model)
    trained = model.get_base_model().lm_head.modules_to_save["default"]
    assert family_of(model).head(model).weight_VD is trained.weight


def test_code_runs_inside_the_forward_where_hooks_fire() -> None:
    model = build_model()
    family_of(model).prepare(model)
    seen = []
    model.register_forward_pre_hook(lambda *_: seen.append("root"))
    model.lm_head.register_forward_pre_hook(lambda *_: seen.append("head"))
    shape = inside(model, lambda inner: with_head(inner, lambda head: head.weight_VD.shape))
    assert seen == ["root", "head"]
    assert shape == (512, 96)


def test_a_text_model_falls_back_without_vision_tokens() -> None:
    sizes = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=1))
    assert family_of(model).name == "fallback"
    assert family_of(model).vision_token_ids(model) == frozenset()
