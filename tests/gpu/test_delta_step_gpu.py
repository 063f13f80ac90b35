"""On a GPU: one token of the gated delta rule in one kernel, at full width, against transformers' own step."""

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5

from vcsd.models.qwen import delta_net

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LIMITS = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
HEADS, WIDTH = 16, 128


def token(num_rollouts: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    size = (num_rollouts, 1, HEADS, WIDTH)
    vectors = [torch.randn(size, generator=generator, device="cuda").to(dtype) for _ in range(3)]
    g, beta = (torch.rand(size[:3], generator=generator, device="cuda") for _ in range(2))
    return [*vectors, -g, beta.to(dtype)]


def by_kernel(given: list[Tensor], state: Tensor) -> Tensor:
    from vcsd.kernels.delta.token_step import delta_step

    return delta_step(*(x[:, 0] for x in given), state, is_normalised=True)


@pytest.mark.parametrize("dtype", LIMITS)
def test_steps_at_full_width_are_those_of_transformers(dtype: torch.dtype) -> None:
    stock = modeling_qwen3_5.torch_recurrent_gated_delta_rule
    rule = delta_net._of_torch(stock)
    given, state = token(64, dtype), torch.randn(64, HEADS, WIDTH, WIDTH, device="cuda")
    theirs = state.clone()
    for _ in range(3):
        query, key, value, g, beta = given
        settings = {"initial_state": theirs, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
        expected, theirs = rule(query, key, value, g=g, beta=beta, **settings)
        found = by_kernel(given, state)
        assert found.dtype == dtype
        assert (found.double() - expected[:, 0].double()).norm() < LIMITS[dtype] * expected.double().norm()
        assert (state.double() - theirs.double()).norm() < 2e-6 * theirs.double().norm()


def test_states_beyond_32_bits_are_reached() -> None:
    few, repeats = 8, 1100
    given, state = token(few, torch.bfloat16), torch.randn(few, HEADS, WIDTH, WIDTH, device="cuda")
    many = state.repeat(repeats, 1, 1, 1)
    assert many.numel() > 2**31
    found = by_kernel([x.repeat(repeats, *[1] * (x.ndim - 1)) for x in given], many)
    expected = by_kernel(given, state)
    assert torch.equal(many[-few:], state)
    assert torch.equal(found[-few:], expected)
    assert torch.equal(found[:few], expected)
