"""The folder of a model, local or downloaded from the hub, and the weights in it.

A folder may come from a stranger. Before transformers reads it:

refuse_unsafe   checks what config.json and the index of the weights would make transformers do
refuse_links    checks that files which are copied into checkpoints and exports are the folder's own
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.errors import (
    ConfigError,
    expanded,
    first_part_exists,
    is_file,
    is_folder,
    nearest_path,
    shown,
    similar_path,
)
from vcsd.models.shapes import SHAPES, known_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import dtype

    from vcsd.types import JsonObject

MAX_LAYERS = 4096
"""The most layers and the most experts of a model. The largest released ones have about 130 and 512."""

INDEX = "model.safetensors.index.json"

_COUNTS_MODULES = re.compile(r"(^|[_.])(layers?|depths?|experts?|layer_types)$")
_NAMES_CODE = re.compile(r"(attn|experts)_implementation")

_MAX_REASON = 600
"""The most characters of an error of transformers that a message quotes."""

_MAX_PATH = 200

_FLOATS = re.compile(r"B?F\d")
"""Safetensors' names of floating-point types, such as F32 and BF16."""

_SHIPPED = 'vcsd.bases.shipped_bases.shipped_base("qwen3_vl")'

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def hub_id(path: str | None) -> str | None:
    """Return a path if it can be the id of a model on the hub, and no folder here has this name.

    >>> hub_id("Qwen/Qwen3-VL-2B-Instruct"), hub_id("/models/qwen"), hub_id(None)
    ('Qwen/Qwen3-VL-2B-Instruct', None, None)
    """
    return path if path and _HUB_ID.fullmatch(path) and not Path(path).is_dir() else None


def model_folder(path: str, *, key: str = "model.path") -> Path:
    """The folder of a model, downloaded if necessary. `key` names the setting in error messages."""
    refuse_missing_path(path, key=key)
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path))
    except Exception as error:  # the client can raise anything if there is no such model
        problem = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        raise ConfigError(
            [
                f"{key} = {path!r} is neither a folder nor a model on the hub that can be loaded: {problem}. Check the "
                f"name (a hub id is ORG/NAME), the network, and the access token.{nearest_path(path)}"
            ]
        ) from error


def refuse_missing_path(path: str, *, key: str) -> None:
    """Raise a ConfigError if a model's name is a local path without a folder. Does not use the network.

    A name that is not ORG/NAME is a path. So is ORG/NAME if there is a folder ORG here, or one with a similar name that
    holds a folder with a name like NAME, unless the model is known or has been downloaded.
    """
    folder = expanded(path)
    if is_folder(folder):
        return
    if is_file(folder):
        raise ConfigError([f"{key} = {path!r} is a file. Give the folder of the model, which holds config.json."])
    if not _HUB_ID.fullmatch(path):
        raise ConfigError(
            [
                f"{key} = {shown(path, _MAX_PATH)}: there is no such folder. Give one, or a hub id such as ORG/NAME."
                f"{_without_org(path, key) or nearest_path(path)}"
            ]
        )
    if known_shape(path) is not None or local_folder(path) is not None:
        return
    if first_part_exists(path):
        place = f" in {path.partition('/')[0]!r}, which exists, so the hub was not asked"
    elif similar_path(path) is not None:
        place = ", but a similar one, so the hub was not asked"
    else:
        return
    raise ConfigError(
        [
            f"{key} = {path!r}: there is no such folder{place}.{nearest_path(path)} "
            f"If you mean a model on the hub: hf download {path} --local-dir {path}"
        ]
    )


def _without_org(name: str, key: str) -> str:
    """Suggest the hub id of a model that was named without its organization; empty if none is known.

    >>> _without_org("qwen3-vl-2b-instruct", "model.path")
    " Did you mean 'Qwen/Qwen3-VL-2B-Instruct'?"
    """
    if name == "world":  # the commands that take it resolve it before
        in_recipe = " For the shipped base, vcsd init --model world writes a recipe."
        return in_recipe if key == "model.path" else f" For the shipped base, pass {_SHIPPED}."
    known = {shape.hub_id.partition("/")[2].lower(): shape.hub_id for shape in SHAPES.values()}
    return f" Did you mean {known[name.lower()]!r}?" if name.lower() in known else ""


