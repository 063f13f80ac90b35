from pathlib import Path

import pytest
from PIL import Image

from tiny_examples import example, picture, rotated
from tiny_processor import build_processor
from vcsd.errors import DataError
from vcsd.models.encode import assert_same_layout, encode
from vcsd.views import VIEWS


def test_a_crop_replaces_the_image_by_the_box() -> None:
    shown = VIEWS["crop"](example(picture(), boxes=((10, 20, 50, 60),)))
    (image,) = shown.images
    assert image.tobytes() == picture().crop((10, 20, 50, 60)).tobytes()
    assert shown.prompt == example(picture()).prompt


def test_an_added_crop_leaves_the_image_and_follows_it() -> None:
    boxes = ((10, 20, 50, 60), (0, 0, 8, 9))
    shown = VIEWS["crop_added"](example(picture(), picture(30, 30), boxes=boxes))
    assert [image.size for image in shown.images] == [(96, 64), (40, 40), (30, 30), (8, 9)]
    assert shown.images[0].tobytes() == picture().tobytes()
    assert [part["type"] for part in shown.prompt[0]["content"]] == ["image"] * 4 + ["text"]


def test_several_boxes_in_one_image_become_the_smallest_around_them() -> None:
    (image,) = VIEWS["crop"](example(picture(), boxes=((10, 20, 20, 30), (40, 5, 60, 25)))).images
    assert image.tobytes() == picture().crop((10, 5, 60, 30)).tobytes()


def test_several_images_have_one_box_each() -> None:
    images = picture(), picture(30, 30)
    shown = VIEWS["crop"](example(*images, boxes=((1, 2, 11, 22), (3, 3, 10, 9))))
    assert [image.size for image in shown.images] == [(10, 20), (7, 6)]
    with pytest.raises(DataError, match="2 images and 3 boxes"):
        VIEWS["crop"](example(*images, boxes=((1, 2, 11, 22),) * 3))


def test_a_box_is_rounded_outwards_and_ends_at_the_border() -> None:
    (image,) = VIEWS["crop"](example(picture(), boxes=((10.6, -5, 20.2, 900),))).images
    assert image.tobytes() == picture().crop((10, 0, 21, 64)).tobytes()
    (image,) = VIEWS["crop"](example(picture(), boxes=((-3, 10.6, 900, 20.2),))).images
    assert image.tobytes() == picture().crop((0, 10, 96, 21)).tobytes()


def test_a_box_is_measured_in_the_upright_image(tmp_path: Path) -> None:
    (image,) = VIEWS["crop"](example(rotated(tmp_path / "a.png"), boxes=((0, 50, 40, 90),))).images
    (upright,) = VIEWS["original"](example(tmp_path / "a.png")).images
    assert image.tobytes() == upright.crop((0, 50, 40, 90)).tobytes()


@pytest.mark.parametrize("view", ["crop", "crop_added"])
@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ((), "needs an image and an evidence box, but there are 1 images and 0 boxes"),
        (((0.1, 0.2, 0.5, 1.0),), "looks like fractions"),
        (((20, 20, 10, 40),), "contains no pixel of its image"),
        (((200, 20, 210, 40),), r"contains no pixel of its image 'image in memory' \(96 x 64\)"),
        (((5, 20, 5, 40),), "contains no pixel"),
        (((0, 0, float("nan"), 4),), "is not left, top, right, bottom"),
        (((0, 0, 4),), "is not left, top, right, bottom"),
    ],
)
def test_a_box_that_makes_no_sense_is_refused(view: str, boxes: tuple[object, ...], message: str) -> None:
    with pytest.raises(DataError, match=f"example 'virl-7': .*{message}"):
        VIEWS[view](example(picture(), boxes=boxes))


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((50, 10, 20, 30), r"the box \(50, 10, 20, 30\) contains no pixel"),
        ((10, 30, 20, 5), r"the box \(10, 30, 20, 5\) contains no pixel"),
        ((200, 20, 210, 40), r"the box \(200, 20, 210, 40\) contains no pixel"),
        ((0.1, 0.2, 0.5, 1.0), "looks like fractions"),
    ],
)
def test_a_sound_box_does_not_hide_one_that_makes_no_sense(box: tuple[float, ...], message: str) -> None:
    for boxes in (((0, 0, 60, 40), box), (box, (0, 0, 60, 40))):
        with pytest.raises(DataError, match=message):
            VIEWS["crop"](example(picture(), boxes=boxes))


def test_the_control_of_a_crop_has_the_layout_of_the_crop() -> None:
    cropped = VIEWS["crop"](example(picture(300, 200), boxes=((10, 20, 150, 60),)))
    processor = build_processor()
    black = VIEWS["black"](cropped)
    assert_same_layout(encode(processor, cropped), encode(processor, black), view="black")
    assert isinstance(black.images[0], Image.Image)
    assert black.images[0].getextrema() == ((0, 0),) * 3
