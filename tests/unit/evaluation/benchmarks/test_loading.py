"""Questions of the seven benchmarks from both kinds of files; what is missing or not as published is said."""

from collections import Counter
from dataclasses import replace

import pytest

from toy_benchmarks import ROWS, coded, image_bytes, write_parquets, write_tsv, write_tsvs
from vcsd.errors import ConfigError
from vcsd.evaluation.benchmarks import BENCHMARKS, PUBLISHED, loading
from vcsd.evaluation.benchmarks.loading import (
    choose_benchmarks,
    chosen_along,
    data_folder,
    load_benchmark,
    require_files,
)
from vcsd.evaluation.benchmarks.world_suites import load_world
from vcsd.evaluation.evaluate import Asking, load_questions

NAMES = list(ROWS)


@pytest.fixture(scope="module")
def tsvs(tmp_path_factory):
    return write_tsvs(tmp_path_factory.mktemp("tsv"))


@pytest.fixture(scope="module")
def parquets(tmp_path_factory):
    pytest.importorskip("pyarrow")
    return write_parquets(tmp_path_factory.mktemp("parquet"))


def loaded(name, folder, **how):
    return load_benchmark(PUBLISHED[name], folder, **{"allow_unknown_data": True, **how})


def changed(name, num_questions, **files):
    benchmark = BENCHMARKS[name]
    return replace(benchmark, num_questions=num_questions, files=replace(benchmark.published, **files))


def test_the_seven_are_those_of_the_papers_table():
    counts = {name: benchmark.num_questions for name, benchmark in BENCHMARKS.items()}
    assert list(counts) == NAMES
    assert sum(counts.values()) == 7143
    assert all(sum(sizes) == counts[name] for name in NAMES for sizes in BENCHMARKS[name].published.sizes.values())


@pytest.mark.parametrize("name", NAMES)
def test_parquet_and_tsv_hold_the_same_questions(name, tsvs, parquets):
    ours, theirs = loaded(name, tsvs).questions, loaded(name, parquets).questions
    key = (lambda q: (q.gold, q.example.prompt[0]["content"][-1]["text"])) if name == "BLINK" else (lambda q: 0)
    for mine, other in zip(sorted(ours, key=key), sorted(theirs, key=key), strict=True):
        assert mine.example.prompt == other.example.prompt
        assert (mine.kind, mine.gold, dict(mine.options)) == (other.kind, other.gold, dict(other.options))
        assert [i.read() for i in mine.example.images] == [i.read() for i in other.example.images]
        assert {k: v for k, v in mine.groups.items() if k != "image"} == dict(other.groups)


def test_gold_options_and_groups_are_those_of_the_row(tsvs):
    blink = loaded("BLINK", tsvs).questions
    assert [len(q.example.images) for q in blink] == [1, 2, 1, 4]
    assert blink[1].gold == "C"
    assert blink[1].options == {"A": "one", "B": "two", "C": "three"}
    assert blink[0].groups["image"] == blink[2].groups["image"]
    hall = loaded("HallusionBench", tsvs).questions[1]
    assert (hall.kind, hall.gold) == ("yes_no", "No")
    expected = {"category": "VD", "l2-category": "VD_figure", "set": "0", "figure": "2", "question": "0"}
    assert hall.groups.items() >= expected.items()
    sharp = loaded("HRBench4K", tsvs).questions
    assert [q.groups["cycle"] for q in sharp] == ["0", "1", "2", "3"] * 2
    assert [q.gold for q in sharp[:4]] == ["A", "D", "C", "B"]
    math = loaded("MathVista_MINI", tsvs).questions
    assert [(q.kind, q.gold) for q in math] == [
        ("option", "B"),
        ("integer", "0"),
        ("float", "1.20"),
        ("list", "[1, 2]"),
    ]
    assert math[0].options == {"A": "2", "B": "5"}
    assert [q.groups.get("precision") for q in math] == [None, None, "2", None]
    assert math[0].groups["skills"] == "['algebraic reasoning', 'geometry reasoning']"
    assert math[0].fields["answer_option"] == "B"


def test_an_option_that_reads_none_is_no_option_as_upstream(tmp_path):
    row = {**ROWS["VStarBench"][1], "index": "0", "C": "None", "D": "grey", "answer": "D"}
    write_tsv(tmp_path / "VStarBench.tsv", [row, {**row, "index": "1", "answer": "C"}])
    first, second = loaded("VStarBench", tmp_path).questions
    assert first.options == {"A": "left", "B": "right", "D": "grey"}
    assert (second.gold, "C" in second.options) == ("C", False)


