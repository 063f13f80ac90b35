"""Small data sets, written where the test runs."""

import json

import pytest

from tiny_examples import picture


@pytest.fixture
def folder(tmp_path):
    """A folder with four pictures in `images/`."""
    (tmp_path / "images").mkdir()
    for name in "abcd":
        picture(8, 6).save(tmp_path / "images" / f"{name}.png")
    return tmp_path


@pytest.fixture
def write_jsonl(folder):
    """Writes rows to `train.jsonl`: a dict as JSON, bytes as they are."""

    def write(*rows, name="train.jsonl"):
        lines = (row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode() for row in rows)
        (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
        return folder / name

    return write
