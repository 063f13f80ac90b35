"""JSON Lines: what is read, what is refused, and that a large file stays on disk."""

import json

import pytest

from tiny_examples import picture
from vcsd.data import RowError, load_examples
from vcsd.data.content import examples_hash
from vcsd.errors import ConfigError

IMAGE, TEXT = {"type": "image"}, {"type": "text", "text": "How many?"}


def row(name="a", **cells):
    return {"id": name, "question": "How many?", "image": f"images/{name}.png", **cells}


def test_a_row_becomes_an_example_with_all_its_columns(write_jsonl, folder):
    cells = {"answer": 7, "boxes": [[0, 1, 4, 5.5]], "demonstration": "Count.", "feedback": "Wrong."}
    example = load_examples(write_jsonl(row(**cells)))[0]
    assert (example.id, example.images) == ("a", (folder / "images" / "a.png",))
    assert example.prompt == ({"role": "user", "content": [IMAGE, TEXT]},)
    assert (example.answer, example.boxes) == ("7", ((0.0, 1.0, 4.0, 5.5),))
    assert (example.demonstration, example.feedback) == ("Count.", "Wrong.")
    assert example.control_images == ()
    controlled = load_examples(write_jsonl(row("a", control_image="images/b.png"), row("b")))[0]
    assert controlled.control_images == (folder / "images" / "b.png",)


@pytest.mark.parametrize(
    ("cell", "category"),
    [("math", "math"), (3, "3"), (["math", "sums"], "math, sums"), ({"a": 1}, None), ("", None), (None, None)],
)
def test_a_category_is_read_and_no_row_is_lost_for_its_label(write_jsonl, cell, category):
    source = load_examples(write_jsonl(row(category=cell)))
    assert source[0].category == category


def test_a_category_changes_neither_fingerprint_nor_hash_of_examples(write_jsonl):
    source = load_examples(write_jsonl(row(category="math")))
    ignored = load_examples(source.table.path, columns={"category": None})
    assert (ignored[0].category, source[0].category) == (None, "math")
    assert source.fingerprint() == ignored.fingerprint()
    assert examples_hash([source[0]]) == examples_hash([ignored[0]])


def test_rows_without_an_id_are_named_by_file_and_number_and_empty_lines_do_not_count(write_jsonl):
    source = load_examples(write_jsonl(b"", {"prompt": "?", "images": []}, b"  ", {"prompt": "!", "images": []}))
    assert [example.id for example in source] == ["train-00000000", "train-00000001"]


def test_one_broken_line_does_not_hide_its_neighbours(write_jsonl):
    source = load_examples(write_jsonl(row("a"), b'{"id": "b", "question": "Ho', row("c")))
    assert (len(source), source[0].id, source[2].id) == (3, "a", "c")
    with pytest.raises(RowError, match="not JSON") as caught:
        source[1]
    assert (caught.value.example_id, caught.value.reason) == ("train-00000001", "malformed_row")


def test_a_line_in_another_encoding_is_a_row_error_that_says_so(write_jsonl):
    latin = json.dumps(row("b", question="Größe?"), ensure_ascii=False).encode("latin-1")
    source = load_examples(write_jsonl(row("a", question="Größe? 大きさ"), latin))
    assert source[0].prompt[0]["content"][1]["text"] == "Größe? 大きさ"
    with pytest.raises(RowError, match="not UTF-8"):
        source[1]


def test_a_byte_order_mark_and_windows_line_ends_are_not_part_of_the_data(folder):
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(row()).encode() + b"\r\n")
    assert load_examples(folder / "a.jsonl")[0].id == "a"


@pytest.mark.parametrize(
    ("content", "words"), [(b"\n\n", "is empty"), (b"[1, 2]\n", "not an object"), (b"hi", "not JSON")]
)
def test_a_file_without_a_single_object_is_refused(folder, content, words):
    (folder / "a.jsonl").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_examples(folder / "a.jsonl")


def test_a_missing_column_is_named_with_the_nearest_one(write_jsonl):
    with pytest.raises(ConfigError, match=r"no column 'prompt', 'messages', .* or 'query'. Did you mean 'promt'"):
        load_examples(write_jsonl({"promt": "How many?", "image": "images/a.png"}))
    with pytest.raises(
        ConfigError, match=r"no column 'images', 'image' or 'image_path'. Did you mean 'imagse'.*columns.images to null"
    ):
        load_examples(write_jsonl({"prompt": "How many?", "imagse": "images/a.png"}))


def test_columns_can_be_chosen_and_left_unused(write_jsonl):
    path = write_jsonl({"id": 1, "problem": "How many?", "image": "nowhere.png"})
    example = load_examples(path, columns={"prompt": "problem", "images": None, "id": None})[0]
    assert (example.id, example.images, example.prompt[0]["content"]) == ("train-00000000", (), [TEXT])
    with pytest.raises(ConfigError, match=r"data.columns.prompt = 'problm' is not a column.*Did you mean 'problem'"):
        load_examples(path, columns={"prompt": "problm"})
    with pytest.raises(ConfigError, match=r"data.columns.promt is not a field. Did you mean 'prompt'"):
        load_examples(path, columns={"promt": "problem"})


