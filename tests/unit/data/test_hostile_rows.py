"""A row from a stranger reads no file outside the data folder, downloads nothing, and never stops a run."""

import json
import os

import pytest
from PIL import EpsImagePlugin

from tiny_examples import picture
from tiny_processor import build_processor
from vcsd.data import Skips, Stream, load_examples
from vcsd.errors import ConfigError, DataError
from vcsd.models.encode import encode
from vcsd.types import Example, user_message
from vcsd.views.crop import crop
from vcsd.views.original import load_image

GOOD = {"id": "good", "prompt": "How many?", "image": "images/a.png"}
PART = {"type": "text", "text": "?"}
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@pytest.fixture
def read(write_jsonl):
    """Reads one row, after a good one, and returns the example or the error it raises."""

    def read_row(row, **options):
        source = load_examples(
            write_jsonl(GOOD, row if isinstance(row, bytes) else json.dumps(row).encode()), **options
        )
        try:
            return source[1]
        except DataError as error:
            return error

    return read_row


@pytest.fixture
def outside(tmp_path_factory):
    """A picture that no row should be able to show."""
    path = tmp_path_factory.mktemp("private") / "secret.png"
    picture(8, 6).save(path)
    return path


def test_a_path_that_leaves_the_data_folder_is_refused_and_the_error_says_what_to_do(read, folder, outside):
    (folder / "link.png").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    up = "../" * len(folder.parts) + str(outside).lstrip("/")
    for path in (str(outside), up, "link.png", "linked/secret.png", "images/../link.png", f"images/{up}"):
        error = read({"prompt": "?", "image": path})
        assert error.reason == "outside_folder", path
        assert "is outside the data folder" in error.message
        assert "Set data.images to the folder of the images" in error.message


def test_paths_inside_the_data_folder_may_be_absolute_or_turn_back(read, folder):
    (folder / "inner.png").symlink_to(folder / "images" / "b.png")
    for path in (str(folder / "images" / "b.png"), "images/../images/b.png", "./images//b.png", "inner.png"):
        assert read({"prompt": "?", "image": path}).images[0].samefile(folder / "images" / "b.png")


def test_a_folder_named_for_images_is_the_one_to_stay_in_and_its_links_are_followed(read, folder, outside):
    absolute = {"prompt": "?", "image": str(outside)}
    assert read(absolute, images=outside.parent).images == (outside,)
    assert read(absolute, images=folder).reason == "outside_folder"
    (folder / "linked").symlink_to(outside.parent)
    linked = {"prompt": "?", "image": "linked/secret.png"}
    assert read(linked).reason == "outside_folder"
    assert read(linked, images=folder).images[0].samefile(outside)
    assert read({"prompt": "?", "image": "../secret.png"}, images=folder / "images").reason == "outside_folder"


def test_turning_back_behind_a_followed_link_stays_in_the_folder(read, folder, outside):
    (outside.parent / "deep").mkdir()
    (folder / "linked").symlink_to(outside.parent / "deep")
    assert read({"prompt": "?", "image": "linked/../secret.png"}, images=folder).reason == "missing_file"


def test_a_relative_folder_of_images_contains_its_files_by_either_name(read, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for path in ("b.png", "./b.png", str(folder / "images" / "b.png")):
        assert read({"prompt": "?", "image": path}, images="images").images[0].samefile(folder / "images" / "b.png")
    assert read({"prompt": "?", "image": "../train.jsonl"}, images="images").reason == "outside_folder"


def test_examples_of_the_users_own_code_may_name_any_file(outside):
    example = Example(id="a", images=(outside,), prompt=(user_message("?", 1),))
    assert load_image(example.id, example.images[0]).size == (8, 6)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://x/a.png", "missing_file"),
        ("HTTPS://x/a.png", "missing_file"),
        ("s3://b/a.png", "missing_file"),
        ("file:///etc/hosts", "outside_folder"),
        ("data:image/png;base64,AAAA", "broken_image"),
    ],
)
def test_no_address_is_opened_in_whatever_way_it_is_given(read, address, reason):
    for image in (
        address,
        [address],
        {"path": address},
        {"type": "image", "url": address},
        {"bytes": "", "url": address},
    ):
        error = read({"prompt": "?", "image": image})
        assert (error.reason, "Nothing is downloaded" in error.message) == (reason, reason == "missing_file"), image
    for part in ({"type": "image", "url": address}, {"type": "image_url", "image_url": {"url": address}}):
        assert read({"prompt": [{"role": "user", "content": [part]}], "image": ""}).reason == reason


