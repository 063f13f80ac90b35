"""Everything that depends only on the sizes of a row's images, computed on the host, not read back from the device.

transformers reads sizes back from the device in the tower, to compute positions; after it, to check that every image
token has a feature; and in each layer that adds features of the tower (Qwen3-VL), to find image tokens by a mask. Each
of these waits until all queued work is done, and then the device waits for the host to queue more. The sizes and tokens
of a row come from the host, so everything can be computed there:

    tables          the tensors that the tower would compute from the grids, as keywords of its forward
    count_tokens    checks that the images fit the image tokens, before anything is copied
    placed          gives the code inside the places of the image tokens, so that it does not search for them

Shape legend: I images, B rows (one if prefixes are shared), T tokens in a row, F image tokens, D hidden width.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from vcsd.errors import DataError
from vcsd.kernels.device import sent
from vcsd.models.patch import home_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn
    from transformers import PretrainedConfig, PreTrainedModel

    from vcsd.models.packed.packing import Group

_RULES = ("get_vision_interpolation_indices_and_weights", "get_vision_position_ids")
_KEPT = 8
"""Number of cached tables: student and teacher use the same sizes one after the other."""

_places: ContextVar[Tensor | None] = ContextVar("places", default=None)


def tables(tower: nn.Module, grid_I3: Tensor, device: torch.device) -> dict[str, object]:
    """The tensors that a tower computes from its image grids, as keywords of its forward, on a device.

    Empty if this release of transformers does not have the functions; the tower then computes them.
    """
    home = home_of(tower, *_RULES)
    if home is None:
        return {}
    named: Any = tower
    rules = (getattr(home, _RULES[0]), getattr(home, _RULES[1]))
    positions = (named.num_grid_per_side, named.interpolation_mode, named.interpolation_align_corners)
    sizes = tuple(map(tuple, grid_I3.tolist()))
    return dict(_tables(rules, positions, named.spatial_merge_size, sizes, device))


@lru_cache(maxsize=_KEPT)
def _tables(
    rules: tuple[Callable[..., tuple[Tensor, Tensor]], Callable[..., Tensor]],
    positions: tuple[int, str, bool],
    merge: int,
    sizes: tuple[tuple[int, int, int], ...],
    device: torch.device,
) -> dict[str, object]:
    """Call the two functions of the modelling module; `positions` says how to interpolate the learnt positions."""
    interpolate, coordinates = rules
    num_per_side, mode, align_corners = positions
    how = {"num_grid_per_side": num_per_side, "mode": mode, "align_corners": align_corners}
    lengths = [height * width for frames, height, width in sizes for _ in range(frames)]
    with torch.inference_mode(False):  # the next reader may be a training step
        grid_I3 = torch.tensor(sizes)
        indices, weights = interpolate(grid_I3, **how, spatial_merge_size=merge)
        return {
            "interp_indices": sent(indices, device),
            "interp_weights": sent(weights, device),
            "position_ids": sent(coordinates(grid_I3, merge), device),
            "cu_seqlens": sent(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32), device),
            "max_seqlen": max(lengths),
        }


def count_tokens(model: PreTrainedModel, groups: Sequence[Group]) -> None:
    """Raise a DataError if a group has more or fewer image tokens than its images have features."""
    config = model.config
    merge = config.vision_config.spatial_merge_size**2
    for group in groups:
        grid_I3 = group.prompt.grid_thw
        num_features = 0 if grid_I3 is None else int((grid_I3.prod(-1) // merge).sum())
        num_tokens = int((group.prompt.input_ids == config.image_token_id).sum())
        num_tokens += sum(list(response).count(config.image_token_id) for response in group.responses)
        if num_tokens != num_features:
            raise DataError(
                group.example_id,
                f"prompt and responses have {num_tokens} image tokens, but the images have {num_features} features. "
                "Encode text and images together.",
            )


@contextmanager
def placed(places_F: Tensor) -> Iterator[None]:
    """Give the code inside the places of its image tokens (rows one after the other), so that it does not search."""
    before = _places.set(places_F)
    try:
        yield
    finally:
        _places.reset(before)


class _Model(Protocol):
    config: PretrainedConfig

    def get_placeholder_mask(self, *args: object, **keywords: object) -> tuple[Tensor, Tensor]: ...


class _TextModel(Protocol):
    def _deepstack_process(self, hidden: Tensor, mask: Tensor, features: Tensor, /) -> Tensor: ...


def placeholders(self: _Model, input_ids: Tensor | None, *args: object, **keywords: object) -> tuple[Tensor, Tensor]:
    """Replace the model's search for image and video tokens: masks (B, T, 1)."""
    if input_ids is None or _places.get() is None:
        return type(self).get_placeholder_mask(self, input_ids, *args, **keywords)
    image, video = (
        (input_ids == token)[..., None] for token in (self.config.image_token_id, self.config.video_token_id)
    )
    return image, video


def add_features(self: _TextModel, hidden_BTD: Tensor, mask_BT: Tensor, features_FD: Tensor) -> Tensor:
    """Replace the addition of the tower's features at the image tokens (B, T, D)."""
    places_F = _places.get()
    if places_F is None:
        return type(self)._deepstack_process(self, hidden_BTD, mask_BT, features_FD)
    flat = hidden_BTD.flatten(0, 1)
    return flat.index_add(0, places_F.to(flat.device), features_FD.to(flat)).view_as(hidden_BTD)