def test_rows_that_use_either_name_of_a_column_all_keep_their_images(write_jsonl):
    both = {"id": "b", "question": "?", "images": ["images/a.png", "images/b.png"]}
    source = load_examples(write_jsonl(row("a"), both, {"id": "c", "prompt": "?", "images": []}))
    assert [len(example.images) for example in source] == [1, 2, 0]
    assert "prompt from 'prompt' or 'question', images from 'images' or 'image'" in source.report()
    assert [example.id for example in load_examples(source.table.path, multi_image="drop", text_only="drop")] == ["a"]


def test_a_column_that_first_appears_in_the_last_of_many_rows_is_read(write_jsonl):
    rows = ({"id": str(number), "question": "?", "image": []} for number in range(300))
    source = load_examples(write_jsonl(*rows, {"id": "last", "question": "?", "images": ["images/a.png"]}))
    assert len(source[300].images) == 1


def test_ids_that_occur_twice_are_refused_by_name(write_jsonl):
    path = write_jsonl(row("a"), row("b"), row("a"), row("b"))
    with pytest.raises(ConfigError, match="2 rows repeat the id of an earlier one: 'a', 'b'"):
        load_examples(path)
    assert len(load_examples(path, columns={"id": None})) == 4


def test_a_missing_image_is_an_error_of_its_row_that_names_the_file(write_jsonl, folder):
    source = load_examples(write_jsonl(row("a"), row("z")))
    with pytest.raises(RowError, match="there is no file") as caught:
        source[1]
    assert (caught.value.reason, caught.value.file) == ("missing_file", str(folder / "images" / "z.png"))


@pytest.mark.parametrize("cell", ["images/a.png;images/b.png", "images/a.png, images/b.png", "a.JPG | b.JPG"])
def test_several_images_in_one_text_are_told_how_to_write_a_list(write_jsonl, cell):
    with pytest.raises(RowError, match="For several images, write a list"):
        load_examples(write_jsonl(row(image=cell)))[0]
    with pytest.raises(RowError) as caught:
        load_examples(write_jsonl(row(image="images/a, b.png")))[0]
    assert "write a list" not in str(caught.value)


def test_an_image_on_the_web_is_not_downloaded(write_jsonl):
    with pytest.raises(RowError, match="Nothing is downloaded: save it to disk"):
        load_examples(write_jsonl(row(image="https://example.org/a.png")))[0]


def test_images_may_lie_elsewhere(write_jsonl, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("pictures")
    picture().save(elsewhere / "z.png")
    path = write_jsonl(row(image="z.png"))
    assert load_examples(path, images=elsewhere)[0].images == (elsewhere / "z.png",)
    with pytest.raises(ConfigError, match=r"data.images = .* is not a folder"):
        load_examples(path, images=elsewhere / "missing")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"question": None}, "prompt is empty"),
        ({"question": 7}, "Give a text or a list"),
        ({"answer": ["7"]}, "its answer is"),
        ({"boxes": [[1, 2, 3]]}, "four numbers"),
        ({"boxes": "here"}, "four numbers"),
        ({"image": 7}, "an image is int. Give a path"),
        ({"question": [{"role": "user"}]}, "needs 'role' and 'content'"),
        ({"question": [{"role": "user", "content": ""}]}, "a message has an empty 'content': "),
        ({"question": [{"role": "user", "content": [{"type": "video"}]}]}, "an image or a text"),
        ({"question": "<image> and <image>"}, "2 places for images, but it has 1"),
    ],
)
def test_a_row_that_makes_no_sense_is_malformed(write_jsonl, cells, words):
    source = load_examples(write_jsonl(row("a"), row("b", **cells)))
    with pytest.raises(RowError, match=words) as caught:
        source[1]
    assert caught.value.reason == "malformed_row"


def test_rows_are_read_from_disk_when_asked_for(write_jsonl):
    path = write_jsonl(row("a"), row("b"))
    source = load_examples(path)
    path.write_bytes(path.read_bytes().replace(b"How many", b"How much"))
    assert source[1].prompt[0]["content"][1]["text"] == "How much?"


def test_an_instruction_ends_every_question(write_jsonl):
    example = load_examples(write_jsonl(row()), instruction="\nThink first.")[0]
    assert example.prompt[0]["content"][1]["text"] == "How many?\nThink first."


def test_a_row_beyond_the_last_is_an_index_error(write_jsonl):
    source = load_examples(write_jsonl(row()))
    with pytest.raises(IndexError):
        source[1]
