"""Rows as people have them become examples: TRL's formats, ShareGPT, VLMEvalKit's TSV, and images of every kind."""

import base64
import io
import json

import datasets
import numpy
import pytest

from tiny_examples import picture
from vcsd.data import RowError, load_examples, open_examples
from vcsd.errors import ConfigError
from vcsd.types import Example

IMAGE = {"type": "image"}


def text(words):
    return {"type": "text", "text": words}


def png(width=8, height=6):
    file = io.BytesIO()
    picture(width, height).save(file, "PNG")
    return file.getvalue()


def encoded(width=8, height=6):
    return base64.b64encode(png(width, height)).decode()


def first(*rows):
    return open_examples(list(rows), max_rows=10)[0]


USER = {"role": "user", "content": [IMAGE, text("How many?")]}
GOLD = {"role": "assistant", "content": [text("seven")]}
SHOWN = ({"role": "user", "content": [IMAGE, text("How many?")]},)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [USER], "images": [picture()]},
        {"prompt": "How many?", "image": picture()},
        {"messages": [USER, GOLD], "images": [picture()]},
        {"messages": [{"role": "user", "content": [{**IMAGE, "image": picture()}, text("How many?")]}, GOLD]},
        {"prompt": [USER], "completion": [GOLD], "image": picture()},
        {"conversations": [{"from": "human", "value": "<image>How many?"}], "image": picture()},
        {"problem": "How many?", "solution": "seven", "image": picture()},
        {"messages": json.dumps([USER, GOLD]), "image": picture()},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"
         + encoded()}}, text("How many?")]}]},
    ],
)  # fmt: skip
def test_every_chat_format_gives_the_same_prompt(row):
    example = first(row)
    assert example.prompt == SHOWN
    assert len(example.images) == 1


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, GOLD], "images": [picture()]},
        {"prompt": [USER, GOLD], "image": picture()},
        {"prompt": [USER], "completion": [GOLD], "image": picture()},
        {"conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "seven"}], "image": "x"},
    ],
)
def test_a_last_turn_of_the_assistant_is_the_reference_answer_and_never_shown(row, folder, caplog):
    caplog.set_level("INFO", logger="vcsd")
    if row.get("image") == "x":
        row = {**row, "image": str(folder / "images" / "a.png")}
    source = open_examples([row, row], max_rows=10)
    for example in source:
        assert example.answer == "seven"
        assert "seven" not in str(example.prompt)
    assert source.provides("answer")
    told = [record.levelname for record in caplog.records if "never shown" in record.message]
    assert told == ["WARNING"] * ("completion" not in row), "Python shows warnings alone by default"


def test_nan_is_an_empty_cell_as_in_pandas():
    nan = float("nan")
    example = first({"question": "?", "image": picture(), "answer": nan, "category": nan, "feedback": nan})
    assert (example.answer, example.category, example.feedback) == (None, None, None)


def test_an_optional_column_may_be_nan_in_some_rows():
    """Rows of a DataFrame: a column that one row fills is NaN in the others."""
    nan = float("nan")
    full = {"id": "a", "question": "?", "image": picture(), "boxes": [0, 0, 2, 2], "control_image": picture()}
    others = [{"id": nan, "question": "2 + 2?", "image": nan, "boxes": nan, "control_image": nan}] * 2
    source = open_examples([full, *others], max_rows=10)
    assert [len(row.images) + len(row.boxes) + len(row.control_images) for row in source] == [3, 0, 0]
    assert [row.id for row in source] == ["a", "train_dataset-00000001", "train_dataset-00000002"]


def test_an_answer_column_wins_over_the_last_turn():
    assert first({"messages": [USER, GOLD], "image": picture(), "answer": "7"}).answer == "7"


def test_earlier_turns_of_the_assistant_stay():
    turns = [USER, GOLD, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]
    example = first({"messages": turns, "image": picture()})
    assert [message["role"] for message in example.prompt] == ["user", "assistant", "user"]
    assert example.answer == "Yes."


@pytest.mark.parametrize(
    "image", [picture(8, 6), png(), encoded(), "data:image/png;base64," + encoded(), {"bytes": png(), "path": None}]
)
def test_an_image_may_be_opened_or_bytes_or_base64(image):
    assert first({"prompt": "?", "image": image}).images[0].size == (8, 6)


def test_an_image_may_be_a_path_or_a_file_address(folder):
    path = folder / "images" / "a.png"
    for image in (path, str(path), f"file://{path}"):
        assert first({"prompt": "?", "image": image}).images == (path,)


@pytest.mark.parametrize("address", ["https://example.org/a.png", "s3://bucket/a.png"])
def test_an_address_on_the_web_is_refused_with_advice(address):
    messages = [{"role": "user", "content": [{**IMAGE, "url": address}, text("?")]}]
    for row in ({"prompt": "?", "image": address}, {"messages": messages}):
        with pytest.raises(RowError, match="Nothing is downloaded: save it to disk and give its path"):
            first(row)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": [GOLD], "image": picture()}, "a user must ask last"),
        ({"messages": [{"role": "tool", "content": "?"}], "image": picture()}, "the role 'tool' is not known"),
        (
            {"messages": [{**USER, "content": [{**IMAGE, "image": "a.png"}]}], "image": "b.png"},
            "Keep them in one place",
        ),
        ({"prompt": "?", "image": "iVBORw0KGgo" + "*" * 200}, "broken base64"),
        ({"prompt": "?", "image": numpy.zeros((8, 8, 3))}, "an image is ndarray. Give a path, a PIL image"),
        ({"prompt": "?", "image": "data:image/png,abc"}, "write ';base64'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}], "image": []},
            "not .'type'",
        ),
    ],
)
def test_a_row_that_makes_no_sense_says_so(row, words):
    with pytest.raises(RowError, match=words):
        first(row)


