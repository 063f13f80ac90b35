"""The rows of a pre-training step through a model, in one pass without a loop over pictures.

The model is transformers' own. What it would work out anew in every step is worked out once, since a stage's shapes
do not change: positions, the places of visual tokens, the interpolation of the tower's position table. Vision attention
runs over all pictures of a side at once, and the patch embedding, a convolution over single patches, as the matrix
product that it is. No step waits for the device, so that a whole step can be recorded as a CUDA graph.

Shape legend: N rows, L tokens, P patches of all pictures, F visual tokens of all pictures, D hidden width, C cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.vision_utils import (
    get_vision_attention_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

from vcsd.models import fused, grids
from vcsd.models.delta_net import mix_delta_net
from vcsd.models.fused import fused_batches
from vcsd.world.lessons import atlas
from vcsd.world.render import CELL
from vcsd.world.tokenizer import MERGE, PATCH
from vcsd.world.words import BACKGROUND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

    from vcsd.world.lessons import Block, Shape
    from vcsd.world.parameters import Parameters

ATTENTION = "vcsd_flash_by_side"
"""Our name in the AttentionInterface; "flash" makes the tower pass all pictures at once."""

_CHUNK = 32
"""Tokens that the delta rule takes at a time: of the usual 64, short rows would mostly be padding."""

_FRAMES = 2
"""A still picture is shown to the tower as two equal frames."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a step on a device: ids_NL, the weight of each token in the loss, and patches of all pictures."""

    ids_NL: Tensor
    weight_NL: Tensor
    patches_PV: Tensor


@dataclass(frozen=True, eq=False)
class Placed:
    """A block's arrays on a device: see `lessons.Block`."""

    is_described: bool
    ids_NL: Tensor
    is_reply_NL: Tensor
    stamp_NC: Tensor
    rgb_NC3: Tensor
    is_black_N: Tensor

    def step(self, index: int, rows: int) -> Placed:
        """The rows of one step of a chunk."""
        own = slice(index * rows, (index + 1) * rows)
        arrays = (self.ids_NL, self.is_reply_NL, self.stamp_NC, self.rgb_NC3, self.is_black_N)
        return Placed(self.is_described, *(array[own] for array in arrays))


def place(block: Block, device: torch.device) -> Placed:
    """Move a block to a device."""
    arrays = (block.ids_NL, block.is_reply_NL, block.stamp_NC, block.rgb_NC3, block.is_black_N)
    return Placed(block.sort == "describe", *(torch.from_numpy(array).to(device) for array in arrays))


class Painter:
    """Paints the pictures of blocks on a device, by the renderer's stamps and arithmetic."""

    def __init__(self, parameters: Parameters, device: torch.device) -> None:
        self.noise = parameters.noise
        self.stamps = torch.from_numpy(atlas(parameters)).to(device)

    def patches(self, block: Placed, generator: torch.Generator) -> Tensor:
        """The patches of a block's pictures as the image processor makes them (P, V)."""
        cover = self.stamps[block.stamp_NC.long()].float()[:, :, None] / 255.0
        pixels = BACKGROUND + (block.rgb_NC3.float()[..., None, None] - BACKGROUND) * cover
        noise = torch.randn(pixels.shape, generator=generator, device=pixels.device)
        pixels = (pixels + self.noise * noise).round().clamp(0, 255)
        pixels = pixels.masked_fill(block.is_black_N[:, None, None, None, None], 0.0) / 127.5 - 1.0
        num, cells = block.stamp_NC.shape
        split = pixels.view(num, cells, 3, MERGE, PATCH, MERGE, PATCH).permute(0, 1, 3, 5, 2, 4, 6)
        twice = split[:, :, :, :, :, None].expand(-1, -1, -1, -1, -1, _FRAMES, -1, -1)
        return twice.reshape(num * cells * MERGE**2, 3 * _FRAMES * PATCH**2)


def gather(painter: Painter, groups: Sequence[Sequence[Placed]], generator: torch.Generator) -> list[Rows]:
    """Each group of blocks as rows of one length. All descriptions of a step weigh one together, all answers one."""
    totals = {
        is_described: sum(
            block.is_reply_NL.sum() for group in groups for block in group if block.is_described == is_described
        )
        for is_described in (False, True)
    }
    gathered = []
    for group in groups:
        length = max(block.ids_NL.shape[1] for block in group)
        ids, weights = [], []
        for block in group:
            padding = (0, length - block.ids_NL.shape[1])
            ids.append(functional.pad(block.ids_NL.long(), padding))
            weights.append(functional.pad(block.is_reply_NL / totals[block.is_described], padding))
        patches = torch.cat([painter.patches(block, generator) for block in group])
        gathered.append(Rows(torch.cat(ids), torch.cat(weights), patches))
    return gathered


