"""Attention of a decoding step in two kernels equals the same in plain torch, operation by operation."""

import sys

import pytest
import torch
from torch import Tensor, nn

from hopper_compiler import RunProgram
from vcsd.models.qwen import fused
from vcsd.rollout.shared_cache import Clock, SharedPrompts

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LIMITS = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
NUM_OWN, ROOM = 5, 9
Own = tuple[Tensor, Tensor]


class Layer(nn.Module):
    layer_idx = 3


def draw(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def step(
    rows: list[int], lengths: list[int], heads: tuple[int, int, int], *, dtype: torch.dtype
) -> tuple[SharedPrompts, Tensor, Own]:
    """Prompts of these lengths, rows that continue them, queries, and keys and values of NUM_OWN own tokens."""
    H, K, E = heads
    P = max(lengths)
    mask_BP = torch.tensor([[0] * (P - length) + [1] * length for length in lengths], device=DEVICE)
    clock = Clock(DEVICE, ROOM, is_static=True)
    for _ in range(NUM_OWN):
        clock.tick()
    prompt = (draw(len(lengths), K, P, E, seed=1, dtype=dtype), draw(len(lengths), K, P, E, seed=2, dtype=dtype))
    shared = SharedPrompts({Layer.layer_idx: prompt}, mask_BP, torch.tensor(rows, device=DEVICE), clock)
    own = [draw(len(rows), K, ROOM, E, seed=3 + i, dtype=dtype) for i in range(2)]
    return shared, 2 * draw(len(rows), H, 1, E, seed=5, dtype=dtype), (own[0], own[1])


def by_kernel(shared: SharedPrompts, query: Tensor, own: Own, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    from vcsd.kernels import shared_attention as home

    calls = []
    attention = home.shared_attention
    with monkeypatch.context() as patched:
        patched.setattr(fused, "_suits", lambda x: x.dtype in fused._DTYPES)  # on the CPU too
        patched.setattr(home, "shared_attention", lambda *given: (calls.append(1), attention(*given))[1])
        out = shared.attention(Layer(), query, *own, None)
    assert calls, "the kernels were not asked"
    return out


def by_torch(shared: SharedPrompts, query: Tensor, own: Own) -> Tensor:
    return shared.attention_of_torch(query, shared.layers[Layer.layer_idx], own, query.shape[-1] ** -0.5)


def assert_close(found: Tensor, expected: Tensor, limit: float) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert (found.double() - expected.double()).norm() <= limit * expected.double().norm()


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(
    ("rows", "lengths", "heads"),
    [
        ([0, 0, 1, 1], [7, 7], (4, 2, 16)),
        ([0, 1, 1, 1, 2], [70, 3, 150], (4, 1, 32)),
        ([0], [1], (2, 2, 64)),
        (20 * [0] + [1], [40, 90], (6, 2, 16)),
    ],
)
def test_a_step_equals_plain_torch(
    rows: list[int],
    lengths: list[int],
    heads: tuple[int, int, int],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, query, own = step(rows, lengths, heads, dtype=dtype)
    assert_close(by_kernel(shared, query, own, monkeypatch), by_torch(shared, query, own), LIMITS[dtype])


@pytest.mark.parametrize("num_pieces", [1, 2, 3, 16])
def test_the_number_of_pieces_changes_nothing(num_pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from vcsd.kernels import shared_attention as home

    shared, query, own = step([0, 0, 1], [260, 129], (2, 1, 16), dtype=torch.float32)
    monkeypatch.setattr(home, "ENOUGH_PROGRAMS", 2 * num_pieces)
    monkeypatch.setattr(home.triton, "cdiv", lambda a, b: 16 if b == 128 else -(-a // b))  # pieces of any length
    assert_close(by_kernel(shared, query, own, monkeypatch), by_torch(shared, query, own), 2e-6)


def test_rows_that_are_left_keep_their_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, query, own = step([0, 0, 1, 1, 2, 2], [5, 30, 12], (4, 2, 16), dtype=torch.float32)
    before = by_torch(shared, query, own)
    rows = torch.tensor([1, 4, 5], device=DEVICE)
    shared.keep(rows)
    kept = (own[0][rows], own[1][rows])
    assert_close(by_kernel(shared, query[rows], kept, monkeypatch), before[rows], 2e-6)


def test_scores_far_apart_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, query, own = step([0, 1], [50, 20], (2, 1, 16), dtype=torch.float32)
    far = 100 * query
    found = by_kernel(shared, far, own, monkeypatch)
    assert found.isfinite().all()
    assert_close(found, by_torch(shared, far, own), 1e-4)


def test_steps_that_are_not_replayed_stay_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, two kernels of ours take longer to launch than the chain."""
    shared, query, own = step([0, 1], [9, 20], (2, 1, 16), dtype=torch.float32)
    expected = by_torch(shared, query, own)
    monkeypatch.setattr(fused, "_suits", lambda x: True)
    shared.clock.is_static = False
    own = (own[0][:, :, :NUM_OWN], own[1][:, :, :NUM_OWN])
    monkeypatch.setitem(sys.modules, "vcsd.kernels.shared_attention", None)
    assert_close(shared.attention(Layer(), query, *own, None), expected, 1e-6)


def test_any_strides_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, query, own = step([0, 0, 1], [9, 20], (4, 2, 16), dtype=torch.float32)
    expected = by_torch(shared, query, own)
    key, value = shared.layers[Layer.layer_idx]
    shared.layers[Layer.layer_idx] = (key.transpose(1, 2).contiguous().transpose(1, 2), value.mT.contiguous().mT)
    turned = (own[0].mT.contiguous().mT, own[1].transpose(1, 2).contiguous().transpose(1, 2))
    assert_close(by_kernel(shared, query, turned, monkeypatch), expected, 2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "width"), [("bf16", 128), ("bf16", 256), ("fp16", 64), ("fp32", 128), ("fp32", 256)])
def test_the_kernels_compile_for_hopper(dtype: str, width: int, compile_for_hopper: RunProgram) -> None:
    program = f"""
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vcsd.kernels import shared_attention as home

options = home._options(torch.empty(0, dtype=torch.{"float32" if dtype == "fp32" else "bfloat16"}), {width})
num = {{name: options.pop(name) for name in ("num_warps", "num_stages")}}
given = options | dict(G=2, E={width}, BLOCK_Q=home.MOST_QUERIES, CAST=False)
types = dict.fromkeys(("top_ptr", "total_ptr", "mixed_ptr"), "*fp32") | dict(gain="fp32")
types |= dict.fromkeys(("row_at_ptr", "place_ptr", "first_ptr", "last_ptr"), "*i64")
for kernel in (home._prompt_kernel, home._own_kernel):
    kinds = {{name: "*{dtype}" if name.endswith("_ptr") else "i32" for name in kernel.arg_names}}
    kinds |= {{name: kind for name, kind in types.items() if name in kernel.arg_names}}
    kinds |= dict.fromkeys(given, "constexpr")
    source = ASTSource(fn=kernel, signature=kinds, constexprs=given)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=num)
    assert built.metadata.shared <= 99 * 1024, built.metadata.shared  # of consumer devices
"""
    compile_for_hopper(program)
