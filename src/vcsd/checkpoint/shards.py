"""Tensors that are spread over ranks: each rank writes its part as safetensors, with torch's distributed checkpoint.

    student/shard-00001-model-00002-of-00003.safetensors     rank 0's part of the tensors in the second of three files

The header of each file holds the places of its parts in the whole tensors, so any number of ranks can read them. Only
tensors may be written: torch silently corrupts the file if it is given anything else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from vcsd.checkpoint.tensors import sha256, sync
from vcsd.parallel.ranks import OtherRankError, on_every, reported_losses, this_rank
from vcsd.parallel.sharding import local_part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

NOTES = "__metadata__"
"""The key of a safetensors header for metadata about the file."""

FILE_BYTES = 2**30
"""Size of a file. torch builds each one in host memory before it writes it."""


def has_shards(tensors: Mapping[str, Tensor]) -> bool:
    """Whether any of the tensors is spread over ranks."""
    return any(isinstance(tensor, DTensor) for tensor in tensors.values())


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, str]]:
    """Write this rank's part of the tensors, and return the size and SHA-256 of each file it wrote. Collective."""
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()), "only tensors can be sharded"
    writer = HuggingFaceStorageWriter(str(folder), fqn_to_index_mapping=split(tensors), save_distributed=True)
    try:
        with reported_losses():
            save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, storage_writer=writer)
    except CheckpointException as error:  # raised on all ranks
        rank, (cause, _) = next(iter(error.failures.items()))
        raise OtherRankError(f"rank {rank}: {cause}") from error
    own = sorted(folder.glob(f"shard-{this_rank() + 1:05}-*.safetensors"))
    return on_every(lambda: {f"{folder.name}/{path.name}": _finished(path) for path in own})


def _finished(path: Path) -> tuple[int, str]:
    """Sort the metadata in a file's header, flush it to disk, and return its size and SHA-256.

    The library's order varies from file to file, so equal tensors would have different hashes.
    """
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header[NOTES] = dict(sorted(header[NOTES].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
        assert len(text) == size, "sorting a header must not change its size"
        file.seek(8)
        file.write(text)
        file.flush()
        sync(file.fileno())
    return path.stat().st_size, sha256(path)


def split(tensors: Mapping[str, Tensor], file_bytes: int = FILE_BYTES) -> dict[str, int]:
    """Return the number of each tensor's file, from 1, so that a rank's file stays near `file_bytes`.

    >>> split({"a": torch.zeros(3), "b": torch.zeros(2), "c": torch.zeros(1)}, file_bytes=12)
    {'a': 1, 'b': 2, 'c': 2}
    """
    numbers, number, size = {}, 1, 0
    for name, tensor in tensors.items():
        part = local_part(tensor)
        num_bytes = part.numel() * part.dtype.itemsize
        if size and size + num_bytes > file_bytes:
            number, size = number + 1, 0
        numbers[name], size = number, size + num_bytes
    return numbers
