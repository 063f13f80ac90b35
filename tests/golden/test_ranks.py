"""Training on several ranks equals training in one process: the same rollouts, losses and weights."""

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rank_cases import Case, read_results, run_alone, run_on_ranks

pytestmark = pytest.mark.slow

KINDS = ("ddp", "fsdp2")
UNEVEN: dict[str, Any] = {"method": "opsd", "text_only": 3}
"""The hinted teacher needs no image: three of five prompts have none, so some rows have none."""

FAST: dict[str, Any] = {"arguments": {"learning_rate": 1e-3}}
"""In four steps, what moves the weights of one process and not of the other changes the loss."""

LONG: dict[str, Any] = {"token_budget": 60, "num_prompts": 3, "num_steps": 20}
"""Every prompt in a row of its own: a delta net rounds differently in rows of other lengths, by 7e-6 of the loss."""

DELTA: dict[str, Any] = {"family": "qwen3_5", **LONG}
"""Whole weights of a delta net. In float32 one process is itself up to 5e-4 from float64 in the norm of a gradient, and
with seed 0 a draw lies 4e-8 from the next token, which rounding decides; with seed 1 none is closer than 1e-6."""

PAIRS = [
    *(Case(f"{kind} for 20 steps", kind=kind, num_steps=20, num_prompts=3) for kind in KINDS),
    *(Case(f"{kind} qwen3_5 for 20 steps", kind=kind, seed=1, **DELTA) for kind in KINDS),
    *(Case(f"{kind} qwen3_5 in float64 for 20 steps", kind=kind, exact=True, **DELTA) for kind in KINDS),
    *(Case(f"{kind} fallback for 20 steps", family="llava", kind=kind, **LONG) for kind in KINDS),
    *(
        Case(f"{kind} LoRA {family} for 20 steps", family=family, kind=kind, lora=True, **LONG)
        for kind in KINDS
        for family in ("qwen3_vl", "qwen3_5", "llava")
    ),
    *(Case(f"{kind} rows without images", kind=kind, **UNEVEN) for kind in KINDS),
    *(Case(f"{kind} steps without images", kind=kind, num_prompts=1, num_steps=4, **FAST, **UNEVEN) for kind in KINDS),
    *(Case(f"{kind} a rank without prompts", kind=kind, num_prompts=1, num_steps=2) for kind in KINDS),
    *(Case(f"{kind} a rank without responses", kind=kind, speaker="tiny-3", num_steps=2) for kind in KINDS),
    Case("fsdp2 untied head", kind="fsdp2", tied=False),
    Case("fsdp2 frozen tower", kind="fsdp2", freezes=True, **UNEVEN),
    *(Case(f"{kind} short rows", kind=kind, token_budget=60, num_prompts=5, num_steps=2) for kind in KINDS),
    Case("fsdp2 checkpointing", kind="fsdp2", num_steps=2, arguments={"gradient_checkpointing": True}),
    *(Case(f"{kind} is its own teacher", kind=kind, teacher="current", num_steps=2) for kind in KINDS),
]
QUADS = [
    Case("fsdp2 on four ranks for 20 steps", kind="fsdp2", num_prompts=5, num_steps=20),
    Case("ddp on four ranks", num_prompts=5, num_steps=2),
    *(Case(f"{kind} LoRA on four ranks", kind=kind, lora=True, num_prompts=5, num_steps=2) for kind in KINDS),
]
HALF: dict[str, Any] = {"num_steps": 3, "arguments": {"bf16": True, "learning_rate": 2e-6, "warmup_steps": 0}}
"""Shards in float32, layers in bfloat16, gradients reduced in float32; the paper's learning rate."""

HALVES = [
    Case("fsdp2 bf16", kind="fsdp2", **HALF),
    Case("fsdp2 bf16 LoRA", kind="fsdp2", lora=True, **HALF),
    Case("fsdp2 bf16 LoRA on a bf16 base", kind="fsdp2", lora=True, base_dtype="bfloat16", **HALF),
]
OFFLOADED = Case(
    "ddp offload", offload=True, num_steps=2, token_budget=60, max_rows=2, arguments={"bf16": True, "warmup_steps": 0}
)
"""Every prompt is decoded and scored alone, so that bfloat16 rounds in the same way however prompts are spread."""

DITHERED = [
    Case(f"{kind} dither", kind=kind, dither=True, num_steps=1, arguments={"bf16": True, "learning_rate": 0.0})
    for kind in KINDS
]
"""Nothing is learned, so that the last weights are those of the start, whole or put together from shards."""

