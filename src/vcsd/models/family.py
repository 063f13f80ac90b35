"""Model families: what the package must know about a model that transformers does not say in one place.

A family is found from `model.config.model_type`. Any image-text-to-text model works through the fallback; the families
with an adapter share prefixes. An adapter is a class of a page: see `qwen3_vl.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from vcsd.errors import ConfigError
from vcsd.models.inside import inside, open_to_code
from vcsd.models.packing import padded_cost, shared_cost
from vcsd.types import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vcsd.models.packing import Cost, Group, Prompt
    from vcsd.models.vision import FeatureCache

Result = TypeVar("Result")

ADAPTERS = {
    "qwen3_vl": "vcsd.models.qwen3_vl",
    "qwen3_vl_moe": "vcsd.models.qwen3_vl",
    "qwen3_5": "vcsd.models.qwen3_5",
    "qwen3_5_moe": "vcsd.models.qwen3_5",
}
_TILED = {"pixel_values": 5, "pixel_attention_mask": 4}
"""Inputs whose second dimension is an image's tiles, by their number of dimensions."""

_PLACEHOLDERS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")


class Family(ABC):
    """What every family can say, read from the model's own configuration."""

    name = "any"
    shares_prefix = False
    """Whether a prompt can be computed once for all responses to it."""

    @property
    def cost(self) -> Cost:
        """How many tokens a row costs, for the packing plan."""
        return shared_cost if self.shares_prefix else padded_cost

    def prepare(self, model: nn.Module) -> None:
        """Make a model ready to be scored. Call it before the model is wrapped or copied; twice does no harm."""
        open_to_code(model, self.head_module(model))

    def vision_token_ids(self, model: nn.Module) -> frozenset[int]:
        """The placeholders of images and videos: banned in sampling, refused in responses."""
        config = base_model(model).config
        found = {getattr(config, name, None) for name in _PLACEHOLDERS}
        return frozenset(token for token in found if token is not None)

    def end_token_ids(self, model: nn.Module, tokenizer: Any = None) -> frozenset[int]:
        """The tokens that end a response: those of the generation config and the tokenizer's own."""
        generation: Any = getattr(base_model(model), "generation_config", None)
        found = [getattr(generation, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)]
        flat = {token for given in found for token in (given if isinstance(given, list | tuple) else [given])}
        ends = frozenset(token for token in flat if token is not None)
        if not ends:
            raise ConfigError(["the model's generation config and the tokenizer name no end token. Set eos_token_id."])
        return ends

    def prompt_positions(self, model: nn.Module, prompt: Prompt) -> Tensor:
        """Positions of a prompt's tokens (axes, P), on the CPU. A response's token k has max + 1 + k on every axis.

        Time, height and width by the model's own rule where it has one, else one axis.
        """
        rule = position_rule(model)
        if rule is None:
            return torch.arange(len(prompt.input_ids))[None]
        ids = prompt.input_ids.cpu()[None]
        given = {name: value.cpu() for name, value in prompt.extra.items() if isinstance(value, Tensor)}
        inputs = {"mm_token_type_ids": is_image(model, ids), **given}
        grid = None if prompt.grid_thw is None else prompt.grid_thw.cpu()
        positions: Tensor = rule(ids, image_grid_thw=grid, **inputs)[0]
        return positions[:, 0]

    def prompt_inputs(
        self, model: nn.Module, prompts: Sequence[Prompt], mask_BP: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """What a left-padded batch of prompts needs besides ids and mask, and the next position of each (B,)."""
        axes = [self.prompt_positions(model, prompt) for prompt in prompts]
        longest = mask_BP.shape[1]
        padded = [functional.pad(positions, (longest - positions.shape[1], 0)) for positions in axes]
        next_B = torch.stack([positions.max() + 1 for positions in axes])
        inputs = {**image_inputs(prompts), **extra_inputs(prompts, longest, left=True)}
        return {"position_ids": self.on_axes(model, torch.stack(padded, 1)), **inputs}, next_B

    def on_axes(self, model: nn.Module, positions: Tensor) -> Tensor:
        """Positions (axes or 1, B, tokens) as the model takes them: three axes, or two dimensions where it has one."""
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
        """The head as tensors. Inside `with_head` the weight is whole also where it is sharded."""
        module = self.head_module(model)
        scale, cap = self.logit_shape(model)
        weight: Any = module.weight
        return Head(weight_VD=weight, bias_V=getattr(module, "bias", None), logit_scale=scale, soft_cap=cap)

    def logit_shape(self, model: nn.Module) -> tuple[float, float | None]:
        """The scale and soft cap between the head and the logits; none, unless a family says so."""
        return 1.0, None

    def with_head(self, model: nn.Module, run: Callable[[Head], Result]) -> Result:
        """`run(head)` inside the head's own forward: a sharded head exists only there."""
        return inside(self.head_module(model), lambda _: run(self.head(model)))


def pad_token_id(base: PreTrainedModel) -> int:
    """What fills a padded batch, where a mask hides it: 0 if the configuration has none, or says so by -1."""
    given = base.config.get_text_config().pad_token_id
    return max(0, given or 0)


def image_inputs(prompts: Sequence[Prompt]) -> dict[str, Tensor]:
    """The images of some prompts in the order of their placeholders, as model inputs; nothing without any."""
    pixels = [prompt.pixel_values for prompt in prompts if prompt.pixel_values is not None]
    grids = [prompt.grid_thw for prompt in prompts if prompt.grid_thw is not None]
    inputs = {"pixel_values": _stacked("pixel_values", pixels)} if pixels else {}
    return inputs | ({"image_grid_thw": torch.cat(grids)} if grids else {})


def extra_inputs(prompts: Sequence[Prompt], length: int, *, left: bool) -> dict[str, Tensor]:
    """What else the processor returned: one value per token is padded with 0 to `length`, anything else stacked."""
    inputs: dict[str, list[Tensor]] = {}
    for prompt in prompts:
        missing = length - len(prompt.input_ids)
        for name, value in prompt.extra.items():
            is_per_token = value.shape[:2] == (1, len(prompt.input_ids)) and name not in _TILED
            padding = [0, 0] * (value.ndim - 2) + ([missing, 0] if left else [0, missing])
            inputs.setdefault(name, []).append(functional.pad(value, padding) if is_per_token else value)
    return {name: _stacked(name, values) for name, values in inputs.items()}


def _stacked(name: str, values: Sequence[Tensor]) -> Tensor:
    """Values of some prompts one after the other; images of fewer tiles get tiles of zeros, which models leave out.

    SmolVLM and Idefics drop tiles that are all zero, LLaVA-NeXT and its relatives count the tiles of each image.
    """
    if values[0].ndim == _TILED.get(name):
        most = max(value.shape[1] for value in values)
        values = [_with_tiles(value, most) for value in values]
    try:
        return torch.cat(list(values))
    except RuntimeError as error:
        shapes = ", ".join(sorted({str(tuple(value.shape)) for value in values}))
        raise ConfigError(
            [
                f"{name} of several prompts has shapes that do not fit into one batch: {shapes}. Give all images the "
                "same size, or use a model of a family with an adapter."
            ]
        ) from error


def _with_tiles(value: Tensor, num_tiles: int) -> Tensor:
    missing = num_tiles - value.shape[1]
    return torch.cat([value, value.new_zeros(len(value), missing, *value.shape[2:])], 1) if missing else value


def refuse_adapters(model: nn.Module, head: nn.Module) -> None:
    """Raise a ConfigError for PEFT's ways to train that a head's weight or a packed row would leave out."""
    problems = []
    if hasattr(head, "base_layer"):
        kind = type(head).__module__.split(".")[-2]
        problems.append(
            f"the head has an adapter ({kind}), which its weight lacks. Leave lm_head out of target_modules."
        )
    for name, config in getattr(model, "peft_config", {}).items():
        if getattr(config, "is_prompt_learning", False) or getattr(config, "is_adaption_prompt", False):
            problems.append(f"the adapter {name!r} learns a prompt, which scoring would leave out. Use LoRA.")
    if problems:
        raise ConfigError(problems)


def position_rule(model: nn.Module) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The model's own rule for positions on three axes, None where positions are counted."""
    rule: Callable[..., tuple[Tensor, Tensor]] | None = getattr(base_model(model).base_model, "get_rope_index", None)
    return rule


def is_image(model: nn.Module, ids: Tensor) -> Tensor:
    """1 where a token stands for an image, else 0: what such a rule wants to know of every token."""
    config = base_model(model).config
    tokens = [token for name in _PLACEHOLDERS[:2] if (token := getattr(config, name, None)) is not None]
    return torch.isin(ids, torch.tensor(tokens)).int()


def base_model(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a PEFT wrapper, or the model itself."""
    get_base_model = getattr(model, "get_base_model", None)
    base = get_base_model() if get_base_model is not None else model
    assert isinstance(base, PreTrainedModel), f"{type(model).__name__} is not a transformers model; unwrap it first"
    return base


def family_of(model: nn.Module) -> Family:
    """The adapter of a model's family, or the fallback."""
    model_type = base_model(model).config.model_type
    module = import_module(ADAPTERS.get(model_type, "vcsd.models.fallback"))
    family: Family = module.FAMILY
    return family
