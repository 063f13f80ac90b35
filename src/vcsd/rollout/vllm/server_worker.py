"""The extension of a vLLM server (`--worker-extension-cls`) that takes this package's weights.

vLLM's worker processes import this module before they build the model. It registers the backend that reads weights
from files, and on a CPU keeps vLLM from packing them. Needs vLLM; only a server imports it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vllm.distributed.weight_transfer import WeightTransferEngineFactory, base
from vllm.model_executor.model_loader import reload
from vllm.platforms import current_platform

from vcsd.rollout.vllm.file_transfer import FileReceiver
from vcsd.rollout.vllm.in_process import keep_plain_weights

BACKEND = "vcsd_files"

if current_platform.is_cpu():
    keep_plain_weights()


class WeightWorker:
    """Mixed into vLLM's worker. It adds nothing: importing this module is what matters."""


@dataclass
class FileInit(base.WeightTransferInitInfo):  # type: ignore[misc]
    """Where the trainer writes, and whether it will send changes only."""

    folder: str
    keeps_copy: bool = False


@dataclass
class FileUpdate(base.WeightTransferUpdateInfo):  # type: ignore[misc]
    """One file, and what is in it."""

    file: str
    names: list[str]
    forms: list[str]
    checksums: list[int]


class FileWeights(base.WeightTransferEngine):  # type: ignore[misc]
    """Loads weights from files, with vLLM's own steps before and after, as its NCCL backend does."""

    init_info_cls, update_info_cls = FileInit, FileUpdate
    _receiver: FileReceiver | None = None

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Note where the trainer writes."""
        self._receiver = FileReceiver(init_info.folder, keeps_copy=init_info.keeps_copy)

    def start_weight_update(self) -> None:
        """Bring the layers back into the layout of a checkpoint."""
        reload.initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Load the weights of one file."""
        if self._receiver is None:
            raise RuntimeError("no trainer has connected yet.")
        self.model.load_weights(self._receiver.read(asdict(update_info)))

    def finish_weight_update(self) -> None:
        """Bring the layers into the layout of the kernels."""
        reload.finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Do nothing: there is no connection."""


def _register() -> None:
    known: dict[str, Any] = WeightTransferEngineFactory._registry
    if BACKEND not in known:
        WeightTransferEngineFactory.register_engine(BACKEND, FileWeights)


_register()
