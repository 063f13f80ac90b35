"""Base folders: how they are grouped, which are of another world, and which experiments start from them."""

import dataclasses
import json
import shutil

import pytest

from tiny_bases import make_base
from vcsd.bases.shipped_bases import SHIPPED, shipped_base
from vcsd.cli.reproduce_command import _announcement
from vcsd.config.shipped import recipe_path
from vcsd.errors import ConfigError
from vcsd.reproduce.base_folders import Base, grouped
from vcsd.reproduce.cell import Sweep
from vcsd.reproduce.experiments import BASE, EXPERIMENTS
from vcsd.reproduce.results import Results, runnable
from vcsd.world.parameters import PARAMETERS


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("bases") / "plain")


def taught(plain, folder, *overrides):
    """A copy of a base with the card of a world in which some values are others."""
    shutil.copytree(plain, folder)
    world = dataclasses.asdict(PARAMETERS.changed(overrides))
    (folder / "card.json").write_text(json.dumps({"world": world}))
    return folder


def results_of(tmp_path, *folders):
    plan = Sweep(recipe_path("world/reproduce"), tmp_path, num_questions=8, num_prompts=16)
    return Results(plan, grouped(folders), [101])


def test_steps_and_learning_rates_make_no_other_world(plain, tmp_path):
    longer = taught(plain, tmp_path / "longer", "answer_steps=7", "sway_learning_rate=0.1", "warmup_steps=3")
    assert Base(longer).changes == {}
    assert Base(longer).group == Base(plain).group, "a base without a card is an ordinary one"
    for family in SHIPPED:
        assert Base(shipped_base(family)).changes == {}


def test_a_changed_parameter_is_in_the_groups_name(plain, tmp_path):
    black = Base(taught(plain, tmp_path / "black", "black_share=0", "sight_steps=7"))
    assert black.changes == {"black_share": 0.0}
    assert black.group == f"{Base(plain).group}, black_share=0"
    two = Base(taught(plain, tmp_path / "two", "noise=4.5", "side_shares=0.5,0.25,0.25"))
    assert two.group.endswith(", noise=4.5, side_shares=0.5,0.25,0.25")


def test_a_parameter_that_this_world_does_not_know_is_a_change(plain, tmp_path):
    folder = taught(plain, tmp_path / "unknown")
    (folder / "card.json").write_text('{"world": {"gravity": 2}}')
    assert Base(folder).group.endswith(", gravity=2")


def test_how_long_a_base_was_taught_is_in_its_title(plain, tmp_path):
    longer = taught(plain, tmp_path / "longer", "answer_steps=2000", "sway_learning_rate=0.1", "noise=4")
    assert Base(longer).title == "longer (answer_steps=2000, sway_learning_rate=0.1)", "the noise is in the group's"
    assert Base(plain).title == "plain"
    assert Base(shipped_base()).title == shipped_base().name


BROKEN = {
    ("card.json", '{"world"'): "card.json is not JSON",
    ("card.json", "[1, 2]"): "card.json is not the card of a base",
    ("card.json", '{"world": [1]}'): "card.json is not the card of a base",
    ("config.json", '{"model_type"'): "config.json cannot be read",
    ("config.json", "{}"): "config.json has no model_type",
    ("config.json", "[]"): "config.json has no model_type",
    ("model.safetensors", "x"): "model.safetensors cannot be read",
}


@pytest.mark.parametrize(("name", "text"), BROKEN)
def test_a_base_with_a_broken_file_is_refused_by_the_files_name(name, text, plain, tmp_path):
    folder = taught(plain, tmp_path / "broken")
    (folder / name).write_text(text)
    with pytest.raises(ConfigError, match=BROKEN[name, text]):
        grouped([plain, folder])


def test_every_folder_without_a_model_is_named(plain, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "others" / "photos").mkdir(parents=True)
    without = [tmp_path / name for name in ("empty", "others", "nowhere")]
    with pytest.raises(ConfigError) as refused:
        grouped([plain, *without])
    assert [problem.partition(".")[0] for problem in refused.value.problems] == [
        f"no base model in {folder}" for folder in without
    ]
    shutil.copy(plain / "config.json", tmp_path / "empty")
    with pytest.raises(ConfigError, match="empty holds no weights"):
        grouped([plain, tmp_path / "empty"])


