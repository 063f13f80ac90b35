"""On a GPU: attention of a decoding step in two kernels, at full width, against plain torch in float32."""

import pytest
import torch
from torch import Tensor

from vcsd.rollout.shared_cache import Clock, SharedPrompts

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LIMITS = {torch.float32: 5e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
HEADS = {"qwen3_vl": (16, 8, 128), "qwen3_5": (8, 2, 256)}
DEVICE = torch.device("cuda")


def draw(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)


def by_kernel(
    shared: SharedPrompts, query: Tensor, prompt: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], scale: float
) -> Tensor:
    from vcsd.kernels.shared_attention import Places, shared_attention

    places = Places(shared.row_at, shared.place_R, shared.first_B)
    return shared_attention(query[:, :, 0], prompt, own, places, shared.clock.now_1, scale)[:, None]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("family", HEADS)
@pytest.mark.parametrize(("num_prompts", "num_rows"), [(32, 8), (3, 1), (1, 70)])
def test_steps_at_full_width_are_those_of_torch(
    family: str, num_prompts: int, num_rows: int, dtype: torch.dtype
) -> None:
    (H, K, E), P, room, num_own = HEADS[family], 1064, 256, 150
    clock = Clock(DEVICE, room, is_static=True)
    clock.room = room
    clock.is_later_S = torch.arange(room, device="cuda") >= num_own
    clock.now_1.fill_(num_own - 1)
    lengths = torch.linspace(P, 300, num_prompts).long()
    mask = (torch.arange(P) >= (P - lengths)[:, None]).long().to("cuda")
    rows = torch.arange(num_prompts, device="cuda").repeat_interleave(num_rows)
    shared = SharedPrompts({}, mask, rows, clock)
    prompt = (draw(num_prompts, K, P, E, seed=1, dtype=dtype), draw(num_prompts, K, P, E, seed=2, dtype=dtype))
    own = (draw(len(rows), K, room, E, seed=3, dtype=dtype), draw(len(rows), K, room, E, seed=4, dtype=dtype))
    query = 2 * draw(len(rows), H, 1, E, seed=5, dtype=dtype)
    found = by_kernel(shared, query, prompt, own, E**-0.5)
    wide = [(key.float(), value.float()) for key, value in (prompt, own)]
    expected = shared.attention_of_torch(query.float(), wide[0], wide[1], E**-0.5)
    assert found.dtype == dtype
    assert (found.float() - expected).norm() < LIMITS[dtype] * expected.norm()


def test_own_tokens_beyond_32_bits_are_reached() -> None:
    num_rows, (H, K, E), room = 2200, (16, 8, 128), 1024
    clock = Clock(DEVICE, room, is_static=True)
    clock.now_1.fill_(room - 1)
    rows = torch.arange(num_rows // 2, device="cuda").repeat_interleave(2)
    shared = SharedPrompts({}, torch.ones(num_rows // 2, 3, device="cuda", dtype=torch.long), rows, clock)
    few = (draw(4, K, room, E, seed=1, dtype=torch.bfloat16), draw(4, K, room, E, seed=2, dtype=torch.bfloat16))
    own = tuple(x.repeat(num_rows // 4, 1, 1, 1) for x in few)
    assert own[0].numel() > 2**31
    prompt = tuple(draw(1, K, 3, E, seed=3, dtype=torch.bfloat16).expand(num_rows // 2, -1, -1, -1) for _ in range(2))
    query = draw(4, H, 1, E, seed=4, dtype=torch.bfloat16).repeat(num_rows // 4, 1, 1, 1)
    found = by_kernel(shared, query, (prompt[0], prompt[1]), (own[0], own[1]), E**-0.5)
    assert torch.equal(found[:4], found[-4:])
