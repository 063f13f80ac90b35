"""Adapters in PEFT's own format, and weights with the adapters merged into them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file

from vcsd.errors import ConfigError, install_command, shown
from vcsd.lora.attach import with_adapters
from vcsd.lora.supported import check_config
from vcsd.models.family import base_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from peft import LoraConfig
    from torch import Tensor, nn
    from transformers import PreTrainedModel

_MAX_PATTERN, _MAX_REPEATS = 1000, 4
"""Limits of a regular expression: its characters, and how many of them repeat something."""

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""PEFT's file names."""

MAX_RANK = 2**16
"""The largest rank; no layer is wider."""

_PREFIX = "base_model.model."
"""PEFT's prefix of the names of the base's modules."""


def adapter_config(model: nn.Module) -> LoraConfig:
    """Return the settings of a model's only adapter."""
    configs: Any = model.peft_config
    config: LoraConfig = next(iter(configs.values()))
    return config


def settings_of(config: LoraConfig) -> dict[str, object]:
    """Return the settings as plain values, without what depends on the version of PEFT or on the base's path.

    >>> from peft import LoraConfig
    >>> settings_of(LoraConfig(r=4, target_modules=["v_proj", "q_proj"]))["target_modules"]
    ['q_proj', 'v_proj']
    """
    left_out = {"peft_version", "base_model_name_or_path", "inference_mode", "auto_mapping", "revision"}
    untyped: Any = config
    values = {name: value for name, value in untyped.to_dict().items() if value and name not in left_out}
    plain: dict[str, object] = json.loads(json.dumps(values, default=_plain))
    return plain


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def write_config(config: LoraConfig, folder: Path) -> None:
    """Write `adapter_config.json`. PEFT's marker for training is removed, as its own `save_pretrained` does."""
    mode, config.inference_mode = config.inference_mode, True
    try:
        config.save_pretrained(str(folder))
    finally:
        config.inference_mode = mode


def read_config(folder: Path) -> LoraConfig:
    """Read the settings that a checkpoint of adapters holds."""
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise ConfigError([f"exporting adapters needs the package peft: {install_command('peft')}."]) from error
    path = folder / CONFIG
    try:
        config: LoraConfig = LoraConfig.from_pretrained(str(folder))
        check_config(config)
        _refuse_endless_patterns(path, config)
        is_whole = isinstance(config.r, int) and 1 <= config.r <= MAX_RANK
    except ConfigError:
        raise
    except Exception as error:  # PEFT raises anything for a file that is not one
        raise ConfigError(
            [f"{path} cannot be read: {type(error).__name__}: {error}. Use an earlier checkpoint."]
        ) from error
    if not is_whole:
        raise ConfigError([f"{path}: r = {shown(config.r)} is not a rank from 1 to {MAX_RANK:,}."])
    return config


def _refuse_endless_patterns(path: Path, config: LoraConfig) -> None:
    """Raise a ConfigError for a regular expression on which a search could run for years, such as `(.+)+x`.

    PEFT matches them with the names of all modules. Without a repeated group, the time is polynomial.
    """
    given = (config.target_modules, config.exclude_modules, config.layers_pattern)
    patterns = [pattern for pattern in given if isinstance(pattern, str)]
    patterns += [*(config.rank_pattern or {}), *(config.alpha_pattern or {})]
    patterns += [pattern for group in given if isinstance(group, list | set) for pattern in group]
    for pattern in patterns:
        is_short = len(pattern) <= _MAX_PATTERN and len(re.findall(r"[*+{]", pattern)) <= _MAX_REPEATS
        if not is_short or re.search(r"\)\s*[*+{]", pattern):
            raise ConfigError([f"{path}: the pattern {shown(pattern)} could take years to match. Name the modules."])


def write_adapter(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write adapter tensors under PEFT's names, for `PeftModel.from_pretrained`."""
    if odd := [name for name in tensors if ".lora_" not in name]:
        raise ConfigError([f"the checkpoint has a tensor that is not of an adapter: {shown(odd[0])}."])
    _refuse_misfits(tensors)
    named = {_PREFIX + _without_adapter_name(name): tensor.detach().cpu() for name, tensor in tensors.items()}
    save_file({name: tensor.contiguous() for name, tensor in named.items()}, folder / WEIGHTS, {"format": "pt"})


def _refuse_misfits(tensors: Mapping[str, Tensor]) -> None:
    """Raise a ConfigError unless each factor has its counterpart, with the same rank, and both are finite."""
    for name, tensor in tensors.items():
        is_first = ".lora_A." in name or ".lora_embedding_A." in name
        pair = name.replace("_A.", "_B.") if is_first else name.replace("_B.", "_A.")
        other = tensors.get(pair)
        if pair == name or other is None or tensor.dim() != 2 or other.dim() != 2:
            raise ConfigError([f"the adapter's factor {shown(name, 200)} has no counterpart that fits it."])
        ranks = (tensor.shape[0], other.shape[1]) if is_first else (tensor.shape[1], other.shape[0])
        if ranks[0] != ranks[1]:
            raise ConfigError([f"the factors of {shown(name, 200)} have the ranks {ranks[0]} and {ranks[1]}."])
        if not tensor.isfinite().all():
            raise ConfigError([f"the adapter is ruined: {shown(name, 200)} is not finite. Use an earlier checkpoint."])


def _without_adapter_name(name: str) -> str:
    """Remove the adapter's name, which PEFT's files do not contain.

    >>> _without_adapter_name("model.q_proj.lora_A.default.weight")
    'model.q_proj.lora_A.weight'
    >>> _without_adapter_name("embed.lora_embedding_A.default")
    'embed.lora_embedding_A'
    """
    parts = name.split(".")
    place = next(index for index, part in enumerate(parts) if part.startswith("lora_"))
    return ".".join([*parts[: place + 1], *parts[place + 2 :]])


def merged(base: PreTrainedModel, config: LoraConfig, load: Callable[[nn.Module], None]) -> PreTrainedModel:
    """Return the base with an adapter merged into its weights. `load` fills the adapter's tensors."""
    config.inference_mode = False
    model: Any = with_adapters(base, config)
    load(base_model(model))
    plain: PreTrainedModel = model.merge_and_unload(safe_merge=True)
    return plain