class Forward:
    """The loss of rows of given shapes under a model. Rows are ordered by side."""

    def __init__(self, model: PreTrainedModel, shapes: Sequence[Shape]) -> None:
        self.model: Any = model
        self.device = model.device
        self.length = max(shape.length for shape in shapes)
        sides = {shape.side: 0 for shape in shapes}
        for shape in shapes:
            sides[shape.side] += shape.rows
        assert [shape.side for shape in shapes] == sorted(shape.side for shape in shapes), "rows are ordered by side"
        self.sides = sides
        self.vision = self._vision_settings()
        positions = [_positions(side, self.length) for side in sides]
        self.position_ids = torch.cat(
            [each[:, None].expand(3, rows, -1) for each, rows in zip(positions, sides.values(), strict=True)], 1
        ).to(self.device)
        self.place_F = self._places()
        is_recurrent = "linear_attention" in (getattr(model.config.get_text_config(), "layer_types", None) or ())
        self.recurrence = {"chunk_size": _CHUNK} if is_recurrent else {}
        _prepare(self.model)

    def _vision_settings(self) -> dict[str, Any]:
        """What the tower works out from the grid, worked out once."""
        tower = self.model.model.visual
        patches = [(side * CELL // PATCH) for side in self.sides]
        grid = torch.tensor(
            [[1, each, each] for each, rows in zip(patches, self.sides.values(), strict=True) for _ in range(rows)],
            device=self.device,
        )
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid,
            num_grid_per_side=tower.num_grid_per_side,
            mode=tower.interpolation_mode,
            align_corners=tower.interpolation_align_corners,
            spatial_merge_size=MERGE,
        )
        lengths, longest = get_vision_attention_seqlens(grid, tower.config)
        return {
            "grid_thw": grid,
            "interp_indices": indices,
            "interp_weights": weights,
            "position_ids": get_vision_position_ids(grid, MERGE),
            "cu_seqlens": lengths,
            "max_seqlen": max(each**2 for each in patches) if longest is None else longest,
            "by_side": tuple((rows, each**2) for each, rows in zip(patches, self.sides.values(), strict=True)),
        }

    def _places(self) -> Tensor:
        """Where visual tokens lie among all tokens of all rows (F,)."""
        row, places = 0, []
        for side, rows in self.sides.items():
            first = torch.arange(row, row + rows)[:, None] * self.length + _BEFORE_IMAGE
            places.append((first + torch.arange(side**2)).flatten())
            row += rows
        return torch.cat(places).to(self.device)

    def loss(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """The weighted sum of the tokens' losses, and the loss of each token (N, L - 1) without gradient."""
        base = self.model.model
        vision = base.visual(rows.patches_PV.to(self.model.dtype), return_dict=True, **self.vision)
        embeds_NLD = base.language_model.embed_tokens(rows.ids_NL)
        flat = embeds_NLD.flatten(0, 1)
        flat = flat.index_copy(0, self.place_F, vision.pooler_output.to(flat.dtype))
        deep = getattr(vision, "deepstack_features", None)
        extra = {"visual_pos_masks": self.place_F, "deepstack_visual_embeds": deep} if deep else {}
        with fused_batches(), grids.placed(self.place_F):
            hidden_NLD = base.language_model(
                inputs_embeds=flat.view_as(embeds_NLD),
                position_ids=self.position_ids,
                use_cache=False,
                **extra,
                **self.recurrence,
            ).last_hidden_state
        logits = self.model.lm_head(hidden_NLD[:, :-1]).float()
        losses = functional.cross_entropy(logits.flatten(0, 1), rows.ids_NL[:, 1:].flatten(), reduction="none")
        losses_NL = losses.view(len(rows.ids_NL), -1)
        return (losses_NL * rows.weight_NL[:, 1:]).sum(), losses_NL.detach()


_BEFORE_IMAGE = 4
"""Tokens before the first visual token: <|im_start|>, user, a new line, <|vision_start|>."""


def _positions(side: int, length: int) -> Tensor:
    """Time, height and width of every token of a row (3, L), by the rule of both families."""
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    image = torch.stack([torch.zeros(side**2, dtype=torch.long), row.flatten(), column.flatten()]) + _BEFORE_IMAGE
    after = torch.arange(length - side**2 - _BEFORE_IMAGE) + _BEFORE_IMAGE + side
    return torch.cat([torch.arange(_BEFORE_IMAGE).expand(3, -1), image, after.expand(3, -1)], 1)


def _prepare(model: Any) -> None:
    """Attention by side, patches by matrix product, deepstack features by place, norms and rotations in one kernel."""
    fused.install(model)
    grids.install(model)
    mix_delta_net(model)
    AttentionInterface.register(ATTENTION, _attention_by_side)
    model.set_attn_implementation({"vision_config": ATTENTION})
    patch_embed = model.model.visual.patch_embed
    patch_embed.forward = MethodType(_embed_patches, patch_embed)


def _embed_patches(self: Any, patches_PV: Tensor) -> Tensor:
    weight: Tensor = self.proj.weight
    return functional.linear(patches_PV, weight.flatten(1), self.proj.bias)


def _attention_by_side(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    by_side: tuple[tuple[int, int], ...],
    scaling: float,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Every picture attends to itself: (1, H, P, E) each -> (1, P, H, E); one call per side."""
    mixed, start = [], 0
    heads, width = query.shape[1], query.shape[3]
    for num, patches in by_side:
        own = (x[0, :, start : start + num * patches].to(value.dtype) for x in (query, key, value))
        q, k, v = (x.view(heads, num, patches, width).transpose(0, 1) for x in own)
        out = functional.scaled_dot_product_attention(q, k, v, scale=scaling)
        mixed.append(out.transpose(1, 2).reshape(1, num * patches, heads, width))
        start += num * patches
    return torch.cat(mixed, 1), None
