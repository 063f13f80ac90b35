"""At fixed routing, experts in bfloat16 differ from float32 by rounding alone, and a wrong step shows."""

import pytest
import torch

from tiny_experts import FixedRouting, decoded, error
from tiny_groups import three_groups
from tiny_models import build_model
from vcsd.models.family import family_of


@pytest.mark.parametrize("family", ["qwen3_vl_moe", "qwen3_5_moe"])
def test_rounding_is_small_and_a_wrong_token_is_not(family: str) -> None:
    half = build_model(family).to(torch.bfloat16)
    single = build_model(family).to(torch.bfloat16).float()  # the same weights
    for model in (half, single):
        family_of(model).prepare(model)
    prompts = [group.prompt for group in three_groups(family)]
    forced = torch.randint(1, 200, (12, 6), generator=torch.Generator().manual_seed(0))
    routing = FixedRouting()
    true, _ = decoded(single, prompts, forced, routing)
    again, _ = decoded(single, prompts, forced, routing, use_graph=True)
    assert error(again, true) < 1e-5, "replaying the choice of the same model changes nothing"
    plain, _ = decoded(half, prompts, forced, routing)
    static, _ = decoded(half, prompts, forced, routing, use_graph=True)
    stale, _ = decoded(half, prompts, forced.roll(1, 0), routing)
    assert error(plain, true) < 0.05
    assert error(static, true) < 1.3 * error(plain, true)
    assert min(error(wrong, right) for wrong, right in zip(stale, true, strict=True)) > 0.3
    assert max(error(mine, right) for mine, right in zip(static, true, strict=True)) < 0.1
