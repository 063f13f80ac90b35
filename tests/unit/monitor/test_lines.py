"""A file of lines survives a kill at any byte, and a resumed run tells no step twice."""

import math
import os
import resource
import shutil

import pytest

from vcsd.errors import ConfigError, RunError
from vcsd.monitor import Lines, read_lines


def test_the_kept_lines_are_on_the_disk_before_they_replace_the_file(path, monkeypatch):
    lines, flushed = write(path, 1, 2, 3), []
    first = path.read_bytes()[: path.read_bytes().index(b"\n") + 1]
    monkeypatch.setattr(os, "fsync", lambda number: flushed.append((os.pread(number, 1000, 0), path.read_bytes())))
    before = path.read_bytes()
    lines.keep_until("step", 1)
    assert flushed == [(first, before)]
    assert path.read_bytes() == first


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "metrics.jsonl"


def write(path, *steps):
    lines = Lines(path)
    for step in steps:
        lines.append({"step": step, "text": "größe 大"})
    return lines


def test_a_file_cut_at_any_byte_is_readable_and_can_be_continued(path):
    write(path, 1, 2)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        before = [record["step"] for record in read_lines(path)]
        Lines(path).append({"step": 3})
        assert [record["step"] for record in read_lines(path)] == [*before, 3]
        assert before == [1, 2][: len(before)]


def test_a_whole_last_line_without_its_end_is_kept(path):
    write(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-1])
    write(path, 3)
    assert [record["step"] for record in read_lines(path)] == [1, 2, 3]


def test_steps_after_the_checkpoint_are_removed_and_the_rest_stays_to_the_byte(path):
    lines = write(path, 1, 2, 3, 4)
    whole = path.read_bytes()
    assert lines.keep_until("step", 2) == 2
    assert whole.startswith(path.read_bytes())
    lines.append({"step": 3})
    assert [record["step"] for record in read_lines(path)] == [1, 2, 3]
    assert [file.name for file in path.parent.iterdir()] == ["metrics.jsonl"]


def test_nothing_is_removed_from_a_file_that_is_not_there_or_not_too_long(path):
    assert Lines(path).keep_until("step", 2) == 0
    assert write(path, 1, 2).keep_until("step", 2) == 0


def test_a_torn_line_is_gone_after_cutting(path):
    lines = write(path, 1, 2)
    with path.open("ab") as file:
        file.write(b'{"step": 3, "te')
    lines = Lines(path)
    lines.keep_until("step", 1)
    lines.append({"step": 2})
    assert [record["step"] for record in read_lines(path)] == [1, 2]


def test_numbers_that_json_cannot_say_are_null(path):
    Lines(path).append({"loss": math.nan, "deep": [{"x": math.inf}], "fine": 0.5})
    assert list(read_lines(path)) == [{"loss": None, "deep": [{"x": None}], "fine": 0.5}]


def test_half_a_character_does_not_stop_a_run(path):
    Lines(path).append({"text": "a\ud83d"})
    assert list(read_lines(path)) == [{"text": "a?"}]


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(path):
    path.parent.mkdir()
    path.write_bytes(b'{"step": 1}\nhello\n{"step": 3}\n')
    with pytest.raises(ConfigError, match="line 2 is not a JSON record"):
        list(read_lines(path))


@pytest.mark.parametrize("step", ["x", None, [1]])
def test_a_step_that_is_not_a_number_is_named(path, step):
    lines = write(path, 1, 2)
    lines.append({"step": step})
    with pytest.raises(ConfigError, match=r"metrics.jsonl: step = .* is not a number. Fix or remove the line."):
        lines.keep_until("step", 1)
    assert len(list(read_lines(path))) == 3


def test_a_file_that_cannot_be_read_or_written_is_one_sentence(path):
    path.mkdir(parents=True)
    with pytest.raises(RunError, match=r"metrics.jsonl cannot be read or written: .*directory.* the same command"):
        Lines(path).append({"step": 2})
    with pytest.raises(RunError, match=r"metrics.jsonl cannot be read or written: .*directory"):
        Lines(path).keep_until("step", 1)


def test_a_folder_that_vanishes_is_made_again(path, caplog):
    lines = write(path, 1)
    shutil.rmtree(path.parent)
    lines.append({"step": 2})
    assert [record["step"] for record in read_lines(path)] == [2]
    assert "run has vanished. Making it again" in caplog.text


def test_a_disk_that_is_full_in_the_middle_of_a_line_spoils_no_other_line(path):
    """The same object goes on once there is room, and its next record does not join the half line."""
    lines = write(path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in range(1, 12):
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, hard))
        try:
            with pytest.raises(RunError, match=r"metrics.jsonl cannot be read or written: .* the same command resumes"):
                lines.append({"step": "never written"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [record["step"] for record in read_lines(path)] == list(range(1, room + 1))
        lines.append({"step": room + 1})
    assert [record["step"] for record in read_lines(path)] == list(range(1, 13))
