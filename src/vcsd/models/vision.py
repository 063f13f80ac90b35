"""The vision tower: attention over all images in one call, and features that are computed once.

Attention. Without the flash-attn package, transformers' tower loops over images in Python, one attention call per image
and layer, with device synchronisations between. torch's variable-length attention takes them all at once. The tower
asks for it only if its implementation's name contains "flash"; ours does, and falls back to one call per image on the
CPU and in float32.

Features. An image's features are the same in every pass whose vision weights are the same. A `FeatureCache` keeps them:

    features = FeatureCache()
    features.begin_step(version_of(tower))                   # or any value that changes with the vision weights
    score(model, groups, features)                           # images with a key are looked up, the rest is computed
    features.end_step()                                      # nothing is held while the optimizer works

A frozen tower: the original image once per step, for student and teacher. A constant image (black) depends on its grid
alone: once per version of the weights, while those of recent steps fit into `CONSTANT_BYTES`. While the tower trains
and gradients are on, nothing is cached: each image is computed once per row, and its graph goes with the backward.
Under FSDP2 leave the tower unsharded, or every rank must skip it at the same time.

Shape legend: I images, K patches of all images, F visual tokens, D hidden width, H heads, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from vcsd.kernels.device import sent
from vcsd.kernels.head import compute_dtype
from vcsd.models import fused, grids
from vcsd.models.attention import varlen_attention
from vcsd.models.inside import override

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from transformers import PreTrainedModel

ATTENTION = "vcsd_flash_varlen"
"""Our name in the AttentionInterface; "flash" makes the tower pass all images at once."""

_LOOKS_UP = "looks_features_up"

CONSTANT_BYTES = 512 * 2**20
"""Features of constant images that are kept between steps: images of many sizes have many grids."""

Levels = tuple[Tensor, ...]
"""An image's features: those for the embeddings, then one tensor per deepstack layer."""


@dataclass(frozen=True)
class Constant:
    """The key of an image whose content depends on its grid alone.

    >>> Constant("black") == Constant("black")
    True
    """

    name: str


class FeatureCache:
    """Vision features by image key and grid, valid for one step, or for one version of the weights if constant."""

    def __init__(self) -> None:
        self._version: Hashable = None
        self._of_step: dict[Hashable, Levels] = {}
        self._constant: dict[Hashable, Levels] = {}
        self.output_class: Any = None
        self.num_computed = 0
        """Images that went through a tower by way of this cache."""

    def begin_step(self, version: Hashable | None) -> None:
        """Forget the last step's images; constant ones too if the vision weights have changed. None: they always do."""
        self._of_step.clear()
        if version is None or version != self._version:
            self._constant.clear()
        self._version = version

    def end_step(self) -> None:
        """Forget what the next step will not read: its own images, and constant ones beyond what may be kept."""
        self._of_step.clear()
        if self._version is None:
            self._constant.clear()
        sizes = {name: sum(level.nbytes for level in levels) for name, levels in self._constant.items()}
        total = sum(sizes.values())
        for name, size in sizes.items():  # in the order of their last use
            if total <= CONSTANT_BYTES:
                break
            del self._constant[name]
            total -= size

    def outlives_step(self, key: Hashable) -> bool:
        """Whether an image with this key is kept for later steps."""
        return self._version is not None and isinstance(key, Constant)

    def store_of(self, key: Hashable) -> dict[Hashable, Levels]:
        """Where an image with this key is kept."""
        return self._constant if isinstance(key, Constant) else self._of_step


