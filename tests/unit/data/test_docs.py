"""docs/data.md matches the code, and its examples can be read."""

import re
from pathlib import Path

from vcsd.data import MAX_SKIPPED_SHARE, MIN_ROWS_SEEN, load_examples
from vcsd.data.arrow import CACHE_BYTES
from vcsd.data.columns import FIELDS
from vcsd.data.load import FORMATS
from vcsd.data.skips import REASONS

PAGE = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_names_every_format_column_and_reason():
    assert all(f"`{word}`" in PAGE for word in (*FORMATS, *FIELDS, *sum(FIELDS.values(), ())))
    assert all(f"| `{word}` |" in PAGE for word in REASONS)


def test_the_page_has_the_constants():
    limit = f"more than {MAX_SKIPPED_SHARE:.0%} of the rows were skipped (`MAX_SKIPPED_SHARE`)"
    assert f"After {MIN_ROWS_SEEN} rows (`MIN_ROWS_SEEN`), the run stops if {limit}" in PROSE
    assert f"up to {CACHE_BYTES >> 20} MiB of row groups (`CACHE_BYTES`)" in PROSE


def test_the_examples_of_the_page_can_be_read(folder):
    (folder / "a.jsonl").write_text(blocks("json")[0], encoding="utf-8")
    (folder / "b.csv").write_text(blocks("text")[0], encoding="utf-8")
    for name in ("a1", "a2", "b2"):
        (folder / "images" / f"{name}.png").write_bytes(b"")
    assert [len(example.images) for example in load_examples(folder / "a.jsonl")] == [1, 2]
    assert load_examples(folder / "b.csv")[0].id == "a1"
