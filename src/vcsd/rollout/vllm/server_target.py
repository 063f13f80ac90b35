"""A vLLM server as a target of weight syncs and requests.

Requests carry token ids and image features (`/inference/v1/generate`), never messages. Weights travel by vLLM's
transfer protocol: start, update, finish with a version. A server that was restarted has another version; it gets the
backend's settings and all weights again.
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from vcsd.errors import RunError
from vcsd.rollout.vllm.file_transfer import FileSender
from vcsd.rollout.vllm.in_process import to_items
from vcsd.rollout.vllm.server_client import NotOfferedError, ServerClient, ServerLostError, ServerRefusedError
from vcsd.rollout.vllm.vllm_requests import RequestRefusedError
from vcsd.rollout.vllm.weight_sync import DeltaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import torch

    from vcsd.rollout.vllm.vllm_requests import RequestImages
    from vcsd.rollout.vllm.weight_sync import Named

MAX_OPEN = 64
"""Requests that wait for the server at the same time."""


class WeightSender(Protocol):
    """Sends weights to a server."""

    sends_changes: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of the last sync."""

    def connect(self, client: ServerClient) -> None:
        """Set up the transfer to a server that was just started, or restarted."""

    def send(self, client: ServerClient, weights: Iterable[Named]) -> None:
        """Send weights, between the start and the end of an update."""

    def close(self) -> None:
        """Release what `connect` opened."""


class SendsFiles:
    """Weights by way of files in memory; for a server on this machine."""

    def __init__(self, *, sends_changes: bool = False) -> None:
        self._files = FileSender(sends_changes=sends_changes)
        self.sends_changes = sends_changes

    def connect(self, client: ServerClient) -> None:
        """Tell the server where the files will be. The next sync sends all weights."""
        self._files.forget()
        client.post("/init_weight_transfer_engine", {"init_info": self._files.init_info})

    def send(self, client: ServerClient, weights: Iterable[Named]) -> None:
        """Write file after file, and let the server read each."""
        try:
            for update in self._files.updates(weights):
                client.post("/update_weights", {"update_info": update})
        except Exception:
            self._files.forget()
            raise

    @property
    def num_bytes(self) -> int:
        """Bytes that the last sync wrote."""
        return self._files.num_bytes

    def close(self) -> None:
        """Remove the files."""
        self._files.close()


class SendsNccl:
    """Broadcasts whole weights by NCCL to a server's workers. Written against vLLM 0.30.0; not run on a GPU.

    `shapes` has the order in which weights are sent. vLLM's own trainer engine also drives start and end of an update,
    which `WeightSync` does here, so it gets a client that only passes the update on.
    """

    sends_changes = False

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> None:
        self._shapes, self._dtype = dict(shapes), dtype
        self._engine: Any = None
        self._source: Any = None
        self.num_bytes = 0

    def connect(self, client: ServerClient) -> None:
        """Form a group of this process and the server's workers."""
        from vllm.distributed.weight_transfer import nccl_engine

        self.close()
        self._source = _weight_source(self._shapes, self._dtype)
        address, port = _own_address(client.host)
        info = nccl_engine.NCCLTrainerInitInfo(
            master_address=address,
            master_port=port,
            world_size=1 + int(client.get("/get_world_size")["world_size"]),
            rank=0,
        )
        self._engine = nccl_engine.NCCLTrainerWeightTransferEngine.trainer_init(
            info, client=UpdatesOnly(client), source=self._source
        )

    def send(self, client: ServerClient, weights: Iterable[Named]) -> None:
        """Broadcast the weights, while the server receives them."""
        assert self._engine is not None, "connect comes first"
        self._source.weights = weights
        self._engine.send_weights()
        self.num_bytes = self._source.num_bytes

    def close(self) -> None:
        """Leave the group."""
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None


