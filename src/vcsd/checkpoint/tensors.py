"""Write a safetensors file in pieces, because the library's own writer first copies every tensor into memory."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

import torch

from vcsd.teacher import raw_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8


def num_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the size of tensors on disk, without the header."""
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors.values())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> tuple[int, str]:
    """Write tensors in the safetensors format, flush to disk, and return the file's size and SHA-256.

    Only one piece of one tensor at a time is copied from its device.
    """
    # Wide types first, so that every tensor starts at a multiple of its width, as readers expect.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header, offset = {}, 0
    for name in names:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.dtype.itemsize
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for part in (len(text).to_bytes(8, "little"), text):
            file.write(part)
            digest.update(part)
            size += len(part)
        for name in names:
            for piece in raw_bytes(tensors[name]):
                file.write(piece)
                digest.update(piece)
                size += piece.nbytes
        file.flush()
        sync(file.fileno())
    return size, digest.hexdigest()


def write_text(path: Path, text: str) -> tuple[int, str]:
    """Write a text file, flush it to disk, and return its size and SHA-256."""
    content = text.encode()
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        sync(file.fileno())
    return len(content), hashlib.sha256(content).hexdigest()


def sync(descriptor: int) -> None:
    """Flush a file to disk: a rename must not become visible before the content."""
    os.fsync(descriptor)


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
