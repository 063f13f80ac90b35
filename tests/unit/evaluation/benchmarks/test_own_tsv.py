"""A user's own TSV is a benchmark under the name of its file."""

import pytest

from toy_benchmarks import coded, write_tsv
from vcsd.errors import ConfigError
from vcsd.evaluation.benchmarks.own_tsv import load_own_tsv, load_own_tsvs
from vcsd.evaluation.reading.marking import Marking, mark
from vcsd.types import Prediction

ROWS = [
    {
        "index": "1",
        "image": coded(1),
        "question": "Which?",
        "A": "red",
        "B": "blue",
        "answer": "B",
        "category": "color",
    },
    {"index": "2", "image": coded(2), "question": "Is it red?", "answer": "no", "category": "color"},
    {"index": "3", "image": "1", "question": "How many?", "answer": "7", "category": "number"},
    {"index": "4", "image": coded(4), "question": "How long?", "answer": "0.25", "category": "number"},
    {"index": "5", "image": coded(5), "question": "What is it?", "answer": "A cat", "category": "name"},
]


def test_the_gold_answer_and_the_options_tell_what_a_question_is(tmp_path):
    benchmark, loaded = load_own_tsv(write_tsv(tmp_path / "mine.tsv", ROWS))
    assert (benchmark.name, benchmark.breakdown, loaded.report.benchmark) == ("mine", ("category",), "mine")
    assert [question.kind for question in loaded.questions] == ["option", "yes_no", "integer", "float", "text"]
    assert [question.gold for question in loaded.questions] == ["B", "No", "7", "0.25", "A cat"]
    assert len(loaded.questions[2].example.images) == 1


def test_questions_with_and_without_options_are_grouped_alike(tmp_path):
    rows = [{**row, "split": "val"} for row in ROWS]
    benchmark, loaded = load_own_tsv(write_tsv(tmp_path / "mine.tsv", rows))
    assert benchmark.breakdown == ("category", "split")
    assert [question.groups["split"] for question in loaded.questions] == ["val"] * 5


@pytest.mark.parametrize(
    ("answers", "rights"),
    [
        (("B", "No", "7", "0.25", "a cat."), (True,) * 5),
        (("A", "Yes", "8", "0.35", "a cat on a mat"), (False,) * 5),
    ],
)
def test_answers_are_marked_by_the_kind_of_their_question(tmp_path, answers, rights):
    benchmark, loaded = load_own_tsv(write_tsv(tmp_path / "mine.tsv", ROWS))
    predictions = [
        Prediction(question.id, text, "end") for question, text in zip(loaded.questions, answers, strict=True)
    ]
    verdicts = mark(loaded.questions, predictions, Marking("final"), {"mine": benchmark})
    assert tuple(verdict.is_right for verdict in verdicts) == rights


def test_a_number_may_have_commas_between_its_thousands(tmp_path):
    benchmark, loaded = load_own_tsv(
        write_tsv(tmp_path / "mine.tsv", [{**ROWS[2], "image": coded(1), "answer": "1,200"}])
    )
    (question,) = loaded.questions
    assert (question.kind, question.gold) == ("integer", "1200")
    (verdict,) = mark([question], [Prediction("3", "There are 1200.", "end")], Marking("final"), {"mine": benchmark})
    assert verdict.is_right


@pytest.mark.parametrize(("answer", "text"), [("\u22123", "It is -3."), ("\uff08a\uff09", "(a)"), ("是。", "是。")])
def test_signs_of_other_alphabets_in_an_answer_are_read_as_in_replies(tmp_path, answer, text):
    benchmark, loaded = load_own_tsv(
        write_tsv(tmp_path / "mine.tsv", [{**ROWS[2], "image": coded(1), "answer": answer}])
    )
    (verdict,) = mark(loaded.questions, [Prediction("3", text, "end")], Marking("final"), {"mine": benchmark})
    assert verdict.is_right


def test_a_limit_spreads_over_the_file(tmp_path):
    _, loaded = load_own_tsv(write_tsv(tmp_path / "mine.tsv", ROWS), limit=2)
    first, second = (int(question.id) for question in loaded.questions)
    assert first in (1, 2)
    assert second in (3, 4, 5)
    assert (loaded.report.num_questions, loaded.report.num_asked) == (5, 2)


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("mine.tsv", [{"index": "1", "image": coded(1), "question": "?"}], "has no column 'answer'. It needs index"),
        ("mine.tsv", [{"index": "1", "question": "?", "answer": "7"}], "neither a column 'image' nor 'image_path'"),
        ("mine.tsv", [{**ROWS[0], "answer": "E"}], "the answer 'E' is none of its options A, B"),
        ("mine.tsv", [{**ROWS[1], "image": "9"}], "its image is that of row '9', which does not exist"),
        ("mine.tsv", [{**ROWS[1], "answer": ""}], "has nothing under 'answer'"),
        ("mine.tsv", [ROWS[1], ROWS[1]], "indices occur in several rows: '2'. Make them unique"),
        ("mine.tsv", [{**ROWS[1], "image": ""}], "mine has no row with an image. Fill image or image_path."),
        ("mine.csv", ROWS, "does not end in .tsv"),
        ("acc.tsv", ROWS, "acc already names a number that every evaluation reports. Rename the file"),
        ("BLINK.tsv", ROWS, "BLINK is a published benchmark. Ask it with --benchmarks BLINK"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_advice(tmp_path, name, rows, words):
    with pytest.raises(ConfigError) as error:
        load_own_tsv(write_tsv(tmp_path / name, rows))
    assert words in str(error.value)


def test_an_empty_file_is_not_to_be_downloaded_by_its_author(tmp_path):
    for text in ("", "index\tquestion\tanswer\timage\n"):
        (tmp_path / "mine.tsv").write_text(text)
        with pytest.raises(ConfigError, match=r"Download it again, or add .*rows if it is yours\."):
            load_own_tsv(tmp_path / "mine.tsv")


def test_files_are_loaded_together_under_different_names(tmp_path):
    (tmp_path / "b").mkdir()
    paths = [write_tsv(tmp_path / name, ROWS) for name in ("a.tsv", "b.tsv", "b/a.tsv")]
    loaded, suites = load_own_tsvs(paths[:2], limit=2)
    assert [(one.report.benchmark, len(one.questions)) for one in loaded] == [("a", 2), ("b", 2)]
    assert (suites["a"].breakdown, "BLINK" in suites) == (("category",), True)
    with pytest.raises(ConfigError, match=r"two files are named a\. Rename one"):
        load_own_tsvs(paths)


@pytest.mark.parametrize(
    ("name", "shown"), [("no.png", r"no\.png'"), ("no" * 200, r"[no]\.\.\."), ("[" * 10**5, r"\[\[\.\.\.")]
)
def test_an_image_file_that_is_not_there_is_refused(tmp_path, name, shown):
    path = write_tsv(tmp_path / "mine.tsv", [{**ROWS[1], "image_path": name}])
    path.write_text(path.read_text().replace("\timage\t", "\tshown\t", 1))
    with pytest.raises(ConfigError, match=rf"row 1: there is no image '.*{shown}\. Correct image_path"):
        load_own_tsv(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, words in ((tmp_path / "mine.tsv", "there is no file"), (tmp_path, "is a folder. Pass a TSV file")):
        with pytest.raises(ConfigError, match=words):
            load_own_tsv(path)
