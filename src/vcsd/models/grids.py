"""What follows from the sizes of a row's images, found on the host instead of being read back from the device.

transformers reads these sizes back: at the start of the tower, to lay out positions, behind it, to see whether every
image token has its feature, and in each layer that adds features of the tower (Qwen3-VL), to find image tokens by a
mask. Each reading waits until all queued work is done, and then the device waits for the host to queue more. A row's
sizes and tokens come from the host, so all of it can be known there:

    tables          the tensors that the tower would compute from the grids, which it takes as keywords
    count_tokens    whether image tokens and images fit together, before anything is sent
    placed          then where image tokens are, for those who would count or look for them

Shape legend: I images, B rows (one, where prefixes are shared), T tokens in a row, F image tokens, D hidden width.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vcsd.errors import DataError
from vcsd.kernels.device import sent
from vcsd.models.inside import home_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn
    from transformers import PreTrainedModel

    from vcsd.models.packing import Group

_PLACEHOLDERS, _DEEPSTACK = "get_placeholder_mask", "_deepstack_process"
_RULES = ("get_vision_interpolation_indices_and_weights", "get_vision_position_ids")
_KEPT = 8
"""Passes through a tower whose tables are kept: student and teacher see the same sizes one after the other."""

_places: ContextVar[Tensor | None] = ContextVar("places", default=None)


def tables(tower: nn.Module, grid_I3: Tensor, device: torch.device) -> dict[str, Any]:
    """What a tower computes from the grids of its images, as keywords of its forward, on a device.

    Nothing if its release of transformers has no such functions: it then computes them by itself.
    """
    home = home_of(tower, *_RULES)
    if home is None:
        return {}
    named: Any = tower
    rules = tuple(getattr(home, name) for name in _RULES)
    positions = (named.num_grid_per_side, named.interpolation_mode, named.interpolation_align_corners)
    sizes = tuple(map(tuple, grid_I3.tolist()))
    return dict(_tables(rules, positions, named.spatial_merge_size, sizes, device))


@lru_cache(maxsize=_KEPT)
def _tables(
    rules: tuple[Callable[..., Any], ...],
    positions: tuple[int, str, bool],
    merge: int,
    sizes: tuple[tuple[int, int, int], ...],
    device: torch.device,
) -> dict[str, Any]:
    """By two functions of the modelling module; `positions` is how the learnt ones are spread over an image."""
    interpolate, coordinates = rules
    num_per_side, mode, align_corners = positions
    how = {"num_grid_per_side": num_per_side, "mode": mode, "align_corners": align_corners}
    lengths = [height * width for frames, height, width in sizes for _ in range(frames)]
    with torch.inference_mode(False):  # a training step may be the next to read them
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
    config: Any = model.config
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
    """What runs inside has its image tokens here, rows one after the other; they are neither counted nor looked for."""
    before = _places.set(places_F)
    try:
        yield
    finally:
        _places.reset(before)


def install(model: PreTrainedModel) -> None:
    """Let `model` and its text model know where image tokens are, under `placed`. Twice does no harm."""
    base: Any = model.base_model
    setattr(base, _PLACEHOLDERS, MethodType(_placeholders, base))
    text: Any = base.language_model
    if hasattr(type(text), _DEEPSTACK):
        setattr(text, _DEEPSTACK, MethodType(_add_features, text))


def _placeholders(self: Any, input_ids: Tensor | None, *given: Any, **features: Any) -> tuple[Tensor, Tensor]:
    """Where images and videos are (B, T, 1)."""
    if input_ids is None or _places.get() is None:
        # The class's method, looked up now: one captured earlier would, in a deep copy, still ask the original.
        masks: tuple[Tensor, Tensor] = getattr(type(self), _PLACEHOLDERS)(self, input_ids, *given, **features)
        return masks
    image, video = (
        (input_ids == token)[..., None] for token in (self.config.image_token_id, self.config.video_token_id)
    )
    return image, video


def _add_features(self: Any, hidden_BTD: Tensor, mask_BT: Tensor, features_FD: Tensor) -> Tensor:
    """Features of the tower added at the image tokens (B, T, D)."""
    places_F = _places.get()
    if places_F is None:
        own: Tensor = getattr(type(self), _DEEPSTACK)(self, hidden_BTD, mask_BT, features_FD)
        return own
    flat = hidden_BTD.flatten(0, 1)
    return flat.index_add(0, places_F.to(flat.device), features_FD.to(flat)).view_as(hidden_BTD)
