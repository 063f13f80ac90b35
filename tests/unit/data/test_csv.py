"""CSV and TSV: quotes, line breaks, commas, other scripts, and rows that do not fit their header."""

import pytest

from vcsd.data import RowError, load_examples
from vcsd.errors import ConfigError


@pytest.fixture
def write(folder):
    def write(text, name="train.csv"):
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return folder / name

    return write


def words(example):
    return example.prompt[0]["content"][-1]["text"]


def test_quotes_commas_and_line_breaks_inside_a_cell_belong_to_it(write):
    rows = 'id,question,image\na,"One, ""two""\nand\n\nthree?",images/a.png\n\nb,Größe 大?,images/b.png\n'
    source = load_examples(write(rows))
    assert [example.id for example in source] == ["a", "b"]
    assert words(source[0]) == 'One, "two"\nand\n\nthree?'
    assert words(source[1]) == "Größe 大?"
    assert words(source[0]) == 'One, "two"\nand\n\nthree?', "rows can be read in any order"


def test_lists_are_written_as_json(write, folder):
    rows = (
        'prompt,images,boxes,answer\n<image>=<image>?,"[""images/a.png"", ""images/b.png""]","[[0,0,2,2],[1,1,3,3]]",\n'
    )
    example = load_examples(write(rows))[0]
    assert example.images == (folder / "images" / "a.png", folder / "images" / "b.png")
    assert (example.boxes[1], example.answer) == ((1.0, 1.0, 3.0, 3.0), None)


def test_lists_may_be_written_as_python_does(write, folder):
    rows = "prompt,images\n<image>=<image>?,\"['images/a.png', 'images/b.png']\"\n?,images/[x].png\n"
    (folder / "images" / "a.png").rename(folder / "images" / "[x].png")
    (folder / "images" / "b.png").rename(folder / "images" / "a.png")
    (folder / "images" / "c.png").rename(folder / "images" / "b.png")
    source = load_examples(write(rows))
    assert source[0].images == (folder / "images" / "a.png", folder / "images" / "b.png")
    assert source[1].images == (folder / "images" / "[x].png",)
    assert load_examples(write(rows), multi_image="drop").dropped.several_images == 1


def test_a_cell_of_spaces_holds_no_boxes(write):
    assert load_examples(write("prompt,image,boxes\n?,images/a.png, \n"))[0].boxes == ()


def test_a_tsv_is_separated_by_tabs(write):
    source = load_examples(write("question\timage\nOne, two?\timages/a.png\n", "train.tsv"))
    assert words(source[0]) == "One, two?"


def test_windows_line_ends_and_a_byte_order_mark_are_not_part_of_the_data(write):
    source = load_examples(write(b"\xef\xbb\xbfid,question,image\r\na,How many?,images/a.png\r\nb,?,images/b.png"))
    assert [(example.id, words(example)) for example in source] == [("a", "How many?"), ("b", "?")]


def test_a_file_in_utf_16_is_refused_with_the_command_that_converts_it(write):
    """Excel writes it as "Unicode Text"."""
    path = write("question\timage\n?\timages/a.png\n".encode("utf-16"), "train.tsv")
    with pytest.raises(ConfigError, match=r"train\.tsv is not UTF-8\. If Windows wrote the file: iconv -f UTF-16"):
        load_examples(path)


def test_a_row_with_too_many_cells_is_malformed_and_its_neighbours_are_not(write):
    source = load_examples(write("id,question,image\na,One, two?,images/a.png\nb,?,images/b.png\n"))
    with pytest.raises(RowError, match="4 cells under 3 columns"):
        source[0]
    assert source[1].id == "b"


def test_a_tsv_row_with_too_many_cells_has_tabs_to_quote(write):
    source = load_examples(write("question\timage\n?\timages/a.png\n?\timages/b.png\tmore\n", "train.tsv"))
    with pytest.raises(RowError, match=r"it has 3 cells under 2 columns\. Quote its tabs"):
        source[1]


def test_a_row_in_another_encoding_is_malformed(write):
    source = load_examples(write("id,question,image\na,Größe?,images/a.png\nb,?,images/b.png\n".encode("latin-1")))
    with pytest.raises(RowError, match="not UTF-8"):
        source[0]
    assert source[1].id == "b"


def test_a_quote_that_is_never_closed_is_an_error_of_the_file(write):
    with pytest.raises(ConfigError, match=r"up to line 3: unexpected end of data. Close its quotes"):
        load_examples(write('question,image\n"How many?,images/a.png\n?,images/b.png\n'))


@pytest.mark.parametrize(("text", "message"), [("", "has no rows"), ("question,image\n", "has no rows")])
def test_a_file_without_rows_is_refused(write, text, message):
    with pytest.raises(ConfigError, match=message):
        load_examples(write(text))


def test_a_column_named_twice_is_refused(write):
    with pytest.raises(ConfigError, match="'image' more than once"):
        load_examples(write("question,image,image\n?,a,b\n"))


def test_ids_that_occur_twice_are_refused(write):
    with pytest.raises(ConfigError, match="repeat the id"):
        load_examples(write("id,question,image\na,?,x\na,?,y\n"))
