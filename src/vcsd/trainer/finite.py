"""Find tensors that are not finite, and save the batch that they came from.

The search is cheap: one number per tensor on its own device, and one read of the result. Each rank checks its own part
of sharded tensors, and all ranks return the same names.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import torch

from vcsd.parallel.ranks import gathered
from vcsd.parallel.sharding import local_part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from vcsd.batch import Batch

log = logging.getLogger(__name__)


@torch.no_grad()
def ruined(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that hold a NaN or an infinity.

    Checks the largest absolute value: a NaN makes it NaN, and a sum of squares could overflow.

    >>> ruined({"a": torch.tensor([1e38, -3e38]), "b": torch.tensor([1.0, float("nan")])})
    ['b']
    """
    parts = {name: local_part(tensor) for name, tensor in tensors.items()}
    own = _ruined_here({name: part for name, part in parts.items() if part.is_floating_point() and part.numel()})
    if all(parts[name] is tensor for name, tensor in tensors.items()):
        return own
    everywhere = {name for names in gathered(own) for name in names}
    return [name for name in tensors if name in everywhere]


def _ruined_here(floating: Mapping[str, Tensor]) -> list[str]:
    if not floating or torch.nn.utils.get_total_norm(floating.values(), torch.inf).isfinite():
        return []
    return [name for name, tensor in floating.items() if not tensor.isfinite().all()]


def save_for_inspection(path: Path, step: int, batch: Batch, bad: Sequence[str], numbers: dict[str, float]) -> None:
    """Write a batch whose loss or gradient was not finite as JSON, with enough detail to score it again.

    `bad` names the parameters without a finite gradient. `step` counts from 1.
    """
    prompts = {
        group.example_id: getattr(group.prompt, "text", None) or group.prompt.input_ids.tolist()
        for group in batch.student
    }
    content = {
        "step": step,
        **{name: repr(value) for name, value in numbers.items()},
        "parameters_without_finite_gradient": list(bad),
        "prompts": prompts,
        "rollouts": [
            {"example_id": r.example_id, "index": r.index, "token_ids": list(r.token_ids), "stop": r.stop}
            for r in batch.rollouts
        ],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8", errors="replace")
    except OSError as error:  # the run can do without the file
        log.warning("%s could not be written: %s.", path, error)
