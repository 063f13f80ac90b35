"""Pictures of the things: every emoji once in its own colours and once in each of the seven.

    python -m vcsd.emoji.sprites sprites.safetensors --font /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf

The font is Noto Color Emoji, Debian's package fonts-noto-color-emoji, which is not needed once the file exists.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, features
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from vcsd.emoji.things import COLORS, THINGS
from vcsd.errors import ConfigError
from vcsd.terminal import exit_on_error

SIDE = 56
"""Pixels of a sprite's side."""

NATIVE = len(COLORS)
"""The index of a thing's own colours, after the seven."""

FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
_FONT_SIZE = 109
"""The only size in which the font holds its bitmaps."""

_NAME = "sprites"


def emoji_sprites(font: Path) -> torch.Tensor:
    """Draw all things from the font: (things, colours + 1, 4, SIDE, SIDE), red, green, blue and opacity as bytes."""
    if not font.is_file():
        raise ConfigError([f"there is no font {font}. Install fonts-noto-color-emoji, or pass --font."])
    if not features.check("freetype2"):
        raise ConfigError(["this Pillow was built without FreeType, which draws fonts. Install Pillow's own wheel."])
    face = ImageFont.truetype(str(font), _FONT_SIZE)
    return _all_colors([_square(thing.emoji, face) for thing in THINGS.values()])


def _square(emoji: str, face: ImageFont.FreeTypeFont) -> np.ndarray:
    """Draw one emoji, cut off its margins, and fit it into a square."""
    picture = Image.new("RGBA", (150, 150), (0, 0, 0, 0))
    ImageDraw.Draw(picture).text((5, 5), emoji, font=face, embedded_color=True)
    box = picture.getbbox()
    if box is None:
        raise ConfigError([f"the font has no picture of {emoji!r}. Use Noto Color Emoji."])
    picture = picture.crop(box)
    side = max(picture.size)
    square = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    square.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return np.asarray(square.resize((SIDE, SIDE), Image.Resampling.LANCZOS)).astype(np.float32) / 255


def _all_colors(pictures: list[np.ndarray]) -> torch.Tensor:
    drawn = [[*(recolored(picture, rgb) for rgb in COLORS.values()), picture] for picture in pictures]
    array = np.stack([np.stack(each) for each in drawn]).transpose(0, 1, 4, 2, 3)
    return torch.from_numpy((array * 255).round().clip(0, 255).astype(np.uint8))


def recolored(picture: np.ndarray, rgb: tuple[int, int, int]) -> np.ndarray:
    """Give every coloured pixel one hue, and keep its shade; white, grey and black parts stay as they are."""
    color, opacity = picture[..., :3], picture[..., 3:]
    brightest, darkest = color.max(-1), color.min(-1)
    saturation = (brightest - darkest) / np.maximum(brightest, 1e-6)
    share = np.clip((saturation - 0.12) / 0.2, 0, 1)[..., None]
    light = (color.mean(-1) + brightest) / 2
    is_colored = (share[..., 0] > 0.5) & (opacity[..., 0] > 0.5)
    usual = float(np.percentile(light[is_colored], 60)) if is_colored.any() else 0.7
    shade = np.clip(light / usual, 0.35, 1.12)[..., None]
    painted = np.clip(np.array(rgb, np.float32) / 255 * shade, 0, 1)
    return np.concatenate([share * painted + (1 - share) * color, opacity], -1)


def save_sprites(sprites: torch.Tensor, path: Path) -> None:
    """Write sprites to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({_NAME: sprites.contiguous()}, path)


def load_sprites(path: Path) -> torch.Tensor:
    """Read sprites, and check that they are those of these things."""
    try:
        sprites = load_file(path)[_NAME]
    except (OSError, SafetensorError, KeyError) as error:
        fix = "python -m vcsd.emoji.sprites writes one"
        raise ConfigError([f"{path} is not a file of sprites: {error}. {fix}."]) from error
    expected = (len(THINGS), NATIVE + 1, 4, SIDE, SIDE)
    if tuple(sprites.shape) != expected or sprites.dtype != torch.uint8:
        raise ConfigError([f"{path} holds {tuple(sprites.shape)}, not sprites of shape {expected}. Write it again."])
    return sprites


def sprites_identity(sprites: torch.Tensor) -> str:
    """Hash sprites: equal for equal pictures."""
    return hashlib.sha256(sprites.cpu().contiguous().numpy().tobytes()).hexdigest()[:32]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.sprites", description="Draw the things of the scenes.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--font", type=Path, default=FONT)
    options = parser.parse_args()
    with exit_on_error():
        save_sprites(emoji_sprites(options.font), options.out)


if __name__ == "__main__":
    main()
