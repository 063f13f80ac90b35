"""Time three implementations of the gated delta rule: transformers, plain torch, and kernels.

    python benchmarks/delta_rule.py                # on a GPU: the prompts and the responses of a full row, 2B shapes
    python benchmarks/delta_rule.py --tiny         # check that it runs: Triton is interpreted on a CPU

Prints the best of five times in milliseconds, for forward and for forward and backward: in float32, and under autocast
with queries, keys and values in bfloat16, as the projections produce them.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is defined

from transformers.models.qwen3_5 import modeling_qwen3_5

from shapes import now
from vcsd.models.qwen.delta_rule import by_kernels, gated_delta_rule

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = ((4, 1100, 16, 128), (32, 300, 16, 128))
TINY = ((2, 40, 2, 16),)
"""Sequences, tokens, heads, width of a head."""
CHUNK, REPEATS = 64, 5
SETTINGS = {"output_final_state": True, "use_qk_l2norm_in_kernel": True, "chunk_size": CHUNK}


def kernels(*vectors: Any, g: Any, beta: Any, **_: Any) -> Any:
    return by_kernels(vectors, g, beta, None, chunk_size=CHUNK, is_normalised=True)


def milliseconds(
    rule: Callable[..., Any], shape: tuple[int, int, int, int], dtype: torch.dtype, device: str
) -> tuple[float, float]:
    """The best times of forward, and of forward and backward, in milliseconds."""
    num, length, heads, width = shape
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(num, length, heads, width, generator=generator).to(dtype) for _ in range(3)]
    gates = [-torch.rand(num, length, heads, generator=generator), torch.rand(num, length, heads, generator=generator)]
    query, key, value, decay, beta = (x.to(device).requires_grad_() for x in (*vectors, *gates))
    forward, both = [], []
    for _ in range(REPEATS):
        start = now()
        out, state = rule(query, key, value, g=decay, beta=beta, **SETTINGS)
        forward.append(now() - start)
        (out.sum() + state.sum()).backward()
        both.append(now() - start)
    return 1e3 * min(forward), 1e3 * min(both)


def main() -> None:
    """Time all three in float32 and under autocast."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="use a tiny shape, to check that the script runs")
    shapes = TINY if parser.parse_args().tiny else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    theirs = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)
    for shape in shapes:
        for dtype in (torch.float32, torch.bfloat16):
            is_autocast = dtype is torch.bfloat16
            with torch.autocast(device, torch.bfloat16, enabled=is_autocast):
                times = {
                    name: "{:.2f}, {:.2f}".format(*milliseconds(rule, shape, dtype, device))
                    for name, rule in (("theirs", theirs), ("ours", gated_delta_rule), ("kernels", kernels))
                    if is_autocast or rule is not kernels  # as in scoring
                }
            told = "; ".join(f"{name} {time}" for name, time in times.items())
            sys.stdout.write(f"{shape} {'autocast' if is_autocast else 'float32'}: {told}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
