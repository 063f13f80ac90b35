"""Projections against what was measured: benchmarks/results holds runs on one H200."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

import cards
import time_model
from tiny_models import build_model
from tiny_step import make_trainer
from vcsd.errors import ConfigError
from vcsd.models.freeze import freeze
from vcsd.models.shapes import SHAPES, TextShape
from vcsd.projection.machines import CARDS, MACHINES, SLOWER_CARDS, Machine, measure_card, parse_machine
from vcsd.projection.project import FITTED, TIME_ERROR, Job, Sizes, Step, project, smallest_machine
from vcsd.projection.row_memory import RowMemory

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
H200, STEP = Machine(CARDS["h200"]), Step(32, 8, 1064, 300)


@cache
def empty(name):
    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(SHAPES[name].config())


def job(name="qwen3_vl_2b", step=STEP, longest=1064, **more):
    sizes = Sizes.of(empty(name), has_teacher=True, has_half_copy=True)
    return Job.of(empty(name), sizes, step, longest, **more)


def scoring_cases():
    """(family, visual tokens, response tokens, measured case) of every row timed in the trainer's precision."""
    for family in ("qwen3_vl", "qwen3_5"):
        for file in (f"prefix_sharing_{family}.json", f"prefix_sharing_{family}_1000.json"):
            for name, case in json.loads((RESULTS / file).read_text()).items():
                if " autocast " in name and "groups_in_row" in case:
                    yield family, *map(int, name.split()[2:]), case


def test_the_checkpoint_is_as_large_as_was_said(tmp_path):
    """Within a percent: the files hold headers, generators and JSON too."""
    trainer = make_trainer(tmp_path, arguments={"max_steps": 2, "save_strategy": "steps", "save_steps": 2})
    said = Sizes.of(trainer.model, has_teacher=True, has_half_copy=False).checkpoint_bytes
    trainer.train()
    assert trainer.contents().num_bytes == pytest.approx(said, rel=0.01)
    written = sum(path.stat().st_size for path in (tmp_path / "checkpoint-2").iterdir())
    assert written == pytest.approx(said, rel=0.02)


def test_frozen_parts_have_neither_gradient_nor_moments():
    model = build_model()
    whole = Sizes.of(model, has_teacher=True, has_half_copy=True)
    freeze(model, "vision")
    part = Sizes.of(model, has_teacher=True, has_half_copy=True)
    frozen = whole.num_trained - part.num_trained
    assert frozen > 0
    assert whole.memory_bytes - part.memory_bytes == 12 * frozen
    assert whole.checkpoint_bytes - part.checkpoint_bytes == 8 * frozen


def test_a_student_that_is_its_own_teacher_needs_no_second_copy():
    with_teacher, alone = (Sizes(100, 100, has_teacher=has) for has in (True, False))
    assert with_teacher.memory_bytes - alone.memory_bytes == 400
    assert with_teacher.checkpoint_bytes - alone.checkpoint_bytes == 400


def test_the_projected_step_is_near_the_measured_one():
    measured = json.loads((RESULTS / "full_step.json").read_text())["ours"]
    found = project(job(token_budget=13_856), H200)  # what the rows of that run held: four prompts each
    scoring = sum(measured["seconds"][phase] for phase in ("teacher", "student", "backward"))
    seconds = found.step_seconds - found.seconds["data"]  # which that run did not count
    assert seconds == pytest.approx(measured["total_seconds"], rel=0.05)
    assert found.seconds["rollout"] == pytest.approx(measured["seconds"]["rollout"], rel=0.10)
    assert sum(found.seconds[phase] for phase in ("teacher", "student", "loss")) == pytest.approx(scoring, rel=0.05)
    assert found.peak_bytes / 2**30 == pytest.approx(max(measured["peak_gib"].values()), rel=0.05)


def test_more_gpus_read_no_faster_because_every_rank_reads_all_prompts():
    alone, together = (project(job(), Machine(CARDS["h200"], count)).seconds for count in (1, 8))
    assert together["data"] == alone["data"]
    assert together["loss"] < alone["loss"] / 7


