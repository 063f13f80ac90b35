"""Controls: the example with the content of its images erased, as the reference the contrast is measured against.

The paper's control C(J) is a black image of the same size (Section 3.2). Black, noise and blur change pixel values
only, so image sizes, grid, tokens and positions are those of the original. `no_image` also changes the layout: the
model can tell that there is no image, which the other three hide from it.

The paper names noise and blur without their strengths; the constants here are ours.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter

from vcsd.views.original import original
from vcsd.views.prompt import replace_image_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcsd.types import Example

NOISE_MEAN = 127.5
"""Mid grey: noise should not look brighter or darker than an average picture."""

NOISE_STD = 64.0
"""A quarter of the range: both ends lie two deviations away, so the noise is strong and only 5% of it is clipped."""

BLUR_FRACTION = 0.2
"""The deviation of the blur, as a fraction of the longer side.

At a fifth, the light and the main tint of each region remain and objects do not; at a tenth, four objects a sixth of
the width apart can still be counted and their colours named. A fraction, so that a thumbnail and a photograph lose the
same; of the longer side, so that a thin strip is erased too.
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
    """Show Gaussian noise in place of the images, the same whenever and wherever this example is shown.

    The noise depends on the example's id and the image's place in it, and on nothing else: not on the state of a
    random generator, the order of the data, or the version of a library.
    """
    return _repaint(example, lambda image, index: _noise_image(image.size, f"{example.id}\0{index}"))


def blur(example: Example) -> Example:
    """Show the images blurred until nothing can be read or counted in them."""
    return _repaint(
        example, lambda image, _: image.filter(ImageFilter.GaussianBlur(BLUR_FRACTION * max(image.width, image.height)))
    )


def no_image(example: Example) -> Example:
    """Show the text alone: images and their places in the prompt are removed.

    >>> from vcsd.types import Example
    >>> content = [{"type": "image"}, {"type": "text", "text": "How many?"}]
    >>> shown = no_image(Example(id="a", images=("42.png",), prompt=({"role": "user", "content": content},)))
    >>> shown.images, shown.prompt
    ((), ({'role': 'user', 'content': [{'type': 'text', 'text': 'How many?'}]},))
    """
    return replace(example, images=(), prompt=replace_image_parts(tuple(example.prompt), lambda part: []))


def _repaint(example: Example, paint: Callable[[Image.Image, int], Image.Image]) -> Example:
    """Replace each image by another of the same size, under the name of the same file."""
    shown = original(example)
    painted = []
    for index, image in enumerate(shown.images):
        assert isinstance(image, Image.Image)
        painted.append(paint(image, index))
        painted[-1].info = dict(image.info)
    return replace(shown, images=tuple(painted))


def _noise_image(size: tuple[int, int], key: str) -> Image.Image:
    """Independent Gaussian channels. Raw bits of a seeded generator: numpy promises their stream, not its normals'."""
    width, height = size
    num_values = height * width * 3
    seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "big")
    bits = np.random.PCG64(seed).random_raw(-(-num_values // 4)).astype("<u8", copy=False).view("<u2")[:num_values]
    return Image.fromarray(_noise_levels()[bits].reshape(height, width, 3))


@cache
def _noise_levels() -> np.ndarray:
    """The grey level of each of 65,536 equally likely draws."""
    normal = NormalDist(NOISE_MEAN, NOISE_STD)
    levels = [normal.inv_cdf((draw + 0.5) / 2**16) for draw in range(2**16)]
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)
