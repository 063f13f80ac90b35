"""The processor: the one place where messages become token ids and images become patches.

Student, teacher, control and rollout all go through `encode`, so that they cannot disagree on a resize, a chat
template or a token. Images only: the video half of the Qwen processors needs torchvision, and is left out.

load_processor         tokenizer, image processor and chat template of a model folder
encode                 one example, as shown by a view, to model inputs
assert_same_layout     a control must differ from the original in pixel values only
save_processor_files   the folder of a trained student carries the original files, byte for byte
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import jinja2
import transformers
from PIL.Image import Image
from transformers import AutoProcessor, AutoTokenizer, Qwen3VLProcessor

# From its own module: transformers 5.17 exports a placeholder that asks for torchvision, though the class does not.
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES  # type: ignore[attr-defined]

from vcsd.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from torch import Tensor

    from vcsd.types import Example, Message

Processor: TypeAlias = Any
"""A transformers processor with `tokenizer` and `image_processor`. Any: transformers' processors are not typed."""

PROCESSOR_FILES = (
    *("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"),
    *("chat_template.json", "chat_template.jinja", "additional_chat_templates/*.jinja"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "tekken.json"),
)
"""What a model folder holds for its processor, as patterns. Configuration and weights of the model are not in it."""

_NO_SWITCHES = (
    *("messages", "conversation", "conversations", "chat_template", "add_generation_prompt", "tokenize"),
    *("continue_final_message", "return_assistant_tokens_mask", "return_tensors", "return_dict"),
    *("load_audio_from_video", "processor_kwargs"),
)
"""What a chat template and its caller are given by us, hence no switches of the user."""


class ImageOnlyQwenProcessor(Qwen3VLProcessor):
    """The processor of Qwen3-VL and Qwen3.5 without its video half, hence without torchvision.

    transformers reads off this signature which parts a processor has; there is no `video_processor` in it.
    """

    source_folder: Path | None = None

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
        super().__init__(image_processor, tokenizer, chat_template=chat_template)  # type: ignore[no-untyped-call]
        self.video_processor = None

    def save_pretrained(self, save_directory: str | PathLike[str]) -> None:  # type: ignore[override]
        """Copy the files this processor was loaded from: what we would write ourselves names a class of ours."""
        assert self.source_folder is not None, "only a processor that came from a folder can be saved"
        save_processor_files(self.source_folder, save_directory)


@dataclass(frozen=True, eq=False)
class Encoded:
    """One example as the model sees it under one view. One example at a time: there is no padding and no batch.

    Shape legend: P prompt tokens, I images, K patches of all images, C values per patch.

    >>> import torch
    >>> encoded = Encoded(
    ...     example_id="virl-00042",
    ...     text="<|im_start|>user\\n<|vision_start|><|image_pad|><|vision_end|>How many?<|im_end|>\\n...",
    ...     input_ids=torch.arange(40),
    ...     pixel_values=torch.zeros(96, 1536),       # [K, C]; other families: whatever their model takes
    ...     grid_thw=torch.tensor([[1, 8, 12]]),      # [I, 3]; None in families that have no such grid
    ...     image_sizes=((180, 130),),                # width and height before the processor resized
    ... )
    >>> len(encoded), encoded.num_images
    (40, 1)
    """

    example_id: str
    text: str
    input_ids: Tensor
    pixel_values: Tensor | None
    grid_thw: Tensor | None
    image_sizes: tuple[tuple[int, int], ...]
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """Other model inputs, as the processor gives them: with a leading batch dimension of 1."""

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def num_images(self) -> int:
        """How many images were shown."""
        return len(self.image_sizes)


