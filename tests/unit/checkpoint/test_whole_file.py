"""A text file appears whole or not at all."""

import pytest

from vcsd.checkpoint.whole_file import write_whole


def test_a_file_and_its_folders_are_written(tmp_path):
    path = tmp_path / "deep" / "a.json"
    assert write_whole(path, "ä\n") == path
    assert path.read_bytes() == "ä\n".encode()


def test_an_error_leaves_the_previous_file_and_nothing_else(tmp_path):
    path = write_whole(tmp_path / "a.json", "before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "after \ud800")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.json", "before")]
