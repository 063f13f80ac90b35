"""Compare kernels with torch for the small operations of a delta-net layer.

    python benchmarks/delta_net.py                 # on a GPU: a full row of Qwen3.5-2B shapes, bfloat16
    python benchmarks/delta_net.py --tiny          # check that it runs: Triton is interpreted on a CPU

    convolution    gather the segments of a row, convolve in torch, activate, scatter
    gated norm     transformers' module
    step           the recurrence of one token of 256 rollouts, with transformers' function

Prints the best of ten times in milliseconds for the chain of torch operations and for the kernel, and their ratio, for
a teacher's forward, a student's forward, and forward and backward with and without a gradient of the weight.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is defined

from transformers.models.qwen3_5 import modeling_qwen3_5

from shapes import now
from vcsd.kernels.delta.token_step import delta_step
from vcsd.kernels.gated_norm import gated_norm
from vcsd.kernels.segment_conv import segment_conv
from vcsd.models.packed.layout import Layout, Segment
from vcsd.models.qwen import delta_net

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Way = Callable[..., Tensor]

NUM_TAPS, EPS, REPEATS = 4, 1e-6, 10


@dataclass(frozen=True)
class Shape:
    """Groups of one prompt and its responses; the channels of q, k and v together; heads of v and their width."""

    num_groups: int
    num_prompt: int
    num_responses: int
    num_response: int
    num_channels: int
    num_heads: int
    head_width: int


FULL = Shape(4, 1062, 8, 300, 6144, 16, 128)
TINY = Shape(2, 5, 3, 4, 24, 2, 8)


def layout_of(shape: Shape, device: str) -> Layout:
    segments: list[Segment] = []
    for _ in range(shape.num_groups):
        root = len(segments)
        segments += [Segment(shape.num_prompt, None), *shape.num_responses * [Segment(shape.num_response, root)]]
    return Layout(segments, torch.device(device), NUM_TAPS)


def convolutions(layout: Layout) -> tuple[Way, Way]:
    """Both convolutions as the layer calls them, with inputs and outputs (1, T, C)."""
    stock = modeling_qwen3_5.causal_conv1d_fn
    wrapped = delta_net.convolution(inspect.unwrap(stock))
    mixer = SimpleNamespace(layout=layout)

    def chain(x_1TC: Tensor, weight_CK: Tensor) -> Tensor:
        return wrapped(x_1TC.transpose(1, 2), weight_CK, None, activation="silu", mixer=mixer).transpose(1, 2)

    def kernel(x_1TC: Tensor, weight_CK: Tensor) -> Tensor:
        return segment_conv(x_1TC[0], weight_CK, None, layout.sources, is_silu=True)[None]

    return chain, kernel


def norms(width: int, device: str) -> tuple[Way, Way]:
    own = modeling_qwen3_5.Qwen3_5RMSNormGated(width, eps=EPS).to(device)

    def chain(x_RE: Tensor, gate_RE: Tensor, weight_E: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(own, {"weight": weight_E}, (x_RE, gate_RE))
        return out

    def kernel(x_RE: Tensor, gate_RE: Tensor, weight_E: Tensor) -> Tensor:
        return gated_norm(x_RE, gate_RE, weight_E, EPS)

    return chain, kernel


def steps(num_heads: int, width: int, num_rollouts: int, device: str) -> tuple[float, float]:
    """The best of ten times for one token in milliseconds, with transformers and with the kernel."""
    stock = modeling_qwen3_5.torch_recurrent_gated_delta_rule
    rule = delta_net._of_torch(stock)
    size = (num_rollouts, 1, num_heads, width)
    query, key, value = (torch.randn(size, device=device, dtype=torch.bfloat16) for _ in range(3))
    g, beta = -torch.rand(size[:3], device=device), torch.rand(size[:3], device=device, dtype=torch.bfloat16)
    state = torch.zeros(num_rollouts, num_heads, width, width, device=device)
    token = [x[:, 0] for x in (query, key, value, g, beta)]

    def chain() -> None:
        settings = {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
        state.copy_(rule(query, key, value, g=g, beta=beta, **settings)[1])

    def kernel() -> None:
        delta_step(*token, state, is_normalised=True)

    best = [float("inf"), float("inf")]
    for _ in range(REPEATS):
        for index, way in enumerate((chain, kernel)):
            start = now()
            way()
            best[index] = min(best[index], 1e3 * (now() - start))
    return best[0], best[1]


def milliseconds(way: Way, inputs: list[Tensor], weight: Tensor) -> dict[str, float]:
    """The best time of each part."""
    device = weight.device.type
    grad = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(1)).to(inputs[0])
    best: dict[str, float] = {}
    for _ in range(REPEATS):
        for part, asks, trains in (("teacher", False, False), ("frozen weight", True, False), ("student", True, True)):
            leaves = [*(x.detach().requires_grad_(asks) for x in inputs), weight.detach().requires_grad_(trains)]
            start = now()
            with torch.autocast(device, torch.bfloat16):
                out = way(*leaves)
            found = {f"{part}, forward": now() - start}
            if asks:
                torch.autograd.grad(out, [leaf for leaf in leaves if leaf.requires_grad], grad)
                found[f"{part}, forward and backward"] = now() - start
            best |= {name: min(1e3 * seconds, best.get(name, float("inf"))) for name, seconds in found.items()}
    return best


def main() -> None:
    """Time both implementations of all operations on one row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="use a tiny shape, to check that the script runs")
    shape = TINY if parser.parse_args().tiny else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layout, generator = layout_of(shape, device), torch.Generator().manual_seed(0)

    def draw(*size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(size, generator=generator).to(device, dtype)

    heads = (layout.num_tokens * shape.num_heads, shape.head_width)
    row, taps = (1, layout.num_tokens, shape.num_channels), (shape.num_channels, NUM_TAPS)
    cases = {
        "convolution": (convolutions(layout), [draw(*row)], draw(*taps, dtype=torch.float32)),
        "gated norm": (norms(heads[1], device), [draw(*heads), draw(*heads)], draw(heads[1], dtype=torch.float32)),
    }
    sys.stdout.write(f"{layout.num_tokens} tokens, {shape}, bfloat16, {device}\n")
    for name, (ways, inputs, weight) in cases.items():
        chain, kernel = (milliseconds(way, inputs, weight) for way in ways)
        for part, before in chain.items():
            told = f"chain {before:.3f} ms, kernel {kernel[part]:.3f} ms, ratio {before / kernel[part]:.2f}"
            sys.stdout.write(f"{name}, {part}: {told}\n")
    num_rollouts, width = (256, shape.head_width) if shape is FULL else (2, 16)
    before, after = steps(shape.num_heads, width, num_rollouts, device)
    told = f"chain {before:.3f} ms, kernel {after:.3f} ms, ratio {before / after:.2f}"
    sys.stdout.write(f"step, {num_rollouts} rollouts: {told}\n")


if __name__ == "__main__":
    main()
