"""Save a batch whose loss or gradient was not finite, with enough detail to score it again."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vcsd.batch import Batch

log = logging.getLogger(__name__)


def save_for_inspection(path: Path, step: int, batch: Batch, bad: Sequence[str], numbers: dict[str, float]) -> None:
    """Write the prompts, the responses and the names of parameters with bad gradients as JSON. `step` counts from 1."""
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
