"""The original view: the example with its images loaded. Every other view starts from it.

An image is loaded as a person would see it in a viewer: rotated by its EXIF orientation, the first frame if it is
animated, and flattened to 8-bit RGB:

transparent (RGBA, LA, palette)   on white. Dropping the alpha channel would reveal what is underneath, which is black
                                  in most exported charts and formulas: dark lines on black.
grey, palette, CMYK, 1 bit        converted by Pillow.
16-bit grey                       the upper 8 bits. Pillow's own conversion clips, which turns most of it white. A PGM
                                  has 16 bits too, although Pillow opens it with 32.
32-bit grey (integer or float)    refused: white is not defined, so any scaling would be a guess.

Colour profiles are ignored, as in all processors of transformers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sized
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vcsd.errors import DataError

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

    from vcsd.types import Example

FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
"""The file formats that are read, as Pillow names them. Pillow reads others too, but to open an EPS file, which is a
program, it starts Ghostscript."""

_MAX_HEADER = 2**16
_PPM_WORDS = 4
"""The words of a PPM's header: its kind, width, height and largest value. Comments of any length may come between."""

_NO_IMAGES = (
    (rb"\Z", "it is empty"),
    (rb".{4}ftyp(hei|hev|mif1|msf1)", "HEIC, the format of iPhones, is not supported: convert it to JPEG or PNG"),
    (rb"\s*<(!doctype|html)", "it is a web page"),
    (rb"version https://git-lfs", "it is a pointer of Git LFS: run `git lfs pull`"),
    (rb"%PDF", "it is a PDF"),
)
"""How files begin that often have the name of an image."""

_TILE_SIDES = (322, 323)
"""The tags of a TIFF that hold the width and the height of a tile."""

MAX_IMAGE_PIXELS = 2**26
"""The largest image that is decoded: 8192 x 8192, twice the area of an 8K screen, 192 MiB as RGB.

A larger file is more likely a decompression bomb than a photograph. The check reads the header, before any pixel is
decoded, and the limit is below the one at which Pillow itself warns.
"""

MAX_EXAMPLE_PIXELS = 4 * MAX_IMAGE_PIXELS
"""The most pixels of all images of an example, which are in memory together: 22 photographs of 12 megapixels. A row may
name a small file many times."""


def original(example: Example) -> Example:
    """Show the example with its images upright, in 8-bit RGB.

    >>> from vcsd.types import Example
    >>> grey = Image.new("L", (4, 2))
    >>> shown = original(Example(id="a", images=(grey,), prompt=({"role": "user", "content": [{"type": "image"}]},)))
    >>> shown.images[0].mode, shown.images[0].size
    ('RGB', (4, 2))
    """
    return replace(example, images=load_images(example.id, example.images))


def load_images(example_id: str, sources: Iterable[Image.Image | str | PathLike[str]]) -> tuple[Image.Image, ...]:
    """Load the images of one example. Raise a DataError as soon as they have too many pixels together."""
    images: list[Image.Image] = []
    num_pixels = 0
    for source in sources:
        images.append(load_image(example_id, source))
        num_pixels += images[-1].width * images[-1].height
        if num_pixels > MAX_EXAMPLE_PIXELS:
            raise DataError(
                example_id,
                f"its first {len(images)} images have {num_pixels:,} pixels. The limit is {MAX_EXAMPLE_PIXELS:,} for "
                "all images of an example; make them smaller.",
                reason="broken_image",
            )
    return tuple(images)


