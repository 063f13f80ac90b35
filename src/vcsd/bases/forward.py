"""The forward pass of a pre-training step, without a loop over pictures.

The model is transformers' own. A stage's shapes do not change, so some values are computed once instead of in every
step: positions, the indices of visual tokens, the interpolation of the tower's position table. Vision attention runs
over all pictures of a side at once. The patch embedding, a convolution over single patches, is computed as a matrix
product. No step synchronises with the device, so a whole step can be recorded as a CUDA graph.

Shape legend: N rows, L tokens, P patches of all pictures, F visual tokens of all pictures, D hidden width, C cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface
from transformers.vision_utils import (
    get_vision_attention_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

from vcsd.bases.lessons import ARRAYS, atlas
from vcsd.bases.tokenizer import MERGE, PATCH
from vcsd.models.family import family_of
from vcsd.models.patch import replace_method
from vcsd.models.qwen import grids
from vcsd.models.qwen.fused import fused_batches
from vcsd.world.render import CELL
from vcsd.world.words import BACKGROUND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

    from vcsd.bases.lessons import Block, Shape
    from vcsd.world.parameters import Parameters

ATTENTION = "vcsd_flash_by_side"
"""The name registered in the AttentionInterface. With "flash" in it, the tower passes all pictures at once."""

_CHUNK = 32
"""Chunk size of the delta rule. With the usual 64, short rows would be mostly padding."""

_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""All but cuDNN's attention, whose gradients may not be finite for 64 patches, the pictures of side 4."""

_FRAMES = 2
"""The tower sees a still picture as two equal frames."""


@dataclass(frozen=True, eq=False)
class TokenRows:
    """The rows of a step on a device: token ids, the weight of each token in the loss, and all pictures' patches."""

    ids_NL: Tensor
    weight_NL: Tensor
    patches_PV: Tensor


@dataclass(frozen=True, eq=False)
class Placed:
    """The arrays of a `lessons.Block` on a device."""

    is_described: bool
    ids_NL: Tensor
    is_reply_NL: Tensor
    stamp_NC: Tensor
    rgb_NC3: Tensor
    is_black_N: Tensor

    def step(self, index: int, rows: int) -> Placed:
        """Select the rows of one step of a chunk."""
        own = slice(index * rows, (index + 1) * rows)
        return Placed(self.is_described, *(getattr(self, name)[own] for name in ARRAYS))


def place(block: Block, device: torch.device) -> Placed:
    """Move a block to a device."""
    return Placed(block.sort == "describe", *(torch.from_numpy(getattr(block, name)).to(device) for name in ARRAYS))


class Painter:
    """Paints the pictures of blocks on a device, with the renderer's stamps and arithmetic."""

    def __init__(self, parameters: Parameters, device: torch.device) -> None:
        self.noise, self.blur = parameters.noise, parameters.blur
        self.stamps = torch.from_numpy(atlas(parameters)).to(device)

    def patches(self, block: Placed, generator: torch.Generator) -> Tensor:
        """Paint a block's pictures as the patches that the image processor would make (P, V)."""
        cover = self.stamps[block.stamp_NC.long()].float()[:, :, None] / 255.0
        pixels = BACKGROUND + (block.rgb_NC3.float()[..., None, None] - BACKGROUND) * cover
        if self.blur > 1:
            means = functional.avg_pool2d(pixels.flatten(0, 1), self.blur)
            pixels = functional.interpolate(means, scale_factor=float(self.blur)).view_as(pixels)
        noise = torch.randn(pixels.shape, generator=generator, device=pixels.device)
        pixels = (pixels + self.noise * noise).round().clamp(0, 255)
        pixels = pixels.masked_fill(block.is_black_N[:, None, None, None, None], 0.0) / 127.5 - 1.0
        num, cells = block.stamp_NC.shape
        split = pixels.view(num, cells, 3, MERGE, PATCH, MERGE, PATCH).permute(0, 1, 3, 5, 2, 4, 6)
        twice = split[:, :, :, :, :, None].expand(-1, -1, -1, -1, -1, _FRAMES, -1, -1)
        return twice.reshape(num * cells * MERGE**2, 3 * _FRAMES * PATCH**2)


