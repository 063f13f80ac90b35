"""Controls: the example with the content of its images erased, as the reference for the contrast.

The paper's control C(J) is a black image of the same size (Section 3.2). Black, noise and blur change pixel values
only, so image sizes, grid, tokens and positions equal those of the original. So does `given`, which shows pictures that
come with the example. `no_image` also changes the layout, so the model can tell that there is no image.

The paper mentions noise and blur without their strengths; the constants here are this package's choice.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter

from vcsd.errors import DataError
from vcsd.views.original import load_images, original
from vcsd.views.prompt import replace_image_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcsd.types import Example

NOISE_MEAN = 127.5
"""Mid grey: noise should be neither brighter nor darker than an average image."""

NOISE_STD = 64.0
"""A quarter of the range: the noise is strong, and only 5% of it, beyond two deviations, is clipped."""

BLUR_FRACTION = 0.2
"""The standard deviation of the blur, as a fraction of the longer side.

At a fifth, only the brightness and main tint of each region remain; at a tenth, four objects a sixth of the width apart
can still be counted and their colours named. A fraction treats thumbnails and photographs alike, and the longer side
erases a thin strip too.
"""


def black(example: Example) -> Example:
    """Show black images of the same sizes.

    >>> from vcsd.types import Example
    >>> photo = Image.new("RGB", (3, 2), "red")
    >>> shown = black(Example(id="a", images=(photo,), prompt=({"role": "user", "content": [{"type": "image"}]},)))
    >>> shown.images[0].size, shown.images[0].getcolors()
    ((3, 2), [(6, (0, 0, 0))])
    """
    return _repaint(example, lambda image, _: Image.new("RGB", image.size))


def noise(example: Example) -> Example:
    """Show Gaussian noise in place of the images, always the same for the same example.

    The noise depends only on the example's id and the index of the image: not on the state of a random generator, the
    order of the data, or the version of a library.
    """
    return _repaint(example, lambda image, index: _noise_image(image.size, f"{example.id}\0{index}"))


def blur(example: Example) -> Example:
    """Show the images blurred until nothing can be read or counted in them."""
    return _repaint(
        example, lambda image, _: image.filter(ImageFilter.GaussianBlur(BLUR_FRACTION * max(image.width, image.height)))
    )


def no_image(example: Example) -> Example:
    """Show the text alone, without the images and their places in the prompt."""
    return replace(example, images=(), prompt=replace_image_parts(example.prompt, []))


def given(example: Example) -> Example:
    """Show the example's own control images, such as pictures of something else, resized to its images' sizes."""
    num, num_controls = len(example.images), len(example.control_images)
    if num != num_controls:
        raise DataError(example.id, f"it has {num_controls} control images for {num} images. Give one for each.")
    controls = load_images(example.id, example.control_images)
    return _repaint(example, lambda image, index: controls[index].resize(image.size))


def _repaint(example: Example, paint: Callable[[Image.Image, int], Image.Image]) -> Example:
    """Replace each image by another of the same size, and keep its file name."""
    shown = original(example)
    painted = []
    for index, image in enumerate(shown.images):
        assert isinstance(image, Image.Image)
        painted.append(paint(image, index))
        painted[-1].info = dict(image.info)
    return replace(shown, images=tuple(painted))


def _noise_image(size: tuple[int, int], key: str) -> Image.Image:
    """Draw independent Gaussian channels from raw bits, whose stream numpy guarantees, unlike that of its normals."""
    width, height = size
    num_values = height * width * 3
    seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "big")
    bits = np.random.PCG64(seed).random_raw(-(-num_values // 4)).astype("<u8", copy=False).view("<u2")[:num_values]
    return Image.fromarray(_noise_levels()[bits].reshape(height, width, 3))


@cache
def _noise_levels() -> np.ndarray:
    """Return the grey level of each of 65,536 equally likely draws."""
    normal = NormalDist(NOISE_MEAN, NOISE_STD)
    levels = [normal.inv_cdf((draw + 0.5) / 2**16) for draw in range(2**16)]
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)