def test_a_dataset_keeps_its_images_encoded_and_an_iterable_one_is_read_as_far_as_needed():
    rows = [{"prompt": f"How many {number}?", "image": picture()} for number in range(5)]
    dataset = datasets.Dataset.from_list(rows)
    source = open_examples(dataset, max_rows=2)
    assert len(source) == 5
    assert source[3].prompt[0]["content"][1] == text("How many 3?")
    streamed = open_examples(dataset.to_iterable_dataset(), max_rows=2)
    assert [example.prompt[0]["content"][1]["text"] for example in streamed] == ["How many 0?", "How many 1?"]


def test_an_iterable_dataset_without_known_features_is_read():
    made = datasets.IterableDataset.from_generator(lambda: iter([{"prompt": "?", "image": picture(8, 6)}] * 3))
    source = open_examples(made, max_rows=2)
    assert [example.images[0].size for example in source] == [(8, 6)] * 2


def test_messages_of_a_dataset_with_images_inside_can_be_read():
    dataset = datasets.Dataset.from_list([{"messages": [USER, GOLD], "images": [picture()]}] * 2)
    assert open_examples(dataset, max_rows=1)[0].prompt == SHOWN


def test_a_transform_of_a_dataset_is_applied():
    dataset = datasets.Dataset.from_dict({"n": [1, 2]})
    dataset.set_transform(
        lambda batch: {"prompt": [f"What is {n}?" for n in batch["n"]], "image": [[]] * len(batch["n"])}
    )
    assert open_examples(dataset, max_rows=1)[1].prompt[0]["content"] == [text("What is 2?")]


def test_examples_and_own_sources_pass_as_they_are():
    examples = [Example("a", (), ({"role": "user", "content": "?"},))]
    assert open_examples(examples, max_rows=1) is examples


def test_examples_that_share_an_id_are_refused():
    twins = [Example(id=name, images=(), prompt=({"role": "user", "content": "?"},)) for name in "aba"]
    with pytest.raises(ConfigError, match="several examples have the id 'a'"):
        open_examples(twins, max_rows=1)


def test_the_hash_of_rows_depends_on_the_pixels_of_their_images():
    def content(size):
        return open_examples([{"prompt": "?", "image": picture(*size)}], max_rows=1).content_hash()

    assert content((8, 6)) == content((8, 6)) != content((6, 8))


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (None, "train_dataset is missing. Give Examples, dictionaries"),
        ({"train": [], "test": []}, r"dictionary of 'train', 'test'. Pass one split"),
        ([], "has no rows"),
        (["a.png"], "holds str, not dictionaries"),
        (7, "train_dataset is int. Give Examples"),
        ([{"text": "?"}], "has no column 'prompt'"),
        ([{"prompt": "?"}], "For data without images, set data.columns.images to null"),
    ],
)
def test_other_data_is_refused_with_advice(dataset, words):
    with pytest.raises(ConfigError, match=words):
        open_examples(dataset, max_rows=1)


def test_a_json_file_with_a_list_is_read(folder):
    turns = [{"from": "human", "value": "<image>\nHow many?"}, {"from": "gpt", "value": "7"}]
    (folder / "llava.json").write_text(json.dumps([{"id": "1", "image": "images/a.png", "conversations": turns}]))
    example = load_examples(folder / "llava.json")[0]
    assert (example.id, example.answer, example.images) == ("1", "7", (folder / "images" / "a.png",))


def test_a_vlmevalkit_tsv_shows_its_options_and_resolves_references(tmp_path):
    long = encoded(64, 64)
    rows = [("index", "image", "question", "A", "B", "answer", "hint"), ("1", long, "Which?", "red", "nan", "A", "")]
    rows += [("2", "1", "How many?", "", "", "3", ""), ("3", f"['{long}', '{long}']", "Same?", "", "", "Yes", "")]
    (tmp_path / "mine.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    source = load_examples(tmp_path / "mine.tsv")
    option, reference, both = source
    assert option.prompt[0]["content"] == [IMAGE, text("Question: Which?\nOptions:\nA. red")]
    assert (option.id, option.answer, reference.answer) == ("1", "A", "3")
    assert option.images[0].size == reference.images[0].size == (64, 64)
    assert len(both.images) == 2
    assert len(load_examples(tmp_path / "mine.tsv", multi_image="drop")) == 2
    assert "Not used" not in source.report()


def test_a_vlmevalkit_tsv_names_categories(tmp_path):
    rows = [("index", "image", "question", "answer", "category"), ("1", encoded(64, 64), "What?", "a", "sign")]
    rows += [("2", "1", "Where?", "b", "nan")]
    (tmp_path / "mine.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    assert [example.category for example in load_examples(tmp_path / "mine.tsv")] == ["sign", None]


def test_a_vlmevalkit_tsv_may_list_paths_of_images(folder):
    rows = (
        "index\tquestion\tanswer\timage_path\n1\tSame?\tYes\t['images/a.png', 'images/b.png']\n2\t?\tNo\timages/c.png\n"
    )
    (folder / "mine.tsv").write_text(rows)
    source = load_examples(folder / "mine.tsv")
    assert [len(example.images) for example in source] == [2, 1]
    assert load_examples(folder / "mine.tsv", multi_image="drop").dropped.several_images == 1


def test_an_error_of_the_callers_own_iterable_is_shown():
    def rows():
        yield {"prompt": "How many?", "image": picture()}
        raise TypeError("a bug of the caller")

    with pytest.raises(TypeError, match="a bug of the caller"):
        open_examples(rows(), max_rows=2)
