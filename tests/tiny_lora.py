"""Tiny models with LoRA adapters that are neither zero nor equal, and a trainer of them."""

from pathlib import Path
from typing import Any

import peft
import torch
from transformers import PreTrainedModel

from tiny_models import build_model
from tiny_processor import write_processor_files
from tiny_step import make_trainer
from vcsd.lora.attach import freeze_first_factors, recipe_config, with_adapters
from vcsd.models.family import family_of
from vcsd.models.processor import load_processor
from vcsd.trainer import VCSDTrainer

FAMILIES = ("qwen3_vl", "qwen3_5", "llava")
LANGUAGE, EVERYWHERE = ("language",), ("language", "vision", "projector")


def lora_model(
    family: str = "qwen3_vl", parts: tuple[str, ...] = LANGUAGE, *, both: bool = False, seed: int = 0, **base: Any
) -> Any:
    """A PeftModel as a recipe makes it, in which only B is trained, or both factors; its B is zero."""
    plain = build_model(family, **base)
    model = with_adapters(plain, recipe_config(plain, 4, parts=parts), seed=seed)
    if not both:
        freeze_first_factors(model)
    return model


def stir(model: torch.nn.Module, seed: int, size: float = 0.1) -> None:
    """Add noise to every trained parameter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def prepared(model: Any) -> Any:
    family_of(model).prepare(model)
    return model


def write_base(folder: Path, family: str = "qwen3_vl", dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Write a tiny model and its processor as a released folder, and return the model."""
    write_processor_files(folder, family)
    model = build_model(family, dtype=dtype)
    model.save_pretrained(folder)
    return model


def lora_trainer(folder: Path, base: Path, *, arguments: dict[str, Any] | None = None, **changes: Any) -> VCSDTrainer:
    """A trainer of adapters on the model in a folder, as a user would write it."""
    model = changes.pop("model", None) or type(build_model()).from_pretrained(base, dtype=torch.float32)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"])
    given = {"peft_config": config, "processing_class": load_processor(base), **changes}
    return make_trainer(folder, model=model, arguments=arguments, **given)
