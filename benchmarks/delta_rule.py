"""The gated delta rule in plain torch: ours against transformers' own, forward and backward, on one device.

    python benchmarks/delta_rule.py                # on a GPU: the prompts and the responses of a full row, 2B shapes
    python benchmarks/delta_rule.py --tiny         # on the CPU, seconds: does it run?

Prints milliseconds of forward, and of forward and backward, the best of five.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5

from vcsd.models.delta_rule import gated_delta_rule

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = ((8, 1100, 16, 128), (24, 300, 16, 128))
TINY = ((2, 70, 2, 8),)
"""Sequences, tokens, heads, width of a head."""
CHUNK, REPEATS = 64, 5


def milliseconds(rule: Callable[..., Any], shape: tuple[int, int, int, int], device: str) -> tuple[float, float]:
    """The best times of forward, and of forward and backward."""
    num, length, heads, width = shape
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(num, length, heads, width, generator=generator) for _ in range(3)]
    gates = [-torch.rand(num, length, heads, generator=generator), torch.rand(num, length, heads, generator=generator)]
    query, key, value, decay, beta = (x.to(device).requires_grad_() for x in (*vectors, *gates))
    settings = {"output_final_state": True, "use_qk_l2norm_in_kernel": True, "chunk_size": CHUNK}
    forward, both = [], []
    for _ in range(REPEATS):
        start = now(device)
        out, state = rule(query, key, value, g=decay, beta=beta, **settings)
        forward.append(now(device) - start)
        (out.sum() + state.sum()).backward()
        both.append(now(device) - start)
    return 1e3 * min(forward), 1e3 * min(both)


def now(device: str) -> float:
    """The clock, when the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    """Time both functions in float32 and under autocast."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny shape: does the script run?")
    shapes = TINY if parser.parse_args().tiny else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    theirs = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)
    for shape in shapes:
        for is_autocast in (False, True):
            with torch.autocast(device, torch.bfloat16, enabled=is_autocast):
                times = [*milliseconds(theirs, shape, device), *milliseconds(gated_delta_rule, shape, device)]
            told = "theirs {:.1f}, {:.1f}; ours {:.1f}, {:.1f}".format(*times)
            sys.stdout.write(f"{shape} {'autocast' if is_autocast else 'float32'}: {told}\n")


if __name__ == "__main__":
    main()
