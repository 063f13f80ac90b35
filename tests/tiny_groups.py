"""Groups for the tiny models, and the repeated padded batch that every faster path is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tiny_models import LLAVA_SIDE, MERGE, PATCH, image_token_id
from vcsd.models.packed.packing import Group

NUM_WORDS = 250
"""Ids below are plain bytes in the tiny tokenizer: no special token among them."""


@dataclass(frozen=True, eq=False)
class TinyPrompt:
    input_ids: Tensor
    pixel_values: Tensor | None
    grid_thw: Tensor | None
    extra: dict[str, Any] = field(default_factory=dict)
    example_id: str = "tiny-1"


def make_prompt(
    family: str = "qwen3_vl",
    grids: Sequence[tuple[int, int]] = ((8, 12),),
    num_before: int = 5,
    num_after: int = 7,
    seed: int = 0,
    example_id: str = "tiny-1",
) -> TinyPrompt:
    """Text, then each image (height and width in patches) followed by one token, then text; random everywhere."""
    generator = torch.Generator().manual_seed(seed)
    image_id = image_token_id(family)
    is_llava = family == "llava"
    num_places = [(LLAVA_SIDE // PATCH) ** 2 if is_llava else h * w // MERGE**2 for h, w in grids]
    parts = [words(num_before, generator)]
    for count in num_places:
        parts += [torch.full((count,), image_id), words(1, generator)]
    parts.append(words(num_after, generator))
    shape = (len(grids), 3, LLAVA_SIDE, LLAVA_SIDE) if is_llava else (sum(h * w for h, w in grids), 3 * 2 * PATCH**2)
    pixels = torch.randn(shape, generator=generator, dtype=torch.float64) if grids else None
    grid_thw = torch.tensor([[1, h, w] for h, w in grids]) if grids and not is_llava else None
    return TinyPrompt(torch.cat(parts), pixels, grid_thw, example_id=example_id)


def words(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(1, NUM_WORDS, (count,), generator=generator)


def make_group(prompt: TinyPrompt, lengths: Sequence[int], seed: int = 0) -> Group:
    generator = torch.Generator().manual_seed(1000 + seed)
    return Group(prompt, [words(length, generator).tolist() for length in lengths])


def three_groups(family: str) -> list[Group]:
    """Uneven prompts and responses: 1 to 70 tokens, a short prompt, a long one, two images, another seed each."""
    return [
        make_group(make_prompt(family, ((8, 12),), 5, 7, seed=1, example_id="a"), (9, 3, 17, 1), seed=1),
        make_group(make_prompt(family, ((4, 4), (4, 6)), 66, 3, seed=2, example_id="b"), (6, 70), seed=2),
        make_group(make_prompt(family, ((12, 8),), 1, 0, seed=3, example_id="c"), (2, 2, 5), seed=3),
    ]


def short_groups(family: str) -> list[Group]:
    """Two groups of few tokens: an interpreted kernel takes milliseconds for each."""
    return [
        make_group(make_prompt(family, ((2, 4),), 1, 1, seed=1), (2, 1), seed=1),
        make_group(make_prompt(family, ((2, 2),), 1, 1, seed=2), (1, 3), seed=2),
    ]


def repeated_batch(model: nn.Module, groups: Sequence[Group], family: str = "qwen3_vl") -> list[Tensor]:
    """Each response after a copy of its prompt and images, right padded: hidden states that predict its tokens."""
    rows = [(g.prompt, torch.cat([g.prompt.input_ids, torch.tensor(r)])) for g in groups for r in g.responses]
    ids = torch.nn.utils.rnn.pad_sequence([row for _, row in rows], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for _, row in rows], batch_first=True)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    pixels = [prompt.pixel_values for prompt, _ in rows if prompt.pixel_values is not None]
    grids = [prompt.grid_thw for prompt, _ in rows if prompt.grid_thw is not None]
    if pixels:
        inputs["pixel_values"] = torch.cat(pixels)
    if grids:
        inputs["image_grid_thw"] = torch.cat(grids)
    if family != "llava":
        inputs["mm_token_type_ids"] = (ids == image_token_id(family)).int() * mask.int()
    hidden = model.base_model(**inputs).last_hidden_state
    return [hidden[i, len(prompt.input_ids) - 1 : len(row) - 1] for i, (prompt, row) in enumerate(rows)]


def nonlinear_loss(hidden: Tensor) -> Tensor:
    """A fixed random function of every hidden state, so that no gradient vanishes by symmetry."""
    weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return (hidden * weights.to(hidden)).tanh().sum()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter's gradient by name, and a clean slate."""
    found = {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def worst_gap(found: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[float, str]:
    """The largest relative L2 distance of one parameter's gradient, and its name."""
    assert found.keys() == expected.keys()
    gaps = {name: ((found[name] - g).norm() / g.norm().clamp(min=1e-30)).item() for name, g in expected.items()}
    name = max(gaps, key=gaps.__getitem__)
    return gaps[name], name
