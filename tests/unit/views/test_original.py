import io
import os
import struct
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops

from tiny_examples import example, picture, rotated
from vcsd.errors import DataError
from vcsd.views import VIEWS
from vcsd.views.original import MAX_IMAGE_PIXELS, load_image

original = VIEWS["original"]


def shown(image: Image.Image | str | Path) -> Image.Image:
    (result,) = original(example(image)).images
    assert isinstance(result, Image.Image)
    assert result.mode == "RGB"
    return result


def row(image: Image.Image) -> list[object]:
    return [image.getpixel((x, 0)) for x in range(image.width)]


def same(first: Image.Image, second: Image.Image) -> bool:
    return first.size == second.size and ImageChops.difference(first, second).getbbox() is None


def test_an_rgb_picture_is_shown_unchanged_from_memory_and_from_a_file(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    assert same(shown(picture()), picture())
    assert same(shown(tmp_path / "a.png"), picture())
    assert same(shown(str(tmp_path / "a.png")), picture())


def test_a_picture_is_turned_upright_once(tmp_path: Path) -> None:
    lying = Image.open(rotated(tmp_path / "a.png"))
    upright = shown(tmp_path / "a.png")
    assert (lying.size, upright.size) == ((90, 40), (40, 90))
    assert same(upright, lying.transpose(Image.Transpose.ROTATE_270))
    assert same(shown(upright), upright)


def test_transparent_parts_are_white_and_opaque_parts_keep_their_colour() -> None:
    image = Image.new("RGBA", (2, 1), (200, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    assert row(shown(image)) == [(200, 0, 0), (255, 255, 255)]
    image = Image.new("LA", (2, 1), (100, 255))
    image.putpixel((1, 0), (0, 0))
    assert row(shown(image)) == [(100, 100, 100), (255, 255, 255)]


def test_the_transparent_colour_of_a_palette_is_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 0, 0, 250])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.png", transparency=0)
    assert row(shown(tmp_path / "a.png")) == [(255, 255, 255), (0, 0, 250)]


def test_half_transparent_red_is_pink() -> None:
    assert shown(Image.new("RGBA", (1, 1), (255, 0, 0, 128))).getpixel((0, 0)) == (255, 127, 127)


@pytest.mark.parametrize("level", [0, 1, 0x80, 0xFF])
def test_16_bit_grey_keeps_its_upper_bits(level: int, tmp_path: Path) -> None:
    for most in (65535, 4095):
        value = level * 257 * most // 65535
        (tmp_path / "a.pgm").write_bytes(f"P5 1 1 {most}\n".encode() + value.to_bytes(2, "big"))
        assert shown(tmp_path / "a.pgm").getpixel((0, 0))[0] in (level - 1, level), "of the file's own white"
    Image.new("I;16", (1, 1), level * 256 + 17).save(tmp_path / "a.png")
    assert shown(tmp_path / "a.png").getpixel((0, 0)) == (level, level, level)
    assert shown(Image.new("I;16B", (1, 1), level * 256 + 17)).getpixel((0, 0)) == (level, level, level)


def test_8_bit_grey_and_1_bit_become_equal_channels() -> None:
    assert shown(Image.new("L", (1, 1), 77)).getpixel((0, 0)) == (77, 77, 77)
    assert shown(Image.new("1", (1, 1), 1)).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bit_grey_is_refused_because_it_has_no_white(mode: str) -> None:
    with pytest.raises(DataError, match=rf"example 'virl-7': .*mode '{mode}' does not define white"):
        original(example(Image.new(mode, (4, 4))))


def test_the_first_frame_of_an_animation_is_shown(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert shown(tmp_path / "a.gif").getpixel((0, 0)) == (255, 0, 0)


def test_nothing_of_the_given_example_is_changed(tmp_path: Path) -> None:
    image = picture().convert("RGBA")
    given = example(image, rotated(tmp_path / "a.jpg"), answer="7")
    result = original(given)
    assert image.mode == "RGBA"
    assert given.images[1] == tmp_path / "a.jpg"
    assert (result.id, result.prompt, result.answer) == (given.id, given.prompt, given.answer)


def test_showing_twice_shows_the_same_object() -> None:
    once = original(example(picture()))
    assert original(once).images[0] is once.images[0]


@pytest.mark.parametrize("name", ["missing.png", "text.png", "truncated.png", "truncated.jpg", "empty.png", "."])
def test_an_unreadable_image_names_the_example_and_the_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "empty.png").write_bytes(b"")
    for suffix in ("png", "jpg"):
        picture(300, 200).save(tmp_path / f"truncated.{suffix}")
        whole = (tmp_path / f"truncated.{suffix}").read_bytes()
        (tmp_path / f"truncated.{suffix}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError) as caught:
        original(example(picture(), tmp_path / name))
    assert str(caught.value).startswith(f"example 'virl-7': the image '{tmp_path / name}' cannot be read")
    assert caught.value.example_id == "virl-7"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (b"\x89PNG" * 1000, "bytes of 4,000 bytes"),
        (bytearray(7), "bytearray of 7 bytes"),
        (np.zeros((4, 5, 3), np.uint8), "ndarray of 4"),
        (None, "NoneType"),
        (5, "int"),
    ],
)
def test_what_is_no_image_is_named_by_its_type_and_size_and_not_printed(source: object, what: str) -> None:
    with pytest.raises(DataError) as caught:
        original(example(source))
    advice = "Give a path, or an image opened with PIL.Image.open."
    assert str(caught.value) == f"example 'virl-7': an image is {what}. {advice}"


