"""Training on several ranks equals training in one process: the same rollouts, losses and weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rank_cases import Case, run_alone, run_on_ranks

pytestmark = pytest.mark.slow

KINDS = ("ddp", "fsdp2")
UNEVEN: dict[str, Any] = {"method": "opsd", "text_only": 3}
"""The hinted teacher needs no image: three of five prompts have none, so some rows have none."""

LONG: dict[str, Any] = {"token_budget": 60, "num_prompts": 3, "num_steps": 20}
"""Every prompt in a row of its own: a delta net rounds differently in rows of other lengths, by 7e-6 of the loss."""

PAIRS = [
    *(Case(f"{kind} for 20 steps", kind=kind, num_steps=20, num_prompts=3) for kind in KINDS),
    *(Case(f"{kind} qwen3_5", family="qwen3_5", kind=kind, **{**LONG, "num_steps": 3}) for kind in KINDS),
    *(Case(f"{kind} fallback for 20 steps", family="llava", kind=kind, **LONG) for kind in KINDS),
    *(
        Case(f"{kind} LoRA {family} for 20 steps", family=family, kind=kind, lora=True, **LONG)
        for kind in KINDS
        for family in ("qwen3_vl", "qwen3_5", "llava")
    ),
    *(Case(f"{kind} rows without images", kind=kind, **UNEVEN) for kind in KINDS),
    *(Case(f"{kind} a rank without prompts", kind=kind, num_prompts=1, num_steps=2) for kind in KINDS),
    Case("fsdp2 untied head", kind="fsdp2", tied=False),
    Case("fsdp2 frozen tower", kind="fsdp2", freezes=True, **UNEVEN),
    Case("fsdp2 short rows", kind="fsdp2", token_budget=60, num_prompts=3, num_steps=2),
    Case("fsdp2 checkpointing", kind="fsdp2", num_steps=2, arguments={"gradient_checkpointing": True}),
    *(Case(f"{kind} is its own teacher", kind=kind, teacher="current", num_steps=2) for kind in KINDS),
]
QUADS = [Case(f"{kind} on four ranks", kind=kind, num_prompts=5, num_steps=2) for kind in KINDS]
HALF: dict[str, Any] = {"num_steps": 3, "arguments": {"bf16": True, "learning_rate": 2e-6, "warmup_steps": 0}}
"""Shards in float32, layers in bfloat16, gradients reduced in float32; the paper's learning rate."""

HALVES = [Case("fsdp2 bf16", kind="fsdp2", **HALF), Case("fsdp2 bf16 LoRA", kind="fsdp2", lora=True, **HALF)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The results of each rank by case: one start of the processes for all cases."""
    found = {}
    for num_ranks, cases in ((2, [*PAIRS, *HALVES]), (4, QUADS)):
        results = run_on_ranks(num_ranks, cases, tmp_path_factory.mktemp(f"ranks-{num_ranks}"))
        found |= {case.name: [result[case.name] for result in results] for case in cases}
    return found


def relative(one: float, other: float) -> float:
    return abs(one - other) / max(abs(other), 1e-12)


@pytest.mark.parametrize("case", [*PAIRS, *QUADS], ids=lambda case: case.name)
def test_several_ranks_equal_one_process(case: Case, ranks: dict[str, Any], tmp_path: Path) -> None:
    alone = run_alone([case], tmp_path)[case.name]
    first = ranks[case.name][0]
    assert len(first["steps"]) == len(alone["steps"]) == case.num_steps
    for number, (ours, theirs) in enumerate(zip(first["steps"], alone["steps"], strict=True)):
        tolerance = {"loss": 1e-6, "divergence": 1e-6, "gradient_norm": 1e-5} if number == 0 else {}
        assert ours["rollouts"] == theirs["rollouts"]
        assert ours["num_positions"] == theirs["num_positions"]
        for name in ("loss", "divergence", "gradient_norm"):
            assert relative(ours[name], theirs[name]) <= tolerance.get(name, 1e-4), f"{name} of step {number + 1}"
        assert relative(ours["teacher_distance"], theirs["teacher_distance"]) <= 1e-4
    for name in ("student_norm", "teacher_norm"):
        gaps = [relative(one, other) for one, other in zip(first[name], alone[name], strict=True)]
        assert max(gaps) <= 1e-4
    assert [relative(*pair) for pair in zip(first["losses"], alone["losses"], strict=True)] <= [1e-4] * case.num_steps


@pytest.mark.parametrize("case", [*PAIRS, *QUADS], ids=lambda case: case.name)
def test_all_ranks_log_the_loss_of_the_whole_step_and_only_the_first_calls_monitors(
    case: Case, ranks: dict[str, Any]
) -> None:
    results = ranks[case.name]
    assert len({tuple(result["losses"]) for result in results}) == 1
    assert [bool(result["steps"]) for result in results] == [True] + [False] * (len(results) - 1)


@pytest.mark.parametrize(
    "case", [case for case in [*PAIRS, *QUADS] if case.kind == "fsdp2"], ids=lambda case: case.name
)
def test_between_steps_no_rank_holds_a_whole_weight(case: Case, ranks: dict[str, Any]) -> None:
    results = ranks[case.name]
    for result in results:
        held = result["held"]
        assert min(held["fsdp_modules"].values()) >= 4
        assert held["whole_weights"] == {"student": 0, "teacher": 0}
        assert held["num_copied"] == 0
    for name in ("student", "teacher"):
        assert sum(result["held"]["num_here"][name] for result in results) == results[0]["held"]["num_all"][name]


@pytest.mark.parametrize("case", [case for case in PAIRS if case.kind == "ddp"], ids=lambda case: case.name)
def test_without_sharding_torch_wraps_the_student(case: Case, ranks: dict[str, Any]) -> None:
    assert {result["held"]["wrapper"] for result in ranks[case.name]} == {"DistributedDataParallel"}


@pytest.mark.parametrize("case", HALVES, ids=lambda case: case.name)
def test_in_bfloat16_float32_shards_move_at_the_papers_learning_rate(
    case: Case, ranks: dict[str, Any], tmp_path: Path
) -> None:
    exact = run_alone([replace(case, arguments={**case.arguments, "bf16": False})], tmp_path)[case.name]
    results = ranks[case.name]
    half, whole = (sum(result["losses"]) / case.num_steps for result in (results[0], exact))
    assert half == pytest.approx(whole, rel=0.03), "of the mean: in bfloat16 most rollouts have other tokens"
    for result in results:
        assert result["trained_dtypes"] == ["torch.float32"]
    moved, trained = (sum(result[name] for result in results) for name in ("num_moved", "num_trained"))
    assert trained == exact["num_trained"]
    assert moved / trained > 0.9 * exact["num_moved"] / exact["num_trained"] > 0.5
