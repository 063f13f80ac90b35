"""What a run is made of, as hashes: its data, the weights it starts from, its tokenizer and its chat template.

A checkpoint holds them, and a run resumes only with the same ones. They are taken before the first step, when the
student still has the weights of its folder.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, runtime_checkable

import torch

from vcsd.data.content import cells_hash, examples_hash, file_hash
from vcsd.models.processor import TOKENIZER_FILES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vcsd.data.stream import ExampleSource
    from vcsd.models.processor import Processor

_NUM_VALUES = 16
"""How many values of each weight are hashed: another model differs in all of them."""


class Content(TypedDict):
    """The hashes."""

    data: str
    weights: str
    tokenizer: str | None
    chat_template: str | None
    image_size: str | None


@runtime_checkable
class _HasContent(Protocol):
    def content_hash(self) -> str: ...


def content_of(model: nn.Module, processor: Processor, rows: ExampleSource) -> Content:
    """Return the hashes of what a run starts from."""
    template = getattr(processor, "chat_template", None)
    size = getattr(getattr(processor, "image_processor", None), "size", None)
    return {
        "data": rows.content_hash() if isinstance(rows, _HasContent) else examples_hash(rows),
        "weights": _weights_hash(model),
        "tokenizer": _tokenizer_hash(processor),
        "chat_template": None if template is None else cells_hash([json.dumps(template, sort_keys=True)]),
        "image_size": None if size is None else cells_hash(sorted((key, n) for key, n in dict(size).items() if n)),
    }


def _weights_hash(model: nn.Module) -> str:
    """Hash names, types, shapes and some values of all weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in model.named_parameters():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(_some_values(weight).numpy().tobytes())
    return digest.hexdigest()


def _some_values(weight: Tensor) -> Tensor:
    """Return a few values, spread over a weight, as bytes on the CPU."""
    flat = weight.detach().reshape(-1)
    return flat[:: max(1, len(flat) // _NUM_VALUES)].contiguous().cpu().view(torch.uint8)


def _tokenizer_hash(processor: Processor) -> str | None:
    """Hash the tokenizer's files, or its vocabulary if it has none."""
    source = getattr(processor, "source_folder", None)
    if source is not None and Path(source).is_dir():
        paths = [Path(source) / name for name in TOKENIZER_FILES]
        return cells_hash([path.name, file_hash(path)] for path in paths if path.is_file())
    tokenizer = getattr(processor, "tokenizer", None)
    return None if tokenizer is None else cells_hash(sorted(tokenizer.get_vocab().items()))
