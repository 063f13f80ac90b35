"""Whatever bytes or cells a file holds: it is read to the letter, or refused in our words; nothing else is raised."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcsd.data import load_examples
from vcsd.data.columns import FIELDS
from vcsd.errors import ConfigError, DataError
from vcsd.types import Example

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=20)
ODD = st.sampled_from(["a.png", "<image>", "http://x", {"type": "image"}, {"role": "user", "content": "?"}])
KEYS = st.sampled_from(["role", "content", "type", "text", "bytes", "path"])
CELL = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | ODD,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
COLUMN = st.sampled_from(sorted({*FIELDS, *sum(FIELDS.values(), ())}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def read_all(path, **options):
    """Every row that can be read; a DataError is what the others may raise."""
    try:
        source = load_examples(path, **options)
    except ConfigError:
        return
    for row in range(len(source)):
        try:
            yield row, source[row]
        except DataError:
            continue


@given(st.lists(TEXT, min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_a_csv_cell_is_read_to_the_letter(folder, cells, line_end):
    written = io.StringIO(newline="")
    writer = csv.writer(written, lineterminator=line_end)
    writer.writerows([["prompt", "image"], *([cell, "-"] for cell in cells)])
    (folder / "a.csv").write_bytes(written.getvalue().encode())
    found = dict(read_all(folder / "a.csv", columns={"images": None}))
    assert set(found) == {row for row, cell in enumerate(cells) if cell.strip() and "<image>" not in cell}
    assert all(example.prompt[0]["content"][0]["text"] == cells[row] for row, example in found.items())


@given(st.lists(st.dictionaries(COLUMN, CELL, max_size=9), min_size=1, max_size=4), st.sampled_from(["keep", "drop"]))
def test_rows_of_any_json_are_examples_or_errors_of_ours(folder, rows, switch):
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(read_all(folder / "a.jsonl", multi_image=switch, text_only=switch, instruction="Think."))
    assert all(isinstance(example, Example) for _, example in found)


@given(st.binary(max_size=100), st.booleans())
def test_files_of_any_bytes_are_examples_or_errors_of_ours(folder, content, has_head):
    heads = {"b.jsonl": b'{"prompt": "a", "image": "a.png"}\n', "b.csv": b"prompt,image\nx,a.png\n"}
    for name, head in heads.items():
        (folder / name).write_bytes(head * has_head + content)
        found = list(read_all(folder / name))
        assert all(isinstance(example, Example) for _, example in found)