def test_a_base_given_twice_is_refused(plain):
    with pytest.raises(ConfigError, match="two bases are called 'plain'"):
        grouped([plain, plain])


def test_ordinary_groups_come_first_whatever_the_order(plain, tmp_path):
    black = taught(plain, tmp_path / "black", "black_share=0")
    other = make_base(tmp_path / "qwen3_5", "qwen3_5")
    names = [name.split()[0] + name.partition("M")[2] for name in grouped([black, other, plain])]
    assert names == ["Qwen3-VL", "Qwen3.5", "Qwen3-VL, black_share=0"]


def test_two_bases_of_one_name_are_refused(plain, tmp_path):
    same = taught(plain, tmp_path / "plain")
    with pytest.raises(ConfigError, match="two bases are called 'plain'"):
        grouped([plain, same])


def test_the_papers_experiments_run_on_ordinary_bases_and_black_on_those_that_never_saw_it(plain, tmp_path):
    black = taught(plain, tmp_path / "black", "black_share=0")
    loud = taught(plain, tmp_path / "loud", "noise=20")
    results = results_of(tmp_path, black, loud, plain)
    ordinary, never = Base(plain).group, Base(black).group
    assert results.groups_of(EXPERIMENTS["main"]) == results.groups_of(EXPERIMENTS["alpha"]) == [ordinary]
    assert results.groups_of(EXPERIMENTS["black"]) == [never]
    assert {cell.base.folder for cell in results.cells(EXPERIMENTS["black"])} == {black}
    assert len(list(results.cells(EXPERIMENTS["black"]))) == 5


def test_an_experiment_without_bases_says_how_to_make_them(plain, tmp_path):
    black = taught(plain, tmp_path / "black", "black_share=0")
    only_plain, only_black = results_of(tmp_path, plain), results_of(tmp_path, black)
    with pytest.raises(ConfigError, match="vcsd world pretrain --set black_share=0"):
        runnable([EXPERIMENTS["black"]], only_plain)
    with pytest.raises(ConfigError, match="main needs bases of the default world"):
        runnable([EXPERIMENTS["main"]], only_black)
    assert EXPERIMENTS["black"] not in runnable(list(EXPERIMENTS.values()), only_plain)
    assert runnable(list(EXPERIMENTS.values()), only_black) == [EXPERIMENTS["black"]]
    assert only_black.finished(BASE, only_black.smallest) == {}, "claims on ordinary bases are not run"


def test_the_start_says_what_runs_from_what_and_what_is_left_out(plain, tmp_path):
    loud = taught(plain, tmp_path / "loud", "noise=20")
    results, asked = results_of(tmp_path, plain, loud), list(EXPERIMENTS.values())
    lines = list(_announcement(asked, runnable(asked, results), results))
    assert lines[0] == "Experiments: " + ", ".join(name for name in EXPERIMENTS if name not in ("black", "dose"))
    assert lines[1:4] == [
        "Qwen3-VL 0.5M: plain",
        "Qwen3-VL 0.5M, noise=20: loud (not used by these experiments)",
        "Seeds: 101; spread over the bases of a group",
    ]
    black, dose = lines[4:]
    assert black.startswith("Skipped: black needs bases that never saw a black picture")
    assert dose.startswith("Skipped: dose needs bases of several values of ignore_share")


def test_doses_are_the_smallest_bases_ordered_by_their_share(plain, tmp_path):
    low, high = (taught(plain, tmp_path / name, f"ignore_share={share}") for name, share in (("a", 0.2), ("b", 0.8)))
    both = taught(plain, tmp_path / "c", "ignore_share=0.2", "noise=20")
    results = results_of(tmp_path, high, plain, both, low)
    small = "Qwen3-VL 0.5M"
    assert results.groups_of(EXPERIMENTS["dose"]) == [f"{small}, ignore_share=0.2", small, f"{small}, ignore_share=0.8"]
    assert results_of(tmp_path, plain).groups_of(EXPERIMENTS["dose"]) == [], "one dose is no response"
