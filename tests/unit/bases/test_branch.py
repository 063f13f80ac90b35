"""A branch of a stem is the base that a whole pre-training makes."""

import pytest
from safetensors.torch import load_file

from vcsd.bases import branch as branch_module
from vcsd.bases.branch import branch, is_stem, num_true_steps
from vcsd.bases.curriculum import Curriculum
from vcsd.bases.pretrain import Pretraining, pretrain
from vcsd.errors import ConfigError, RunError
from vcsd.world.parameters import Parameters

SHORT = {"batch": 8, "sight_steps": 1, "answer_steps": 2, "sway_steps": 2}


def plan(seed=1, **changes):
    return Curriculum("qwen3_vl", "tiny", seed, Parameters(**{**SHORT, **changes}))


def make(which, out, stop_after=None):
    return pretrain(which, out, device="cpu", tell=lambda *_: None, command="x", stop_after=stop_after)


def test_a_branch_equals_a_base_made_from_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(Pretraining, "_measure", lambda run, stage: None)
    stem, dosed = plan(), plan(ignore_share=0.2)
    with pytest.raises(RunError, match="holds no finished stem"):
        branch(stem, tmp_path / "stem", dosed, tmp_path / "early")
    assert not make(stem, tmp_path / "stem", num_true_steps(stem))
    assert is_stem(tmp_path / "stem", stem)
    branch(stem, tmp_path / "stem", dosed, tmp_path / "branch")
    branch(stem, tmp_path / "stem", dosed, tmp_path / "branch")
    assert make(dosed, tmp_path / "branch")
    assert make(dosed, tmp_path / "whole")
    assert make(stem, tmp_path / "ordinary")
    one, other, ordinary = (
        load_file(tmp_path / name / "model.safetensors") for name in ("branch", "whole", "ordinary")
    )
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)
    assert not all(one[name].equal(ordinary[name]) for name in one), "the last stage differs"


@pytest.mark.parametrize("other", [plan(seed=2), plan(noise=4.0), plan(answer_steps=3)])
def test_what_the_first_stages_read_must_be_the_same(other, tmp_path):
    with pytest.raises(ConfigError, match="a branch shares the lessons of its stem"):
        branch(plan(), tmp_path / "stem", other, tmp_path / "out")


def test_every_parameter_that_may_differ_exists():
    assert set(branch_module.LAST_STAGE) <= set(Parameters.__dataclass_fields__)
