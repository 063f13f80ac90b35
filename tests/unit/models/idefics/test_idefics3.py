"""Idefics3: scores and gradients are those of the repeated batch, for each prompt computed once."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionEmbeddings

from tiny_fallbacks import build_fallback, tiled_prompts
from tiny_groups import gradients, nonlinear_loss, worst_gap
from tiny_models import exact_arithmetic
from vcsd.models import fallback
from vcsd.models.family import family_of
from vcsd.models.idefics.idefics3 import embedded_patches
from vcsd.models.packed.packing import Group
from vcsd.models.patch import replace_method
from vcsd.models.score import score
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.half_copy import HalfCopy
from vcsd.rollout.sampling import Sampling

SIDE = 12
"""Patches on each side of an emoji picture."""

RESPONSES = ([[20, 21, 22], [30, 31]], [[40]], [[23], [24, 25, 26, 27, 28], [29, 30]])


def groups_of(prompts):
    return [Group(prompt, responses) for prompt, responses in zip(prompts, RESPONSES, strict=True)]


def tokens_computed(model):
    """Count the tokens that reach the first text layer, from now on."""
    seen = []
    layer = model.base_model.text_model.layers[0]
    layer.register_forward_pre_hook(lambda module, args, _: seen.append(args[0].shape[:2].numel()), with_kwargs=True)
    return seen


@pytest.mark.filterwarnings("error")
def test_scores_and_gradients_are_those_of_the_repeated_batch():
    model, stock = (build_fallback("idefics3", torch.float64).train() for _ in range(2))
    groups = groups_of(tiled_prompts("idefics3"))
    family_of(model).prepare(model)
    seen, repeated = tokens_computed(model), tokens_computed(stock)
    with exact_arithmetic(model, stock):
        expected = fallback.FAMILY.hidden_states(stock, groups)
        nonlinear_loss(expected).backward()
        hidden = score(model, groups).hidden_ND
        nonlinear_loss(hidden).backward()
    assert len(hidden) == 3 + 2 + 1 + 1 + 5 + 2
    assert (hidden - expected).abs().max() < 1e-12
    found, wanted = (  # a bias of keys shifts all scores alike: its gradient is zero but for rounding
        {name: g for name, g in gradients(each).items() if not name.endswith("k_proj.bias")} for each in (model, stock)
    )
    assert worst_gap(found, wanted)[0] < 1e-9
    longest = max(len(group.prompt.input_ids) for group in groups)
    assert seen == [3 * longest, 6 * 4]
    assert repeated == [6 * max(len(group.prompt.input_ids) + max(group.lengths) for group in groups)]
    pieces = [(len(group.prompt.input_ids), group.lengths) for group in groups]
    assert sum(seen) < family_of(model).cost(pieces) == 3 * longest + 6 * 5 < repeated[0]


def towers(image_size=4 * SIDE, patch_size=4):
    """Return the embeddings of a tower as transformers has them, and as they are prepared."""
    config = Idefics3VisionConfig(hidden_size=8, image_size=image_size, patch_size=patch_size)
    stock = Idefics3VisionEmbeddings(config)
    prepared = copy.deepcopy(stock)
    replace_method(prepared, "forward", embedded_patches)
    return stock, prepared


def test_in_bfloat16_every_patch_has_the_position_that_it_has_in_float32():
    _, embeddings = towers()
    with torch.no_grad():
        embeddings.patch_embedding.weight.zero_()
        embeddings.patch_embedding.bias.zero_()
        embeddings.position_embedding.weight.copy_(torch.arange(SIDE**2)[:, None].expand(-1, 8))
    pixels, mask = torch.rand(2, 3, 4 * SIDE, 4 * SIDE), torch.ones(2, SIDE, SIDE, dtype=torch.bool)
    for dtype in (torch.float32, torch.bfloat16):
        embedded = embeddings.to(dtype)(pixel_values=pixels.to(dtype), patch_attention_mask=mask)
        assert embedded[1, :, 0].tolist() == list(range(SIDE**2)), dtype


def test_embedded_patches_are_those_of_transformers_in_float32_padded_or_not():
    stock, embeddings = towers()
    pixels = torch.rand(3, 3, 4 * SIDE, 4 * SIDE)
    mask = torch.ones(3, SIDE, SIDE, dtype=torch.bool)
    mask[1, 5:], mask[2, :, 7:] = False, False
    inputs = {"pixel_values": pixels, "patch_attention_mask": mask}
    assert torch.equal(embeddings(**inputs), stock(**inputs))


def test_a_prepared_model_and_its_copies_embed_patches_this_way():
    model = build_fallback("idefics3", torch.float32)
    family_of(model).prepare(model)
    for one in (model, HalfCopy(model).module):
        embeddings = one.model.vision_model.embeddings
        assert embeddings.forward.__func__ is embedded_patches
        assert embeddings.forward.__self__ is embeddings


def test_one_token_responses_need_no_second_forward():
    model, prompts = build_fallback("idefics3", torch.float64), tiled_prompts("idefics3")
    groups = [Group(prompt, [[20], [21]]) for prompt in prompts]
    seen = tokens_computed(model)
    with exact_arithmetic(model), torch.no_grad():
        hidden = score(model, groups).hidden_ND
        assert len(seen) == 1
        assert (hidden - fallback.FAMILY.hidden_states(model, groups)).abs().max() < 1e-12


def test_gradient_checkpointing_uses_the_repeated_batch():
    model = build_fallback("idefics3", torch.float64).train()
    groups = groups_of(tiled_prompts("idefics3"))
    with exact_arithmetic(model):
        expected = score(model, groups).hidden_ND
        model.gradient_checkpointing_enable()
        seen = tokens_computed(model)
        hidden = score(model, groups).hidden_ND
    assert len(seen) == 1
    assert (hidden - expected).abs().max() < 1e-12


def test_rollouts_are_those_of_each_prompt_alone():
    model, prompts = build_fallback("idefics3", torch.float64), tiled_prompts("idefics3")
    sampling = Sampling(max_new_tokens=6)
    engine = TransformersEngine(model)
    with exact_arithmetic(model):
        together = engine.sample(prompts, sampling, num_rollouts=2, seed=0).rollouts
        alone = [r for prompt in prompts for r in engine.sample([prompt], sampling, num_rollouts=2, seed=0).rollouts]
    assert list(together) == alone
    groups = groups_of(prompts)
    blind = [replace(group, prompt=blind_to(group.prompt)) for group in groups]
    with torch.no_grad():
        assert (score(model, blind).hidden_ND - score(model, groups).hidden_ND).abs().max() > 1e-3


def blind_to(prompt):
    return prompt if prompt.pixel_values is None else replace(prompt, pixel_values=prompt.pixel_values.flip(1) + 1)