def test_projected_rows_are_near_all_rows_that_were_measured():
    """Qwen3-VL and Qwen3.5, 256 to 4,080 visual tokens, responses of 100 to 1,000. No row needs more than was said.

    Nothing is fitted to Qwen3.5, whose rows are projected too fast: docs/scaling.md says so.
    """
    furthest = {"qwen3_vl": 0.15, "qwen3_5": 0.20}
    cases = list(scoring_cases())
    assert len(cases) == 18
    for family, visual, response, case in cases:
        groups, text = case["groups_in_row"], TextShape.of(empty(f"{family}_2b").config)
        prompt = case["tokens_in_row"] // groups - 8 * response
        work = job(f"{family}_2b", Step(groups, 8, prompt, response), is_checkpointed=True)
        seconds = project(work, H200).seconds
        scoring = seconds["teacher"] + seconds["student"] + seconds["loss"]
        assert scoring == pytest.approx(
            case["shared"]["teacher_s"] + case["shared"]["student_s"], rel=furthest[family]
        ), (family, visual, response)
        casts, head = 2 * work.sizes.num_parameters, 4 * text.width * text.vocabulary
        row = work.rows.bytes_of(case["tokens_in_row"], 4 * groups * (prompt - 40))
        needed = (row + casts + head + RowMemory.LOSS_TILES) / 2**30
        assert case["shared"]["peak_gib"] <= needed <= 1.15 * case["shared"]["peak_gib"], (family, visual, response)


@pytest.mark.parametrize("name", ["lora_2b", "lora_4b", "lora_8b", "full_2b", "full_4b", "offload_8b"])
def test_projected_peaks_are_near_those_of_whole_steps(name):
    """LoRA and all weights, 2B to 8B, on cards from 22 to 139 GiB."""
    measured, said = json.loads((RESULTS / "cards.json").read_text())[name], cards.projected(name)
    assert measured["token_budget"] == said.budget  # rows were not cut by a lack of memory
    assert said.row_bytes / 2**30 == pytest.approx(measured["peak_gib"], rel=0.15)
    assert said.rollout_bytes / 2**30 == pytest.approx(measured["rollout_peak_gib"], rel=0.15)
    assert said.peak_bytes <= measured["cap_gib"] * 2**30
    assert max(measured["peak_gib"], measured["rollout_peak_gib"], *measured["peaks"].values()) <= measured["cap_gib"]


def test_the_time_model_is_fitted_to_the_measured_steps_and_its_error_is_the_one_stated():
    found = time_model.compared()
    assert found == approx_everywhere(json.loads((RESULTS / "time_model.json").read_text()))
    assert found["bytes_between_products"] == pytest.approx(FITTED.bytes_between_products, rel=0.01)
    assert found["layer_seconds"] == pytest.approx(FITTED.layer_seconds, rel=0.01)
    assert found["adapter_seconds"] == pytest.approx(FITTED.adapter_seconds, rel=0.01)
    unseen = [abs(row["error_unseen"]) for row in found["steps"].values()]
    assert len(unseen) == 7
    assert max(unseen) == pytest.approx(TIME_ERROR, abs=0.005)


def approx_everywhere(value):
    """The same tree, with numbers compared up to rounding."""
    if isinstance(value, dict):
        return {key: approx_everywhere(inner) for key, inner in value.items()}
    return value if isinstance(value, bool) else pytest.approx(value, rel=1e-6)


def test_a_tower_that_is_not_trained_keeps_nothing():
    trained, frozen = (job(trains_tower=trains).rows for trains in (True, False))
    assert frozen.bytes_of(100, 400) < trained.bytes_of(100, 400)
    assert frozen.bytes_of(100, 400) == frozen.bytes_of(100, 0)


def test_checkpointing_trades_time_for_memory():
    plain, saved = (project(job(token_budget=16_384, is_checkpointed=is_saved), H200) for is_saved in (False, True))
    assert saved.peak_bytes < 0.7 * plain.peak_bytes
    assert plain.step_seconds < saved.step_seconds < 1.3 * plain.step_seconds


def test_a_method_without_contrast_looks_once_and_a_chunked_loss_is_slower():
    both = project(job(), H200).seconds
    once, chunked = project(job(num_looks=1), H200).seconds, project(job(loss_factor=3.0), H200).seconds
    assert once["teacher"] == both["teacher"] / 2
    assert chunked["loss"] == pytest.approx(3 * both["loss"])


