import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tiny_examples import ODD, example, odd_picture, picture
from tiny_processor import build_processor
from vcsd.errors import DataError
from vcsd.models.encode import assert_same_layout, encode
from vcsd.types import Example, message_texts
from vcsd.views import SAME_LAYOUT, VIEWS
from vcsd.views.control import NOISE_MEAN, NOISE_STD

OTHER = Image.new("RGB", (9, 5), "red")

NOISE_OF_VIRL_7 = [[[95, 151, 124], [97, 142, 77]], [[165, 156, 167], [133, 182, 92]]]


def pixels(view: str, given: Example, index: int = 0) -> np.ndarray:
    image = VIEWS[view](given).images[index]
    assert isinstance(image, Image.Image)
    assert image.mode == "RGB"
    return np.asarray(image, dtype=np.float64)


def renamed(given: Example, name: str) -> Example:
    return Example(id=name, images=given.images, prompt=given.prompt)


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "llava"])
@pytest.mark.parametrize("view", SAME_LAYOUT)
@pytest.mark.parametrize("name", ODD)
def test_a_control_keeps_size_grid_and_tokens_and_changes_the_pixels(
    name: str, view: str, family: str, tmp_path: Path
) -> None:
    given = example(odd_picture(name, tmp_path), control_images=(OTHER,))
    processor = build_processor(family)
    shown, control = (encode(processor, VIEWS[each](given)) for each in ("original", view))
    assert_same_layout(shown, control, view=view)
    assert shown.input_ids.tolist() == control.input_ids.tolist()
    has_one_colour = name in ("one pixel", "16-bit grey")  # and does not change when it is blurred
    assert np.array_equal(pixels("original", given), pixels(view, given)) == (view == "blur" and has_one_colour)


@pytest.mark.parametrize("view", SAME_LAYOUT)
def test_a_control_keeps_the_layout_of_several_images(view: str, tmp_path: Path) -> None:
    given = example(picture(97, 33), odd_picture("rotated by EXIF", tmp_path), picture(40, 200).convert("L"))
    given = replace(given, control_images=(OTHER,) * 3)
    processor = build_processor()
    shown, control = (encode(processor, VIEWS[each](given)) for each in ("original", view))
    assert_same_layout(shown, control, view=view)
    assert shown.image_sizes == control.image_sizes == ((97, 33), (40, 90), (40, 200))
    assert len(shown.grid_thw) == 3


@pytest.mark.parametrize("view", SAME_LAYOUT)
@pytest.mark.parametrize("bounds", [{"max_pixels": 64 * 64}, {"min_pixels": 128 * 128}])
def test_pixel_bounds_hold_for_original_and_control_alike(view: str, bounds: dict[str, int]) -> None:
    processor, given = build_processor(**bounds), example(picture(101, 90), control_images=(OTHER,))
    shown, control = (encode(processor, VIEWS[each](given)) for each in ("original", view))
    assert_same_layout(shown, control)
    area = 16 * 16 * int(control.grid_thw.prod())
    assert bounds.get("min_pixels", 0) <= area <= bounds.get("max_pixels", area)
    free = encode(build_processor(), VIEWS[view](given))
    assert free.grid_thw.tolist() != control.grid_thw.tolist()


def test_black_is_black_and_the_original_is_not() -> None:
    assert pixels("black", example(picture())).max() == 0
    assert pixels("original", example(picture())).min(axis=(0, 1)).max() == 80


def test_black_reaches_the_model_as_the_darkest_value() -> None:
    processor = build_processor()
    black, shown = (encode(processor, VIEWS[each](example(picture()))) for each in ("black", "original"))
    assert black.pixel_values.unique().tolist() == [-1.0]
    assert shown.pixel_values.mean() > -0.5


