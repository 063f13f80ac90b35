"""What to change so that a recipe fits: each proposal is a recipe that fits, and the smallest comes first."""

import json
import sys

import pytest

from vcsd.config import build_recipe, load_recipe
from vcsd.projection.changes import MOST, changes_that_fit
from vcsd.projection.machines import Machine, parse_machine
from vcsd.projection.needs import empty_model, job_of
from vcsd.projection.project import project


def proposed(name, card, *overrides):
    return changes_that_fit(load_recipe(name, overrides), parse_machine(card))


@pytest.mark.parametrize(
    ("name", "card", "overrides"),
    [
        ("paper/qwen3_vl_8b", "h200", ()),
        ("paper/qwen3_vl_8b", "24GB", ()),
        ("paper/qwen3_vl_2b", "a100-80", ("token_budget=200000",)),
        ("paper/qwen3_5_9b", "a100-80", ("offload=true", "model.freeze_vision=true", "model.dither=true")),
        ("lora/qwen3_vl_8b_48gb", "24GB", ()),
    ],
)
def test_every_proposal_is_a_valid_recipe_that_fits(name, card, overrides):
    recipe, machine = load_recipe(name, overrides), parse_machine(card)
    assert not project(job_of(recipe, empty_model(recipe)[0]), machine).fits
    changes = changes_that_fit(recipe, machine)
    assert 1 <= len(changes) <= MOST
    for change in changes:
        changed = build_recipe(json.loads(recipe.to_json()), change.overrides)
        count = change.projection.machine.num_gpus
        found = project(job_of(changed, empty_model(changed)[0]), Machine(machine.card, count))
        assert found.fits
        assert found.needed_bytes == change.projection.needed_bytes
        assert bool(changed.trainer.get("fsdp")) == (count > 1)
        assert not (changed.offload and (count > 1 or changed.lora.rank))
        assert not (changed.model.dither and changed.lora.rank)


def test_what_keeps_the_result_comes_before_more_gpus_adapters_and_a_smaller_model():
    kinds = [sorted(change.kinds) for change in proposed("paper/qwen3_vl_8b", "h200")]
    assert kinds == [["offload"], ["gpus"], ["adapters"], ["model"]]


def test_no_proposal_contains_another():
    for card in ("24GB", "48GB", "a100-80"):
        kinds = [change.kinds for change in proposed("paper/qwen3_vl_8b", card)]
        assert not [(a, b) for index, a in enumerate(kinds) for b in kinds[index + 1 :] if a <= b]


def test_rows_that_are_too_long_are_shortened_first():
    first, *_ = proposed("paper/qwen3_vl_2b", "a100-80", "token_budget=200000")
    assert first.overrides == ["token_budget=null"]


def test_checkpointing_is_proposed_where_it_is_off():
    changes = proposed(
        "paper/qwen3_vl_2b", "a100-80", "trainer.gradient_checkpointing=false", "data.max_prompt_tokens=32000"
    )
    assert changes[0].overrides == ["trainer.gradient_checkpointing=true"]


def test_lora_is_proposed_without_the_package_that_trains_it_as_with_it(monkeypatch):
    def adapters():
        return [change for change in proposed("paper/qwen3_vl_8b", "a100-80") if "adapters" in change.kinds]

    with_peft = adapters()
    assert with_peft
    monkeypatch.setitem(sys.modules, "peft", None)
    assert adapters() == with_peft
