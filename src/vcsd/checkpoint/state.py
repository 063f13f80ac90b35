"""Optimizer and random generators as tensors and plain values, where `transformers.Trainer` uses pickles."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vcsd.checkpoint.shards import has_shards
from vcsd.errors import ConfigError
from vcsd.parallel.ranks import gathered
from vcsd.parallel.sharding import local_part
from vcsd.teacher import own_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from vcsd.checkpoint.saved import TensorFile

_NO_GAUSS = float("nan")
_SAME_MODEL = "Resume with the model that the run trained."

OptimizerSettings = dict[str, list[dict[str, Any]]]
"""Under "groups", the settings of each parameter group; `params` holds the names of its parameters."""


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> tuple[dict[str, Tensor], OptimizerSettings]:
    """Return the tensors by `parameter/field`, and the settings of the parameter groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    for parameter, fields in optimizer.state.items():
        for key, value in fields.items():
            if not isinstance(value, torch.Tensor):
                raise ConfigError([f"the optimizer keeps {key!r} as {type(value).__name__}; use AdamW."])
            tensors[f"{names[id(parameter)]}/{key}"] = value
    groups = [
        {**{k: v for k, v in group.items() if k != "params"}, "params": [names[id(p)] for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    return tensors, {"groups": groups}


def load_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: TensorFile, settings: OptimizerSettings
) -> None:
    """Load a saved state into an optimizer over parameters of the same names."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]
    if own != [group["params"] for group in settings["groups"]]:
        raise ConfigError(["the checkpoint's optimizer differs in its parameters. Freeze the same parts."])
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, value in _for_parameters(tensors, dict(model.named_parameters())).items():
        name, _, field = key.rpartition("/")
        by_name.setdefault(name, {})[field] = value
    order = [name for group in own for name in group]
    groups, start = [], 0
    for group in settings["groups"]:
        count = len(group["params"])
        groups.append({**_with_tuples(group), "params": list(range(start, start + count))})
        start += count
    state = {index: by_name[name] for index, name in enumerate(order) if name in by_name}
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _for_parameters(tensors: TensorFile, parameters: Mapping[str, nn.Parameter]) -> Mapping[str, Tensor]:
    """Read the moments of sharded parameters as shards like them; return other tensors as they are."""
    if not has_shards(parameters):
        return tensors
    shards: dict[str, Tensor] = {}
    for key, (shape, dtype) in tensors.kinds().items():
        parameter = parameters[key.rpartition("/")[0]]
        is_like_it = parameter.shape == shape
        shards[key] = torch.empty_like(parameter, dtype=dtype) if is_like_it else torch.empty(shape, dtype=dtype)
    tensors.read_into(shards)
    return shards


def _with_tuples(group: Mapping[str, object]) -> dict[str, object]:
    """Turn lists back into tuples, which JSON lacks: Adam's betas are one."""
    return {key: tuple(value) if isinstance(value, list) and key != "params" else value for key, value in group.items()}


def random_state() -> dict[str, Tensor]:
    """Return the states of all global generators. This package uses keyed ones, but other code may use these."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    assert (version, kind) == (3, "MT19937"), "generators of another kind"
    state = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor(_NO_GAUSS if gauss is None else gauss, dtype=torch.float64),
        "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "numpy_position": torch.tensor([position, has_gauss]),
        "numpy_gauss": torch.tensor(cached, dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state |= {f"cuda_{index}": device for index, device in enumerate(torch.cuda.get_rng_state_all())}
    return state


def set_random_state(state: Mapping[str, Tensor]) -> None:
    """Restore the global generators."""
    gauss = state["python_gauss"].item()
    random.setstate((3, tuple(state["python"].tolist()), None if math.isnan(gauss) else gauss))
    position, has_gauss = state["numpy_position"].tolist()
    np.random.set_state(
        ("MT19937", state["numpy"].numpy().astype(np.uint32), position, has_gauss, state["numpy_gauss"].item())
    )
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        names = [f"cuda_{index}" for index in range(torch.cuda.device_count())]
        if {name for name in state if name.startswith("cuda_")} == set(names):
            torch.cuda.set_rng_state_all([state[name] for name in names])


def load_weights(model: nn.Module, tensors: TensorFile, what: str) -> None:
    """Copy saved tensors in place into a model's tensors that a checkpoint holds, sharded or not.

    Their names, shapes and types must match exactly.
    """
    own = own_tensors(model)
    if own.keys() != tensors.keys():
        odd = sorted(own.keys() ^ tensors.keys())[:5]
        raise ConfigError([f"the {what} of the checkpoint has different weights: {', '.join(odd)}, ... {_SAME_MODEL}"])
    kinds = tensors.kinds()
    for name, tensor in own.items():
        if (tensor.shape, tensor.dtype) != kinds[name]:
            theirs, ours = ((tuple(shape), dtype) for shape, dtype in (kinds[name], (tensor.shape, tensor.dtype)))
            raise ConfigError(
                [f"the {what} of the checkpoint has {name} as {theirs}, this model as {ours}. {_SAME_MODEL}"]
            )
    with torch.no_grad():
        tensors.read_into(own)
    _refuse_ruined(own, what)


def _refuse_ruined(tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise a ConfigError if a tensor holds a NaN or an infinity. Each rank checks its own part of sharded ones."""
    parts = {name: local_part(tensor) for name, tensor in tensors.items() if tensor.is_floating_point()}
    names = [name for ruined in gathered([n for n, p in parts.items() if not p.isfinite().all()]) for name in ruined]
    if names:
        raise ConfigError(
            [
                f"the {what} of the checkpoint is ruined: {names[0]} is not finite. Use an earlier checkpoint; this "
                "package never saves such weights, so the file was made or changed by something else."
            ]
        )
