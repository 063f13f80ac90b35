"""Models with real shapes and random weights, and how to measure time and memory.

Weights are random because speed does not depend on them. Shapes and their sources are in `vcsd.models.shapes`.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import transformers

from vcsd.models.shapes import SHAPES, Operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

IMAGE, VIDEO, START, END = 5, 6, 7, 8
"""Ids of special tokens; all others are words."""

NAMES = {"qwen3_vl": "Qwen3VL", "qwen3_5": "Qwen3_5"}


def config_of(family: str, size: str) -> Any:
    """The config of a family: "2b" and so on; "small" with the same head widths in four layers; "tiny" for a CPU."""
    ids = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": START, "vision_end_token_id": END}
    if f"{family}_{size}" in SHAPES:
        return SHAPES[f"{family}_{size}"].config(**ids)
    shape = SHAPES[f"{family}_2b"]
    text = {**shape.text, "num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 256, "vocab_size": 512}
    vision = {**shape.vision, "depth": 3, "hidden_size": 128, "intermediate_size": 256, "num_heads": 2}
    vision |= {"out_hidden_size": 128, "deepstack_visual_indexes": [0, 1] if family == "qwen3_vl" else []}
    if size == "tiny":
        text |= {"num_attention_heads": 2, "num_key_value_heads": 1}
        vision |= {"patch_size": 4}
    if size == "tiny" and family == "qwen3_5":
        text |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
        text |= {"linear_key_head_dim": 16, "linear_value_head_dim": 16}
    return replace(shape, text=text, vision=vision).config(**ids)


def command_line() -> list[str]:
    """The arguments of this run without the output folder, which means nothing elsewhere."""
    given = sys.argv[1:]
    return [x for i, x in enumerate(given) if x != "--out" and (i == 0 or given[i - 1] != "--out")]


def random_model(family: str, size: str, dtype: torch.dtype, device: str) -> Any:
    torch.manual_seed(0)
    make = getattr(transformers, f"{NAMES[family]}ForConditionalGeneration")
    with torch.device(device):
        model = make(config_of(family, size)).to(dtype)
    model.generation_config.eos_token_id = model.config.text_config.vocab_size - 1
    model.generation_config.pad_token_id = 0
    return model.eval()


@dataclass(frozen=True, eq=False)
class RandomPrompt:
    """A prompt with one image whose pixels are already on the device."""

    example_id: str
    input_ids: Tensor
    pixel_values: Tensor
    grid_thw: Tensor
    extra: dict[str, Any] = field(default_factory=dict)


def random_prompt(model: Any, num_visual: int, num_text: int, seed: int) -> RandomPrompt:
    """A prompt with about `num_visual` visual tokens: the nearest product of two similar integers."""
    side = max(1, round(num_visual**0.5))
    height, width = side, max(1, round(num_visual / side))
    generator = torch.Generator().manual_seed(seed)
    vision = model.config.vision_config
    patches, values = height * width * 4, 3 * vision.temporal_patch_size * vision.patch_size**2
    words = torch.randint(16, model.config.text_config.vocab_size - 1, (num_text,), generator=generator)
    half = num_text // 2
    words[half - 1] = model.config.vision_start_token_id  # generate counts a prompt's images by it
    ids = torch.cat([words[:half], torch.full((height * width,), IMAGE), words[half:]])
    on_device = torch.Generator(model.device).manual_seed(seed)
    pixels = torch.randn(patches, values, generator=on_device, device=model.device)
    return RandomPrompt(f"random-{seed}", ids, pixels, torch.tensor([[1, 2 * height, 2 * width]]))


def random_responses(model: Any, count: int, length: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    vocabulary = model.config.text_config.vocab_size - 1
    return torch.randint(16, vocabulary, (count, length), generator=generator).tolist()


def repeated_flops(work: Operations, prompt: int, responses: list[int]) -> float:
    """Operations of a forward over the repeated, padded batch of one group."""
    length, count = prompt + max(responses), len(responses)
    return count * (work.per_image + length * work.per_token + length**2 / 2 * work.per_pair)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def now() -> float:
    """The time after the device has finished its work."""
    synchronize()
    return time.perf_counter()


def median_time(run: Callable[[], Any], repeats: int, warmups: int = 0) -> float:
    """Median seconds of one run after warming up, including the wait for the device."""
    for _ in range(warmups):
        run()
    times = []
    for _ in range(repeats):
        start = now()
        run()
        times.append(now() - start)
    return statistics.median(times)


class Peak:
    """Peak memory of the runs inside minus what was allocated before them, in GiB."""

    gib: float | None = None

    def __enter__(self) -> Peak:
        free_memory()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *_: object) -> None:
        if torch.cuda.is_available():
            self.gib = (torch.cuda.max_memory_allocated() - self.before) / 2**30


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def matrix_rate(device: str, size: int = 8192) -> float:
    """Floating-point operations per second of a large bfloat16 product of random matrices."""
    size = size if device == "cuda" else 256
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    count = 20
    return count * 2 * size**3 / median_time(lambda: [a @ b for _ in range(count)], repeats=5, warmups=2)
