"""The short convolution of a packed row: one kernel against gathers, torch's convolution and its activation.

    python benchmarks/segment_conv.py              # on a GPU: a full row of Qwen3.5-2B shapes, bfloat16
    python benchmarks/segment_conv.py --tiny       # on the CPU, where Triton is interpreted: does it run?

Prints milliseconds of both, the best of ten, and their ratio: a teacher's forward, a student's forward, and its forward
and backward with and without a gradient of the weight. Both get what the layer gives: a transposed row (1, C, T).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is defined

from transformers.models.qwen3_5 import modeling_qwen3_5

from vcsd.kernels.segment_conv import segment_conv
from vcsd.models import delta_net
from vcsd.models.layout import Layout, Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Way = Callable[[Tensor, Tensor, Layout], Tensor]

NUM_TAPS, REPEATS = 4, 10


@dataclass(frozen=True)
class Shape:
    """Groups of one prompt and its responses, and the channels of q, k and v together."""

    num_groups: int
    num_prompt: int
    num_responses: int
    num_response: int
    num_channels: int


FULL = Shape(4, 1062, 8, 300, 6144)
TINY = Shape(2, 5, 3, 4, 24)


def layout_of(shape: Shape, device: str) -> Layout:
    segments: list[Segment] = []
    for _ in range(shape.num_groups):
        root = len(segments)
        segments += [Segment(shape.num_prompt, None), *shape.num_responses * [Segment(shape.num_response, root)]]
    return Layout(segments, torch.device(device), NUM_TAPS)


def by_gathers(x_1CT: Tensor, weight_CK: Tensor, layout: Layout) -> Tensor:
    convolve = modeling_qwen3_5.causal_conv1d_fn
    wrapped = delta_net._convolution(getattr(convolve, "without_mixer", convolve))
    return wrapped(x_1CT, weight_CK, None, activation="silu", mixer=SimpleNamespace(layout=layout))


def by_kernel(x_1CT: Tensor, weight_CK: Tensor, layout: Layout) -> Tensor:
    return segment_conv(x_1CT[0].T, weight_CK, None, layout.sources, is_silu=True).T[None]


def milliseconds(way: Way, layout: Layout, num_channels: int, device: str) -> dict[str, float]:
    """The best time of each part."""
    generator = torch.Generator().manual_seed(0)
    x_1TC = torch.randn(1, layout.num_tokens, num_channels, generator=generator).to(device, torch.bfloat16)
    grad_1TC = torch.randn(1, layout.num_tokens, num_channels, generator=generator).to(device, torch.bfloat16)
    weight_CK = torch.randn(num_channels, NUM_TAPS, generator=generator).to(device)
    best: dict[str, float] = {}
    for _ in range(REPEATS):
        for part, asks, trains in (("no gradient", 0, 0), ("frozen weight", 1, 0), ("all gradients", 1, 1)):
            x, weight = x_1TC.detach().requires_grad_(bool(asks)), weight_CK.detach().requires_grad_(bool(trains))
            start = now(device)
            with torch.autocast(device, torch.bfloat16):
                out = way(x.transpose(1, 2), weight, layout).transpose(1, 2)
            found = {f"{part}: forward": now(device) - start}
            if asks:
                torch.autograd.grad(out, [x, weight] if trains else [x], grad_1TC)
                found[f"{part}: forward and backward"] = now(device) - start
            best |= {name: min(1e3 * seconds, best.get(name, float("inf"))) for name, seconds in found.items()}
    return best


def now(device: str) -> float:
    """The clock, when the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    """Time both ways on one row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny shape: does the script run?")
    shape = TINY if parser.parse_args().tiny else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layout = layout_of(shape, device)
    ways: tuple[Way, Way] = (by_gathers, by_kernel)
    theirs, ours = (milliseconds(way, layout, shape.num_channels, device) for way in ways)
    sys.stdout.write(f"{layout.num_tokens} tokens, {shape.num_channels} channels, bfloat16, {device}\n")
    for part, before in theirs.items():
        told = f"gathers {before:.3f} ms, kernel {ours[part]:.3f} ms, ratio {before / ours[part]:.2f}"
        sys.stdout.write(f"{part}: {told}\n")


if __name__ == "__main__":
    main()