class UpdatesOnly:
    """vLLM's client protocol over HTTP, without start and end of an update: `WeightSync` does them."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Let the workers join the group."""
        self._client.post("/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        """Do nothing: `WeightSync` has started it."""

    def update_weights(self, update_info: Any) -> None:
        """Let the workers receive. CUDA IPC handles would be pickled, so they are refused."""
        if isinstance(update_info, dict) and any("ipc" in key for key in update_info):
            raise ValueError("weights are not sent by CUDA IPC over HTTP: the server would unpickle what it is sent.")
        self._client.post("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Do nothing: `WeightSync` finishes it."""


def _weight_source(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> Any:
    """Define vLLM's source of weights here, because its base class is vLLM's."""
    from vllm.distributed.weight_transfer import base

    class SyncSource(base.WeightSource):  # type: ignore[misc]
        """The weights of the current sync, in the order of `shapes`."""

        weights: Iterable[Named] = ()
        num_bytes = 0

        def metadata(self) -> list[Any]:
            """Return names, types and shapes without gathering anything."""
            return [base.ParamMeta(name, dtype, tuple(shape)) for name, shape in shapes.items()]

        def __iter__(self) -> Iterator[Named]:
            self.num_bytes = 0
            for name, tensor in self.weights:
                self.num_bytes += tensor.numel() * tensor.element_size()
                yield name, tensor

    return SyncSource()


def _own_address(server: str) -> tuple[str, int]:
    """Return an address of this machine that the server can reach, and a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server, 9))  # sends nothing
        address = str(probe.getsockname()[0])
    with socket.socket() as free:
        free.bind((address, 0))
        return address, int(free.getsockname()[1])


class ServerTarget:
    """A server. `encode` turns an image's features into text; it is vLLM's own unless a test gives another."""

    is_asleep = False
    is_shared = True
    """All ranks ask the same server; rank 0 sends its weights."""

    def __init__(
        self, client: ServerClient, sender: WeightSender, encode: Callable[[RequestImages], list[str]] | None = None
    ) -> None:
        self.client, self._sender = client, sender
        self._encode = encode or encoded_images
        self._version: str | None = None

    def start_weight_update(self) -> None:
        """Begin an update. A server with another version than the last one sent was restarted."""
        if self._version is None or self.weight_version() != self._version:
            self._sender.connect(self.client)
        self._version = None
        try:
            self.client.post("/start_weight_update")
        except ServerLostError:
            self.client.post("/finish_weight_update")  # an update that another trainer did not finish
            self.client.post("/start_weight_update")

    def load(self, weights: Iterable[Named]) -> None:
        """Send the weights."""
        try:
            self._sender.send(self.client, weights)
        except ServerLostError as error:
            if not self._sender.sends_changes or not self.client.is_ready():
                raise
            raise DeltaMismatchError(f"the server could not apply the changes: {error}") from error

    def finish_weight_update(self, version: str) -> None:
        """End an update under a version."""
        self.client.post("/finish_weight_update", {"weight_version": version})
        self._version = version

    @property
    def sent_bytes(self) -> int:
        """Bytes that the last sync sent."""
        return self._sender.num_bytes

    @property
    def room(self) -> int | None:
        """Tokens of the longest prompt with its response that fit; None if the server does not say."""
        try:
            return int(self.client.get("/v1/models")["data"][0]["max_model_len"])
        except (NotOfferedError, ServerRefusedError, RequestRefusedError):
            return None
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            return None

    def weight_version(self) -> str:
        """Return the version of the weights in use."""
        return str(self.client.get("/weight_info")["weight_version"])

    def clear_caches(self) -> None:
        """Forget prefixes, images and encoder outputs."""
        self.client.post("/reset_mm_cache")
        self.client.post("/reset_encoder_cache")
        if not self.client.post("/reset_prefix_cache")["success"]:
            raise RunError("the vLLM server did not clear its prefix cache: somebody else's requests are running.")

    def to_input(self, ids: list[int], images: RequestImages | None, salt: str) -> object:
        """The prompt as the server takes it: ids, encoded patches and where they belong."""
        if images is None:
            return {"token_ids": ids, "cache_salt": salt}
        features = {
            "mm_hashes": {"image": images.names},
            "mm_placeholders": {"image": [{"offset": span.offset, "length": span.length} for span in images.spans]},
            "kwargs_data": {"image": self._encode(images)},
        }
        return {"token_ids": ids, "features": features, "cache_salt": salt}

    def generate(
        self, inputs: Sequence[object], values: Sequence[dict[str, object]], tell: Callable[[int], None]
    ) -> list[Any]:
        """Answer all requests, in their order, or raise: an incomplete batch is never returned."""
        bodies = [
            {**_as_dict(prompt), "sampling_params": _as_json(value), "return_token_ids": True}
            for prompt, value in zip(inputs, values, strict=True)
        ]
        if not bodies:
            return []
        pool = ThreadPoolExecutor(min(MAX_OPEN, len(bodies)))
        try:
            futures = [pool.submit(self.client.post, "/inference/v1/generate", body) for body in bodies]
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                tell(done)
            return [to_reply(future.result()) for future in futures]
        except Exception:
            pool.shutdown(wait=True, cancel_futures=True)  # weights must not change under requests that still run
            raise
        except BaseException:  # Ctrl-C: Python does not exit before all threads of the pool have their replies
            with self.client.given_up():
                pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def sleep(self) -> None:
        """Do nothing: a server has its own GPUs."""

    def wake(self) -> None:
        """Do nothing: a server does not sleep."""

    def close(self) -> None:
        """Remove what was written for the server."""
        self._sender.close()


def encoded_images(images: RequestImages) -> list[str]:
    """Encode features as vLLM's server reads them: its own format, which holds no pickle."""
    from vllm.entrypoints.scale_out.token_in_token_out.mm_serde import encode_mm_kwargs_item

    return [encode_mm_kwargs_item(item) for item in to_items(images)["image"]]


def to_reply(reply: Any) -> Any:
    """Convert a server's reply to the form that vLLM has in this process."""
    try:
        outputs = [_to_output(choice) for choice in sorted(reply["choices"], key=lambda choice: int(choice["index"]))]
        return SimpleNamespace(prompt_token_ids=_token_ids(reply["prompt_token_ids"]), outputs=outputs)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(
            f"the vLLM server's reply is incomplete or not valid ({error!r}). It needs vLLM 0.30.0."
        ) from error


def _to_output(choice: Any) -> Any:
    ids, logs = _token_ids(choice["token_ids"]), choice.get("logprobs")
    if logs is not None:
        entries = zip(ids, logs["content"], strict=True)
        logs = [{token: SimpleNamespace(logprob=float(entry["logprob"]))} for token, entry in entries]
    return SimpleNamespace(token_ids=ids, finish_reason=choice["finish_reason"], logprobs=logs)


def _token_ids(ids: object) -> list[int]:
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise TypeError("token ids that are not whole numbers")
    return ids


def _as_dict(prompt: object) -> dict[str, object]:
    assert isinstance(prompt, dict)
    return prompt


def _as_json(values: dict[str, object]) -> dict[str, object]:
    """JSON has no whole numbers as keys."""
    bias = values.get("logit_bias")
    if not isinstance(bias, dict):
        return values
    return {**values, "logit_bias": {str(token): number for token, number in bias.items()}}