def require_image_model(folder: Path) -> None:
    """Raise a ConfigError if a folder holds no model that reads images. Only its configuration is read."""
    path = folder / "config.json"
    if (folder / "run_state.json").is_file():
        raise ConfigError(
            [f"{folder} is a checkpoint of a run. Give the folder of a whole model: vcsd export {folder} writes one."]
        )
    if not path.is_file():
        is_adapter = (folder / "adapter_config.json").is_file()
        contents = "adapter weights without their base" if is_adapter else "no config.json"
        raise ConfigError([f"{folder} holds {contents}. Give the folder of a whole model, or one from vcsd export."])
    config = read_json(path)
    if "prompts_per_step" in config:  # the recipe that a run's folder keeps
        raise ConfigError(
            [
                f"{folder} holds a run. Give the folder of a whole model, or one from vcsd export: "
                f"vcsd export {folder} writes {folder / 'student'}."
            ]
        )
    if "vision_config" not in config:
        kind = config.get("model_type")
        raise ConfigError(
            [
                f"the model in {folder} ({kind}) has no vision tower: its config.json lacks vision_config. Choose a "
                "vision-language model, such as Qwen/Qwen3-VL-2B-Instruct."
            ]
        )


def refuse_quantized_folder(folder: Path) -> None:
    """Raise a ConfigError if a folder holds weights in 8 bits or fewer: an update would not change them."""
    config = read_json(folder / "config.json")
    for part in (config, config.get("text_config")):
        quantized = part.get("quantization_config") if isinstance(part, dict) else None
        if quantized:
            kind = quantized.get("quant_method") if isinstance(quantized, dict) else None
            raise ConfigError(
                [
                    f"the weights in {folder} are quantized{f' ({kind})' if kind else ''}: config.json has "
                    "quantization_config. They cannot be trained, and an adapter on them would not fit the original "
                    "weights. Name the folder of the original weights."
                ]
            )


def local_folder(path: str) -> Path | None:
    """The folder of a model that is already on this machine, complete; None if it would have to be downloaded."""
    if Path(path).expanduser().is_dir():
        return Path(path).expanduser()
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(path, local_files_only=True))
    except Exception:  # the client raises various errors for what it has not downloaded
        return None
    return folder if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) else None


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide the progress bars of transformers, which would mix with this package's output."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def load_model(folder: Path, dtype: dtype) -> Any:
    """Load a model from safetensors. Code in its folder is never run, and a missing weight is an error."""
    refuse_unsafe(folder)
    if (folder / "adapter_config.json").exists():  # transformers would load it as well, perhaps with another base
        raise ConfigError([f"{folder} holds an adapter next to its weights. Remove adapter_config.json, or merge it."])
    _refuse_whole_numbers(folder)
    from transformers import AutoModelForImageTextToText

    try:
        with without_bars():
            loaded: Any = AutoModelForImageTextToText.from_pretrained(
                folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
    except Exception as error:  # transformers and safetensors raise anything for a damaged folder
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".")
        reason = reason if len(reason) <= _MAX_REASON else reason[:_MAX_REASON] + " ..."
        raise ConfigError(
            [f"the model in {folder} cannot be loaded: {reason}. For a run, pass the folder from vcsd export."]
        ) from error
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise ConfigError(
            [
                f"the files in {folder} lack {len(missing)} weights of the model, such as {missing[0]}. "
                "Download or export the model again."
            ]
        )
    _refuse_not_finite(folder, model)
    return model


