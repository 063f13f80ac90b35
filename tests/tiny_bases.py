"""Random bases of the world's tokenizer: they see nothing and say anything, which is enough to test with."""

import dataclasses
import json
from functools import cache
from pathlib import Path

import torch

from vcsd.bases.curriculum import Curriculum
from vcsd.bases.tiny_models import build_model
from vcsd.bases.tokenizer import write_processor_files
from vcsd.world.parameters import PARAMETERS


def make_base(folder: Path, family: str = "qwen3_vl", seed: int = 0) -> Path:
    """A model folder with weights noisy enough that the image matters."""
    model = build_model(family, "tiny", seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    write_processor_files(folder, family)
    return folder


@cache
def shared_base(root: str, family: str = "qwen3_vl", seed: int = 0) -> Path:
    return make_base(Path(root) / f"{family}-{seed}", family, seed)


def write_planned_card(folder: Path, planned) -> None:
    """The card of a base that was made as planned."""
    plan = Curriculum(planned.family, planned.size, planned.seed, PARAMETERS.changed(planned.overrides))
    card = {**plan.identity(), "world": dataclasses.asdict(plan.parameters)}
    (folder / "card.json").write_text(json.dumps(card))