def gather(painter: Painter, groups: Sequence[Sequence[Placed]], generator: torch.Generator) -> list[TokenRows]:
    """Pad each group of blocks to one length. In a step, the weights of descriptions sum to 1, and those of answers."""
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
        gathered.append(TokenRows(torch.cat(ids), torch.cat(weights), patches))
    return gathered


class Forward:
    """Computes the loss of rows of fixed shapes, ordered by side."""

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
        positions = [_positions(side, self.length)[:, None].expand(3, rows, -1) for side, rows in sides.items()]
        self.position_ids = torch.cat(positions, 1).to(self.device)
        self.place_F = self._places()
        is_recurrent = "linear_attention" in (getattr(model.config.get_text_config(), "layer_types", None) or ())
        self.recurrence = {"chunk_size": _CHUNK} if is_recurrent else {}
        _prepare(self.model)

    def _vision_settings(self) -> dict[str, object]:
        """Compute once what the tower derives from the grid."""
        tower = self.model.model.visual
        pictures = [(rows, side * CELL // PATCH) for side, rows in self.sides.items()]
        grid = torch.tensor([[1, num, num] for rows, num in pictures for _ in range(rows)], device=self.device)
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
            "max_seqlen": max(num**2 for _, num in pictures) if longest is None else longest,
            "by_side": tuple((rows, num**2) for rows, num in pictures),
        }

    def _places(self) -> Tensor:
        """The indices of visual tokens among all tokens of all rows (F,)."""
        row, places = 0, []
        for side, rows in self.sides.items():
            first = torch.arange(row, row + rows)[:, None] * self.length + _BEFORE_IMAGE
            places.append((first + torch.arange(side**2)).flatten())
            row += rows
        return torch.cat(places).to(self.device)

    def loss(self, rows: TokenRows) -> tuple[Tensor, Tensor]:
        """The weighted sum of the token losses, and the loss of each token (N, L - 1) without gradient."""
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
"""Tokens before the first visual token: <|im_start|>, user, a newline, <|vision_start|>."""


def _positions(side: int, length: int) -> Tensor:
    """Time, height and width of every token of a row (3, L), as in both families."""
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    image = torch.stack([torch.zeros(side**2, dtype=torch.long), row.flatten(), column.flatten()]) + _BEFORE_IMAGE
    after = torch.arange(length - side**2 - _BEFORE_IMAGE) + _BEFORE_IMAGE + side
    return torch.cat([torch.arange(_BEFORE_IMAGE).expand(3, -1), image, after.expand(3, -1)], 1)


def _prepare(model: Any) -> None:
    """Install attention by side, the patch embedding as a matrix product, and the patches of the model's family."""
    # This comes first, because the family's patches skip modules that are patched already.
    replace_method(model.model.visual.patch_embed, "forward", _embed_patches)
    family_of(model).patch(model)
    AttentionInterface.register(ATTENTION, _attention_by_side)
    model.set_attn_implementation({"vision_config": ATTENTION})


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
    **settings: object,
) -> tuple[Tensor, None]:
    """Attention within each picture: (1, H, P, E) -> (1, P, H, E), with one call per side."""
    mixed, start = [], 0
    heads, width = query.shape[1], query.shape[3]
    for num, patches in by_side:
        own = (x[0, :, start : start + num * patches].to(value.dtype) for x in (query, key, value))
        q, k, v = (x.view(heads, num, patches, width).transpose(0, 1) for x in own)
        with sdpa_kernel(_BACKENDS):
            out = functional.scaled_dot_product_attention(q, k, v, scale=scaling)
        mixed.append(out.transpose(1, 2).reshape(1, num * patches, heads, width))
        start += num * patches
    return torch.cat(mixed, 1), None