def load_to_answer(folder: Path, *, dtype: dtype | None = None, device: str | None = None) -> Any:
    """Load a model in eval mode: in bfloat16 on a GPU if there is one, else in float32 on the CPU.

    `dtype` and `device` replace these choices.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    model = load_model(folder, dtype or (torch.bfloat16 if has_gpu else torch.float32))
    return model.to(device or ("cuda" if has_gpu else "cpu")).eval()


def _refuse_not_finite(folder: Path, model: Any) -> None:
    """Raise a ConfigError if a weight holds NaN or infinity: every score would be NaN, and nothing could be learned."""
    for name, weight in model.named_parameters():
        is_known = weight.is_floating_point() and weight.dtype.itemsize > 1  # not quantized
        if is_known and weight.numel() and not all(bound.isfinite() for bound in weight.detach().aminmax()):
            raise ConfigError(
                [f"the weight {name} in {folder} holds NaN or infinity. Download or export the model again."]
            )


def refuse_unsafe(folder: Path) -> None:
    """Raise a ConfigError if loading a folder could run code, read pickles or other folders, or exhaust memory."""
    path = folder / "config.json"
    for name, value in _leaves(read_json(path)):
        if isinstance(value, int) and value > MAX_LAYERS and _COUNTS_MODULES.search(name):
            raise ConfigError(
                [f"{path}: {name} = {value:,} is more than {MAX_LAYERS:,}. Copy it from the original model again."]
            )
        # transformers downloads kernels that a config names, and those of flash attention if it is not installed
        if isinstance(value, str) and ("/" in value or value.startswith("flash")) and _NAMES_CODE.search(name):
            raise ConfigError(
                [f"{path}: {name} = {shown(value)} names code on the hub, which is never run. Remove the key."]
            )
    _refuse_foreign_weights(folder / INDEX)


def _refuse_foreign_weights(path: Path) -> None:
    """Raise unless an index names safetensors files next to it: transformers would read others, and unpickle some."""
    files = read_json(path).get("weight_map", {})
    if not isinstance(files, dict):
        raise ConfigError([f"{path} is not an index of weights. Copy it from the original model again."])
    for file in files.values():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise ConfigError(
                [f"{path} names {shown(file)}. Weights are read from safetensors files in the folder itself."]
            )


def _refuse_whole_numbers(folder: Path) -> None:
    """Raise if weights are not floating-point numbers: transformers would convert them silently.

    Quantized models are exempt: their configuration says what their integers mean.
    """
    if read_json(folder / "config.json").get("quantization_config"):
        return
    from safetensors import SafetensorError, safe_open

    for path in sorted(path for path in folder.glob("*.safetensors") if path.is_file()):
        try:
            with safe_open(path, "pt") as file:
                names = [name for name in file.keys() if name.endswith(("weight", "bias"))]  # noqa: SIM118
                kinds = {file.get_slice(name).get_dtype(): name for name in names}
        except (OSError, SafetensorError):
            return  # loading will report what is wrong
        for kind, name in kinds.items():
            if not _FLOATS.match(kind):
                raise ConfigError(
                    [f"{path}: {shown(name)} holds {kind}, not floating-point numbers. Download the model again."]
                )


def _leaves(tree: object) -> Iterator[tuple[str, object]]:
    """Yield the values of a tree, each with the keys that lead to it; for a long list, only its length."""
    waiting: list[tuple[str, object]] = [("", tree)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{name}.{key}".lstrip("."), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(name, item) for item in value] if len(value) <= MAX_LAYERS else [(name, len(value))]
        else:
            yield name, value


def refuse_links(folder: Path, names: Iterable[Path]) -> None:
    """Raise a ConfigError if a file is not a regular one of the folder, or of the hub's cache that it belongs to.

    Otherwise a link in a stranger's folder could carry a private file into checkpoints, exports and uploads.
    """
    own = folder.resolve()
    cache = own.parent.parent / "blobs"  # the cache's folders of a model hold links to it
    for name in names:
        path = own / name
        target = path.resolve()
        if not target.is_relative_to(own) and target.parent != cache:
            raise ConfigError(
                [f"{folder / name} is a link to {target}, outside of the model's folder. Replace it by a copy."]
            )
        if not target.is_file():
            raise ConfigError([f"{folder / name} is not a file. Copy it from the original model again."])


def read_json(path: Path) -> JsonObject:
    """Return the object in a file; empty if there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError([f"{path} is not JSON: {error}. Copy it from the original model again."]) from error
    if not isinstance(content, dict):
        raise ConfigError([f"{path} holds no JSON object. Copy it from the original model again."])
    return content
