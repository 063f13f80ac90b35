"""Benchmarks beside the seven: what is asked, to the letter, and their numbers, worked by hand."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_answers import say
from toy_benchmarks import coded, write_tsv
from vcsd.errors import ConfigError
from vcsd.evaluation.benchmarks import BENCHMARKS, PUBLISHED
from vcsd.evaluation.benchmarks.loading import choose_benchmarks, load_benchmark, require_files
from vcsd.evaluation.benchmarks.more_benchmarks import MORE_BENCHMARKS
from vcsd.evaluation.benchmarks.prompt_styles import STYLES
from vcsd.evaluation.scoring.compare import compare
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.evaluation.scoring.scorecard import Scorecard
from vcsd.views.original import load_image

SNAPSHOTS = json.loads((Path(__file__).parent / "more_prompt_snapshots.json").read_text())
PLAIN = {"question": "What is it?", "A": "red", "B": "a dog", "answer": "B", "category": "c", "l2-category": "x"}
TEXT = "Question: What is it?\nOptions:\nA. red\nB. a dog\nPlease select the correct answer from the options above. \n"


def questions(tmp_path, name, rows, style="vlmevalkit"):
    rows = [{"index": str(n), "image": coded(n), **row} for n, row in enumerate(rows)]
    write_tsv(tmp_path / f"{name}.tsv", rows)
    return load_benchmark(PUBLISHED[name], tmp_path, style=style, allow_unknown_data=True).questions


def content(question):
    return question.example.prompt[0]["content"]


ROWS = {
    **dict.fromkeys(("AI2D_TEST", "RealWorldQA", "ScienceQA_VAL", "ScienceQA_TEST", "MMBench_DEV_EN"), PLAIN),
    "MMMU_DEV_VAL": {**PLAIN, "question": "What is in <image 1>?", "split": "validation"},
    "MME-RealWorld-Lite": {**PLAIN, "multi-choice options": str([f"({letter}) {letter} x" for letter in "ABCDE"])},
    "POPE": {**PLAIN, "question": "Is there a dog?", "answer": "Yes"},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", MORE_BENCHMARKS)
def test_the_prompt_of_every_benchmark_is_the_recorded_one(style, name, tmp_path):
    (asked,) = questions(tmp_path, name, [ROWS[name]], style)
    assert [part.get("text") for part in content(asked)] == SNAPSHOTS[style][name]


def test_there_are_seven_more_data_sets_and_all_still_means_the_papers_seven():
    assert [*MORE_BENCHMARKS] == [
        *("MMBench_DEV_EN", "MMMU_DEV_VAL", "MME-RealWorld-Lite", "POPE", "AI2D_TEST", "RealWorldQA"),
        *("ScienceQA_VAL", "ScienceQA_TEST"),
    ]
    assert choose_benchmarks("all") == [*BENCHMARKS.values()]
    assert [benchmark.name for benchmark in choose_benchmarks("pope,MMStar")] == ["POPE", "MMStar"]


def test_a_missing_file_says_what_to_download(tmp_path):
    with pytest.raises(ConfigError, match=r"POPE is not in .*\. Download https://.*/POPE.tsv to .*/POPE.tsv\.$"):
        require_files([PUBLISHED["POPE"]], tmp_path)


@pytest.mark.parametrize("name", ["AI2D_TEST", "RealWorldQA", "ScienceQA_VAL", "ScienceQA_TEST", "MMBench_DEV_EN"])
def test_plain_questions_are_asked_as_those_of_the_seven(tmp_path, name):
    hinted, bare = questions(tmp_path, name, [{**PLAIN, "hint": "Look closely."}, PLAIN])
    assert content(bare) == [{"type": "image"}, {"type": "text", "text": TEXT}]
    assert content(hinted)[1]["text"] == f"Hint: Look closely.\n{TEXT}"


def test_mme_realworld_has_its_own_words(tmp_path):
    options = [f"({letter}) number {n}" for n, letter in enumerate("ABCDE")]
    row = {
        "question": "How many?",
        "multi-choice options": str(options),
        "answer": "C",
        "category": "Reasoning/Monitoring",
    }
    (asked,) = questions(tmp_path, "MME-RealWorld-Lite", [{**row, "l2-category": "x"}])
    assert asked.options == {letter: f"number {n}" for n, letter in enumerate("ABCDE")}
    assert content(asked)[1]["text"] == (
        "How many? The choices are listed below:\n"
        "(A) number 0\n(B) number 1\n(C) number 2\n(D) number 3\n(E) number 4\n"
        "Select the best answer to the above multiple-choice question based on the image. Respond with only the letter "
        "(A, B, C, D, or E) of the correct option. \nThe best answer is:"
    )
    said = [say("0", "Could be (C)")]  # VLMEvalKit takes the first capital letter from A to E
    assert score([asked], said, mode="exact").acc == 100.0
    assert score([asked], [say("0", "Definitely (C)")], mode="exact").acc == 0.0


def test_mmmu_puts_images_where_the_text_names_them_and_asks_the_validation_split(tmp_path):
    pictures = str([coded(1), coded(2), coded(3)])
    row = {**PLAIN, "image": pictures, "question": "Compare <image 2> with <image 1>.", "B": "<image 2>"}
    rows = [{**row, "split": "validation"}, {**row, "split": "dev"}, {**PLAIN, "split": "validation"}]
    first, plain = questions(tmp_path, "MMMU_DEV_VAL", rows)
    assert [part.get("text") for part in content(first)] == [
        *("Question: Compare ", None, " with ", None, ".\nOptions:\nA. red\nB. ", None),
        "\nPlease select the correct answer from the options above. \n",
    ]
    shown = [load_image("x", image).tobytes() for image in first.example.images]
    assert shown[0] == shown[2] != shown[1]

    assert content(plain) == [{"type": "image"}, {"type": "text", "text": TEXT}]


def test_an_open_question_of_mmmu_is_asked_without_options_and_read_with_two(tmp_path):
    row = {"question": "What is the voltage?", "A": "", "B": "", "answer": "3.5", "split": "validation"}
    (asked,) = questions(tmp_path, "MMMU_DEV_VAL", [{**row, "category": "c"}])
    assert content(asked)[1]["text"] == "Question: What is the voltage?\n"
    assert (asked.gold, asked.options) == ("A", {"A": "3.5", "B": "Other Answers"})
    assert score([asked], [say("0", "It is 3.5 V")], mode="exact").acc == 100.0


def test_an_image_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"row 1 names image 4, but has 1\."):
        questions(tmp_path, "MMMU_DEV_VAL", [{**PLAIN, "question": "See <image 4>", "split": "validation"}])


def test_a_published_row_without_its_gold_option_is_asked_and_never_right(tmp_path):
    # RealWorldQA's file has such rows. VLMEvalKit asks them, and no answer is right.
    cells = {"C": "", "D": ""}
    rows = [{**PLAIN, **cells}, {**PLAIN, **cells, "answer": "C"}, {**PLAIN, "A": "", "B": "", "answer": "Yes"}]
    rows = [{"index": str(n), "image": coded(n), **row} for n, row in enumerate(rows)]
    path = write_tsv(tmp_path / "RealWorldQA.tsv", rows)
    benchmark = PUBLISHED["RealWorldQA"]
    with pytest.raises(ConfigError, match="the answer 'C' is none of its options A, B"):
        load_benchmark(benchmark, tmp_path, allow_unknown_data=True)
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    found = load_benchmark(replace(benchmark, files=replace(benchmark.published, md5=md5)), tmp_path)
    assert "3 questions, 2 without their right option" in found.report.line()
    assert [len(question.options) for question in found.questions] == [2, 2, 0]
    for mode in ("exact", "final"):
        card = score(found.questions, [say("0", "B"), say("1", "C"), say("2", "Yes")], mode=mode)
        assert card.benchmarks["RealWorldQA"].tally.is_right == (True, False, False)


def test_mmbench_counts_a_question_once_and_only_if_all_rotations_are_right(tmp_path):
    rows = [
        {**PLAIN, "index": "7"},
        {**PLAIN, "index": "1000007", "image": "7", "A": "a dog", "B": "red", "answer": "A"},
        {**PLAIN, "index": "8", "category": "d"},
        {**PLAIN, "index": "1000008", "image": "8", "A": "a dog", "B": "red", "answer": "A", "category": "d"},
    ]
    asked = questions(tmp_path, "MMBench_DEV_EN", rows)
    said = [say("7", "B"), say("1000007", "A"), say("8", "B"), say("1000008", "B")]
    card = score(asked, said, mode="exact").benchmarks["MMBench_DEV_EN"]
    assert (card.entry, card.num_questions) == (50.0, 4)
    assert {name: group.entry for name, group in card.groups["category"].items()} == {"c": 100.0, "d": 0.0}
    assert max(card.tally.clusters) == 1


def test_pope_is_the_f1_of_yes_in_which_a_question_counts_for_each_of_its_categories(tmp_path):
    rows = [
        ("Yes", "random,popular"),
        ("Yes", "random"),
        ("No", "random"),
        ("No", "popular,adversarial"),
        ("No", "popular"),
    ]
    rows = [
        {"question": f"Is there a {n}?", "answer": answer, "category": category}
        for n, (answer, category) in enumerate(rows)
    ]
    asked = questions(tmp_path, "POPE", rows)
    assert content(asked[0])[1]["text"] == "Is there a 0?"
    said = [say(str(n), text) for n, text in enumerate(["Yes", "No", "Yes", "No", "Who knows?"])]
    card = score(asked, said, mode="exact")
    pope = card.benchmarks["POPE"]
    # Weighted by categories: 2 true positives, 1 miss, 1 false alarm; "Who knows?" is no yes, and wrong.
    assert pope.entry == pytest.approx(100 * 4 / 6)
    assert pope.metrics == pytest.approx(
        {"F1": 100 * 4 / 6, "acc": 100 * 4 / 7, "precision": 200 / 3, "recall": 200 / 3}
    )
    popular = pope.groups["category"]["popular"]
    assert (popular.entry, popular.num_questions, popular.metrics["acc"]) == pytest.approx((100.0, 3, 200 / 3))
    assert pope.interval.low < pope.entry < pope.interval.high
    assert Scorecard.from_json(card.to_json()) == card


def test_f1_without_any_yes_is_zero_and_never_nan(tmp_path):
    rows = [{"question": f"Is it {n}?", "answer": answer, "category": "random"} for n, answer in enumerate(NO_YES)]
    asked = questions(tmp_path, "POPE", rows)
    said = {
        "no": score(asked[:2], [say(str(n), "No") for n in range(2)], mode="exact"),
        "yes": score(asked[:2], [say(str(n), "Yes") for n in range(2)], mode="exact"),
    }
    assert said["no"].acc == said["yes"].acc == 0.0
    assert said["no"].benchmarks["POPE"].metrics == {"F1": 0.0, "acc": 100.0, "precision": 0.0, "recall": 0.0}
    change = compare(said["no"], said["yes"]).acc
    assert (change.difference, change.num_lost) == (0.0, 2)
    assert -100 <= change.interval.low <= 0 <= change.interval.high <= 100  # false of nan
    # Without the only yes, F1 is 0 as well: the whole score rests on one question, and the interval says so.
    one = score(asked, [say(str(n), word) for n, word in enumerate(NO_YES)], mode="exact").benchmarks["POPE"]
    assert one.entry == 100.0
    assert one.interval.low < 60


NO_YES = ("No", "No", "Yes")