def load_processor(
    folder: str | PathLike[str], *, min_pixels: int | None = None, max_pixels: int | None = None
) -> Processor:
    """The processor of a model folder, with images resized by Pillow whether or not torchvision is installed.

    torchvision's resize differs from Pillow's in the last bits; with one of them, pixels do not depend on what else is
    installed. `min_pixels` and `max_pixels` bound the area of a resized image and replace the folder's own values;
    only a strip that would become thinner than one visual token may end up larger. No code from the folder is run.
    """
    folder = Path(folder)
    name = _processor_class_name(folder)
    with _explained(folder):
        image_processor = _load_image_processor(folder, min_pixels=min_pixels, max_pixels=max_pixels)
    is_qwen = name == Qwen3VLProcessor.__name__
    processor_class = ImageOnlyQwenProcessor if is_qwen else getattr(transformers, name, None)
    if processor_class is None:
        raise ConfigError([f"{folder}: the processor class {name!r} is not part of transformers, and no code is run."])
    with _explained(folder):
        processor = _assemble(processor_class, folder, image_processor)
    if not processor.chat_template:
        raise ConfigError(
            [f"{folder} has no chat template. Add the chat_template.jinja of an instruction-tuned model."]
        )
    processor.source_folder = folder
    return processor


def _processor_class_name(folder: Path) -> str:
    """Which processor class the folder asks for: said in one of its files, or implied by the kind of its model."""
    if not folder.is_dir():
        raise ConfigError([f"{folder} is not a folder. Give a folder with a downloaded or saved model."])
    for file in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        if name := _read_json(folder / file).get("processor_class"):
            return str(name)
    name = PROCESSOR_MAPPING_NAMES.get(_read_json(folder / "config.json").get("model_type", ""))
    if name is None:
        raise ConfigError(
            [f"{folder} does not say which processor it needs. Copy the processor files of the original model into it."]
        )
    return str(name)


def _read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file; nothing if there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError([f"{path} is not JSON: {error}. Copy it from the original model again."]) from error
    if not isinstance(content, dict):
        raise ConfigError([f"{path} holds no JSON object. Copy it from the original model again."])
    return content


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what transformers raises on a folder's files into a ConfigError that names the file, if one is broken."""
    try:
        yield
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # on broken files, transformers fails in whatever way they lead it to
        for path in sorted(_processor_files(folder)):
            if path.suffix == ".json":
                _read_json(folder / path)
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
    problems = [f"{name} = {n!r} is not a positive whole number." for name, n in given.items() if not _counts(n)]
    if problems:
        raise ConfigError(problems)
    image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil", **given)  # type: ignore[no-untyped-call]
    if given and not _sizes_by_area(image_processor):
        raise ConfigError(
            [
                f"{' and '.join(given)} cannot be set: {type(image_processor).__name__} sizes images by "
                "another rule. Leave them out; the folder's own sizes are used."
            ]
        )
    if given:
        _check_order(image_processor, given)
    return image_processor


