"""Idefics3, the architecture of the first SmolVLM: prompts are computed once, and responses continue their cache.

Two forwards of transformers' own code replace one over the repeated batch: the prompts with their images, left padded,
then the responses, each with the keys and values of its prompt. The result equals the fallback's, for fewer tokens.
Gradient checkpointing drops caches, so the fallback runs while it is on.

One method of transformers is replaced. In transformers 5.17, a model in bfloat16 also rounds the places of patches, so
that neighbouring rows of patches get the same position; rollouts are drawn from a copy in bfloat16.

Shape legend: B prompts, P tokens of the longest, R responses, K tokens of the longest response without its last,
N positions, D hidden width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from transformers import DynamicCache

from vcsd.kernels.device import sent
from vcsd.models.fallback import Fallback
from vcsd.models.family import Family, base_model, pad_token_id
from vcsd.models.packed.layout import Gather
from vcsd.models.packed.packing import cached_cost
from vcsd.models.patch import Patch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from vcsd.models.features import FeatureCache
    from vcsd.models.packed.packing import Cost, Group


def embedded_patches(self: Any, pixel_values: Tensor, patch_attention_mask: Tensor) -> Tensor:
    """Embed patches (images, patches, width) with their positions, computed in float32 whatever the model's dtype."""
    side = self.num_patches_per_side
    boundaries = torch.arange(1 / side, 1.0, 1 / side, device=pixel_values.device)

    def places(is_there: Tensor) -> Tensor:
        numbers = torch.arange(is_there.shape[1], device=is_there.device, dtype=torch.float32)
        shares = numbers * (1.0 / is_there.sum(1))[:, None]
        return torch.bucketize(shares.clamp(max=1.0 - 1e-6), boundaries, right=True)

    rows, columns = places(patch_attention_mask[:, :, 0]), places(patch_attention_mask[:, 0, :])
    positions = (rows[:, :, None] * side + columns[:, None, :]) * patch_attention_mask
    embedded: Tensor = self.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
    placed: Tensor = self.position_embedding(positions.flatten(1))
    return embedded + placed


class Idefics3(Fallback):
    """Scores responses from the cache of their prompt. Rollouts are decoded as in the fallback."""

    name = "idefics3"
    prefixes: ClassVar[Mapping[str, str]] = {"idefics3": "Idefics3"}
    patches = (Patch("VisionEmbeddings.forward", embedded_patches),)

    @property
    def cost(self) -> Cost:
        """Each prompt once, each response once."""
        return cached_cost

    def prepare(self, model: nn.Module) -> None:
        """Make a model ready for scoring, without the fallback's warning."""
        self.patch(model)
        Family.prepare(self, model)
        self.logit_shape(model)

    def hidden_states(self, model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
        """The hidden states (N, D) at every response position. Features are not cached."""
        base = base_model(model)
        if base.training and _is_checkpointing(base):
            return super().hidden_states(model, groups, features)
        device = base.device
        cache = DynamicCache(config=base.config.get_text_config())
        ids_BP, mask_BP = _aligned([group.prompt.input_ids.cpu() for group in groups], pad_token_id(base), left=True)
        inputs, next_B = self.prompt_inputs(model, [group.prompt for group in groups], mask_BP)
        inputs = {"input_ids": ids_BP, "attention_mask": mask_BP, **inputs}
        first_BD = _forward(base, inputs, cache)[:, -1]
        # A response is predicted from its prompt's last token, then from its own tokens but the last.
        before = [torch.tensor(response[:-1], dtype=torch.long) for group in groups for response in group.responses]
        prompt_R = torch.tensor([number for number, group in enumerate(groups) for _ in group.responses])
        ids_RK, mask_RK = _aligned(before, pad_token_id(base), left=False)
        rows_MD, longest = first_BD, ids_RK.shape[1]
        if longest:
            _fork(cache, Gather(prompt_R, len(groups), device))
            inputs = {
                "input_ids": ids_RK,
                "attention_mask": torch.cat([mask_BP[prompt_R], mask_RK], 1),
                "position_ids": next_B[prompt_R][:, None] + torch.arange(longest),
            }
            rows_MD = torch.cat([first_BD, _forward(base, inputs, cache).flatten(0, 1)])
        places = [
            torch.cat([prompt_R[row, None], len(groups) + row * longest + torch.arange(len(own))])
            for row, own in enumerate(before)
        ]
        return Gather(torch.cat(places), len(rows_MD), device)(rows_MD)


def _is_checkpointing(base: PreTrainedModel) -> bool:
    """Whether a layer recomputes its activations. The model's own property changed its name in transformers 5.23."""
    return any(getattr(module, "gradient_checkpointing", False) for module in base.modules())


def _forward(base: PreTrainedModel, inputs: dict[str, Tensor], cache: DynamicCache) -> Tensor:
    """The hidden states (rows, tokens, D) of a padded batch, which is appended to the cache."""
    on_device = {name: sent(tensor, base.device) for name, tensor in inputs.items()}
    hidden: Tensor = base.base_model(**on_device, past_key_values=cache, use_cache=True).last_hidden_state
    return hidden


def _fork(cache: DynamicCache, rows: Gather) -> None:
    """Repeat the keys and values of prompts, one row per response. Their gradients are added up in float32."""
    for layer in cache.layers:
        for name in ("keys", "values"):
            setattr(layer, name, rows(getattr(layer, name)))


def _aligned(rows: Sequence[Tensor], filler: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """Rows of ids as one padded batch, and its mask."""
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), filler), torch.zeros(len(rows), longest, dtype=torch.long)
    for own_ids, own_mask, row in zip(ids, mask, rows, strict=True):
        place = slice(longest - len(row), longest) if left else slice(len(row))
        own_ids[place], own_mask[place] = row, 1
    return ids, mask


FAMILY = Idefics3()
