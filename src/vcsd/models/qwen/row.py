"""A packed row: several groups laid out one after the other, and the hidden states of their responses.

Shape legend: N response positions, D hidden width, T tokens in the row, F of them image tokens, P prompt tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vcsd.kernels.device import sent
from vcsd.models.family import Family, base_model, image_inputs
from vcsd.models.packed.layout import Gather, Layout, Segment
from vcsd.models.qwen import grids
from vcsd.models.qwen.prefix_tree import PrefixTree, every_layer_mixes, refuse_dropout
from vcsd.models.qwen.vision import RowFeatures

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from torch import nn

    from vcsd.models.features import FeatureCache
    from vcsd.models.packed.packing import Group


@dataclass(frozen=True, eq=False)
class PackedRow:
    """A packed row: the model's inputs, its layout, its image tokens, and the N positions that predict responses.

    All responses to a prompt are predicted from its last token, so its gradient is a sum: `scored` is a Gather.
    """

    inputs: dict[str, object]
    layout: Layout
    places_F: Tensor
    scored: Gather


def shared_hidden_states(
    model: nn.Module, family: Family, groups: Sequence[Group], features: FeatureCache | None
) -> Tensor:
    """The hidden states (N, D) at every response position, with each prompt computed once."""
    refuse_dropout(model)
    row = pack(model, family, groups, features)
    base = base_model(model)
    with every_layer_mixes(base, row.layout), grids.placed(row.places_F):
        hidden_TD: Tensor = base.base_model(**row.inputs).last_hidden_state[0]
    return row.scored(hidden_TD)


def pack(model: nn.Module, family: Family, groups: Sequence[Group], features: FeatureCache | None = None) -> PackedRow:
    """Lay groups out as one row: each prompt, then its responses, without padding.

    Image grids stay on the host. Pixels stay where they are: the tower copies those that it needs.
    """
    base = base_model(model)
    grids.count_tokens(base, groups)
    ids: list[Tensor] = []
    positions: list[Tensor] = []
    segments: list[Segment] = []
    scored: list[Tensor] = []
    start = 0
    for group in groups:
        prompt, root = group.prompt, len(segments)
        ids.append(prompt.input_ids.cpu())
        positions.append(family.prompt_positions(model, prompt))
        segments.append(Segment(len(ids[-1]), None))
        start += len(ids[-1])
        last_of_prompt, next_position = start - 1, int(positions[-1].max()) + 1
        for response in group.responses:
            ids.append(torch.tensor(response))
            positions.append((next_position + torch.arange(len(response))).expand(len(positions[-1]), -1))
            segments.append(Segment(len(response), root))
            scored += [torch.tensor([last_of_prompt]), torch.arange(start, start + len(response) - 1)]
            start += len(response)
    device = base.device
    num_taps = getattr(base.config.get_text_config(), "linear_conv_kernel_dim", 4)
    layout = Layout(segments, device, num_taps)
    images = image_inputs([group.prompt for group in groups])
    if "image_grid_thw" in images:
        images["image_grid_thw"] = images["image_grid_thw"].cpu()
    ids_T = torch.cat(ids)
    places_F = (ids_T == base.config.image_token_id).nonzero()[:, 0]
    inputs = {
        "input_ids": sent(ids_T[None], device),
        # Three axes, not four: with a fourth, transformers looks for packed documents and separates the responses.
        "position_ids": sent(torch.cat(positions, 1)[:, None], device),
        "mixer": PrefixTree(layout, None if features is None else RowFeatures(features, _image_keys(groups))),
        "use_cache": False,
        **images,
    }
    return PackedRow(inputs, layout, sent(places_F, device), Gather(torch.cat(scored), start, device))


def _image_keys(groups: Sequence[Group]) -> list[Hashable]:
    """The key of every image of the row; None for images of groups without keys."""
    keys: list[Hashable] = []
    for group in groups:
        num_images = 0 if group.prompt.grid_thw is None else len(group.prompt.grid_thw)
        assert len(group.image_keys) in (0, num_images), f"image keys of {group.example_id!r} do not fit its images"
        keys += group.image_keys or num_images * [None]
    return keys
