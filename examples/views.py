"""Draw one synthetic picture under every view.

python examples/views.py --out docs/views.png
"""

import argparse
from pathlib import Path

from PIL import Image, ImageDraw

from vcsd.types import Example
from vcsd.views import VIEWS

PANEL = (160, 120)
CAPTION = 16
SHOWN = ("original", "black", "noise", "blur", "no_image", "crop", "crop_added")
NUM_COLOURS = 256  # a palette keeps the picture small: noise does not compress


def picture() -> Image.Image:
    """Draw three cubes, a ball and a number."""
    image = Image.new("RGB", PANEL, (235, 228, 214))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 84, PANEL[0], PANEL[1]), fill=(176, 160, 140))
    for left, colour in ((12, (200, 60, 50)), (48, (60, 110, 190)), (84, (70, 150, 80))):
        draw.rectangle((left, 64, left + 28, 92), fill=colour, outline=(40, 40, 40))
    draw.ellipse((118, 52, 152, 86), fill=(240, 190, 60), outline=(40, 40, 40))
    draw.text((122, 8), "No. 7", fill=(30, 30, 30), font_size=12)
    return image


def example() -> Example:
    """A question about the picture, with a box around its answer."""
    content = [{"type": "image"}, {"type": "text", "text": "Which number is written in the picture?"}]
    return Example(
        id="views", images=(picture(),), prompt=({"role": "user", "content": content},), boxes=((112, 0, 160, 32),)
    )


def contact_sheet() -> Image.Image:
    """Draw one column per image, labelled with its view."""
    columns = [(name, image) for name in SHOWN for image in VIEWS[name](example()).images or (None,)]
    sheet = Image.new("RGB", (len(columns) * (PANEL[0] + 4) - 4, PANEL[1] + CAPTION), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (name, image) in enumerate(columns):
        left = index * (PANEL[0] + 4)
        draw.text((left + 2, 2), name, fill="black", font_size=11)
        if isinstance(image, Image.Image):
            sheet.paste(image, (left, CAPTION))
        else:
            draw.text((left + 50, CAPTION + 52), "(text only)", fill="grey", font_size=11)
    return sheet


def main() -> None:
    """Write the contact sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/views.png"))
    out: Path = parser.parse_args().out
    contact_sheet().quantize(NUM_COLOURS).save(out, optimize=True)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