def test_noise_does_not_depend_on_order_or_on_any_random_state() -> None:
    first, second = (renamed(example(picture()), name) for name in ("a", "b"))
    noise_a, noise_b = pixels("noise", first), pixels("noise", second)
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    assert np.array_equal(pixels("noise", second), noise_b)
    assert np.array_equal(pixels("noise", first), noise_a)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_noise_is_the_same_in_every_version_of_every_library() -> None:
    assert pixels("noise", example(picture(2, 2))).astype(int).tolist() == NOISE_OF_VIRL_7


def test_noise_differs_between_examples_between_images_and_between_channels() -> None:
    pair = example(picture(), picture())
    first, second = pixels("noise", pair, 0), pixels("noise", pair, 1)
    other = pixels("noise", renamed(pair, "other"), 0)
    flat = [first[..., 0], first[..., 1], second[..., 0], other[..., 0]]
    correlation = np.corrcoef([each.ravel() for each in flat])
    assert np.abs(correlation - np.eye(4)).max() < 0.05


def test_noise_has_the_stated_strength_and_nothing_of_the_image() -> None:
    noise = pixels("noise", example(picture(300, 200)))
    assert noise.mean() == pytest.approx(NOISE_MEAN, abs=0.5)
    assert noise.std() == pytest.approx(NOISE_STD, rel=0.05)
    assert np.array_equal(noise, pixels("noise", example(Image.new("RGB", (300, 200)))))


def test_blur_keeps_the_light_and_erases_the_detail() -> None:
    stripes = Image.new("RGB", (200, 100), "white")
    for left in range(0, 200, 20):
        stripes.paste("black", (left, 0, left + 10, 100))
    sharp, blurred = (pixels(view, example(stripes)) for view in ("original", "blur"))
    assert blurred.mean() == pytest.approx(sharp.mean(), rel=0.05)
    steepest = [np.abs(np.diff(each, axis=1)).max() for each in (sharp, blurred)]
    assert steepest[0] == 255
    assert steepest[1] <= 1


@pytest.mark.parametrize("size", [(300, 4), (4, 300)])
def test_blur_erases_a_thin_strip_too(size: tuple[int, int]) -> None:
    dots = Image.new("RGB", size, "white")
    dots.paste("black", (0, 0, size[0] // 2, size[1] // 2))
    assert pixels("blur", example(dots)).std() < pixels("original", example(dots)).std() / 1.5


def test_a_small_and_a_large_copy_of_a_picture_are_blurred_alike() -> None:
    small, large = (pixels("blur", example(picture(*size))) for size in ((60, 40), (600, 400)))
    assert np.abs(small - large[5::10, 5::10]).max() < 6


def test_no_image_keeps_the_text_and_loses_the_images() -> None:
    given = example(picture(), picture(), text="How many?")
    shown = VIEWS["no_image"](given)
    assert shown.images == ()
    assert shown.prompt == ({"role": "user", "content": [{"type": "text", "text": "How many?"}]},)
    encoded = encode(build_processor(), shown)
    assert encoded.text == "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
    assert (encoded.pixel_values, encoded.grid_thw, encoded.num_images) == (None, None, 0)


def test_no_image_needs_no_image_file() -> None:
    assert VIEWS["no_image"](example("missing.png")).images == ()


def test_no_image_keeps_every_turn_and_its_order() -> None:
    prompt = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}]},
        {"role": "assistant", "content": "A cube."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And now?"}]},
    )
    shown = VIEWS["no_image"](Example(id="a", images=(picture(), picture()), prompt=prompt))
    assert [message_texts(message) for message in shown.prompt] == [["Be brief."], ["Look:"], ["A cube."], ["And now?"]]
    assert [len(message["content"]) for message in shown.prompt] == [1, 1, 1, 1]


def test_a_given_control_is_resized_to_the_image_it_stands_for() -> None:
    shown = VIEWS["given"](example(picture(), control_images=(OTHER,)))
    assert shown.images[0].size == picture().size
    assert shown.images[0].getcolors() == [(picture().width * picture().height, (255, 0, 0))]


def test_every_image_needs_its_own_given_control() -> None:
    with pytest.raises(DataError, match="0 control images for 1 images"):
        VIEWS["given"](example(picture()))
