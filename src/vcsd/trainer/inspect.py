"""A batch that gave no finite loss, written down for inspection: enough to draw and score it again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from vcsd.batch import Batch


def save_for_inspection(folder: Path, step: int, batch: Batch, model: nn.Module, numbers: dict[str, float]) -> Path:
    """Write prompts, responses and where gradients went wrong as JSON. Images are named by their example."""
    bad = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not parameter.grad.isfinite().all()
    ]
    prompts: dict[str, Any] = {
        group.example_id: getattr(group.prompt, "text", None) or group.prompt.input_ids.tolist()
        for group in batch.student
    }
    content = {
        "step": step,
        **{name: repr(value) for name, value in numbers.items()},
        "parameters_without_finite_gradient": bad,
        "prompts": prompts,
        "rollouts": [
            {"example_id": r.example_id, "index": r.index, "token_ids": list(r.token_ids), "stop": r.stop}
            for r in batch.rollouts
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    return path
