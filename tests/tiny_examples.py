"""Pictures and examples for tests: every picture is bright and uneven, so that no control can pass for it."""

from pathlib import Path

from PIL import Image

from vcsd.types import Example

ODD = (
    *("odd sides", "one pixel", "one pixel high", "three pixels wide", "very large", "RGBA", "grey", "grey with alpha"),
    *("16-bit grey", "1 bit", "palette", "palette with transparency", "CMYK", "rotated by EXIF"),
)
ORIENTATION = 0x0112  # the EXIF tag that says how the camera was held
QUARTER_TURN = 6  # its value for a picture that must be turned clockwise to stand upright


def picture(width: int = 96, height: int = 64) -> Image.Image:
    """Red to the left, blue to the right, never dark."""
    ramp = Image.linear_gradient("L").rotate(90).resize((width, height))
    return Image.merge("RGB", (ramp.point(lambda v: 255 - v), Image.new("L", (width, height), 80), ramp))


def example(*images: Image.Image | str | Path, text: str = "How many?", **columns: object) -> Example:
    """A question about the images, which stand before it."""
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
    return Example(id="virl-7", images=images, prompt=({"role": "user", "content": content},), **columns)  # type: ignore[arg-type]


def rotated(path: Path, width: int = 90, height: int = 40) -> Path:
    """A file that stands upright as 40 x 90 but is stored lying."""
    exif = Image.Exif()
    exif[ORIENTATION] = QUARTER_TURN
    picture(width, height).save(path, exif=exif)
    return path


def odd_picture(name: str, folder: Path) -> Image.Image | Path:
    """One of the pictures that break image code, by the name of its trouble in `ODD`."""
    see_through = picture()
    see_through.putalpha(Image.linear_gradient("L").resize(see_through.size))
    palette = picture().quantize(16)
    palette.info["transparency"] = 3
    pictures = {
        "odd sides": picture(97, 61),
        "one pixel": picture(1, 1),
        "one pixel high": picture(150, 1),
        "three pixels wide": picture(3, 50),
        "very large": picture(3001, 1999) if name == "very large" else None,
        "RGBA": see_through,
        "grey": picture().convert("L"),
        "grey with alpha": see_through.convert("LA"),
        "16-bit grey": Image.new("I;16", (50, 70), 40_000),
        "1 bit": picture().convert("1"),
        "palette": picture().quantize(16),
        "palette with transparency": palette,
        "CMYK": picture().convert("CMYK"),
        "rotated by EXIF": rotated(folder / "rotated.jpg"),
    }
    assert tuple(pictures) == ODD
    return pictures[name]