def test_unknown_data_is_refused_and_named_or_allowed_and_told(tsvs, parquets):
    with pytest.raises(ConfigError) as refused:
        loaded("BLINK", tsvs, allow_unknown_data=False)
    assert "published is d5e8af148b10ac69f535ff7b23f3f989" in str(refused.value)
    assert "it has 4 questions with an image, BLINK has 1901" in str(refused.value)
    assert "--allow-unknown-data" in str(refused.value)
    report = loaded("BLINK", tsvs).report
    assert not report.is_published
    assert len(report.doubts) == 2
    assert "(not the published file), 4 questions" in report.line()
    with pytest.raises(ConfigError, match="it has 4 questions"):
        loaded("BLINK", parquets, allow_unknown_data=False)


def test_data_with_the_published_checksum_or_sizes_needs_no_permission(tsvs, parquets):
    md5 = loaded("VStarBench", tsvs).report.md5
    known = changed("VStarBench", num_questions=5, md5=md5)
    report = load_benchmark(known, tsvs).report
    assert report.is_published
    assert report.doubts == ()
    assert "as published, 5 questions" in report.line()
    by_size = changed("VStarBench", num_questions=5, sizes={"category": (3, 2)})
    assert load_benchmark(by_size, parquets).report.doubts == ()
    with pytest.raises(ConfigError, match="its questions by category are direct_attributes 3, relative_position 2"):
        load_benchmark(changed("VStarBench", num_questions=5, sizes={"category": (4, 1)}), parquets)


def test_missing_files_are_told_all_at_once_with_where_to_get_and_put_them(tmp_path):
    with pytest.raises(ConfigError) as missing:
        require_files(choose_benchmarks("BLINK,HRBench8K"), tmp_path)
    blink, sharp = missing.value.problems
    assert "Download https://opencompass.openxlab.space/utils/VLMEval/BLINK.tsv" in blink
    assert f"to {tmp_path / 'BLINK.tsv'}" in blink
    assert "dataset BLINK-Benchmark/BLINK" in blink
    assert "hr_bench_8k.tsv" in sharp


def test_the_authors_file_name_of_hrbench_is_found(tmp_path):
    write_tsv(tmp_path / "hr_bench_4k.tsv", ROWS["HRBench4K"])
    assert len(loaded("HRBench4K", tmp_path).questions) == 8


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("VStarBench", {"answer": "E"}, "the answer 'E' is none of its options A, B, C, D"),
        ("VStarBench", {"question": ""}, "has nothing under 'question'"),
        ("HallusionBench", {"answer": "Maybe"}, "'Maybe' is neither Yes nor No"),
        ("HallusionBench", {"index": "17"}, "category_subcategory_input_set_figure_question"),
        ("MathVista_MINI", {"choices": "[1"}, "its choices are not a Python list"),
        ("MathVista_MINI", {"precision": "many"}, "precision = 'many' is not a number of decimals"),
        ("MathVista_MINI", {"precision": "inf"}, "precision = 'inf' is not a number of decimals"),
        ("MathVista_MINI", {"answer_option": "C"}, "the answer 'C' is none of its options A, B"),
        ("MathVista_MINI", {"question_type": "free_form", "answer_type": "graph"}, "answer_type = 'graph' is none of"),
        ("HRBench4K", {"cycle_category": ""}, "has nothing under 'cycle_category'"),
    ],
)
def test_a_row_that_makes_no_sense_is_named_even_where_unknown_data_is_allowed(tmp_path, name, change, message):
    first, *rest = ROWS[name]
    write_tsv(tmp_path / f"{name}.tsv", [{**first, **change}, *rest])
    with pytest.raises(ConfigError, match=message):
        loaded(name, tmp_path)


def test_a_missing_column_is_named(tmp_path):
    write_tsv(
        tmp_path / "HRBench4K.tsv",
        [{k: v for k, v in row.items() if k != "cycle_category"} for row in ROWS["HRBench4K"]],
    )
    with pytest.raises(ConfigError, match="has no column 'cycle_category', which HRBench4K needs"):
        loaded("HRBench4K", tmp_path)


def test_broken_base64_is_refused_before_anything_is_asked(tmp_path):
    first, *rest = ROWS["VStarBench"]
    write_tsv(tmp_path / "VStarBench.tsv", [{**first, "image": coded(3)[:-2] + "??"}, *rest])
    known = replace(BENCHMARKS["VStarBench"], num_questions=5)
    with pytest.raises(ConfigError, match=r"row 1: its image is broken base64"):
        load_benchmark(known, tmp_path)
    assert len(load_benchmark(known, tmp_path, allow_unknown_data=True).questions) == 5


