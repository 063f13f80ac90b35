"""Crop views: the part of the image that holds the evidence, in place of the image or next to it.

A box is (left, top, right, bottom) in pixels of the image as it is shown, after its EXIF rotation. One image may have
several boxes; the crop is then the smallest rectangle around them, because they may belong together. Several images
have one box each, in order. Crops are rounded outwards to whole pixels and end at the border. The text is unchanged.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from PIL import Image

from vcsd.errors import DataError
from vcsd.views.original import file_name, original
from vcsd.views.prompt import replace_image_parts

if TYPE_CHECKING:
    from vcsd.types import Example

Box = tuple[float, float, float, float]


def crop(example: Example) -> Example:
    """Show the evidence in place of the image.

    >>> from vcsd.types import Example
    >>> photo = Image.new("RGB", (100, 80))
    >>> prompt = ({"role": "user", "content": [{"type": "image"}]},)
    >>> crop(Example(id="a", images=(photo,), prompt=prompt, boxes=((10, 20, 30.5, 60),))).images[0].size
    (21, 40)
    """
    shown = original(example)
    return replace(shown, images=_crops(shown, "crop"), boxes=())


def crop_added(example: Example) -> Example:
    """Show the evidence as another image, right after the one it was cut from."""
    shown = original(example)
    pairs = zip(shown.images, _crops(shown, "crop_added"), strict=True)
    prompt = replace_image_parts(shown.prompt, [{"type": "image"}, {"type": "image"}])
    return replace(shown, images=tuple(image for pair in pairs for image in pair), prompt=prompt, boxes=())


def _crops(shown: Example, view: str) -> tuple[Image.Image, ...]:
    crops = []
    for image, boxes in zip(shown.images, _boxes_per_image(shown, view), strict=True):
        assert isinstance(image, Image.Image)
        # Check each box alone: together with others, an empty or fractional one would go unnoticed.
        left, top, right, bottom = zip(*(_whole_pixels(shown.id, image, box) for box in boxes), strict=True)
        crops.append(image.crop((min(left), min(top), max(right), max(bottom))))
        crops[-1].info = {"file": f"{file_name(image)} (crop)"}
    return tuple(crops)


def _boxes_per_image(example: Example, view: str) -> tuple[tuple[Box, ...], ...]:
    """Return the boxes of each image: all of them for a single image, else one each."""
    if not example.images or not example.boxes:
        raise DataError(
            example.id,
            f"view {view!r} needs an image and an evidence box, but there are {len(example.images)} images and "
            f"{len(example.boxes)} boxes. Fill the column 'boxes', or choose target_view: original.",
        )
    if len(example.images) == 1:
        return (tuple(example.boxes),)
    if len(example.images) != len(example.boxes):
        raise DataError(
            example.id,
            f"it has {len(example.images)} images and {len(example.boxes)} boxes. Give one box per image, in order.",
        )
    return tuple((box,) for box in example.boxes)


def _whole_pixels(example_id: str, image: Image.Image, box: Box) -> tuple[int, int, int, int]:
    """Round the box outwards and clip it at the border. Refuse fractions of the image and empty boxes."""
    left, top, right, bottom = box
    if max(box) <= 1:
        raise DataError(example_id, f"the box {box} looks like fractions. Multiply it by the image's width and height.")
    inside = (
        max(math.floor(left), 0),
        max(math.floor(top), 0),
        min(math.ceil(right), image.width),
        min(math.ceil(bottom), image.height),
    )
    if left >= right or top >= bottom or inside[0] >= inside[2] or inside[1] >= inside[3]:
        raise DataError(
            example_id,
            f"the box {box} contains no pixel of its image {file_name(image)!r} ({image.width} x {image.height}). "
            "A box is left, top, right, bottom in pixels.",
        )
    return inside
