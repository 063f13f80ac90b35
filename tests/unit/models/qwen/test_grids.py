"""Tables computed on the host from image sizes equal those that the tower would compute."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, vision_utils

from tiny_groups import make_group, make_prompt, three_groups
from tiny_models import build_model, image_token_id
from vcsd.errors import DataError
from vcsd.models.family import family_of
from vcsd.models.qwen import grids
from vcsd.models.qwen.row import pack
from vcsd.models.score import hidden_states

FAMILIES = ["qwen3_vl", "qwen3_5", "qwen3_vl_moe", "qwen3_5_moe"]
CPU = torch.device("cpu")


def prepared(family: str) -> PreTrainedModel:
    model = build_model(family)
    family_of(model).prepare(model)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sizes", [[[1, 4, 4]], [[1, 4, 8], [1, 10, 2], [1, 2, 2]], [[2, 4, 6], [1, 6, 4]]])
def test_a_tower_with_tables_gives_the_features_that_it_gives_without(family: str, sizes: list[list[int]]) -> None:
    tower: Any = prepared(family).base_model.visual
    grid_I3 = torch.tensor(sizes)
    patches = torch.randn(int(grid_I3.prod(-1).sum()), tower.patch_embed.proj.weight[0].numel())
    tables = grids.tables(tower, grid_I3, CPU)
    own, told = (type(tower).forward(tower, patches, grid_thw=grid_I3, **given) for given in ({}, tables))
    assert torch.equal(told.pooler_output, own.pooler_output)
    with_all = {"interp_indices", "interp_weights", "position_ids", "cu_seqlens", "max_seqlen"}
    assert tables.keys() == with_all


def test_a_forward_may_take_keywords_out_of_the_tables() -> None:
    tower: Any = prepared("qwen3_5").base_model.visual
    first = grids.tables(tower, torch.tensor([[1, 4, 4]]), CPU)
    first.clear()
    assert grids.tables(tower, torch.tensor([[1, 4, 4]]), CPU)


def test_a_row_that_was_first_scored_for_inference_can_be_trained_on() -> None:
    model, groups = prepared("qwen3_5"), three_groups("qwen3_5")
    grids._tables.cache_clear()
    with torch.inference_mode():
        hidden_states(model, groups)
    hidden_states(model, groups).sum().backward()
    assert model.base_model.visual.pos_embed.weight.grad is not None


@pytest.mark.parametrize("family", FAMILIES[:2])
def test_scoring_reads_nothing_back_from_where_images_are(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, groups = prepared(family), three_groups(family)
    base: Any = model.base_model
    seen: list[bool] = []
    masks = type(base).get_placeholder_mask
    monkeypatch.setattr(type(base), "get_placeholder_mask", lambda *a, **k: seen.append(True) or masks(*a, **k))
    with torch.no_grad():
        hidden_states(model, groups)
    assert not seen, "transformers counts image tokens on the device"
    prompt = groups[0].prompt
    inputs = {"input_ids": prompt.input_ids[None], "pixel_values": prompt.pixel_values.float()}
    with torch.no_grad():
        model(
            **inputs,
            image_grid_thw=prompt.grid_thw,
            mm_token_type_ids=(prompt.input_ids == image_token_id(family))[None].int(),
        )
    assert seen == [True], "a plain batch is counted as before"


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_vl_moe"])
def test_features_are_added_without_looking_for_image_tokens(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, groups = prepared(family), three_groups(family)
    text: Any = model.base_model.language_model
    masks: list[torch.Tensor] = []
    own = type(text)._deepstack_process
    monkeypatch.setattr(type(text), "_deepstack_process", lambda s, h, m, f: masks.append(m) or own(s, h, m, f))
    with torch.no_grad():
        found = hidden_states(model, groups)
        assert not masks
        del text._deepstack_process
        assert torch.equal(hidden_states(model, groups), found)
    assert len(masks) == len(model.config.vision_config.deepstack_visual_indexes) > 0


@pytest.mark.parametrize("family", FAMILIES[:2])
def test_a_tower_takes_the_tables_of_a_row(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, groups = prepared(family), three_groups(family)
    with torch.no_grad():
        expected = hidden_states(model, groups)
        monkeypatch.setattr(vision_utils, "_interpolation_axis_taps_weights", None)
        assert torch.equal(hidden_states(model, groups), expected), "by those that are kept"
        grids._tables.cache_clear()
        with pytest.raises(TypeError, match="not callable"):
            hidden_states(model, groups)


def test_the_sizes_of_images_stay_on_the_host_and_pixels_until_the_tower_wants_them() -> None:
    model = prepared("qwen3_5").to("meta")
    inputs = pack(model, family_of(model), three_groups("qwen3_5")).inputs
    assert inputs["input_ids"].device.type == "meta"
    assert inputs["image_grid_thw"].device == inputs["pixel_values"].device == CPU


def test_without_the_functions_the_tower_computes_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    model, groups = prepared("qwen3_5"), three_groups("qwen3_5")
    with torch.no_grad():
        expected = hidden_states(model, groups)
        monkeypatch.setattr(grids, "_RULES", ("no_such_function",))
        assert grids.tables(model.base_model.visual, torch.tensor([[1, 4, 4]]), CPU) == {}
        assert torch.equal(hidden_states(model, groups), expected)


@pytest.mark.parametrize("change", ["a token too many", "a token too few", "no images", "a token in a response"])
def test_image_tokens_that_do_not_fit_the_images_name_the_example(change: str) -> None:
    model = prepared("qwen3_vl")
    prompt = make_prompt("qwen3_vl", ((4, 4),), 2, 1, seed=1)
    ids, token = prompt.input_ids, image_token_id("qwen3_vl")
    if change == "a token too many":
        prompt = replace(prompt, input_ids=torch.cat([ids, torch.tensor([token])]))
    elif change == "a token too few":
        keep = torch.ones(len(ids), dtype=torch.bool)
        keep[(ids == token).nonzero()[0]] = False
        prompt = replace(prompt, input_ids=ids[keep])
    elif change == "no images":
        prompt = replace(prompt, pixel_values=None, grid_thw=None)
    group = make_group(prompt, (2, 1), seed=1)
    if change == "a token in a response":
        group = replace(group, responses=[[token], *group.responses])
    with pytest.raises(DataError, match=f"{group.example_id}.* image tokens, but the images have \\d+ features"):
        pack(model, family_of(model), [group])


def test_a_deep_copy_finds_its_own_tokens() -> None:
    import copy

    model = prepared("qwen3_5")
    twin: Any = copy.deepcopy(model).base_model
    assert twin.get_placeholder_mask.__self__ is twin