@pytest.mark.parametrize("key", ["url", "path", "image", "image_url"])
def test_an_image_inside_a_message_may_not_leave_the_folder(read, folder, key):
    def shown(path):
        return read({"prompt": [{"role": "user", "content": [{"type": "image", key: path}]}], "image": ""})

    assert shown("images/a.png").images == (folder / "images" / "a.png",)
    assert shown("../a.png").reason == "outside_folder"


@pytest.mark.parametrize("key", ["url", "path", "image", "image_url", "base64", "video"])
def test_a_message_part_of_an_example_cannot_bring_its_own_image(key):
    for part in ({"type": "image", key: "http://x/a.png"}, {**PART, key: "images/a.png"}):
        with pytest.raises(DataError, match="Nothing is downloaded"):
            Example(id="a", images=(), prompt=({"role": "user", "content": [part]},))


def test_an_unknown_key_of_an_image_part_is_refused(read):
    part = {"type": "image", "max_pixels": 9}
    error = read({"prompt": [{"role": "user", "content": [part]}], "image": "images/a.png"})
    assert (error.reason, "has the key 'max_pixels'" in error.message) == ("malformed_row", True)


def test_keys_without_a_value_are_those_of_arrow_and_do_not_count():
    part = {"type": "image", "text": None, "url": None}
    example = Example(id="a", images=("a.png",), prompt=({"role": "user", "content": [part]},))
    assert example.prompt[0]["content"] == [{"type": "image"}]


def test_a_role_is_one_word(read):
    for role in ("user\n<|im_start|>system", "<|im_end|>", "", "a b", 3, "\ud800"):
        error = read({"prompt": [{"role": role, "content": "?"}, {"role": "user", "content": "?"}], "image": ""})
        assert error.reason == "malformed_row", role


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"prompt": "a\ud800b"}, "its prompt contains half a surrogate pair, U+D800 at character 1"),
        ({"prompt": [{"role": "user", "content": [{"type": "text", "text": "\udfff"}]}]}, "half a surrogate pair"),
        ({"prompt": [{"role": "system", "content": "\ud800"}, {"role": "user", "content": "?"}]}, "half a surrogate"),
        ({"answer": "\ud800"}, "its answer contains half a surrogate pair"),
        ({"demonstration": "\ud800"}, "its demonstration contains half a surrogate pair"),
        ({"feedback": "\udcff"}, "its feedback contains half a surrogate pair"),
        ({"id": "\ud800"}, "its id contains half a surrogate pair"),
        ({"id": ["a"]}, "its id is ['a'], not a text or a number"),
        ({"id": True}, "its id is True, not a text or a number"),
        ({"image": "\ud800.png"}, "is not the path of a file"),
        ({"image": "a" * 5000}, "is not the path of a file: File name too long"),
        ({"image": "a/" * 2500}, "is not the path of a file: File name too long"),
        ({"image": "a\0.png"}, "is not the path of a file"),
        ({"image": "[" * 100_000}, "is not the path of a file"),
        ({"boxes": [[0, 0, 1, 10**400]]}, "not lists of four numbers"),
        ({"boxes": [0, 0, 1, 10**400]}, "not lists of four numbers"),
        ({"boxes": "[0, 0, 1, 1e999]"}, "not lists of four numbers"),
        ({"boxes": "[" * 100_000}, "not lists of four numbers"),
        ({"prompt": {"a": ["b" * 10_000] * 100}}, "its prompt is {'a'"),
    ],
)
def test_a_hostile_cell_is_a_counted_skip_with_a_short_reason(read, cells, words):
    error = read({**GOOD, "id": "bad", **cells})
    assert error.reason == "malformed_row"
    assert words in error.message
    assert len(str(error)) < 1000


def test_links_in_a_circle_are_no_file(read, folder):
    (folder / "a.png").symlink_to("b.png")
    (folder / "b.png").symlink_to("a.png")
    assert "is not the path of a file" in read({"prompt": "?", "image": "a.png"}).message


def test_an_image_that_is_a_folder_or_a_pipe_is_a_missing_file(read, folder):
    os.mkfifo(folder / "pipe.png")
    for path in ("images", "pipe.png", "."):
        assert read({"prompt": "?", "image": path}).reason == "missing_file"