def _counts(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _check_order(image_processor: Any, given: Mapping[str, int]) -> None:
    """The smallest area is not above the largest, whichever of the two the folder says."""
    size = image_processor.size
    found = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    if found["min_pixels"] <= found["max_pixels"]:
        return
    low, high = (f"{name} = {n}" + ("" if name in given else " of the model's folder") for name, n in found.items())
    raise ConfigError([f"{low} is larger than {high}." + ("" if len(given) == 2 else " Set both.")])


def _sizes_by_area(image_processor: Any) -> bool:
    """Whether images are resized to an area between two bounds, as the Qwen families do."""
    return hasattr(image_processor, "merge_size") and hasattr(image_processor, "temporal_patch_size")


def _assemble(processor_class: Any, folder: Path, image_processor: Any) -> Processor:
    """Put the parts together. AutoProcessor would choose the image backend by what is installed."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    parts = {"image_processor": image_processor, "tokenizer": tokenizer}
    names = processor_class.get_attributes()
    if set(names) <= parts.keys():
        settings, _ = processor_class.get_processor_dict(folder)
        settings.setdefault("chat_template", tokenizer.chat_template)
        return processor_class.from_args_and_dict([parts[name] for name in names], settings)
    try:
        processor = AutoProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
    except ImportError as error:
        missing = ", ".join(sorted(set(names) - parts.keys()))
        raise ConfigError(
            [f"{folder}: {processor_class.__name__} has other parts than text and images ({missing}). {error}"]
        ) from error
    processor.image_processor = image_processor
    return processor


def encode(
    processor: Processor,
    example: Example,
    *,
    max_tokens: int | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> Encoded:
    """Turn one example, as shown by a view, into model inputs that end where the model's answer begins.

    `max_tokens` bounds the prompt, its visual tokens included. `chat_template_kwargs` are the switches of the chat
    template, such as {"enable_thinking": False} for Qwen3.5.
    """
    images = [image for image in example.images if isinstance(image, Image)]
    assert len(images) == len(example.images), f"example {example.id!r}: images are loaded by a view; show it one first"
    text = _render(processor, example, chat_template_kwargs or {})
    try:
        inputs = dict(
            processor(text=[text], images=images or None, return_tensors="pt", **_text_kwargs(processor, text))
        )
    except ValueError as error:
        raise DataError(example.id, f"the processor refuses it: {error} {_shown(images)}") from error
    inputs.pop("attention_mask", None)
    encoded = Encoded(
        example_id=example.id,
        text=text,
        input_ids=inputs.pop("input_ids")[0],
        pixel_values=inputs.pop("pixel_values", None),
        grid_thw=inputs.pop("image_grid_thw", None),
        image_sizes=tuple(image.size for image in images),
        extra=inputs,
    )
    _check_encoded(processor, encoded, images, max_tokens)
    return encoded


def _check_encoded(processor: Processor, encoded: Encoded, images: list[Image], max_tokens: int | None) -> None:
    """The prompt fits, and its images have reached it."""
    if max_tokens is not None and len(encoded) > max_tokens:
        raise DataError(
            encoded.example_id,
            f"its prompt has {len(encoded)} tokens, {max_tokens} are allowed. {_shown(images)} "
            "Lower max_pixels, shorten the text, or allow more tokens.",
        )
    image_token_id = getattr(processor, "image_token_id", None)
    if images and image_token_id is not None and not (encoded.input_ids == image_token_id).any():
        raise DataError(encoded.example_id, "its prompt has no image tokens. The chat template drops images.")


def _render(processor: Processor, example: Example, switches: Mapping[str, Any]) -> str:
    """The prompt as text, with one placeholder for each image and the opening of the model's turn."""
    template = str(processor.chat_template)
    problems = [
        f"chat_template_kwargs.{name} is no switch: it is set here." for name in switches if name in _NO_SWITCHES
    ]
    problems += [
        f"chat_template_kwargs.{name}: the chat template does not know it."
        for name in switches
        if name not in _NO_SWITCHES and not re.search(rf"\b{re.escape(name)}\b", template)
    ]
    if problems:
        raise ConfigError(problems)
    messages = [dict(message) for message in example.prompt]
    try:
        text = str(processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **switches))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError([f"the chat template is broken, at its line {error.lineno}: {error.message}"]) from error
    except jinja2.TemplateError as error:
        raise DataError(example.id, f"the chat template refuses it: {error}") from error
    _check_rendered(processor, example, text)
    return text


def _check_rendered(processor: Processor, example: Example, text: str) -> None:
    """Nothing of the question may be lost on the way, and no text may pass for an image."""
    for part in _user_texts(example.prompt):
        if part.strip() not in text:
            raise DataError(
                example.id,
                f"the chat template dropped {part.strip()!r}. Write the message content as a list of parts: "
                '[{"type": "image"}, {"type": "text", "text": "..."}].',
            )
    _check_places(processor, example, text)


