"""Parquet, ViRL39K and Hugging Face datasets. Skipped where the extra `data` is not installed."""

import io

import pytest
from PIL import Image

from tiny_examples import picture
from vcsd.data import RowError, arrow, load_examples, open_examples
from vcsd.errors import ConfigError
from vcsd.views.original import original

pa = pytest.importorskip("pyarrow", reason="needs the extra `data`")
pq = pytest.importorskip("pyarrow.parquet")

IMAGE = {"type": "image"}


def png(width=8):
    buffer = io.BytesIO()
    picture(width, 6).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def virl(folder):
    """Six rows in the format of ViRL39K: a mark in front, inline, missing; several images, none, a missing file."""
    rows = [
        ("q0", "<image>\nHow many?", ["images/a.png"]),
        ("q1", "Is <image> larger?", ["images/b.png"]),
        ("q2", "No mark.", ["images/c.png"]),
        ("q3", "<image> and <image>", ["images/a.png", "images/b.png"]),
        ("q4", "What is 2 + 2?", []),
        ("q5", "<image>?", ["images/z.png"]),
    ]
    columns = {
        "question": [question for _, question, _ in rows],
        "answer": ["\\boxed{\\frac{1}{2}}"] * 6,
        "PassRate_32BTrained": [1.0] * 6,
        "PassRate_7BBase": [-1.0] * 6,
        "category": ["x"] * 6,
        "source": ["y"] * 6,
        "qid": [qid for qid, _, _ in rows],
        "image": [images for _, _, images in rows],
    }
    pq.write_table(pa.table(columns), folder / "39Krelease.parquet", row_group_size=2)
    return folder


def test_virl39k_drops_what_the_authors_drop_and_counts_it(virl):
    source = load_examples(virl)
    assert (source.table.kind, len(source.table), len(source)) == ("ViRL39K", 6, 4)
    assert (source.dropped.several_images, source.dropped.no_image) == (1, 1)
    assert "Not used: PassRate_32BTrained, PassRate_7BBase, source." in source.report()


def test_virl39k_puts_images_where_the_marks_are(virl):
    source = load_examples(virl, multi_image="keep", text_only="keep")
    contents = [source[row].prompt[0]["content"] for row in range(5)]
    assert contents[0] == [IMAGE, {"type": "text", "text": "\nHow many?"}]
    assert contents[1] == [{"type": "text", "text": "Is "}, IMAGE, {"type": "text", "text": " larger?"}]
    assert contents[2] == [IMAGE, {"type": "text", "text": "No mark."}]
    assert contents[3] == [IMAGE, {"type": "text", "text": " and "}, IMAGE]
    assert contents[4] == [{"type": "text", "text": "What is 2 + 2?"}]
    assert source[1].id == "q1"
    assert source[1].answer == "\\boxed{\\frac{1}{2}}"
    assert source[1].images == (virl / "images" / "b.png",)
    with pytest.raises(RowError, match=r"z.png"):
        source[5]


