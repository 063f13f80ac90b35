"""Hashes of what a run starts from: data, some images, first weights, tokenizer and chat template.

A checkpoint holds them, and a run resumes only with the same ones. They are computed before the first step, when the
student still has the weights of its folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, runtime_checkable

from vcsd.data.content import cells_hash, examples_hash, file_hash, images_hash
from vcsd.errors import ConfigError
from vcsd.models.processor import TOKENIZER_FILES
from vcsd.parallel.ranks import gathered
from vcsd.teacher import weights_hash

if TYPE_CHECKING:
    from torch import nn

    from vcsd.data.stream import ExampleSource
    from vcsd.models.processor import Processor


class Content(TypedDict):
    """The hashes of what a run starts from; None for parts that it lacks."""

    data: str
    images: str | None
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
        "images": images_hash(rows),
        "weights": weights_hash(model.named_parameters()),
        "tokenizer": _tokenizer_hash(processor),
        "chat_template": None if template is None else cells_hash([json.dumps(template, sort_keys=True)]),
        "image_size": None if size is None else cells_hash(sorted((key, n) for key, n in dict(size).items() if n)),
    }


def same_content(content: Content) -> Content:
    """Return the hashes. Raise a ConfigError unless they are the same on all ranks."""
    parts = gathered(content)
    different = [name for name in content if len({part[name] for part in parts}) > 1]  # type: ignore[literal-required]
    if different:
        raise ConfigError(
            [
                f"the ranks differ in {', '.join(different)}. All machines must read the same files; with accelerate, "
                "set fsdp_cpu_ram_efficient_loading: false, so that every rank loads the weights."
            ]
        )
    return content


def _tokenizer_hash(processor: Processor) -> str | None:
    """Hash the tokenizer's files, or its vocabulary if it has none."""
    source = getattr(processor, "source_folder", None)
    if source is not None and Path(source).is_dir():
        paths = [Path(source) / name for name in TOKENIZER_FILES]
        return cells_hash([path.name, file_hash(path)] for path in paths if path.is_file())
    tokenizer = getattr(processor, "tokenizer", None)
    return None if tokenizer is None else cells_hash(sorted(tokenizer.get_vocab().items()))