def test_a_file_that_is_open_can_be_read() -> None:
    content = io.BytesIO()
    picture().save(content, "PNG")
    (image,) = original(example(content)).images
    assert same(image, picture())
    with pytest.raises(DataError, match=r"the image '<_io\.BytesIO .*' cannot be read"):
        original(example(io.BytesIO(b"no image")))


def bomb(path: Path, side: int) -> Path:
    """A small file that claims to be a huge picture."""
    Image.new("1", (16, 16)).save(path)
    content = bytearray(path.read_bytes())
    content[16:24] = side.to_bytes(4, "big") * 2  # width and height in the PNG header
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("side", [8193, 12_000, 60_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_decompression_bomb_is_refused_on_its_header(
    side: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise AssertionError("pixels were decoded")

    path = bomb(tmp_path / "bomb.png", side)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", explode)
    with pytest.raises(
        DataError, match=rf"^example 'virl-7': the image '[^']*bomb.png' is too large: .*{MAX_IMAGE_PIXELS}"
    ):
        original(example(path))


def test_a_bomb_is_refused_where_warnings_are_errors(tmp_path: Path) -> None:
    given = example(bomb(tmp_path / "bomb.png", 12_000))
    warnings.simplefilter("error")
    with pytest.raises(DataError, match="too large"):
        original(given)


def test_the_limit_itself_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcsd.views.original.MAX_IMAGE_PIXELS", 96 * 64)
    assert shown(picture(96, 64)).size == (96, 64)
    with pytest.raises(DataError, match=r"^example .virl-7.: the image .image in memory. is too large: 97 x 64 pixels"):
        shown(picture(97, 64))


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(DataError, match="0 x 5: it has no pixels"):
        original(example(Image.new("RGB", (0, 5))))


def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match="it is not a file"):  # reading it would wait for a writer forever
        load_image("a", tmp_path / "a.png")


@pytest.mark.parametrize("comment", [b"#" + b"a" * 2**17 + b"\n", b"#a\n" * 2**16], ids=["one", "many"])
def test_comments_without_end_in_the_header_of_a_ppm_are_refused(tmp_path: Path, comment: bytes) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P5\n" + comment + b"2 1 255\n\x07\x08")
    with pytest.raises(DataError, match="its header has more than 65,536 bytes"):
        load_image("a", tmp_path / "a.ppm")
    (tmp_path / "a.ppm").write_bytes(b"P5\n" + comment[:900] + b"\n2 1 255\n\x07\x08" + b"\0" * 2**17)
    assert load_image("a", tmp_path / "a.ppm").size == (2, 1)


def test_the_images_of_an_example_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a kilobyte may name a file of a kilobyte a thousand times, and each copy is decoded."""
    monkeypatch.setattr("vcsd.views.original.MAX_EXAMPLE_PIXELS", 2 * 96 * 64)
    assert len(original(example(*[picture(96, 64)] * 2)).images) == 2
    given = replace(example(*[picture(32, 32)] * 3), control_images=(picture(96, 64),) * 3)
    for view, shown_example in (("original", example(*[picture(96, 64)] * 9)), ("given", given)):
        with pytest.raises(DataError, match=r"its first 3 images have 18,432 pixels\. The limit is 12,288") as raised:
            VIEWS[view](shown_example)
        assert raised.value.reason == "broken_image"


def test_a_tiff_of_tiles_larger_than_itself_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = ((256, 4, 16), (257, 4, 16), (258, 3, 8), (259, 3, 8), (262, 3, 1), (277, 3, 1))
    tiles = ((322, 4, 40_000), (323, 4, 40_000), (324, 4, 8), (325, 4, 8))
    tags = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in sides + tiles)
    file = b"II*\0" + struct.pack("<IH", 8, len(sides + tiles)) + tags + bytes(4)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("pixels were decoded"))
    with pytest.raises(DataError, match="its tiles have 40000 x 40000 pixels"):
        load_image("a", io.BytesIO(file))  # type: ignore[arg-type]


def test_a_header_without_end_is_refused_in_memory_too() -> None:
    """Pillow reads it byte by byte: half a minute for 50 MB."""
    with pytest.raises(DataError, match="its header has more than 65,536 bytes"):
        load_image("a", io.BytesIO(b"P6\n#" + b"x" * 2**17))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"", "it is empty"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC, the format of iPhones, is not supported: convert it"),
        (b"\n<!DOCTYPE html><html>", "it is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "it is a pointer of Git LFS: run `git lfs pull`"),
        (b"%PDF-1.7", "it is a PDF"),
        (b"text", "cannot identify image file"),
    ],
)
def test_a_file_that_is_no_image_is_called_what_it_is(tmp_path: Path, start: bytes, kind: str) -> None:
    (tmp_path / "a.jpg").write_bytes(start)
    for source in (tmp_path / "a.jpg", io.BytesIO(start)):
        with pytest.raises(DataError, match=f"cannot be read: {kind}") as raised:
            load_image("a", source)  # type: ignore[arg-type]
        assert raised.value.reason == "broken_image"
