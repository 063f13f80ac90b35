"""What is passed over is counted and listed, survives a resume, and stops a run when it is too much."""

from dataclasses import replace

import pytest
from PIL import Image

from tiny_examples import example, picture
from vcsd.data import MAX_SKIPPED_SHARE, MIN_ROWS_SEEN, RowError, Skips, Stream, reason
from vcsd.errors import ConfigError, DataError
from vcsd.monitor.lines import read_lines
from vcsd.views import original as views_original
from vcsd.views.original import original


def missing(name):
    return RowError(name, "there is no file 'x.png'.", reason="missing_file", file="x.png")


def test_a_skipped_row_is_listed_with_its_reason_and_file(tmp_path):
    skips = Skips(tmp_path / "skipped.jsonl")
    skips.use()
    skips.skip(missing("b"), position=1)
    skips.skip(DataError("c", "no answer."), position=2)
    first, second = read_lines(tmp_path / "skipped.jsonl")
    message = "there is no file 'x.png'."
    assert first == {"position": 1, "id": "b", "reason": "missing_file", "file": "x.png", "message": message}
    assert (second["reason"], second["file"]) == ("unusable", None)
    assert skips.summary() == "1 missing_file, 1 unusable"


def test_too_large_a_share_is_an_error_but_not_among_the_first_rows(tmp_path):
    skips = Skips(tmp_path / "skipped.jsonl", max_share=0.25, min_rows=8)
    for position in range(3):
        skips.skip(missing(str(position)), position=position)
    for _ in range(9):
        skips.use()
    assert skips.share == 0.25
    with pytest.raises(ConfigError, match=r"4 of the 13 rows.*4 missing_file.*more than 25%.*'3'.*skipped.jsonl"):
        skips.skip(missing("3"), position=12)


def test_the_default_share_is_judged_after_enough_rows():
    skips = Skips()
    for position in range(MIN_ROWS_SEEN - 1):
        skips.skip(missing(str(position)), position=position)
    assert skips.share > MAX_SKIPPED_SHARE
    with pytest.raises(ConfigError, match="more than 5%"):
        skips.skip(missing("last"), position=MIN_ROWS_SEEN)


def test_a_resumed_run_forgets_what_the_lost_steps_skipped(tmp_path):
    path = tmp_path / "skipped.jsonl"
    skips = Skips(path)
    skips.skip(missing("a"), position=3)
    state = skips.state()
    skips.skip(missing("b"), position=7)
    resumed = Skips(path)
    resumed.restore(state, cursor=7)
    assert (resumed.num_seen, dict(resumed.counts)) == (1, {"missing_file": 1})
    resumed.skip(missing("b"), position=7)
    assert [line["id"] for line in read_lines(path)] == ["a", "b"]


def test_a_row_that_is_skipped_in_each_epoch_is_one_row_also_after_a_resume(tmp_path):
    rows = [replace(example(picture()), id=str(number)) for number in range(4)]

    def prepare(shown):
        if shown.id == "2":
            raise missing("2")
        return shown

    path = tmp_path / "skipped.jsonl"
    stream = Stream(rows, seed=0, skips=Skips(path))
    cursor = 0
    for _ in range(4):
        cursor = stream.take_prepared(cursor, 3, prepare).cursor
    assert stream.skips.num_skipped == len(list(read_lines(path))) > 1
    assert (stream.skips.num_rows_skipped, stream.skips.num_rows_seen) == (1, 4)
    assert stream.skips.summary() == "1 missing_file"
    resumed = Stream(rows, seed=0, skips=Skips(path))
    resumed.skips.restore(stream.skips.state(), cursor=cursor)
    assert (resumed.skips.num_rows_skipped, resumed.skips.num_rows_seen) == (1, 4)
    resumed.skips.restore({"num_seen": 0, "counts": {}}, cursor=0)
    assert (resumed.skips.num_rows_skipped, resumed.skips.num_rows_seen) == (0, 0)


def test_too_many_skipped_rows_are_counted_once_over_epochs():
    skips = Skips(max_share=0.1, min_rows=8)
    Stream([example(picture())] * 4, seed=0, skips=skips)
    for _ in range(3):
        skips.use()
    skips.skip(missing("3"), position=3)
    for _ in range(3):
        skips.use()
    with pytest.raises(ConfigError, match=r"^1 of the 4 rows read so far cannot be used \(1 missing_file\)"):
        skips.skip(missing("3"), position=7)


def test_a_reason_once_given_is_kept():
    with pytest.raises(RowError) as caught, reason("over_long_prompt"):
        raise missing("a")
    assert caught.value.reason == "missing_file"


def test_a_reason_given_later_keeps_the_file():
    with pytest.raises(RowError) as caught, reason("broken_image"):
        raise DataError("a", "it is strange.", file="a.png")
    assert (caught.value.reason, caught.value.file) == ("broken_image", "a.png")


def trouble(function, *given, **options):
    with pytest.raises(DataError) as caught:
        function(*given, **options)
    return caught.value.reason, caught.value.file


def test_what_the_views_cannot_read_is_a_broken_image_with_its_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    picture().save(path)
    path.write_bytes(path.read_bytes()[:100])
    assert trouble(original, example(path)) == ("broken_image", str(path))
    quoted = path.rename(tmp_path / """it's "a".png""")
    assert trouble(original, example(quoted)) == ("broken_image", str(quoted))
    monkeypatch.setattr(views_original, "MAX_IMAGE_PIXELS", 10)
    assert trouble(original, example(picture())) == ("broken_image", "image in memory")
    assert trouble(original, example(Image.new("RGB", (0, 3)))) == ("broken_image", "image in memory")


def test_what_the_processor_finds_too_long_is_an_over_long_prompt():
    # Here, not above: transformers imports triton, and the kernels' tests decide first how it runs.
    from tiny_processor import build_processor
    from vcsd.models.encode import encode

    shown = original(example(picture()))
    assert trouble(encode, build_processor("qwen3_vl"), shown, max_tokens=3) == ("over_long_prompt", "image in memory")
    words = [{"type": "image"}, {"type": "text", "text": "<think>\ufdd0"}]
    other = replace(shown, prompt=({"role": "user", "content": words},))
    assert trouble(encode, build_processor("qwen3_vl"), other) == ("unusable", None)
    strip = original(example(Image.new("RGB", (2100, 10))))
    assert trouble(encode, build_processor("qwen3_vl"), strip) == ("unusable", "image in memory")