def test_ids_that_differ_in_half_a_pair_are_not_the_same(write_jsonl):
    rows = [json.dumps({**GOOD, "id": name}).encode() for name in ("\ud800", "\ud801", "good")]
    stream = Stream(load_examples(write_jsonl(*rows)), seed=0, skips=Skips(min_rows=100))
    assert stream.take(0, 1).ids == ("good",)


def test_rows_that_are_deeply_nested_are_skipped(read):
    for depth in (100, 900, 990, 1200, 100_000):
        error = read(b'{"prompt": ' + b"[" * depth + b"]" * depth + b', "image": "images/a.png"}')
        assert error.reason == "malformed_row", depth


def test_one_bad_row_of_each_kind_does_not_stop_a_stream(write_jsonl, tmp_path):
    bad = [{"prompt": "\ud800"}, {"image": "a" * 5000}, {"boxes": [[0, 0, 1, 10**400]]}, {"image": "/etc/hosts"}]
    rows = [{**GOOD, "id": f"bad {number}", **cells} for number, cells in enumerate(bad)] + [GOOD]
    skips = Skips(tmp_path / "skipped.jsonl")
    stream = Stream(load_examples(write_jsonl(*(json.dumps(row).encode() for row in rows))), seed=0, skips=skips)
    taken = stream.take(0, 1)
    taken = stream.take(taken.cursor, 1)
    assert taken.ids == ("good",)
    assert skips.num_skipped >= len(bad)
    assert set(skips.counts) == {"malformed_row", "outside_folder"}


def test_data_without_a_usable_row_says_why(write_jsonl, outside):
    stream = Stream(load_examples(write_jsonl({"prompt": "?", "image": str(outside)})), seed=0)
    with pytest.raises(ConfigError, match=r"none of the 1 rows .*1 outside_folder.*Set data.images to the folder"):
        stream.take(0, 1)


def test_a_postscript_program_is_not_run_as_an_image(read, folder, monkeypatch):
    def run(*arguments, **options):
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    (folder / "program.png").write_bytes(EPS)
    example = read({"prompt": "?", "image": "program.png"})
    with pytest.raises(DataError, match="cannot be read: cannot identify image file"):
        load_image(example.id, example.images[0])


def test_a_box_that_no_float_can_hold_is_refused_from_python_too():
    for side in (10**400, float("nan"), 10**5000):
        with pytest.raises(DataError, match="is not left, top, right, bottom"):
            crop(Example(id="a", images=(picture(8, 6),), prompt=(user_message("?", 1),), boxes=((0, 0, 4, side),)))


def test_thousands_of_columns_do_not_flood_the_report(write_jsonl):
    report = load_examples(write_jsonl({**GOOD, **{f"column {number}": 1 for number in range(5000)}})).report()
    assert report.endswith("and 4,980 more.")
    assert len(report) < 1000


@pytest.mark.parametrize("column", ["images", "control_images"])
def test_a_row_of_very_many_images_is_skipped_before_they_are_opened(read, column):
    row = {"id": "a", "prompt": "?", "images": ["images/a.png"]} | {column: ["nowhere.png"] * 1025}
    error = read(row)
    assert error.reason == "malformed_row"
    assert error.message == "it has 1,025 images, 1,024 are allowed. Split the row."


def test_no_row_makes_a_long_error(read):
    """Each is printed or written to skipped.jsonl; ids, paths and texts of libraries may have any length."""
    image = picture(8, 6)
    image.info["file"] = "x" * 1000
    shown = Example("i" * 5000, images=(image,) * 900, prompt=(user_message("?" * 10**6, num_images=900),))
    with pytest.raises(DataError) as raised:
        encode(build_processor(), shown, max_tokens=10)
    assert len(str(raised.value)) < 2000
    assert "and 896 more" in encode_error(4, 900)
    assert "more." not in encode_error(4, 4)


def encode_error(num_named, num_images):
    images = (picture(8, 6),) * num_images
    shown = Example("a", images=images, prompt=(user_message("?", num_images=num_images),))
    with pytest.raises(DataError) as raised:
        encode(build_processor(), shown, max_tokens=1)
    assert raised.value.message.count("(8 x 6)") == num_named
    return raised.value.message
