"""A step's rollouts from vLLM: send the weights, prove that they arrived, record it, sample, sleep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  pydantic and dataclasses read annotations
from typing import TYPE_CHECKING, TypeVar

import torch

from vcsd.errors import ConfigError
from vcsd.rollout.vllm.vllm_engine import VLLMEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from vcsd.models.packed.packing import Prompt

SYNC_FILE = "weight_sync.jsonl"
"""The file of a run folder with one line per sync."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class VLLMSettings:
    """How vLLM is started: the model's folder, the longest prompt with its response, and the memory it may take."""

    folder: Path
    max_tokens: int | None = None
    memory_share: float = 0.3


class ProvenRollouts:
    """Gives out an engine with the student's current weights. `record` is called with each sync."""

    def __init__(
        self,
        student: nn.Module,
        tokenizer: object,
        settings: VLLMSettings,
        *,
        bf16: bool,
        record: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._record = record
        self._probe: Prompt | None = None
        self._engine = VLLMEngine(
            student,
            settings.folder,
            tokenizer=tokenizer,
            dtype=torch.bfloat16 if bf16 else torch.float32,
            max_tokens=settings.max_tokens,
            memory_share=settings.memory_share,
        )

    def draw(self, prompts: Sequence[Prompt], step: int, draw: Callable[[VLLMEngine], Result]) -> Result:
        """Return what `draw` draws from the student of a step, counted from 1."""
        self._probe = self._probe or _with_image(prompts)
        self._record(self._engine.refresh(step, self._probe).as_line())
        result = draw(self._engine)
        self._engine.sleep()
        return result


def _with_image(prompts: Sequence[Prompt]) -> Prompt:
    """Return the first prompt with an image, so that the probe also sees the vision tower; else the first."""
    if not prompts:
        raise ConfigError(["the first step has no usable prompt to check vLLM's weights with."])
    return next((prompt for prompt in prompts if prompt.pixel_values is not None), prompts[0])