def test_a_limit_is_spread_over_the_file(tsvs):
    whole = [q.id for q in loaded("VStarBench", tsvs).questions]
    found = loaded("VStarBench", tsvs, limit=2)
    first, second = (whole.index(q.id) for q in found.questions)
    assert first < len(whole) // 2 <= second
    assert (found.report.num_questions, found.report.num_asked) == (len(whole), 2)
    assert len(loaded("HRBench4K", tsvs, limit=99).questions) == 8
    with pytest.raises(ConfigError, match="limit = 0 leaves no question"):
        loaded("HRBench4K", tsvs, limit=0)


def test_a_limit_takes_every_kind_of_question_of_a_file_that_alternates_between_two():
    taken = chosen_along(range(200), 100)
    assert taken == sorted(set(taken)) == chosen_along(range(200), 100), "the same in every run"
    assert 35 <= sum(place % 2 for place in taken) <= 65
    assert [place // 20 for place in chosen_along(range(200), 10)] == list(range(10)), "one from each stretch"
    assert chosen_along(range(5), 5) == chosen_along(range(5), 9) == [0, 1, 2, 3, 4]
    assert chosen_along([], 9) == []


@pytest.mark.parametrize("limit", [64, 128, 256])
def test_a_limit_of_the_world_keeps_the_letters_of_the_right_answers_apart(limit):
    (found,) = load_world(["world/attributes"], limit=limit)
    assert max(Counter(question.gold for question in found.questions).values()) < limit / 2


@pytest.mark.parametrize("name", ["HRBench4K", "HallusionBench"])
@pytest.mark.parametrize("limit", [1, 3, 5, 7])
def test_a_limit_takes_rotations_and_paired_questions_together(tsvs, name, limit):
    whole, found = (loaded(name, tsvs, limit=num).questions for num in (None, limit))
    groups = {BENCHMARKS[name].scored_together(q) for q in found}
    taken = [q.id for q in whole if BENCHMARKS[name].scored_together(q) in groups]
    assert [q.id for q in found] == taken
    assert len(found) <= limit or len(groups) == 1


def test_a_limit_of_mmbench_keeps_the_rotations_of_a_question(tmp_path):
    rows = [
        {"index": str(circle * 1_000_000 + n), "image": coded(n), "question": f"{n}?", "A": "red", "B": "blue"}
        | {"answer": "A", "category": "c", "l2-category": "x"}
        for circle in range(3)
        for n in range(6)
    ]
    write_tsv(tmp_path / "MMBench_DEV_EN.tsv", rows)
    ids = {
        limit: [q.id for q in loaded("MMBench_DEV_EN", tmp_path, limit=limit).questions] for limit in (1, 6, 8, 17, 18)
    }
    assert {limit: len(taken) for limit, taken in ids.items()} == {1: 3, 6: 6, 8: 6, 17: 15, 18: 18}
    for taken in ids.values():
        assert set(Counter(int(index) % 1_000_000 for index in taken).values()) == {3}


def test_jpeg_75_is_for_the_files_that_are_re_encoded_upstream(tsvs):
    assert loaded("HRBench4K", tsvs, jpeg75=True).questions[0].example.images[0].is_recoded
    assert loaded("HRBench4K", tsvs).questions[0].example.images[0].read() == image_bytes(30, kind="JPEG")
    assert not loaded("BLINK", tsvs, jpeg75=True).questions[0].example.images[0].is_recoded


def test_names_are_forgiving_and_unknown_ones_get_advice():
    assert [benchmark.name for benchmark in choose_benchmarks("all")] == NAMES
    assert [benchmark.name for benchmark in choose_benchmarks("POPE,all,blink")] == ["POPE", *NAMES]
    with pytest.raises(ConfigError, match="'Pope2' is not known"):
        choose_benchmarks("all,Pope2")
    assert [benchmark.name for benchmark in choose_benchmarks(["mmstar"])] == ["MMStar"]
    assert [benchmark.name for benchmark in choose_benchmarks("BLINK, blink,MMStar")] == ["BLINK", "MMStar"]
    assert [benchmark.name for benchmark in choose_benchmarks("BLINK,All")] == NAMES
    for nothing in ("", " , ", []):
        with pytest.raises(ConfigError, match=r"no benchmark was passed. Allowed: BLINK"):
            choose_benchmarks(nothing)
    with pytest.raises(ConfigError, match=r"benchmark 'BLNK' is not known. Did you mean 'BLINK'"):
        choose_benchmarks("BLNK")
    with pytest.raises(ConfigError, match=r"benchmark 'Blnk' is not known. Did you mean 'BLINK'"):
        choose_benchmarks("Blnk")


def test_a_mistyped_name_is_told_before_a_missing_folder_and_the_folder_with_who_needs_it(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'BLINK'"):
        load_questions("world,Blinc", tmp_path / "nowhere", Asking())
    with pytest.raises(ConfigError, match=r"^BLINK, MMStar: the data folder .* does not exist"):
        load_questions("Blink,mmstar", tmp_path / "nowhere", Asking())


def test_the_data_folder_is_the_given_one_or_vlmevalkits(tmp_path, monkeypatch):
    monkeypatch.setenv("LMUData", str(tmp_path))
    assert data_folder(None) == tmp_path
    with pytest.raises(ConfigError, match="does not exist"):
        data_folder(tmp_path / "nowhere")


def test_a_parquet_file_of_another_layout_says_what_it_has(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "VStarBench").mkdir()
    parquet.write_table(pa.Table.from_pylist([{"image": b"x", "what": 1}]), tmp_path / "VStarBench" / "a.parquet")
    with pytest.raises(
        ConfigError, match=r"not in the published layout \(KeyError: 'text'\). Its columns: image, what"
    ):
        loaded("VStarBench", tmp_path)
    (tmp_path / "VStarBench" / "a.parquet").write_bytes(b"PAR")
    with pytest.raises(ConfigError, match="is not a Parquet file"):
        loaded("VStarBench", tmp_path)


def test_a_parquet_file_with_broken_pages_or_two_rows_of_one_index_is_refused(tmp_path, parquets):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "MMStar").mkdir()
    path = tmp_path / "MMStar" / "a.parquet"
    content = bytearray((parquets / "MMStar" / "mmstar.parquet").read_bytes())
    content[4 : len(content) // 3] = b"\0" * (len(content) // 3 - 4)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a.parquet cannot be read: (?s:.*)Download it again"):
        loaded("MMStar", tmp_path)
    table = parquet.read_table(parquets / "MMStar" / "mmstar.parquet")
    parquet.write_table(pa.concat_tables([table, table.slice(2, 1)]), path)
    with pytest.raises(ConfigError, match="MMStar has several rows with the index '2'"):
        loaded("MMStar", tmp_path)


def test_files_in_several_folders_go_by_the_folder_that_holds_them_all(parquets):
    assert loaded("BLINK", parquets).report.file == "BLINK"


def test_a_file_that_may_not_be_read_is_told(tsvs, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(loading, "read_tsv", refuse)
    with pytest.raises(ConfigError, match=r"VStarBench.tsv cannot be read: .*Permission denied"):
        loaded("VStarBench", tsvs)


def test_images_in_parquet_files_have_names_of_their_own_and_rows_without_one_are_counted(parquets, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    names = [image.identity for each in loaded("BLINK", parquets).questions for image in each.example.images]
    assert len(set(names)) == len(names) == 8
    (tmp_path / "MMStar").mkdir()
    rows = parquet.read_table(parquets / "MMStar" / "mmstar.parquet").to_pylist()
    rows[2]["image"] = None
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "MMStar" / "a.parquet")
    found = loaded("MMStar", tmp_path)
    assert (len(found.questions), found.report.num_without_image) == (5, 1)
    assert "1 rows without an image skipped" in found.report.line()


def test_a_hint_of_a_row_stands_in_front_of_its_question(tmp_path):
    write_tsv(tmp_path / "VStarBench.tsv", [{**row, "hint": "Look left."} for row in ROWS["VStarBench"]])
    (text,) = [part["text"] for part in loaded("VStarBench", tmp_path).questions[0].example.prompt[0]["content"][1:]]
    assert text.startswith("Hint: Look left.\nQuestion: ")


def test_questions_of_v_star_that_share_an_id_are_told_apart_by_category(parquets, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "VStarBench").mkdir()
    rows = parquet.read_table(parquets / "VStarBench" / "test-0.parquet").to_pylist()
    rows[1]["question_id"] = rows[0]["question_id"]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "VStarBench" / "a.parquet")
    assert len(loaded("VStarBench", tmp_path).questions) == len(rows)