def test_eight_gpus_shard_the_memory_and_cannot_be_eight_times_as_fast():
    one, eight = (project(job(is_checkpointed=True), Machine(CARDS["h200"], count)) for count in (1, 8))
    assert eight.constant_bytes < one.constant_bytes
    assert one.step_seconds / 8 < eight.step_seconds < one.step_seconds / 2
    assert eight.seconds["traffic"] > 0 == one.seconds["traffic"]
    two_nodes = project(job(is_checkpointed=True), Machine(CARDS["h200"], 16))
    assert two_nodes.seconds["traffic"] > eight.seconds["traffic"]


def test_the_smallest_machine_is_the_first_that_fits():
    paper = {"step": Step(32, 8, 1064, 1024), "longest": 6144, "is_checkpointed": True}
    names = {name: smallest_machine(job(name, **paper), MACHINES).machine.name for name in SHAPES}
    assert names["qwen3_vl_2b"] == "A100 80 GB"
    assert names["qwen3_vl_4b"] == "H200"
    assert names["qwen3_vl_8b"].startswith("8x ")
    for name in SHAPES:
        fitting = [project(job(name, **paper), machine).fits for machine in MACHINES]
        assert MACHINES[fitting.index(True)].name == names[name]
    assert smallest_machine(job("qwen3_5_9b", **paper), MACHINES[:2]) is None


def test_the_host_memory_of_the_start_counts_every_rank_of_a_node_and_decides_whether_a_run_fits():
    paper = job("qwen3_vl_8b", step=Step(32, 8, 1064, 1024), longest=6144, is_checkpointed=True)
    weights = 4 * paper.sizes.num_parameters
    starts = {count: project(paper, Machine(CARDS["h100"], count)).start_bytes for count in (1, 8, 16)}
    assert starts == {1: 2.5 * weights, 8: 8 * weights, 16: 8 * weights}
    card = CARDS["a100-80"]
    small, enough = (Machine(replace(card, host_gib=gib), 8) for gib in (32.0, 33.0))
    assert (project(paper, small).fits, project(paper, enough).fits) == (False, True)
    assert smallest_machine(paper, [small, enough]).machine == enough


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("h200", "H200", 1),
        ("8xH100", "H100 80 GB", 8),
        ("24GB", "RTX 4090", 1),
        ("2x a100_80", "A100 80 GB", 2),
        ("RTX 3090", "RTX 3090", 1),
    ],
)
def test_machines_are_read_as_people_write_them(text, name, count):
    machine = parse_machine(text)
    assert (machine.card.name, machine.num_gpus) == (name, count)


def test_a_slower_card_is_planned_for_by_its_name_and_not_proposed():
    for name in SLOWER_CARDS:
        machine = parse_machine(f"2x{name}")
        assert (machine.word, machine.card.bandwidth < CARDS["rtx4090"].bandwidth) == (f"2x{name}", True)
        assert machine.card not in [other.card for other in MACHINES]


@pytest.mark.parametrize("text", ["h300", "", "0xh100", "9999xh100", "8x", "xh100"])
def test_an_unknown_machine_is_an_error_that_names_it(text):
    with pytest.raises(ConfigError, match=f"card '{text}'"):
        parse_machine(text)


@pytest.mark.parametrize(
    ("text", "hint"), [("h10", "Did you mean 'h100'? "), ("4090", "Did you mean 'rtx4090'? "), ("16GB", ""), ("14", "")]
)
def test_a_card_is_suggested_but_no_other_size_of_memory(text, hint):
    with pytest.raises(ConfigError) as error:
        parse_machine(text)
    known = "rtx4090, l40s, a100-80, h100, h200, b200, l4, a10, a10g, rtx3090, 24gb, 48gb, 80gb, a100, 141gb"
    assert str(error.value) == f"card {text!r} is not known. {hint}Allowed: {known}; several as in 8xh100."


def test_this_machine_can_be_measured_as_a_card():
    card = measure_card(torch.device("cpu"), torch.float32, 8 * 2**30)
    assert card.gib == 8
    assert card.flops > 1e6
    assert card.bandwidth > 1e6