SHARDED = [case for case in [*PAIRS, *QUADS, *HALVES] if case.kind == "fsdp2"]
REPLICATED = [case for case in [*PAIRS, *QUADS, OFFLOADED] if case.kind == "ddp"]


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The results of each rank by case: one start of the processes for all cases that were asked for.

    Workers of pytest share it: the first one runs the cases, and the others wait for its files.
    """
    asked = [item.callspec.params.get("case") for item in request.session.items if hasattr(item, "callspec")]
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    found = {}
    for num_ranks, known in ((2, [*PAIRS, *HALVES, *DITHERED, OFFLOADED]), (4, QUADS)):
        if cases := [case for case in known if case in asked]:
            results = _results(num_ranks, cases, root / f"ranks-{num_ranks}")
            found |= {case.name: [result[case.name] for result in results] for case in cases}
    return found


def _results(num_ranks: int, cases: list[Case], folder: Path) -> list[dict[str, dict[str, Any]]]:
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "cases.json").exists():
            return read_results(num_ranks, folder)
        return run_on_ranks(num_ranks, cases, folder)


Alone = Callable[[Case], dict[str, Any]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Runs a case in one process, once for both ways to hold weights on ranks."""
    known: dict[str, dict[str, Any]] = {}

    def run_once(case: Case) -> dict[str, Any]:
        plain = replace(case, name="alone", kind="ddp")
        key = json.dumps(asdict(plain))
        if key not in known:
            known[key] = run_alone([plain], tmp_path_factory.mktemp("alone"))[plain.name]
        return known[key]

    return run_once


def tolerance_of(case: Case, name: str, number: int) -> float:
    """The largest relative difference of a number of a step."""
    if case.exact:
        return 1e-6 if name == "loss" else 1e-10
    if number == 1:
        return 1e-5 if name == "gradient_norm" else 1e-6
    is_delta = case.family == "qwen3_5" and not case.lora
    return 1e-3 if is_delta and name == "gradient_norm" else 1e-4


def relative(one: float, other: float) -> float:
    return abs(one - other) / max(abs(other), 1e-12)


@pytest.mark.parametrize("case", [*PAIRS, *QUADS], ids=lambda case: case.name)
def test_several_ranks_equal_one_process(case: Case, ranks: dict[str, Any], alone: Alone) -> None:
    first, expected = ranks[case.name][0], alone(case)
    assert len(first["steps"]) == len(expected["steps"]) == case.num_steps
    for number, (ours, theirs) in enumerate(zip(first["steps"], expected["steps"], strict=True), start=1):
        assert ours["rollouts"] == theirs["rollouts"]
        assert ours["num_positions"] == theirs["num_positions"]
        for name in ("loss", "divergence", "gradient_norm"):
            assert relative(ours[name], theirs[name]) <= tolerance_of(case, name, number), f"{name} of step {number}"
        assert relative(ours["teacher_distance"], theirs["teacher_distance"]) <= 1e-4
    for name in ("student_norm", "teacher_norm"):
        gaps = [relative(one, other) for one, other in zip(first[name], expected[name], strict=True)]
        assert max(gaps) <= (1e-10 if case.exact else 1e-4)
    assert max(relative(*pair) for pair in zip(first["losses"], expected["losses"], strict=True)) <= 1e-4


@pytest.mark.parametrize("case", [*PAIRS, *QUADS], ids=lambda case: case.name)
def test_all_ranks_log_the_loss_of_the_whole_step_and_only_the_first_calls_monitors(
    case: Case, ranks: dict[str, Any]
) -> None:
    results = ranks[case.name]
    assert len({tuple(result["losses"]) for result in results}) == 1
    assert [bool(result["steps"]) for result in results] == [True] + [False] * (len(results) - 1)


@pytest.mark.parametrize("case", [*PAIRS, *QUADS], ids=lambda case: case.name)
def test_ranks_watch_each_other_in_every_step(case: Case, ranks: dict[str, Any]) -> None:
    assert all(step["is_watched"] for step in ranks[case.name][0]["steps"])


@pytest.mark.parametrize("case", SHARDED, ids=lambda case: case.name)
def test_between_steps_no_rank_holds_a_whole_weight(case: Case, ranks: dict[str, Any]) -> None:
    results = ranks[case.name]
    for result in results:
        assert result["starts_with_one_copy"], "the host held the weights twice before they were sharded"
    for number in range(case.num_steps):
        held_by = [result["rank_steps"][number]["held"] for result in results]
        for held in held_by:
            assert min(held["fsdp_modules"].values()) >= 4
            assert held["whole_weights"] == {"student": 0, "teacher": 0}
            assert held["num_copied"] == 0
        for name in ("student", "teacher"):
            assert sum(held["num_here"][name] for held in held_by) == held_by[0]["num_all"][name]


