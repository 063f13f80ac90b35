"""The vision tower: attention over all images in one call, and cached features.

Attention. Without the flash-attn package, transformers' tower loops over images in Python, with one attention call per
image and layer and device synchronisations in between. torch's variable-length attention takes all images at once. The
tower passes them all only if the name of its implementation contains "flash", as the name here does. On the CPU and in
float32 the implementation falls back to one call per image.

Features. `RowFeatures` looks the images of one row up in a `FeatureCache` (see `vcsd.models.features`). While the tower
trains and gradients are on, nothing is cached: each image is computed once per row, as part of the graph. Under FSDP2,
leave the tower unsharded, or every rank must skip it at the same time.

Shape legend: I images, K patches of all images, F visual tokens, D hidden width, H heads, E head width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from vcsd.kernels.device import compute_dtype, sent
from vcsd.models.features import Constant, FeatureCache, Levels, trains
from vcsd.models.qwen import fused, grids
from vcsd.models.qwen.attention import varlen_attention

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from transformers import PreTrainedModel

ATTENTION = "vcsd_flash_varlen"
"""The name in the AttentionInterface; "flash" makes the tower pass all images at once."""


class RowFeatures:
    """The features of one row's images: from the cache if their key is known, else computed."""

    def __init__(self, cache: FeatureCache, keys: Sequence[Hashable]) -> None:
        self.cache, self.keys = cache, keys

    def compute(self, tower: nn.Module, pixels_KC: Tensor, grid_I3: Tensor, settings: dict[str, object]) -> object:
        """The tower's output. Images that are not in the cache go through the tower once."""
        sizes = [tuple(grid) for grid in grid_I3.tolist()]
        assert len(sizes) == len(self.keys), f"{len(self.keys)} image keys for {len(sizes)} images"
        # The compute type is part of the name: a pass without autocast must not read features computed with it.
        dtype = compute_dtype(next(tower.parameters()))
        names = [(key, grid, dtype) for key, grid in zip(self.keys, sizes, strict=True)]
        images = [(i, name, self.cache.store_of(name[0])) for i, name in enumerate(names)]
        todo = [i for i, name, store in images if name[0] is None or (name not in store and names.index(name) == i)]
        # Features that outlive the step are computed alone: their bits must not depend on the row, or a resumed run
        # would differ.
        alone = [i for i in todo if self.cache.outlives_step(names[i][0])]
        own = self._run(tower, pixels_KC, grid_I3, [i for i in todo if i not in alone], settings)
        for i in alone:
            own |= self._run(tower, pixels_KC, grid_I3, [i], settings)
        for i, name, store in images:
            if i in own and name[0] is not None:
                store[name] = tuple(_kept(level, name[0]) for level in own[i])
            elif name in store:
                store[name] = store.pop(name)  # moved to the end: the least recently used is removed first
        levels = [own[i] if i in own else store[name] for i, name, store in images]
        pooled_FD, *deep = (torch.cat(level) for level in zip(*levels, strict=True))
        assert self.cache.output_class is not None
        output = self.cache.output_class(pooler_output=pooled_FD)
        if deep:
            output["deepstack_features"] = deep
        return output

    def _run(
        self, tower: nn.Module, pixels_KC: Tensor, grid_I3: Tensor, todo: list[int], settings: dict[str, object]
    ) -> dict[int, Levels]:
        """Send some of the images through the tower."""
        if not todo:
            return {}
        self.cache.num_computed += len(todo)
        patches = torch.split(pixels_KC, grid_I3.prod(-1).tolist())
        chosen_I3 = grid_I3[todo]
        out = _through(tower, torch.cat([patches[i] for i in todo]), chosen_I3, settings)
        self.cache.output_class = type(out)
        merge: Any = tower.spatial_merge_size
        sizes = (chosen_I3.prod(-1) // merge**2).tolist()
        levels = [out.pooler_output, *(getattr(out, "deepstack_features", None) or ())]
        return dict(zip(todo, zip(*(torch.split(level, sizes) for level in levels), strict=True), strict=True))


def _kept(level: Tensor, key: Hashable) -> Tensor:
    """Detach features for the cache. Those of a constant image are copied: a slice would keep the whole row alive."""
    return level.detach().clone() if isinstance(key, Constant) else level.detach()


def tower_forward(
    self: nn.Module, hidden_states: Tensor, grid_thw: Tensor, mixer: object = None, **settings: object
) -> object:
    """Replace the tower's forward: use the features that a row carries, and pass `mixer` on to the layers."""
    features: RowFeatures | None = getattr(mixer, "features", None)
    with fused.multiplied_patches(mixer):
        if not hasattr(mixer, "layout"):
            return type(self).forward(self, hidden_states, grid_thw=grid_thw, **settings)
        settings["mixer"] = mixer
        if features is None or (torch.is_grad_enabled() and trains(self)):
            return _through(self, hidden_states, grid_thw, settings)
        return features.compute(self, hidden_states, grid_thw, settings)


def _through(tower: nn.Module, pixels_KC: Tensor, grid_I3: Tensor, settings: dict[str, object]) -> Any:
    """Call the class's forward. Grids are on the host; pixels may be there too."""
    device = next(tower.parameters()).device
    tables = grids.tables(tower, grid_I3, device)
    grid_I3 = grid_I3 if tables else grid_I3.to(device)
    return type(tower).forward(tower, sent(pixels_KC, device), grid_thw=grid_I3, **settings, **tables)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float,
    **settings: object,
) -> tuple[Tensor, None]:
    """Every image attends to itself: (1, H, K, E) each -> (1, K, H, E)."""
    dtype = compute_dtype(value)
    if query.is_cuda and dtype in (torch.float16, torch.bfloat16):
        return _all_at_once(query, key, value, cu_seq_lens_q, max_length_q, scaling), None
    lengths = cu_seq_lens_q.diff().tolist()
    images = zip(*(torch.split(x, lengths, dim=2) for x in (query, key, value)), strict=True)
    mixed = [functional.scaled_dot_product_attention(q, k, v, scale=scaling).transpose(1, 2) for q, k, v in images]
    return torch.cat(mixed, 1), None


def _all_at_once(query: Tensor, key: Tensor, value: Tensor, cu: Tensor, longest: int, scaling: float) -> Tensor:
    """One fused call for all images, whose first patches are at `cu`."""
    dtype = compute_dtype(value)
    packed = (x[0].transpose(0, 1).to(dtype).contiguous() for x in (query, key, value))
    mixed_KHE: Tensor = varlen_attention()(*packed, cu, cu, longest, longest, scale=scaling)
    return mixed_KHE[None]


def install(model: PreTrainedModel) -> None:
    """Let the tower of `model` attend to all images in one call. Idempotent."""
    AttentionInterface.register(ATTENTION, _attention)
    model.set_attn_implementation({"vision_config": ATTENTION})