def _check_places(processor: Processor, example: Example, text: str) -> None:
    """As many places for images as there are images, and none for a video."""
    # Only Qwen's places can be counted before they are expanded; some families first write another mark.
    num_fewest = len(example.images) if isinstance(processor, ImageOnlyQwenProcessor) else 0
    for name, fewest, most in (("image_token", num_fewest, len(example.images)), ("video_token", 0, 0)):
        token = getattr(processor, name, None)
        if token is None or fewest <= text.count(token) <= most:
            continue
        advice = "Remove the token from the text." if text.count(token) > most else "The chat template drops images."
        raise DataError(
            example.id,
            f"its prompt has {token!r} {text.count(token)} times, for {len(example.images)} images. {advice}",
        )


def _user_texts(prompt: Sequence[Message]) -> Iterator[str]:
    for message in prompt:
        if message["role"] == "user" and isinstance(message["content"], str):
            yield message["content"]
        elif message["role"] == "user":
            yield from (str(part["text"]) for part in message["content"] if part.get("type") == "text")


def _text_kwargs(processor: Processor, text: str) -> dict[str, bool]:
    """Do not let the tokenizer add a second start token where the chat template wrote one."""
    start = processor.tokenizer.bos_token
    return {"add_special_tokens": False} if start and text.startswith(start) else {}


def _shown(images: list[Image]) -> str:
    """Name the images of an example for an error message."""
    if not images:
        return "It has no images."
    names = (image.info.get("file") or getattr(image, "filename", "") or "an image in memory" for image in images)
    sizes = (f"{image.width} x {image.height}" for image in images)
    return f"Its images: {', '.join(f'{name} ({size})' for name, size in zip(names, sizes, strict=True))}."


def assert_same_layout(original: Encoded, control: Encoded, *, view: str = "control") -> None:
    """Prove that a control differs from the original in pixel values only.

    Sizes, grid and token ids are equal, hence positions are. Otherwise the contrast would measure a change of layout
    and not what the image says.

    >>> import torch
    >>> shown = Encoded("a", "", torch.arange(9), torch.ones(8, 6), torch.tensor([[1, 2, 4]]), ((60, 30),))
    >>> black = Encoded("a", "", torch.arange(9), torch.zeros(8, 6), torch.tensor([[1, 2, 4]]), ((60, 30),))
    >>> assert_same_layout(shown, black, view="black")
    """
    first, second = _layout(original), _layout(control)
    differences = [
        f"{name} {first.get(name)} became {second.get(name)}"
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]
    if not differences and original.input_ids.tolist() != control.input_ids.tolist():
        differences = ["the token ids differ"]
    if differences:
        found = "; ".join(differences)
        raise AssertionError(
            f"example {original.example_id!r}: view {view!r} must change pixel values only, but {found}."
        )


def _layout(encoded: Encoded) -> dict[str, object]:
    """All of an encoded example that a control must keep, but for the token ids, which are too many to print."""
    tensors = {"pixel values": encoded.pixel_values, **encoded.extra}
    return {
        "example": encoded.example_id,
        "image sizes": encoded.image_sizes,
        "grid": None if encoded.grid_thw is None else encoded.grid_thw.tolist(),
        "token count": len(encoded),
        **{f"shape of {name}": tuple(tensor.shape) for name, tensor in tensors.items() if tensor is not None},
    }


def save_processor_files(source_folder: str | PathLike[str], target_folder: str | PathLike[str]) -> None:
    """Make the processor files of the target those of the source, byte for byte; leave all other files alone.

    A student is saved with the files it came with, so that AutoProcessor and vLLM load it wherever they load the
    original. Processor files in the target that the source lacks are removed: one of another layout would win.
    """
    source, target = Path(source_folder), Path(target_folder)
    names = _processor_files(source)
    if not names:
        raise ConfigError([f"{source} holds no processor files. Give the folder of the original model."])
    if target.exists() and source.samefile(target):
        return
    for name in _processor_files(target) - names:
        (target / name).unlink()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)


def _processor_files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for pattern in PROCESSOR_FILES for path in folder.glob(pattern)}
