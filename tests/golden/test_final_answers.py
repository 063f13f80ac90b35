"""The reader of final answers agrees with a careful human on labelled texts, and says so where it cannot read."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tiny_answers import example, say
from vcsd.evaluation.benchmarks.benchmark import Benchmark
from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.types import Question

FIRST, LATER = (
    [json.loads(line) for line in (Path(__file__).parent / name).read_text().splitlines()]
    for name in ("final_answers.jsonl", "final_answers_later.jsonl")
)
"""Labelled before the reader was written; and after it, to see how it does on what it was not made with."""
LABELLED = FIRST + LATER
PRECISION = 0.99
RECALL = 0.97


def read(row):
    return read_answer(row["text"], row["kind"], row["options"]).found


def test_the_labelled_answers_are_many_and_varied():
    kinds = Counter(row["kind"] for row in FIRST)
    assert len(FIRST) >= 300
    assert set(kinds) == {"option", "yes_no", "integer", "float", "list"}
    assert sum(row["expected"] is None for row in LABELLED) >= 80
    assert len({(row["kind"], row["text"], str(row["options"])) for row in LABELLED}) == len(LABELLED)


@pytest.mark.parametrize("labelled", [FIRST, LATER], ids=["first", "later"])
@pytest.mark.parametrize("kind", ["option", "yes_no", "integer", "float", "list", None])
def test_what_is_read_is_right(labelled, kind):
    rows = [row for row in labelled if kind in (None, row["kind"])]
    resolved = [row for row in rows if read(row) is not None]
    wrong = [(row["text"], row["expected"], read(row)) for row in resolved if read(row) != row["expected"]]
    assert len(wrong) <= (1 - PRECISION) * len(resolved), wrong


def test_little_of_what_can_be_read_is_left_unresolved():
    readable = [row for row in LABELLED if row["expected"] is not None]
    missed = [row["text"] for row in readable if read(row) is None]
    assert len(missed) <= (1 - RECALL) * len(readable), missed


LEFT_UNREAD = {
    "There are no people in the picture.",
    "half",
    "A: apple is wrong, because the fruit has no stem. B: banana is wrong as well. D: there are no spikes. "
    "That leaves C.",
    "The second image is most likely to be a real photograph. The lighting is natural, whereas the first image looks "
    "rendered.",
}


def test_every_other_labelled_answer_is_read_as_labelled():
    read_otherwise = {row["text"] for row in LABELLED if read(row) != row["expected"]}
    assert read_otherwise == LEFT_UNREAD  # another reading of any of them needs another version of the reader
    assert {read(row) for row in LABELLED if row["text"] in LEFT_UNREAD} == {None}


def test_every_unresolved_answer_is_counted():
    suites = {"labelled": Benchmark("labelled", breakdown=())}
    questions = [
        Question(example(str(place)), "labelled", row["kind"], row["expected"] or "A", row["options"])
        for place, row in enumerate(LABELLED)
    ]
    predictions = [say(str(place), row["text"]) for place, row in enumerate(LABELLED)]
    card = score(questions, predictions, mode="final", suites=suites).benchmarks["labelled"]
    assert card.counts.unresolved == sum(read(row) is None for row in LABELLED) > 80
    assert card.num_questions == len(LABELLED)
