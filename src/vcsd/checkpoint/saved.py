"""Read the tensors of a checkpoint: from one safetensors file, or from those of many ranks, whole or in part."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load

from vcsd.checkpoint.shards import has_shards
from vcsd.errors import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

SUFFIX = ".safetensors"


def shards_of(path: Path) -> Path:
    """Return the folder that holds the shards of a file: that of `student.safetensors` is `student`."""
    return path.with_suffix("")


class TensorFile(Mapping[str, "Tensor"]):
    """The tensors of a safetensors file, each read on access.

    If ranks wrote their shards, they lie in a folder of the file's name without its suffix, and are read from there.
    """

    def __init__(self, path: Path) -> None:
        folder = shards_of(path)
        self._files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() and not path.exists() else [path]
        self._is_one = self._files == [path]
        self._reader = _Reader(self._files)
        try:
            if self._is_one:
                untyped: Any = safe_open
                self._file = untyped(str(path), framework="pt")
            self._names: dict[str, None] = dict.fromkeys(self._file.keys() if self._is_one else self._layout())
        except Exception as error:  # safetensors and torch raise anything for a file that is not one
            raise ConfigError([f"{path} cannot be read: {error}. Use an earlier checkpoint."]) from error

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        if self._is_one:
            tensor: Tensor = self._file.get_tensor(name)
            return tensor
        saved = self._layout()[name]
        whole = torch.empty(saved.size, dtype=saved.properties.dtype)
        self.read_into({name: whole})
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def kinds(self) -> dict[str, tuple[torch.Size, torch.dtype]]:
        """Return the shape and type of each tensor."""
        return {name: (saved.size, saved.properties.dtype) for name, saved in self._layout().items()}

    def read_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill tensors in place. Each rank reads only its own part of a tensor that is spread over ranks."""
        if self._is_one and not has_shards(tensors):
            for name, tensor in tensors.items():
                tensor.copy_(self[name])
        elif tensors:
            with warnings.catch_warnings():  # torch warns that ranks do not communicate, as `no_dist` asks
                warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
                load(dict(tensors), storage_reader=self._reader, no_dist=True)

    def _layout(self) -> dict[str, TensorStorageMetadata]:
        layout: dict[str, TensorStorageMetadata] = self._reader.read_metadata().state_dict_metadata  # type: ignore[assignment]
        for name, saved in layout.items():
            if sum(chunk.sizes.numel() for chunk in saved.chunks) < saved.size.numel():
                raise ValueError(f"the shards lack a part of {name}")
        return layout


class _Files(FileSystem):
    """A file system that lists the given files only."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return [str(file) for file in self.files]


class _Reader(HuggingFaceStorageReader):
    """Reads the given files. The base class reads all that lie in a folder."""

    def __init__(self, files: list[Path]) -> None:
        super().__init__(str(files[0].parent) if files else ".")
        self.fs = _Files(files)
