"""The vision tower: one attention call for all images, and features that are computed once but never stale."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tiny_groups import gradients, make_group, make_prompt, nonlinear_loss, three_groups
from tiny_models import build_model
from vcsd.models import features
from vcsd.models.family import family_of
from vcsd.models.features import Constant, FeatureCache
from vcsd.models.packed.packing import Group
from vcsd.models.qwen import vision
from vcsd.models.qwen.vision import ATTENTION
from vcsd.models.score import hidden_states

FAMILIES = ["qwen3_vl", "qwen3_5"]


def prepared(family: str, frozen: bool = True) -> PreTrainedModel:
    model = build_model(family, dtype=torch.float64)
    family_of(model).prepare(model)
    model.model.visual.requires_grad_(not frozen)
    return model


def with_keys(groups: Sequence[Group]) -> list[Group]:
    return [
        replace(group, image_keys=[f"{group.example_id}/{i}" for i in range(len(group.prompt.grid_thw))])
        for group in groups
    ]


def black(group: Group, family: str) -> Group:
    prompt = replace(group.prompt, pixel_values=torch.full_like(group.prompt.pixel_values, -1.0))
    return replace(group, prompt=prompt, image_keys=len(prompt.grid_thw) * [Constant("black")])


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tower_gets_all_images_in_one_call_per_layer(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model, groups = prepared(family), three_groups(family)
    assert model.config.vision_config._attn_implementation == ATTENTION
    attention, calls = ALL_ATTENTION_FUNCTIONS[ATTENTION], []

    def counted(*args, **keywords):
        calls.append(len(keywords["cu_seq_lens_q"]) - 1)
        return attention(*args, **keywords)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, ATTENTION, counted)
    hidden_states(model, groups)
    assert calls == model.config.vision_config.depth * [4]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frozen_towers_features_are_computed_once_per_step(family: str) -> None:
    model, groups, cache = prepared(family), with_keys(three_groups(family)), FeatureCache()
    expected = hidden_states(model, groups)
    cache.begin_step(version=0)
    for _ in range(3):
        assert_close(hidden_states(model, groups, cache), expected)
    assert cache.num_computed == 4
    assert_close(hidden_states(model, groups[1:2], cache), hidden_states(model, groups[1:2]))
    assert cache.num_computed == 4
    cache.begin_step(version=0)
    hidden_states(model, groups, cache)
    assert cache.num_computed == 8, "the next step shows other images"


@pytest.mark.parametrize("family", FAMILIES)
def test_black_features_are_computed_once_per_grid_and_version_of_the_weights(family: str) -> None:
    model, cache = prepared(family), FeatureCache()
    groups = [black(group, family) for group in [*three_groups(family), make_group(make_prompt(family), (3,))]]
    cache.begin_step(version=0)
    expected = hidden_states(model, groups)
    assert_close(hidden_states(model, groups, cache), expected)
    assert cache.num_computed == 4, "four grids among five images"
    cache.begin_step(version=0)
    assert_close(hidden_states(model, groups, cache), expected)
    assert cache.num_computed == 4
    with torch.no_grad():
        for parameter in model.model.visual.parameters():
            parameter.mul_(1.1)
    assert_close(hidden_states(model, groups, cache), expected)
    cache.begin_step(version=1)
    fresh = hidden_states(model, groups)
    assert (fresh - expected).abs().max() > 1e-3
    assert_close(hidden_states(model, groups, cache), fresh)


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_and_new_images_mix_in_one_row(family: str) -> None:
    model, cache = prepared(family), FeatureCache()
    first, second, third = with_keys(three_groups(family))
    cache.begin_step(version=0)
    hidden_states(model, [second], cache)
    row = [first, black(third, family), second, replace(third, image_keys=())]
    assert_close(hidden_states(model, row, cache), hidden_states(model, row))
    assert cache.num_computed == 2 + 3


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_models_gradients_are_the_same_with_cached_features(family: str) -> None:
    model, groups, cache = prepared(family).train(), with_keys(three_groups(family)), FeatureCache()
    cache.begin_step(version=0)
    nonlinear_loss(hidden_states(model, groups)).backward()
    expected = gradients(model)
    with torch.no_grad():
        hidden_states(model, groups, cache)
    nonlinear_loss(hidden_states(model, groups, cache)).backward()
    found = gradients(model)
    assert found.keys() == expected.keys()
    assert all((found[name] - grad).norm() <= 1e-9 * grad.norm() for name, grad in expected.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tower_that_trains_is_never_read_from_the_cache(family: str) -> None:
    model, groups, cache = prepared(family, frozen=False), with_keys(three_groups(family)), FeatureCache()
    cache.begin_step(version=0)
    with torch.no_grad():
        hidden_states(model, groups, cache)
    nonlinear_loss(hidden_states(model, groups, cache)).backward()
    assert any("visual" in name and grad.norm() > 0 for name, grad in gradients(model).items())


def test_autocast_does_not_read_features_of_another_type() -> None:
    model = build_model()
    family_of(model).prepare(model)
    groups, cache = with_keys(three_groups("qwen3_vl")), FeatureCache()
    cache.begin_step(version=0)
    with torch.no_grad():
        exact = hidden_states(model, groups, cache)
        with torch.autocast("cpu", torch.bfloat16):
            hidden_states(model, groups, cache)
        assert cache.num_computed == 8
        assert torch.equal(hidden_states(model, groups, cache), exact)


@pytest.mark.parametrize("family", FAMILIES)
def test_constant_features_that_were_used_last_are_kept_within_bounds(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache = prepared(family), FeatureCache()
    groups = [black(make_group(make_prompt(family, (grid,)), (3,)), family) for grid in ((4, 4), (4, 6), (4, 8))]
    expected = [hidden_states(model, [group]) for group in groups]

    def step(*shown: int) -> int:
        before = cache.num_computed
        cache.begin_step(version=0)
        for index in shown:
            assert_close(hidden_states(model, [groups[index]], cache), expected[index])
        cache.end_step()
        return cache.num_computed - before

    assert [step(0, 1, 2), step(0)] == [3, 0]
    sizes = [sum(level.nbytes for level in levels) for levels in cache._constant.values()]
    assert all(level.untyped_storage().nbytes() == level.nbytes for v in cache._constant.values() for level in v)
    monkeypatch.setattr(features, "CONSTANT_BYTES", sum(sizes) - 1)
    assert [step(), step(0, 2), step(1)] == [0, 0, 1], "the second was used longest ago"


def test_a_version_of_none_lasts_no_longer_than_its_step() -> None:
    model, cache = prepared("qwen3_vl"), FeatureCache()
    groups = [black(group, "qwen3_vl") for group in three_groups("qwen3_vl")]
    for number in (1, 2):
        cache.begin_step(version=None)
        hidden_states(model, groups, cache)
        hidden_states(model, groups, cache)
        assert cache.num_computed == 4 * number
        cache.end_step()


@pytest.mark.parametrize(("version", "calls"), [(0, [2, 1, 1]), (None, [4])])
def test_features_that_outlive_their_step_are_computed_alone(
    version: int | None, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache = prepared("qwen3_vl"), FeatureCache()
    first, second, third = with_keys(three_groups("qwen3_vl"))
    row, tower, seen = [black(first, "qwen3_vl"), second, black(third, "qwen3_vl")], type(model.model.visual), []
    forward = tower.forward

    def counted(self, pixels, grid_thw, **settings):
        seen.append(len(grid_thw))
        return forward(self, pixels, grid_thw=grid_thw, **settings)

    expected = hidden_states(model, row)
    monkeypatch.setattr(tower, "forward", counted)
    cache.begin_step(version)
    assert_close(hidden_states(model, row, cache), expected)
    assert seen == calls


def test_pixels_of_a_known_black_image_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(vision, "sent", lambda pixels, device: sent.append(len(pixels)) or pixels)
    model, cache, family = prepared("qwen3_vl"), FeatureCache(), "qwen3_vl"
    groups = with_keys(three_groups(family))
    num_patches = [len(group.prompt.pixel_values) for group in groups]
    blacks = [black(group, family) for group in groups]
    for _ in range(2):
        cache.begin_step(version=0)
        for view in (groups, blacks, groups):
            hidden_states(model, view, cache)
    assert sum(sent) == 3 * sum(num_patches), "the images of two steps, and black ones once"
