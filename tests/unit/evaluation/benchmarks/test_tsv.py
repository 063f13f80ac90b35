"""A TSV is read in one pass and one row at a time; its images are what was put in; bad files say what is wrong."""

import base64
import csv
import hashlib
import io
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from toy_benchmarks import coded, image_bytes, write_tsv
from vcsd.errors import ConfigError
from vcsd.evaluation.benchmarks.files.records import StoredImage
from vcsd.evaluation.benchmarks.files.tsv import read_tsv
from vcsd.views.original import load_image

ROW = {"index": "0", "question": "What?", "A": "x", "B": "y", "answer": "A"}


def rows(*images, **changed):
    return [{**ROW, "index": str(n), "image": image, **changed} for n, image in enumerate(images)]


def test_one_image_a_list_and_the_index_of_another_row(tmp_path):
    both = str([coded(1), coded(2)])
    table = read_tsv(write_tsv(tmp_path / "a.tsv", rows(coded(0), both, "0", "1")))
    found = [[image.read() for image in row.images] for row in table.rows]
    assert found == [
        [image_bytes(0)],
        [image_bytes(1), image_bytes(2)],
        [image_bytes(0)],
        [image_bytes(1), image_bytes(2)],
    ]
    assert table.rows[2].picture == table.rows[0].picture != table.rows[1].picture
    assert table.md5 == hashlib.md5((tmp_path / "a.tsv").read_bytes()).hexdigest()


def test_quotes_tabs_and_line_breaks_do_not_shift_rows(tmp_path):
    odd = 'Is "it"\n5" wide\tor not?'
    content = rows(coded(0), coded(1), coded(2))
    content[1]["question"] = odd
    table = read_tsv(write_tsv(tmp_path / "a.tsv", content))
    assert [row.cells["question"] for row in table.rows] == ["What?", odd, "What?"]
    assert [row.images[0].read() for row in table.rows] == [image_bytes(n) for n in range(3)]


def test_a_quote_inside_a_cell_is_a_letter_like_any_other(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(f'index\timage\tquestion\n0\t{coded(0)}\ta 5" pipe\n1\t{coded(1)}\tanother\n')
    assert [row.cells["question"] for row in read_tsv(path).rows] == ['a 5" pipe', "another"]


def test_windows_line_ends_and_lone_returns_do_not_shift_rows(tmp_path):
    path = tmp_path / "a.tsv"
    rows_of = "".join(f"{n}\tone\rtwo\t{coded(n)}\r\n" for n in range(2)) + f'2\t"one\r\ntwo"\t{coded(2)}\r\n'
    path.write_bytes(("index\tquestion\timage\r\n" + rows_of).encode())
    table = read_tsv(path)
    assert [row.cells["question"] for row in table.rows] == ["one\rtwo", "one\rtwo", "one\r\ntwo"]
    assert [row.images[0].read() for row in table.rows] == [image_bytes(n) for n in range(3)]


def test_images_are_fetched_from_many_threads_at_once(tmp_path):
    content = rows(*(coded(n, size=(900, 700)) for n in range(6)), question='Is "it"?')
    table = read_tsv(write_tsv(tmp_path / "a.tsv", content))
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda n: table.rows[n % 6].images[0].read(), range(48)))
    assert found == [image_bytes(n % 6, size=(900, 700)) for n in range(48)]


def test_a_stored_image_opens_like_a_file_and_jpeg_75_changes_its_pixels_and_its_name(tmp_path):
    table = read_tsv(write_tsv(tmp_path / "a.tsv", rows(coded(0))))
    stored = table.rows[0].images[0]
    plain, recoded = load_image("0", stored), load_image("0", stored.recoded())
    assert plain.size == recoded.size == (40, 36)
    assert plain.getpixel((0, 0)) == (0, 255, 90)
    assert plain.tobytes() != recoded.tobytes()
    assert stored.recoded().read()[:2] == b"\xff\xd8"
    assert stored.identity != stored.recoded().identity


def test_a_large_file_is_not_read_into_memory(tmp_path):
    path = tmp_path / "large.tsv"
    image = base64.b64encode(os.urandom(1_500_000))
    with path.open("wb") as file:
        file.write(b"index\timage\tquestion\n")
        for n in range(40):
            file.write(b"%d\t%s\twhat?\n" % (n, image))
    tracemalloc.start()
    table = read_tsv(path)
    last = table.rows[-1].images[0].read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert base64.b64encode(last) == image
    assert len(table.rows) == 40
    assert path.stat().st_size > 80_000_000
    assert peak < 8 * len(image) < path.stat().st_size / 4


def test_rows_without_an_image_are_left_out_and_counted(tmp_path):
    table = read_tsv(write_tsv(tmp_path / "a.tsv", rows(coded(0), "", "nan")))
    assert len(table.rows) == 1
    assert table.num_without_image == 2
    assert table.problems == ()


def test_image_files_are_found_beside_the_table(tmp_path):
    cells = ("a/0.png", "[0].png", "", "nan")
    content = [{**ROW, "index": str(n), "image_path": cell} for n, cell in enumerate(cells)]
    table = read_tsv(write_tsv(tmp_path / "a.tsv", content))
    assert table.num_without_image == 2
    assert [row.images for row in table.rows] == [(tmp_path / "a/0.png",), (tmp_path / "[0].png",)]