class RowFeatures:
    """The features of one row's images: looked up where a key is given and known, else computed."""

    def __init__(self, cache: FeatureCache, keys: Sequence[Hashable]) -> None:
        self.cache, self.keys = cache, keys

    def compute(self, tower: nn.Module, pixels_KC: Tensor, grid_I3: Tensor, settings: dict[str, Any]) -> Any:
        """The tower's output; images that are not in the cache go through the tower, each once."""
        sizes = [tuple(grid) for grid in grid_I3.tolist()]
        assert len(sizes) == len(self.keys), f"{len(self.keys)} image keys for {len(sizes)} images"
        # The compute type is part of the name: a pass without autocast must not read features of one with it.
        dtype = compute_dtype(next(tower.parameters()))
        names = [(key, grid, dtype) for key, grid in zip(self.keys, sizes, strict=True)]
        images = [(i, name, self.cache.store_of(name[0])) for i, name in enumerate(names)]
        todo = [i for i, name, store in images if name[0] is None or (name not in store and names.index(name) == i)]
        # What outlives its step is computed alone: its bits must not depend on the row, or a resumed run would differ.
        alone = [i for i in todo if self.cache.outlives_step(names[i][0])]
        own = self._run(tower, pixels_KC, grid_I3, [i for i in todo if i not in alone], settings)
        for i in alone:
            own |= self._run(tower, pixels_KC, grid_I3, [i], settings)
        for i, name, store in images:
            if i in own and name[0] is not None:
                store[name] = tuple(_kept(level, name[0]) for level in own[i])
            elif name in store:
                store[name] = store.pop(name)  # the last used is the last to go
        levels = [own[i] if i in own else store[name] for i, name, store in images]
        pooled_FD, *deep = (torch.cat(level) for level in zip(*levels, strict=True))
        assert self.cache.output_class is not None
        output = self.cache.output_class(pooler_output=pooled_FD)
        if deep:
            output["deepstack_features"] = deep
        return output

    def _run(
        self, tower: nn.Module, pixels_KC: Tensor, grid_I3: Tensor, todo: list[int], settings: dict[str, Any]
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
    """A constant image outlives its step: a slice would keep the features of the whole row alive with it."""
    return level.detach().clone() if isinstance(key, Constant) else level.detach()


def tower_of(model: PreTrainedModel) -> nn.Module | None:
    """The tower whose features can be cached, None in a family without an adapter."""
    tower: nn.Module | None = getattr(model.base_model, "visual", None)
    return tower


def trains(tower: nn.Module | None) -> bool:
    """Whether any of a tower's weights is trained."""
    return tower is not None and any(parameter.requires_grad for parameter in tower.parameters())


def version_of(tower: nn.Module | None) -> Hashable:
    """A value that changes when a tower's weights are replaced or changed in place, unless through `.data`."""
    return () if tower is None else tuple((x.data_ptr(), x._version) for x in map(_local, tower.parameters()))


def same_weights(one: nn.Module | None, other: nn.Module | None) -> bool:
    """Whether two towers see alike. Of sharded ones at rest, the shards of this rank are compared."""
    if one is None or other is None or one is other:
        return one is other
    mine, theirs = list(one.parameters()), list(other.parameters())
    return len(mine) == len(theirs) and all(map(_equal, mine, theirs))


def _equal(mine: Tensor, theirs: Tensor) -> bool:
    mine, theirs = _local(mine), _local(theirs)
    return mine.shape == theirs.shape and bool((mine == theirs.to(mine.device)).all())


def _local(x: Tensor) -> Tensor:
    """What this rank has of a tensor."""
    own: Tensor = getattr(x, "to_local", lambda: x)()
    return own.detach()


def _tower_forward(self: nn.Module, hidden_states: Tensor, grid_thw: Tensor, mixer: Any = None, **settings: Any) -> Any:
    """The tower's forward, with the features that a row brings along; its layers learn from `mixer` what is scored."""
    features: RowFeatures | None = getattr(mixer, "features", None)
    with fused.multiplied_patches(mixer):
        if not hasattr(mixer, "layout"):
            return type(self).forward(self, hidden_states, grid_thw=grid_thw, **settings)
        settings["mixer"] = mixer
        if features is None or (torch.is_grad_enabled() and trains(self)):
            return _through(self, hidden_states, grid_thw, settings)
        return features.compute(self, hidden_states, grid_thw, settings)


def _through(tower: nn.Module, pixels_KC: Tensor, grid_I3: Tensor, settings: dict[str, Any]) -> Any:
    """The class's forward over images whose grids the host knows, and whose pixels it may still have."""
    device = next(tower.parameters()).device
    tables = grids.tables(tower, grid_I3, device)
    given_I3 = grid_I3 if tables else grid_I3.to(device)
    return type(tower).forward(tower, sent(pixels_KC, device), grid_thw=given_I3, **settings, **tables)


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
    **settings: Any,
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
    """Batched attention in the tower of `model`, and a forward that looks features up. Twice does no harm."""
    AttentionInterface.register(ATTENTION, _attention)
    model.set_attn_implementation({"vision_config": ATTENTION})
    tower: Any = model.base_model.visual
    if not getattr(tower, _LOOKS_UP, False):
        override(tower, _tower_forward)
        setattr(tower, _LOOKS_UP, True)
