"""A path is opened as what it is, and the report says what was found."""

import json
import re

import pytest

from vcsd.data import load_examples
from vcsd.data.arrow import need
from vcsd.errors import ConfigError, install_command

ROWS = ({"question": "?", "image": "images/a.png", "source": "x"}, {"question": "?", "image": []})


def test_a_folder_with_one_table_is_that_table(write_jsonl, folder):
    write_jsonl(*ROWS)
    assert load_examples(folder).table.name == str(folder / "train.jsonl")


def test_in_a_folder_with_several_tables_one_must_be_chosen(write_jsonl, folder):
    write_jsonl(*ROWS)
    write_jsonl(*ROWS, *ROWS, name="test.jsonl")
    with pytest.raises(ConfigError, match=r"several tables: test.jsonl, train.jsonl. Pass the path of one"):
        load_examples(folder)
    assert len(load_examples(folder, split="test")) == 4
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        load_examples(folder, split="trian")


def test_the_report_says_rows_columns_and_what_is_not_used(write_jsonl, caplog):
    caplog.set_level("INFO", logger="vcsd")
    source = load_examples(write_jsonl(*ROWS))
    assert source.report() == (
        f"JSON Lines {source.table.name}: 2 rows. 2 examples with prompt from 'question', images from 'image'. "
        "Not used: source."
    )
    assert source.report() in caplog.text


def test_rows_with_several_images_or_none_are_kept_or_dropped_with_counts(write_jsonl):
    images = ("images/a.png", ["images/a.png", "images/b.png"], [], None, ["images/c.png"])
    path = write_jsonl(*({"id": str(number), "prompt": "?", "images": cell} for number, cell in enumerate(images)))
    assert len(load_examples(path)) == 5
    one_image = load_examples(path, multi_image="drop", text_only="drop")
    assert [example.id for example in one_image] == ["0", "4"]
    assert (one_image.dropped.several_images, one_image.dropped.no_image) == (1, 2)
    assert "1 row with several images is dropped (multi_image: drop)." in one_image.report()
    assert [example.id for example in load_examples(path, text_only="drop")] == ["0", "1", "4"]
    assert one_image.fingerprint() != load_examples(path).fingerprint()
    with pytest.raises(ConfigError, match=r"data.multi_image = 'dorp' is not a choice. Did you mean 'drop'"):
        load_examples(path, multi_image="dorp")


def test_dropping_every_row_is_refused(write_jsonl):
    with pytest.raises(ConfigError, match="Nothing is left"):
        load_examples(write_jsonl({"prompt": "?", "images": []}), text_only="drop")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("train.json", "is not a list of objects. Write"),
        ("train.txt", ".txt is not a format. Allowed: .jsonl"),
        ("missing.jsonl", "there is no data at"),
        ("empty/", "holds no data"),
    ],
)
def test_what_cannot_be_opened_is_refused_with_advice(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "train.json").write_text(json.dumps(ROWS[0]))
    (tmp_path / "train.txt").write_text("?")
    with pytest.raises(ConfigError, match=words):
        load_examples(tmp_path / name)


def test_a_file_has_no_splits(write_jsonl):
    with pytest.raises(ConfigError, match="Leave it out"):
        load_examples(write_jsonl(*ROWS), split="train")


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_brings_it():
    with pytest.raises(ConfigError, match=f"needs pyarow.*{re.escape(install_command('data'))}"):
        need("pyarow.parquet")
