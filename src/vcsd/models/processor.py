"""Loads and saves the processor of a model folder: tokenizer, image processor and chat template.

Images only: the video part of the Qwen processors needs torchvision and is left out.

load_processor         from the files of a folder
save_processor_files   copies the original files, byte for byte, into the folder of a trained student
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import transformers
from PIL import Image
from transformers import AutoProcessor, AutoTokenizer, Qwen3VLProcessor
from transformers.models.auto.configuration_auto import model_type_to_module_name

# From its own module: transformers 5.17 exports a placeholder that asks for torchvision, though the class does not.
from transformers.models.auto.image_processing_auto import (  # type: ignore[attr-defined]
    IMAGE_PROCESSOR_MAPPING_NAMES,
    AutoImageProcessor,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES  # type: ignore[attr-defined]

from vcsd.errors import ConfigError, shown
from vcsd.models.hub import read_json, refuse_links, refuse_unsafe
from vcsd.views.original import MAX_IMAGE_PIXELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

Processor: TypeAlias = Any
"""A transformers processor with `tokenizer` and `image_processor`. transformers' processors are not typed."""

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "tekken.json"),
)
"""The files of a tokenizer."""

PROCESSOR_FILES = (
    *("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"),
    *("chat_template.json", "chat_template.jinja", "additional_chat_templates/*.jinja"),
    *TOKENIZER_FILES,
)
"""The processor files of a model folder, as patterns; not the model's configuration and weights."""


MAX_PATCH = 1024
"""The longest side of a patch, in pixels, and the most patches merged into one; released models have 16 and 2."""


class ImageOnlyQwenProcessor(Qwen3VLProcessor):
    """The processor of Qwen3-VL and Qwen3.5 without its video part, which needs torchvision.

    transformers reads from the signature of __init__ which parts a processor has: no `video_processor`.
    """

    source_folder: Path | None = None

    def __init__(self, image_processor: object = None, tokenizer: object = None, chat_template: object = None) -> None:
        super().__init__(image_processor, tokenizer, chat_template=chat_template)  # type: ignore[no-untyped-call]
        self.video_processor = None

    def save_pretrained(self, save_directory: str | PathLike[str]) -> None:  # type: ignore[override]
        """Copy the files that this processor was loaded from; newly written ones would name this class."""
        assert self.source_folder is not None, "only a processor loaded from a folder can be saved"
        save_processor_files(self.source_folder, save_directory)


def load_processor(
    folder: str | PathLike[str], *, min_pixels: int | None = None, max_pixels: int | None = None
) -> Processor:
    """The processor of a model folder, with images resized by Pillow whether or not torchvision is installed.

    torchvision's resize differs from Pillow's in the last bits. With Pillow everywhere, pixels do not depend on what is
    installed. `min_pixels` and `max_pixels` limit the area of a resized image and replace the folder's values; only
    strips thinner than one visual token may end up larger. No code from the folder is run.
    """
    folder = Path(folder)
    name = _processor_class_name(folder)
    refuse_unsafe(folder)
    refuse_links(folder, _processor_files(folder))
    with _explained(folder):
        image_processor = _load_image_processor(folder, min_pixels=min_pixels, max_pixels=max_pixels)
        _try_out(folder, image_processor)
    is_qwen = name == Qwen3VLProcessor.__name__
    processor_class = ImageOnlyQwenProcessor if is_qwen else getattr(transformers, name, None)
    if processor_class is None:
        raise ConfigError(
            [f"{folder}: the processor class {name!r} is not part of transformers. Code in folders is never run."]
        )
    with _explained(folder):
        processor = _assemble(processor_class, folder, image_processor)
        processor.tokenizer("?")
    if not processor.chat_template:
        raise ConfigError(
            [f"{folder} has no chat template. Add the chat_template.jinja of an instruction-tuned model."]
        )
    processor.source_folder = folder.absolute()  # its files are copied later, perhaps from another directory
    return processor


