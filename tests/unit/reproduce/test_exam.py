"""The exam: gold answers score 100, a constant answer scores its expected value, and questions are encoded once."""

from collections import Counter

import pytest
from PIL import Image

from vcsd.bases.tiny_models import build_model
from vcsd.bases.tokenizer import write_processor_files
from vcsd.data import load_examples
from vcsd.evaluation.asking import model_answerer
from vcsd.models.encode import encode
from vcsd.models.processor import load_processor
from vcsd.reproduce import exam as exam_module
from vcsd.reproduce.exam import SEVEN, USUAL, Exam, world_questions
from vcsd.reproduce.runners import UNREAD_KEPT, scores
from vcsd.reproduce.training_prompts import write_prompts
from vcsd.types import Prediction
from vcsd.views import VIEWS
from vcsd.world.questions.examples import training_examples


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    return load_processor(write_processor_files(tmp_path_factory.mktemp("processor"), "qwen3_vl"))


@pytest.fixture(scope="module")
def exam(processor):
    return Exam(world_questions(16), processor)


def said(exam, say):
    return [Prediction(question.id, say(question), "end", 5) for question in exam.questions]


def test_gold_answers_score_a_hundred_everywhere(exam):
    seven, usual = exam.score(said(exam, lambda q: f"The circle is red. The answer is {q.example.answer}."))
    assert {name: each.entry for name, each in seven.benchmarks.items()} == dict.fromkeys(SEVEN, 100.0)
    assert (seven.acc, usual.acc) == (100.0, 100.0)


def test_the_first_answers_that_no_rule_reads_are_kept(exam):
    shrugs = scores(exam, said(exam, lambda q: f"Who knows, {q.id}?"))
    assert len(shrugs["unread"]) == UNREAD_KEPT < shrugs["unresolved"]
    assert shrugs["unread"][0] == f"Who knows, {exam.questions[0].id}?"
    right = scores(exam, said(exam, lambda q: f"The answer is {q.example.answer}."))
    assert (right["unresolved"], right["unread"]) == (0, [])


def test_a_constant_answer_scores_what_chance_does(exam):
    seven, _ = exam.score(said(exam, lambda q: "The answer is A." if q.options else "The answer is yes."))
    entries = {name: each.entry for name, each in seven.benchmarks.items()}
    assert (entries["small"], entries["smaller"]) == (25.0, 25.0), "four rotations of four options"
    halves = seven.benchmarks["hallucination"].metrics
    assert (halves["aAcc"], halves["fAcc"], halves["qAcc"]) == (50.0, 0.0, 0.0)
    assert entries["arithmetic"] == 0.0
    assert seven.acc == pytest.approx(sum(entries.values()) / 7)


def test_the_usual_questions_are_no_part_of_the_aggregate(exam):
    counts = Counter(question.benchmark for question in exam.questions)
    assert set(counts) == {*SEVEN, USUAL}
    assert min(counts.values()) >= 16
    right = said(exam, lambda q: f"The answer is {q.example.answer if q.benchmark == USUAL else 'unknown'}.")
    seven, usual = exam.score(right)
    assert (seven.acc, usual.acc) == (0.0, 100.0)


def test_questions_on_one_picture_are_drawn_together(exam):
    seven, _ = exam.score(said(exam, lambda q: "The answer is A."))
    tally = seven.benchmarks["small"].tally
    assert len(set(tally.clusters)) == len(tally.ids) // 4


def test_the_same_call_gives_the_same_questions_and_dev_others():
    first, again, other = world_questions(4), world_questions(4), world_questions(4, "dev")
    assert [q.groups["image"] for q in first] == [q.groups["image"] for q in again]
    assert not {q.groups["image"] for q in first} & {q.groups["image"] for q in other}


def test_a_model_is_asked_and_prompts_are_encoded_once(processor, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(model_answerer, "encode", lambda *given, **more: calls.append(1) or encode(*given, **more))
    exam, model = Exam(world_questions(2), processor), build_model("qwen3_vl", "tiny")
    path = tmp_path / "predictions.jsonl"
    first = exam.take(model, name="random", path=path)
    assert len(calls) == len(exam.questions) == len(first)
    assert exam.take(model, name="random") == first
    assert len(calls) == len(exam.questions)
    monkeypatch.setattr(exam_module.TransformersEngine, "sample", lambda *_, **__: pytest.fail("answers are on disk"))
    assert exam.take(model, name="random", path=path) == first


def open_size(path):
    with Image.open(path) as image:
        return image.size


def test_prompts_on_disk_are_the_worlds(processor, tmp_path):
    table = write_prompts(tmp_path, 6)
    found, expected = load_examples(table), training_examples(6)
    for place, example in enumerate(expected):
        read = found[place]
        assert (read.id, read.answer) == (example.id, example.answer)
        one, other = (encode(processor, VIEWS["original"](each)) for each in (read, example))
        assert one.input_ids.tolist() == other.input_ids.tolist()
        assert one.pixel_values.equal(other.pixel_values)
        assert all(path != read.images[0] for path in read.control_images)
        assert all(open_size(path) == open_size(read.images[0]) for path in read.control_images)
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == [f"{place:05}.png" for place in range(6)]
    before = table.stat().st_mtime_ns
    assert write_prompts(tmp_path, 6).stat().st_mtime_ns == before