def test_virl39k_without_its_images_says_to_unzip_them(virl, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (virl / "images").rename(elsewhere / "images")
    with pytest.raises(ConfigError, match=r"Unzip images.zip beside 39Krelease.parquet"):
        load_examples(virl)
    assert load_examples(virl / "39Krelease.parquet", images=elsewhere)[0].id == "q0"


def test_virl39k_has_no_splits(virl):
    assert len(load_examples(virl, split="39Krelease")) == 4
    with pytest.raises(ConfigError, match=r"has 0 files for split 'test'. Allowed: 39Krelease"):
        load_examples(virl, split="test")


def test_parquet_rows_can_be_read_in_any_order_with_room_for_one_row_group(virl, monkeypatch):
    monkeypatch.setattr(arrow, "CACHE_BYTES", 0)
    table = arrow.ParquetTable(virl / "39Krelease.parquet")
    assert [table.row(index)["qid"] for index in (5, 0, 3, 4, 1, 2)] == ["q5", "q0", "q3", "q4", "q1", "q2"]
    assert len(table._cache) == 1


def test_images_inside_a_parquet_file_are_opened_and_broken_ones_are_named(folder):
    images = [{"bytes": png(), "path": "a.png"}, {"bytes": png()[:50], "path": "b.png"}, {"bytes": b"no", "path": "c"}]
    pq.write_table(pa.table({"id": ["a", "b", "c"], "prompt": ["?"] * 3, "image": images}), folder / "train.parquet")
    source = load_examples(folder)
    assert original(source[0]).images[0].size == (8, 6)
    with pytest.raises(Exception, match=r"example 'b': the image 'b.png' cannot be read"):
        original(source[1])
    with pytest.raises(RowError, match="its image c cannot be read") as caught:
        source[2]
    assert caught.value.reason == "broken_image"


def test_images_listed_as_text_in_a_parquet_file_count_one_by_one(folder):
    images = ['["images/a.png", "images/b.png"]', "images/a.png", "", None]
    pq.write_table(pa.table({"prompt": ["?"] * 4, "image": images}), folder / "train.parquet")
    source = load_examples(folder / "train.parquet", multi_image="drop", text_only="drop")
    assert (len(source), source.dropped.several_images, source.dropped.no_image) == (1, 1, 2)


def test_a_file_that_is_not_parquet_is_refused(folder):
    (folder / "train.parquet").write_bytes(b"hello")
    with pytest.raises(ConfigError, match="is not a Parquet file"):
        load_examples(folder)


def test_a_damaged_column_of_a_parquet_file_is_an_error_of_the_file(folder):
    path = folder / "train.parquet"
    columns = {"id": [f"row {number}" for number in range(500)], "prompt": ["?"] * 500, "image": ["images/a.png"] * 500}
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
    content = path.read_bytes()
    start = content.index(b"row 0") - 30
    path.write_bytes(content[:start] + b"\xff" * 20 + content[start + 20 :])
    with pytest.raises(ConfigError, match=r"train.parquet is damaged: .*\. Download it again\."):
        load_examples(folder)


def test_a_damaged_row_group_costs_its_rows_only(folder):
    path = folder / "train.parquet"
    rows = pa.table({"prompt": ["first question", "second question"], "image": ["images/a.png"] * 2})
    pq.write_table(rows, path, row_group_size=1, compression="none", use_dictionary=False, write_statistics=False)
    content = path.read_bytes()
    start = content.index(b"second question") - 4  # where its length is
    path.write_bytes(content[:start] + b"\xff" * 4 + content[start + 4 :])
    source = load_examples(folder)
    assert source[0].prompt[0]["content"][1]["text"] == "first question"
    with pytest.raises(RowError, match="its row group cannot be read") as caught:
        source[1]
    assert caught.value.reason == "malformed_row"


def test_a_text_in_parquet_that_is_not_utf_8_costs_its_row_only(folder):
    names = pa.array([b"a", b"\xff", b"c"]).cast(pa.binary())
    not_text = pa.Array.from_buffers(pa.string(), 3, names.buffers())
    pq.write_table(pa.table({"id": not_text, "prompt": ["?"] * 3, "image": ["images/a.png"] * 3}), folder / "a.parquet")
    source = load_examples(folder)
    assert [source[0].id, source[2].id] == ["a", "c"]
    with pytest.raises(RowError, match="cannot be read"):
        source[1]


@pytest.fixture
def trl_rows():
    """Columns as TRL names them: messages, and images that the library stores as bytes."""
    message = [{"role": "user", "content": "How many?"}]
    return {
        "prompt": [message] * 3,
        "images": [[picture(8, 6)], [picture(9, 6), picture(4, 4)], []],
        "answer": ["7"] * 3,
    }


def test_a_saved_dataset_with_the_columns_of_trl_is_read_without_decoding(trl_rows, tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict(trl_rows).save_to_disk(tmp_path / "saved")
    source = load_examples(tmp_path / "saved", text_only="drop")
    assert (source.table.kind, len(source), source.dropped.no_image) == ("Hugging Face dataset", 2, 1)
    assert isinstance(source[1].images[0], Image.Image)
    assert [image.size for image in original(source[1]).images] == [(9, 6), (4, 4)]
    assert source[1].prompt[0]["content"][:2] == [IMAGE, IMAGE]
    assert (source[0].id, source[0].answer) == ("saved-00000000", "7")


def test_a_split_is_chosen_by_name_or_is_train(trl_rows, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict(trl_rows)
    datasets.DatasetDict({"train": rows, "validation": rows.select([0])}).save_to_disk(tmp_path / "saved")
    assert len(load_examples(tmp_path / "saved")) == 3
    assert len(load_examples(tmp_path / "saved", split="validation")) == 1
    with pytest.raises(ConfigError, match=r"no split 'valid'. Did you mean 'validation'"):
        load_examples(tmp_path / "saved", split="valid")


def test_a_dataset_of_the_hub_that_cannot_be_reached_is_a_clear_error():
    pytest.importorskip("datasets")
    with pytest.raises(
        ConfigError, match="'nobody/nothing' is not a file or folder, and loading it from the hub failed"
    ):
        load_examples("nobody/nothing")


def test_a_text_in_a_dataset_that_is_not_utf_8_costs_its_row_only():
    datasets = pytest.importorskip("datasets")
    cells = [pa.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0])), pa.py_buffer(b"ok\xff\xfe")]
    prompts = pa.Array.from_buffers(pa.string(), 2, [None, *cells])
    rows = datasets.Dataset(pa.table({"prompt": prompts, "images": [[], []]}))
    source = open_examples(rows, max_rows=2)
    assert source[0].prompt[0]["content"][0]["text"] == "ok"
    with pytest.raises(RowError, match=r"train_dataset-00000001.*not UTF-8: invalid start byte at byte 0"):
        source[1]
