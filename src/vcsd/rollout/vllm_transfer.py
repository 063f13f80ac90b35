"""The worker's side of a weight sync within one process. vLLM imports this module; nothing else should."""

from __future__ import annotations

from dataclasses import dataclass

from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

from vcsd.rollout.vllm_engine import waiting_weights


@dataclass
class NoInfo(WeightTransferInitInfo):
    """Nothing has to be known in advance."""


@dataclass
class WaitingKey(WeightTransferUpdateInfo):
    """Where the weights are put down."""

    key: str


class HandOver(WeightTransferEngine[NoInfo, WaitingKey]):
    """Takes weights that the trainer has put down in the same process."""

    init_info_cls = NoInfo
    update_info_cls = WaitingKey

    def init_transfer_engine(self, init_info: NoInfo) -> None:
        """Do nothing: there is no connection."""

    def start_weight_update(self) -> None:
        """Bring the layers back to the layout of a checkpoint. On a CPU they have kept it."""
        if True:
            initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: WaitingKey) -> None:
        """Load the weights, one at a time."""
        self.model.load_weights(iter(waiting_weights(update_info.key)))

    def finish_weight_update(self) -> None:
        """Bring the layers into the layout of the kernels."""
        if True:
            finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Do nothing: there is no connection."""
