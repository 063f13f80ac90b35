"""Compare two kernels with torch for the attention of one decoding step over shared prompts.

    python benchmarks/decode_attention.py               # on a GPU: 32 prompts x 8 rollouts, 2B shapes, bfloat16
    python benchmarks/decode_attention.py --tiny        # check that it runs: Triton is interpreted on a CPU

Prints the best of twenty times in milliseconds for the chain of torch operations and for the kernels, their ratio, and
the rate at which the kernels read keys and values.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is defined

from shapes import now
from vcsd.kernels.shared_attention import Places, shared_attention
from vcsd.rollout.shared_cache import Clock, SharedPrompts

REPEATS = 20
HEADS = {"Qwen3-VL-2B": (16, 8, 128), "Qwen3.5-2B": (8, 2, 256)}


def case(name: str, heads: tuple[int, int, int], sizes: tuple[int, int, int, int], device: torch.device) -> str:
    """Time one model family. Sizes: prompts, rollouts of each, tokens of a prompt, own tokens so far."""
    (H, K, E), (B, M, P, S) = heads, sizes
    dtype = torch.bfloat16
    clock = Clock(device, S, is_static=False)
    for _ in range(S):
        clock.tick()
    prompt = tuple(torch.randn(B, K, P, E, device=device, dtype=dtype) for _ in range(2))
    own = tuple(torch.randn(B * M, K, S, E, device=device, dtype=dtype) for _ in range(2))
    query = torch.randn(B * M, H, 1, E, device=device, dtype=dtype)
    rows = torch.arange(B, device=device).repeat_interleave(M)
    shared = SharedPrompts({}, torch.ones(B, P, device=device, dtype=torch.long), rows, clock)
    places, scale = Places(shared.row_at, shared.place_R, shared.first_B), E**-0.5
    ways = (
        lambda: shared.attention_of_torch(query, (prompt[0], prompt[1]), (own[0], own[1]), scale),
        lambda: shared_attention(query[:, :, 0], (prompt[0], prompt[1]), (own[0], own[1]), places, clock.now_1, scale),
    )
    best = [float("inf"), float("inf")]
    for _ in range(REPEATS):
        for index, way in enumerate(ways):
            start = now()
            way()
            best[index] = min(best[index], now() - start)
    chain, kernels = best
    rate = sum(x.nbytes for x in (*prompt, *own)) / kernels / 1e12
    told = f"chain {1e3 * chain:.3f} ms, kernels {1e3 * kernels:.3f} ms, ratio {chain / kernels:.2f}, {rate:.2f} TB/s"
    return f"{name}, {B} x {M} rollouts after {P} tokens, {S} of their own: {told}\n"


def main() -> None:
    """Time both implementations for both families, with few and many own tokens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="use a tiny shape, to check that the script runs")
    is_tiny = parser.parse_args().tiny
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, heads in HEADS.items():
        for num_own in (3,) if is_tiny else (32, 256):
            sizes = (2, 2, 9, num_own) if is_tiny else (32, 8, 1064, num_own)
            sys.stdout.write(case(name, (2, 1, 16) if is_tiny else heads, sizes, device))


if __name__ == "__main__":
    main()