@pytest.mark.parametrize("case", REPLICATED, ids=lambda case: case.name)
def test_without_sharding_torch_wraps_the_student(case: Case, ranks: dict[str, Any]) -> None:
    steps = [step for result in ranks[case.name] for step in result["rank_steps"]]
    assert {step["held"]["wrapper"] for step in steps} == {"DistributedDataParallel"}


@pytest.mark.parametrize("case", [*SHARDED, *REPLICATED], ids=lambda case: case.name)
def test_ranks_decode_without_waiting_for_each_other(case: Case, ranks: dict[str, Any]) -> None:
    steps = [step for result in ranks[case.name] for step in result["rank_steps"]]
    assert len(steps) == len(ranks[case.name]) * case.num_steps
    assert all(step["samplings"] == 1 for step in steps)
    assert [step["while decoding"] for step in steps] == [0] * len(steps)


@pytest.mark.parametrize("case", SHARDED, ids=lambda case: case.name)
def test_shards_reduce_each_gradient_once_per_step(case: Case, ranks: dict[str, Any]) -> None:
    unused = {
        step["trained units"] - step["reductions"] for result in ranks[case.name] for step in result["rank_steps"]
    }
    tower_units = 3  # a step without images gives them no gradient
    assert unused == ({0, tower_units} if "steps without images" in case.name else {0})
    assert all(step["reductions"] >= 4 for result in ranks[case.name] for step in result["rank_steps"])


@pytest.mark.parametrize("case", REPLICATED, ids=lambda case: case.name)
def test_replicas_average_gradients_once_per_step_and_run_rows_alone(case: Case, ranks: dict[str, Any]) -> None:
    for step in (step for result in ranks[case.name] for step in result["rank_steps"]):
        assert (step["distillings"], step["averages"]) == (1, 1)
        assert step["in averages"] >= 1
        assert step["in rows"] == 0


@pytest.mark.parametrize("case", [OFFLOADED], ids=lambda case: case.name)
def test_with_offload_two_ranks_train_as_one_process(case: Case, ranks: dict[str, Any], alone: Alone) -> None:
    """Adam's moments and the float32 teacher are in host memory on each rank."""
    results, expected = ranks[case.name], alone(case)
    for ours, theirs in zip(results[0]["steps"], expected["steps"], strict=True):
        assert ours["rollouts"] == theirs["rollouts"]
        for name in ("loss", "gradient_norm", "teacher_distance"):
            assert relative(ours[name], theirs[name]) <= 1e-6, name
    assert all(result["losses"] == results[0]["losses"] for result in results)
    assert results[0]["num_moved"] > 0.9 * results[0]["num_trained"]


@pytest.mark.parametrize("case", DITHERED, ids=lambda case: case.name)
def test_with_dither_all_ranks_start_from_the_same_weights_as_one_process(
    case: Case, ranks: dict[str, Any], alone: Alone
) -> None:
    expected = alone(case)
    for result in ranks[case.name]:
        assert result["starts_from"] == expected["starts_from"]
        assert result["ends_with"] == expected["ends_with"]
    assert expected["starts_from"] != alone(replace(case, dither=False))["starts_from"]


@pytest.mark.parametrize("case", HALVES, ids=lambda case: case.name)
def test_in_bfloat16_float32_shards_move_at_the_papers_learning_rate(
    case: Case, ranks: dict[str, Any], alone: Alone
) -> None:
    exact = alone(replace(case, base_dtype="float32", arguments={**case.arguments, "bf16": False}))
    results = ranks[case.name]
    half, whole = (sum(result["losses"]) / case.num_steps for result in (results[0], exact))
    assert half == pytest.approx(whole, rel=0.03), "of the mean: in bfloat16 most rollouts have other tokens"
    for result in results:
        assert result["trained_dtypes"] == ["torch.float32"]
        assert result["frozen_dtypes"] == ([f"torch.{case.base_dtype}"] if case.lora else [])
    moved, trained = (sum(result[name] for result in results) for name in ("num_moved", "num_trained"))
    assert trained == exact["num_trained"]
    assert moved / trained > 0.9 * exact["num_moved"] / exact["num_trained"] > 0.5
