"""Compare torch's variable-length flash kernel with cuDNN's for the vision tower: speed, and finite gradients.

    python benchmarks/tower_attention.py                                      # on a CUDA device, half a minute

cuDNN's kernel needs images of one size. The last line lists lengths at which its gradients are not finite when all
scores are very negative. That is why the package does not use it.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

HEADS, WIDTH = 16, 64
IMAGES = [(4, 4096), (8, 4096), (2, 16320), (6, 1024), (14, 1024), (1, 4096), (1, 1024)]
LENGTHS = [64, 100, 128, 192, 196, 256, 320, 324, 400, 576, 704, 832, 900]
LENGTHS += [1024, 1088, 1156, 2112, 4000, 4032, 4096, 4100]


def milliseconds(run: Callable[[], object], repeats: int = 8) -> float:
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def by_cudnn(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention by cuDNN; all tensors are (images, heads, patches, width)."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return functional.scaled_dot_product_attention(query, key, value)


def compare(count: int, length: int) -> str:
    """One line with the times of forward and backward for images of one size."""
    shape = (count * length, HEADS, WIDTH)
    leaves = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    grad = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    starts = torch.arange(0, count * length + 1, length, device="cuda", dtype=torch.int32)

    def dense(x: Tensor) -> Tensor:
        return x.view(count, length, HEADS, WIDTH).transpose(1, 2)

    ways = {
        "flash": (lambda: varlen_attn(*leaves, starts, starts, length, length), grad),
        "cuDNN": (lambda: by_cudnn(*map(dense, leaves)), dense(grad)),
    }
    parts = []
    for name, (run, own_grad) in ways.items():
        with torch.no_grad():
            forward = milliseconds(run)
        out = run()
        backward = milliseconds(lambda: torch.autograd.grad(out, leaves, own_grad, retain_graph=True))  # noqa: B023
        work = 4 * HEADS * WIDTH * length**2 * count / 1e9
        rates = f"{work / forward:.0f} and {2.5 * work / backward:.0f} TFLOP/s"
        parts.append(f"{name} {forward:.3f} ms forward, {backward:.3f} ms backward ({rates})")
    return f"{count} x {length}: " + "; ".join(parts)


def not_finite(length: int) -> list[str]:
    """Which of cuDNN's output and gradients are not finite when all scores are very negative."""
    shape = (1, 2, length, WIDTH)
    query, key, value = (torch.randn(shape, device="cuda") for _ in range(3))
    given = (1 + 0.1 * query, 0.5 * key - 25, value)
    leaves = [x.to(torch.bfloat16).requires_grad_() for x in given]
    out = by_cudnn(*leaves)
    found = (out, *torch.autograd.grad(out, leaves, torch.randn_like(out)))
    names = ("output", "queries", "keys", "values")
    return [name for name, x in zip(names, found, strict=True) if not x.isfinite().all()]


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    for count, length in IMAGES:
        print(compare(count, length), flush=True)
    bad = {length: names for length in LENGTHS if (names := not_finite(length))}
    print(f"not finite, by length: {bad or 'none'} of {LENGTHS}")


if __name__ == "__main__":
    main()