def _processor_class_name(folder: Path) -> str:
    """The processor class of a folder: named in one of its files, or implied by the model type."""
    if not folder.is_dir():
        raise ConfigError([f"{folder} is not a folder. Give a folder with a downloaded or saved model."])
    if not any(folder.glob("*.json")):
        raise ConfigError([f"{folder} holds no config.json. Give the folder of a model, or one from vcsd export."])
    for file in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        if name := read_json(folder / file).get("processor_class"):
            return str(name)
    name = PROCESSOR_MAPPING_NAMES.get(str(read_json(folder / "config.json").get("model_type", "")))
    if name is None:
        raise ConfigError(
            [f"{folder} does not say which processor it needs. Copy the processor files of the original model into it."]
        )
    return str(name)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn any error of transformers into a ConfigError that names the broken file, if there is one."""
    try:
        yield
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # transformers can raise anything on broken files
        for path in sorted(_processor_files(folder)):
            if path.suffix == ".json":
                read_json(folder / path)
        lacks = "" if (folder / "tokenizer.json").is_file() else " It has no tokenizer.json."
        raise ConfigError(
            [
                f"{folder}: its processor cannot be loaded.{lacks} Copy the processor files of the original model "
                f"into it. transformers says: {type(error).__name__}: {error}"
            ]
        ) from error


def _load_image_processor(folder: Path, *, min_pixels: int | None, max_pixels: int | None) -> Any:
    bounds = {"min_pixels": min_pixels, "max_pixels": max_pixels}
    given = {name: pixels for name, pixels in bounds.items() if pixels is not None}
    problems = [
        f"{name} = {n!r} is not a positive whole number." for name, n in given.items() if type(n) is not int or n < 1
    ]
    if problems:
        raise ConfigError(problems)
    hidden = _hidden_class(folder)
    if hidden is not None:
        image_processor = hidden.from_pretrained(folder, **given)
    else:
        auto: Any = AutoImageProcessor
        image_processor = auto.from_pretrained(folder, backend="pil", trust_remote_code=False, **given)
    # The Qwen families resize images to an area between two bounds.
    if given and not (hasattr(image_processor, "merge_size") and hasattr(image_processor, "temporal_patch_size")):
        raise ConfigError(
            [
                f"{' and '.join(given)} cannot be set: {type(image_processor).__name__} sizes images by "
                "another rule. Leave them out; the folder's own sizes are used."
            ]
        )
    if given:
        _check_order(image_processor.size, given)
    return image_processor


def _hidden_class(folder: Path) -> Any:
    """The Pillow class that transformers 5.17 hides behind a placeholder if torchvision is missing; None if not hidden.

    That version assumes that a file needs torchvision if it does not declare its needs, as Idefics3's and SmolVLM's.
    """
    name = str(read_json(folder / "preprocessor_config.json").get("image_processor_type", "")) + "Pil"
    for model_type, classes in IMAGE_PROCESSOR_MAPPING_NAMES.items():
        module = model_type_to_module_name(model_type)
        own_file = f"transformers.models.{module}.image_processing_pil_{module}"
        if isinstance(classes, dict) and classes.get("pil") == name and find_spec(own_file) is not None:
            exported = getattr(import_module(f"transformers.models.{module}"), name, None)
            is_seen = getattr(exported, "__module__", None) == own_file
            return None if is_seen else getattr(import_module(own_file), name, None)
    return None


def _try_out(folder: Path, image_processor: Any) -> None:
    """Process a small image, so that a damaged configuration fails once, for the folder, and not for every row."""
    sides = {name: getattr(image_processor, name, None) for name in ("patch_size", "merge_size", "temporal_patch_size")}
    areas = dict(getattr(image_processor, "size", None) or {}) | dict(getattr(image_processor, "crop_size", None) or {})
    areas.pop("longest_edge", None)  # it only shrinks images, so a large value is harmless
    for name, value, most in (
        *((name, value, MAX_PATCH) for name, value in sides.items()),
        *((f"size.{name}", value, MAX_IMAGE_PIXELS) for name, value in areas.items()),
    ):
        if isinstance(value, int) and not 1 <= value <= most:
            raise ConfigError(
                [f"{folder}: {name} = {shown(value)} of its images is not between 1 and {most}. Copy the file again."]
            )
    image_processor(images=[Image.new("RGB", (32, 32))], return_tensors="pt")


def _check_order(size: Mapping[str, int], given: Mapping[str, int]) -> None:
    """Raise a ConfigError if the smallest area exceeds the largest, wherever the two come from."""
    bounds = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    if bounds["min_pixels"] <= bounds["max_pixels"]:
        return
    low, high = (f"{name} = {n}" + ("" if name in given else " of the model's folder") for name, n in bounds.items())
    raise ConfigError(
        [f"{low} is larger than {high}." + ("" if len(given) == 2 else " Give both, or a larger max_pixels.")]
    )


def _assemble(processor_class: Any, folder: Path, image_processor: object) -> Processor:
    """Assemble the processor. AutoProcessor would choose the image backend by what is installed."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    parts = {"image_processor": image_processor, "tokenizer": tokenizer}
    names = processor_class.get_attributes()
    if set(names) <= parts.keys():
        settings, _ = processor_class.get_processor_dict(folder)
        settings.setdefault("chat_template", tokenizer.chat_template)
        return processor_class.from_args_and_dict([parts[name] for name in names], settings)
    try:
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except ImportError as error:
        missing = ", ".join(sorted(set(names) - parts.keys()))
        raise ConfigError(
            [f"{folder}: {processor_class.__name__} has other parts than text and images ({missing}). {error}"]
        ) from error
    processor.image_processor = image_processor
    return processor


def save_processor_files(source_folder: str | PathLike[str], target_folder: str | PathLike[str]) -> None:
    """Copy the processor files of the source, byte for byte; leave all other files of the target alone.

    A student is saved with its original files, so that AutoProcessor and vLLM load it like the original. Processor
    files that only the target has are removed: they could take precedence.
    """
    source, target = Path(source_folder), Path(target_folder)
    names = _processor_files(source)
    if not names:
        raise ConfigError([f"{source} holds no processor files. Pass the folder of the original model."])
    refuse_links(source, names)
    if target.exists() and source.samefile(target):
        return
    for name in _processor_files(target) - names:
        (target / name).unlink()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)


def has_processor_files(folder: str | PathLike[str]) -> bool:
    """Whether a folder exists and holds processor files."""
    return bool(_processor_files(Path(folder)))


def _processor_files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for pattern in PROCESSOR_FILES for path in folder.glob(pattern)}
