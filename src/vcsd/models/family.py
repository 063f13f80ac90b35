"""Model families: what the package must know about a model and transformers does not say in one place.

`family_of` looks a family up by `model.config.model_type`. The families listed here share prefixes; any other
image-text-to-text model works through the fallback. A family is one short class: see `qwen/qwen3_vl.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from vcsd.errors import ConfigError
from vcsd.models.packed.packing import padded_cost, shared_cost
from vcsd.models.patch import Patch, apply, open_to_code
from vcsd.types import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vcsd.models.features import FeatureCache
    from vcsd.models.packed.packing import Cost, Group, Prompt

FAMILIES = {
    "qwen3_vl": "vcsd.models.qwen.qwen3_vl",
    "qwen3_vl_moe": "vcsd.models.qwen.qwen3_vl",
    "qwen3_5": "vcsd.models.qwen.qwen3_5",
    "qwen3_5_moe": "vcsd.models.qwen.qwen3_5",
    "idefics3": "vcsd.models.idefics.idefics3",
}
_TILED = {"pixel_values": 5, "pixel_attention_mask": 4}
"""Inputs whose second dimension is the tiles of an image, with their number of dimensions."""

_PLACEHOLDERS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")


class Family(ABC):
    """The base class of families. Its methods read the model's own configuration."""

    name = "any"
    shares_prefix = False
    """Whether a packed row and a shared cache hold a prompt once for all responses to it."""
    prefixes: ClassVar[Mapping[str, str]] = {}
    """The prefix of transformers' class names, by model type."""
    patches: tuple[Patch, ...] = ()
    """Changes to transformers' code."""

    @property
    def cost(self) -> Cost:
        """The function that counts the tokens of a row, for the packing plan."""
        return shared_cost if self.shares_prefix else padded_cost

    def prepare(self, model: nn.Module) -> None:
        """Make a model ready for scoring. Idempotent; call it before the model is wrapped or copied."""
        open_to_code(model, self.head_module(model))

    def patch(self, model: nn.Module) -> None:
        """Apply the family's patches. Idempotent."""
        base = base_model(model)
        if self.patches:
            apply(self.patches, base, self.prefixes[base.config.model_type])

    def vision_token_ids(self, model: nn.Module) -> frozenset[int]:
        """The placeholders of images and videos: banned in sampling, refused in responses."""
        config = base_model(model).config
        tokens = {getattr(config, name, None) for name in _PLACEHOLDERS}
        return frozenset(token for token in tokens if token is not None)

    def end_token_ids(self, model: nn.Module, tokenizer: object = None) -> frozenset[int]:
        """The tokens that end a response, from the generation config and the tokenizer."""
        generation = getattr(base_model(model), "generation_config", None)
        entries = [getattr(source, "eos_token_id", None) for source in (generation, tokenizer)]
        flat = {token for entry in entries for token in (entry if isinstance(entry, list | tuple) else [entry])}
        ends = frozenset(token for token in flat if token is not None)
        if not ends:
            raise ConfigError(["the model's generation config and the tokenizer name no end token. Set eos_token_id."])
        return ends

    def prompt_positions(self, model: nn.Module, prompt: Prompt) -> Tensor:
        """Positions of a prompt's tokens (axes, P), on the CPU. A response's token k has max + 1 + k on every axis.

        The axes are time, height and width if the model has a rule for them, else there is one axis.
        """
        rule = position_rule(model)
        if rule is None:
            return torch.arange(len(prompt.input_ids))[None]
        ids = prompt.input_ids.cpu()[None]
        extra = {name: value.cpu() for name, value in prompt.extra.items() if isinstance(value, Tensor)}
        inputs = {"mm_token_type_ids": is_image(model, ids), **extra}
        grid = None if prompt.grid_thw is None else prompt.grid_thw.cpu()
        positions: Tensor = rule(ids, image_grid_thw=grid, **inputs)[0]
        return positions[:, 0]

    def prompt_inputs(
        self, model: nn.Module, prompts: Sequence[Prompt], mask_BP: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The inputs of a left-padded batch of prompts besides ids and mask, and the next position of each (B,)."""
        axes = [self.prompt_positions(model, prompt) for prompt in prompts]
        longest = mask_BP.shape[1]
        padded = [functional.pad(positions, (longest - positions.shape[1], 0)) for positions in axes]
        next_B = torch.stack([positions.max() + 1 for positions in axes])
        inputs = {**image_inputs(prompts), **extra_inputs(prompts, longest, left=True)}
        return {"position_ids": self.on_axes(model, torch.stack(padded, 1)), **inputs}, next_B

    def on_axes(self, model: nn.Module, positions: Tensor) -> Tensor:
        """Positions (axes or 1, B, tokens) in the model's format: with three axes, or without the dimension of axes."""
        return positions[0] if position_rule(model) is None else positions.expand(3, -1, -1)

    @abstractmethod
    def hidden_states(self, model: nn.Module, groups: Sequence[Group], features: FeatureCache | None = None) -> Tensor:
        """The hidden states (N, D) at every response position of a row."""

    def head_module(self, model: nn.Module) -> nn.Module:
        """The module that turns hidden states into logits."""
        head: nn.Module | None = base_model(model).get_output_embeddings()  # type: ignore[no-untyped-call]
        if head is None or not isinstance(getattr(head, "weight", None), Tensor):
            raise ConfigError([f"{type(model).__name__} has no linear head that could be scored."])
        refuse_adapters(model, head)
        return head

    def head(self, model: nn.Module) -> Head:
        """The head as tensors. A sharded weight is whole only inside `inside.with_head`."""
        module = self.head_module(model)
        scale, cap = self.logit_shape(model)
        weight = module.weight
        assert isinstance(weight, Tensor)
        return Head(weight_VD=weight, bias_V=getattr(module, "bias", None), logit_scale=scale, soft_cap=cap)

    def logit_shape(self, model: nn.Module) -> tuple[float, float | None]:
        """The scale and soft cap between the head and the logits: none by default."""
        return 1.0, None


def pad_token_id(base: PreTrainedModel) -> int:
    """The token that fills a padded batch (a mask hides it): 0 if the configuration's is missing or -1."""
    token = base.config.get_text_config().pad_token_id
    return max(0, token or 0)


def image_inputs(prompts: Sequence[Prompt]) -> dict[str, Tensor]:
    """The images of prompts as model inputs, in the order of their placeholders; empty without images."""
    pixels = [prompt.pixel_values for prompt in prompts if prompt.pixel_values is not None]
    grids = [prompt.grid_thw for prompt in prompts if prompt.grid_thw is not None]
    inputs = {"pixel_values": _stacked("pixel_values", pixels)} if pixels else {}
    return inputs | ({"image_grid_thw": torch.cat(grids)} if grids else {})


def extra_inputs(prompts: Sequence[Prompt], length: int, *, left: bool) -> dict[str, Tensor]:
    """The other outputs of the processor. Values per token are padded with 0 to `length`; others are stacked."""
    inputs: dict[str, list[Tensor]] = {}
    for prompt in prompts:
        missing = length - len(prompt.input_ids)
        for name, value in prompt.extra.items():
            is_per_token = value.shape[:2] == (1, len(prompt.input_ids)) and name not in _TILED
            padding = [0, 0] * (value.ndim - 2) + ([missing, 0] if left else [0, missing])
            inputs.setdefault(name, []).append(functional.pad(value, padding) if is_per_token else value)
    return {name: _stacked(name, values) for name, values in inputs.items()}


def _stacked(name: str, values: Sequence[Tensor]) -> Tensor:
    """Concatenate values of several prompts; images with fewer tiles get tiles of zeros, which models ignore.

    SmolVLM and Idefics drop tiles that are all zero; LLaVA-NeXT and its relatives count the tiles of each image.
    """
    if values[0].ndim == _TILED.get(name):
        most = max(value.shape[1] for value in values)
        values = [functional.pad(value, [0, 0] * (value.ndim - 2) + [0, most - value.shape[1]]) for value in values]
    try:
        return torch.cat(list(values))
    except RuntimeError as error:
        shapes = ", ".join(sorted({str(tuple(value.shape)) for value in values}))
        raise ConfigError(
            [
                f"{name} of several prompts has shapes that do not fit into one batch: {shapes}. Give all images the "
                f"same size, or use a model of a supported family: {', '.join(FAMILIES)}."
            ]
        ) from error


def refuse_adapters(model: nn.Module, head: nn.Module) -> None:
    """Raise a ConfigError for PEFT methods that the head's weight or a packed row does not contain."""
    problems = []
    if hasattr(head, "base_layer"):
        kind = type(head).__module__.split(".")[-2]
        problems.append(
            f"the head has an adapter ({kind}), which its weight does not contain. Leave lm_head out of target_modules."
        )
    for name, config in getattr(model, "peft_config", {}).items():
        if getattr(config, "is_prompt_learning", False) or getattr(config, "is_adaption_prompt", False):
            problems.append(f"the adapter {name!r} learns a prompt, which scoring would ignore. Use LoRA.")
    if problems:
        raise ConfigError(problems)


def position_rule(model: nn.Module) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The model's rule for positions on three axes; None if positions simply count up."""
    rule: Callable[..., tuple[Tensor, Tensor]] | None = getattr(base_model(model).base_model, "get_rope_index", None)
    return rule


def is_image(model: nn.Module, ids: Tensor) -> Tensor:
    """1 for image tokens, else 0: an input of the position rule."""
    config = base_model(model).config
    tokens = [token for name in _PLACEHOLDERS[:2] if (token := getattr(config, name, None)) is not None]
    return torch.isin(ids, torch.tensor(tokens)).int()


def base_model(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside DDP and PEFT wrappers, or the model itself."""
    model = model.module if isinstance(model, DistributedDataParallel) else model
    get_base_model = getattr(model, "get_base_model", None)
    base = get_base_model() if get_base_model is not None else model
    assert isinstance(base, PreTrainedModel), f"{type(model).__name__} is not a transformers model; unwrap it first"
    return base


def family_of(model: nn.Module) -> Family:
    """The family of a model, or the fallback."""
    model_type = base_model(model).config.model_type
    module = import_module(FAMILIES.get(model_type, "vcsd.models.fallback"))
    family: Family = module.FAMILY
    return family