@pytest.mark.parametrize("cell", ["['a/0.png', 'b.png']", '["a/0.png", "b.png"]', "['a/0.png' 'b.png']"])
def test_image_files_may_be_a_list_as_python_json_or_numpy_write_it(tmp_path, cell):
    (row,) = read_tsv(write_tsv(tmp_path / "a.tsv", [{**ROW, "image_path": cell}])).rows
    assert row.images == (tmp_path / "a/0.png", tmp_path / "b.png")


@pytest.mark.parametrize("name", ["a.tsv", "../a.tsv"])
def test_an_image_file_may_have_its_whole_path_where_the_table_has_a_relative_one(tmp_path, monkeypatch, name):
    place = tmp_path / "place"
    place.mkdir()
    table = write_tsv(place / name, [{**ROW, "image_path": str((place / name).resolve().with_name("0.png"))}])
    monkeypatch.chdir(place)
    (row,) = read_tsv(Path(name)).rows
    assert row.images == (table.resolve().with_name("0.png"),)


@pytest.mark.parametrize("cell", ["/etc/hosts", "../0.png", "['a/0.png', 'a/../../0.png']"])
def test_an_image_file_elsewhere_is_refused(tmp_path, cell):
    path = write_tsv(tmp_path / "a.tsv", [{**ROW, "image_path": cell}])
    with pytest.raises(ConfigError, match="is outside"):
        read_tsv(path)


def test_the_limit_of_cells_is_as_it_was(tmp_path):
    before = csv.field_size_limit()
    read_tsv(write_tsv(tmp_path / "a.tsv", rows(coded(0))))
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("index\timage\n", "has no rows below its header"),
        ("index,image\n0,aa\n", "has only the column 'index,image'"),
        ("index\tindex\timage\n0\t0\tx\n", "names 'index' twice"),
        ("index\tquestion\n0\twhat\n", "neither a column 'image' nor 'image_path'"),
        ("index\timage\n0\tx\ty\n", "row 1 has 3 cells under 2 columns"),
        ("index\timage\n7\tx\n7\ty\n", "1 indices occur in several rows: '7'"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, content, message):
    path = tmp_path / "bad.tsv"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_tsv(path)


def test_a_cell_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_bytes(b"index\timage\tquestion\n0\tx\tcaf\xe9\n")
    with pytest.raises(ConfigError, match=r"bad.tsv, row 1 is not UTF-8"):
        read_tsv(path)


def test_broken_images_are_told_and_fail_when_opened(tmp_path):
    broken = coded(0)[:-3] + "!"
    table = read_tsv(write_tsv(tmp_path / "a.tsv", rows(coded(0), broken, "99", "2")))
    assert len(table.problems) == 3
    assert "row 2: its image is broken base64" in table.problems[0]
    assert "row 3: its image is that of row '99', which does not exist" in table.problems[1]
    assert "row 4: its image is that of row '2', which has none" in table.problems[2]
    with pytest.raises(ValueError, match="base64"):
        table.rows[1].images[0].read()


def test_two_stored_images_are_equal_where_they_are_the_same():
    first, second = (StoredImage("a", "md5/0/0", lambda: b"") for _ in range(2))
    assert first == second


def test_a_cell_of_64_characters_is_an_index_and_a_longer_one_an_image(tmp_path):
    index = "x" * 64
    table = read_tsv(
        write_tsv(tmp_path / "a.tsv", [*rows(coded(0), index), {**ROW, "index": index, "image": coded(1)}])
    )
    assert [row.images[0].read() for row in table.rows] == [image_bytes(0), image_bytes(1), image_bytes(1)]
    table = read_tsv(write_tsv(tmp_path / "b.tsv", rows(coded(0), "QUJD" * 16 + "QQ==")))
    assert table.rows[1].images[0].read() == b"ABC" * 16 + b"A"


def test_every_image_of_a_file_is_known_by_a_name_of_its_own_and_a_shared_one_by_one_name(tmp_path):
    table = read_tsv(write_tsv(tmp_path / "a.tsv", rows(coded(0), coded(1), str([coded(0), coded(1)]), "0")))
    names = [image.identity for row in table.rows for image in row.images]
    assert len(set(names)) == 4
    assert names[0] == names[-1]
    other = read_tsv(write_tsv(tmp_path / "b.tsv", rows(coded(5))))
    assert other.rows[0].images[0].identity not in names


def test_letters_that_base64_does_not_have_are_told_before_anything_is_asked(tmp_path):
    text = coded(0)
    table = read_tsv(write_tsv(tmp_path / "a.tsv", rows(text[:20] + "!" + text[20:], coded(1))))
    assert len(table.problems) == 1
    assert "row 1: its image is broken base64" in table.problems[0]


def test_a_row_that_was_cut_off_is_named(tmp_path):
    path = write_tsv(tmp_path / "a.tsv", rows(coded(0), coded(1)))
    path.write_bytes(path.read_bytes().rsplit(b"\t", 2)[0])
    with pytest.raises(ConfigError, match=r"row 2 has 4 cells under 6 columns. The file may be cut off"):
        read_tsv(path)


def test_a_byte_order_mark_is_no_part_of_the_first_columns_name(tmp_path):
    path = write_tsv(tmp_path / "a.tsv", rows(coded(0)))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_tsv(path).columns[0] == "index"


def test_jpeg_75_is_the_jpeg_of_pillows_own_quality(tmp_path):
    stored = read_tsv(write_tsv(tmp_path / "a.tsv", rows(coded(3)))).rows[0].images[0]
    written = io.BytesIO()
    Image.open(io.BytesIO(image_bytes(3))).save(written, "JPEG")
    assert stored.recoded().read() == written.getvalue()
