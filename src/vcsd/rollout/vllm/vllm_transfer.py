"""A backend of vLLM's weight-transfer protocol that hands tensors over within one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vcsd.rollout.vllm.weight_sync import Named

BACKEND = "vcsd_in_process"
_waiting: list[Iterable[Named]] = []
"""Weights on their way from the trainer to vLLM's worker."""


def hand_over(llm: Any, weights: Iterable[Named]) -> None:
    """Send weights to an engine in this process, between the start and the end of an update."""
    _waiting[:] = [weights]
    try:
        llm.update_weights({"update_info": {}})
    finally:
        _waiting.clear()


def register() -> None:
    """Register the backend with vLLM. Idempotent."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory as factory  # noqa: N813

    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, _worker_side())


def _worker_side() -> type:
    """Define the worker's side. It is defined here because its base classes are vLLM's."""
    from vllm.distributed.weight_transfer import base
    from vllm.model_executor.model_loader import reload

    @dataclass
    class NoInit(base.WeightTransferInitInfo):  # type: ignore[misc]
        """There is no connection to open."""

    @dataclass
    class NoUpdate(base.WeightTransferUpdateInfo):  # type: ignore[misc]
        """The weights lie ready in this process."""

    class HandOver(base.WeightTransferEngine):  # type: ignore[misc]
        """Loads the weights that lie ready, with vLLM's own steps before and after, as its NCCL backend does."""

        init_info_cls, update_info_cls = NoInit, NoUpdate

        def init_transfer_engine(self, init_info: object) -> None:
            """Do nothing: there is no connection."""

        def start_weight_update(self) -> None:
            """Bring the layers back into the layout of a checkpoint."""
            reload.initialize_layerwise_reload(self.model)

        def receive_weights(self, update_info: object) -> None:
            """Load the weights, one tensor at a time."""
            self.model.load_weights(iter(_waiting.pop()))

        def finish_weight_update(self) -> None:
            """Bring the layers into the layout of the kernels."""
            reload.finalize_layerwise_reload(self.model, self.model_config)

        def shutdown(self) -> None:
            """Do nothing: there is no connection."""

    return HandOver
