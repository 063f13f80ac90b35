"""Weights are named as in released checkpoints: a rename in transformers is noticed, whatever it renames."""

import pytest

from tiny_models import build_model
from vcsd.errors import RunError
from vcsd.models.qwen.weight_names import NAMES, refuse_renamed
from vcsd.models.shapes import SHAPES
from vcsd.rollout.vllm.weight_sync import expected_shapes


@pytest.mark.parametrize("name", SHAPES)
def test_every_model_of_the_paper_has_the_names_of_its_family(name):
    shapes = expected_shapes(SHAPES[name].config())
    refuse_renamed(SHAPES[name].family, shapes)
    assert ("lm_head.weight" in shapes) == (not SHAPES[name].has_tied_head)


@pytest.mark.parametrize("family", NAMES)
def test_a_renamed_weight_is_refused(family):
    names = list(expected_shapes(build_model(family).config))
    refuse_renamed(family, names)
    renamed = [name.replace("self_attn.q_proj", "self_attn.query") for name in names]
    with pytest.raises(RunError, match=r"missing: \S+layers\.N\.self_attn\.q_proj\.weight; unknown: \S+query\.weight"):
        refuse_renamed(family, renamed)


def test_one_name_more_is_refused():
    names = [*expected_shapes(build_model("qwen3_vl").config), "model.visual.extra.weight"]
    with pytest.raises(RunError, match=r"\(unknown: model\.visual\.extra\.weight\)"):
        refuse_renamed("qwen3_vl", names)
