"""Measure what a sync of weights costs: all of them, or only the words that changed.

    python benchmarks/delta_sync.py                          # the world model on a CPU: seconds
    python benchmarks/delta_sync.py --shapes qwen3_vl_2b     # 2B shapes, random weights; with a GPU less than a minute
    python benchmarks/delta_sync.py --out results/delta_sync.json

AdamW moves float32 weights; a bfloat16 copy is sent after every step. The gradients are made up, because only the size
of an update matters: "noise" draws new ones for every step, "same" repeats one, so that every weight moves by the whole
learning rate in every step, which is the upper bound. Random weights of a shape have a standard deviation of 0.02.

Only the sender is timed: cast, checksum, compare, collect and copy to host memory, next to cast, checksum and copy of
everything. After the last step a receiver rebuilds every tensor, which must be equal bit for bit. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from shapes import command_line, synchronize
from vcsd.bases.shipped_bases import shipped_base
from vcsd.models.hub import load_model
from vcsd.models.shapes import SHAPES
from vcsd.rollout.vllm.weight_delta import DeltaReceiver, DeltaSender, words_of
from vcsd.rollout.vllm.weight_sync import checksum, expected_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

DTYPE = torch.bfloat16


class Masters:
    """Float32 weights that AdamW moves with made-up gradients."""

    def __init__(self, weights: dict[str, Tensor], rate: float, gradients: str) -> None:
        self.weights = {name: torch.nn.Parameter(weight) for name, weight in weights.items()}
        # No weight decay: at these rates it moves nothing that a bfloat16 word could show.
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=rate, weight_decay=0.0, foreach=False)
        self.is_new = gradients == "noise"

    def step(self) -> None:
        for weight in self.weights.values():
            if weight.grad is None:
                weight.grad = torch.randn_like(weight)
            elif self.is_new:
                weight.grad.normal_()
        self.optimizer.step()

    def cast(self) -> Iterator[tuple[str, Tensor]]:
        for name, weight in self.weights.items():
            yield name, weight.detach().to(DTYPE)


class Wire:
    """Host memory that tensors are copied to: pinned if they come from a GPU. Reused, as a sender would."""

    def __init__(self, device: torch.device, size: int) -> None:
        self.buffer = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")

    def send(self, tensor: Tensor | None) -> None:
        if tensor is not None and tensor.numel():
            flat = tensor.contiguous().view(-1).view(torch.uint8)
            self.buffer[: len(flat)].copy_(flat, non_blocking=True)


def weights_of(options: argparse.Namespace, device: torch.device) -> dict[str, Tensor]:
    """The world model's weights, or random ones of a shape."""
    if options.shapes is None:
        model = load_model(shipped_base("qwen3_vl"), torch.float32)
        return {name: weight.detach().clone() for name, weight in model.named_parameters()}
    generator = torch.Generator(device).manual_seed(0)
    shapes = expected_shapes(SHAPES[options.shapes].config())
    return {
        name: torch.empty(shape, device=device).normal_(std=0.02, generator=generator) for name, shape in shapes.items()
    }


def measure(masters: Masters, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Take steps, and time both kinds of sync after each."""
    largest = max(weight.numel() for weight in masters.weights.values())
    wire, sender, receiver = Wire(device, 2 * largest), DeltaSender(), DeltaReceiver()
    words = sum(weight.numel() for weight in masters.weights.values())
    steps = []
    for step in range(options.steps + 1):  # the first sync is whole
        if step:
            masters.step()
        synchronize()
        start = time.perf_counter()
        num_bytes, num_changed, forms = 0, 0, dict.fromkeys(("whole", "positions", "mask"), 0)
        patches = []
        for patch in sender.patches(masters.cast()):
            wire.send(patch.values)
            wire.send(patch.places)
            num_bytes, num_changed = num_bytes + patch.num_bytes, num_changed + patch.values.numel()
            forms[patch.form] += 1
            patches.append(patch)
        synchronize()
        delta_seconds = time.perf_counter() - start
        for patch in patches:
            receiver.apply(patch)
        del patches
        synchronize()
        start = time.perf_counter()
        for _, tensor in masters.cast():
            wire.send(tensor)
            checksum(tensor)
        synchronize()
        whole_seconds = time.perf_counter() - start
        steps.append(
            {
                "step": step,
                "changed_share": round(num_changed / words, 5),
                "delta_bytes": num_bytes,
                "whole_bytes": 2 * words,
                "fewer_bytes": round(2 * words / max(1, num_bytes), 2),
                "delta_seconds": round(delta_seconds, 4),
                "whole_seconds": round(whole_seconds, 4),
                "forms": forms,
            }
        )
    return {"num_words": words, "steps": steps, "is_exact": is_exact(masters, receiver)}


def is_exact(masters: Masters, receiver: DeltaReceiver) -> bool:
    """Compare what the receiver holds with the weights, bit for bit."""
    return all(torch.equal(words_of(receiver._tensors[name]), words_of(tensor)) for name, tensor in masters.cast())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", choices=sorted(SHAPES), help="random weights of these shapes")
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-6], help="learning rates")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--gradients", nargs="+", choices=["noise", "same"], default=["noise", "same"])
    parser.add_argument("--out", type=Path, help="write the JSON here as well")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    result: dict[str, Any] = {"command": command_line(), "device": name, "torch": torch.__version__, "runs": []}
    for rate in options.rates:
        for gradients in options.gradients:
            masters = Masters(weights_of(options, device), rate, gradients)
            run = {"model": options.shapes or "world", "rate": rate, "gradients": gradients}
            result["runs"].append({**run, **measure(masters, options, device)})
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