def load_image(example_id: str, source: Image.Image | str | PathLike[str]) -> Image.Image:
    """Load one image as upright 8-bit RGB. Its `info` holds only the name of its file, for error messages."""
    if not isinstance(source, Image.Image | str | PathLike) and not hasattr(source, "read"):
        raise DataError(
            example_id, f"an image is {_described(source)}. Give a path, or an image opened with PIL.Image.open."
        )
    name = file_name(source)
    try:
        with nullcontext(source) if isinstance(source, Image.Image) else open_image(source) as image:
            _check_size(example_id, name, image)
            if image.mode == "RGB" and image.info == {"file": name}:
                return image
            upright = ImageOps.exif_transpose(image)
            # Pillow opens a 16-bit PGM with 32 bits, scaled to 65535.
            has_16_bits = image.mode == "I" and image.format == "PPM"
            shown = to_rgb(_upper_bits(upright) if has_16_bits else upright)
    except (DataError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _broken(example_id, name, _too_large(str(error))) from error
    except Exception as error:  # decoders raise all kinds of errors on a broken file
        raise _broken(
            example_id, name, f"cannot be read: {error}. Replace the file or leave the example out."
        ) from error
    shown.info = {"file": name}
    return shown


def open_image(source: str | PathLike[str] | IO[bytes]) -> ImageFile:
    """Open an image of one of the FORMATS, without decoding it."""
    if isinstance(source, str | PathLike):
        if Path(source).exists() and not Path(source).is_file():
            raise ValueError("it is not a file")  # reading a pipe or a device may never end
        with Path(source).open("rb") as file:
            head = file.read(_MAX_HEADER + 1)
    else:
        if not hasattr(source, "seek"):  # an image inside a benchmark's file is read as a whole
            source = io.BytesIO(source.read())
        start = source.tell()
        head = source.read(_MAX_HEADER + 1)
        source.seek(start)
    _refuse_long_header(head)
    try:
        image = Image.open(source, formats=_formats())
    except UnidentifiedImageError as error:
        kinds = [kind for begins, kind in _NO_IMAGES if re.match(begins, head, re.DOTALL | re.IGNORECASE)]
        if not kinds:
            raise
        raise ValueError(kinds[0]) from error
    _refuse_large_tiles(image)
    return image


def _refuse_large_tiles(image: ImageFile) -> None:
    """Raise if the tiles of a TIFF are too large: each is decoded as a whole, even if the image is smaller."""
    tags = getattr(image, "tag_v2", None) if image.format == "TIFF" else None
    if tags is None:
        return
    sides = [tags.get(tag, 0) for tag in _TILE_SIDES]
    if all(isinstance(side, int) for side in sides) and sides[0] * sides[1] > MAX_IMAGE_PIXELS:
        raise ValueError(f"its tiles have {sides[0]} x {sides[1]} pixels")


def _refuse_long_header(head: bytes) -> None:
    """Raise if the header of a PPM is too long: Pillow reads it byte by byte, which takes a minute for 50 MB."""
    if len(head) > _MAX_HEADER and re.match(rb"P[1-7][\s#]", head):
        words = re.sub(rb"#[^\r\n]*", b" ", head).split()
        if len(words) < _PPM_WORDS:
            raise ValueError(f"its header has more than {_MAX_HEADER:,} bytes")


@cache
def _formats() -> tuple[str, ...]:
    """Return the FORMATS that the installed Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def file_name(source: Image.Image | str | PathLike[str]) -> str:
    """Return the name of an image for error messages."""
    if not isinstance(source, Image.Image):
        return str(source)
    return str(source.info.get("file") or getattr(source, "filename", "") or "image in memory")


def _described(source: object) -> str:
    """Describe something that is not an image by its type and, if it has one, its size."""
    size = f" of {len(source):,}" if isinstance(source, Sized) else ""
    return f"{type(source).__name__}{size}{' bytes' if isinstance(source, bytes | bytearray) else ''}"


def _check_size(example_id: str, name: str, image: Image.Image) -> None:
    if image.width * image.height > MAX_IMAGE_PIXELS:
        raise _broken(example_id, name, _too_large(f"{image.width} x {image.height} pixels"))
    if not image.width or not image.height:
        raise _broken(example_id, name, f"is {image.width} x {image.height}: it has no pixels.")


def _broken(example_id: str, name: str, problem: str) -> DataError:
    return DataError(example_id, f"the image {name!r} {problem}", reason="broken_image", file=name)


def _too_large(size: str) -> str:
    return f"is too large: {size}. The limit is {MAX_IMAGE_PIXELS} pixels; make it smaller."


def to_rgb(image: Image.Image) -> Image.Image:
    """Flatten to 8-bit RGB, with transparent parts on white.

    >>> to_rgb(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    >>> to_rgb(Image.new("I;16", (1, 1), 0x80FF)).getpixel((0, 0))
    (128, 128, 128)
    """
    if image.mode in ("I", "F"):
        raise ValueError(f"its mode {image.mode!r} does not define white. Save it with 8 or 16 bits per channel")
    if image.mode.startswith("I;16"):
        image = _upper_bits(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _upper_bits(image: Image.Image) -> Image.Image:
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
