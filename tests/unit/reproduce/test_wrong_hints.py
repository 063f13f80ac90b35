"""examples/wrong_hints.py: a wrong hint is wrong, but a possible answer."""

import json
import runpy
from pathlib import Path

import pytest

EXAMPLE = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "wrong_hints.py"))
ROWS = [
    {"id": "a", "question": "Where is it?\nA. left\nB. right", "image": "a.png", "answer": "B"},
    {"id": "b", "question": "Is it red?", "image": "b.png", "answer": "no"},
    {"id": "c", "question": "How many?", "image": "c.png", "answer": "2"},
    {"id": "d", "question": "What color is it?", "image": "d.png", "answer": "cyan"},
]


def spoilt(folder: Path, share: float, seed: int = 0) -> tuple[int, list[dict]]:
    table = folder / "train.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in 25 * ROWS), encoding="utf-8")
    return EXAMPLE["spoil"](folder, share, seed), [json.loads(line) for line in table.read_text().splitlines()]


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_as_many_hints_as_asked_for_are_wrong_and_of_the_same_kind(tmp_path, share):
    num_wrong, rows = spoilt(tmp_path, share)
    pairs = list(zip(25 * ROWS, rows, strict=True))
    assert sum(before["answer"] != after["answer"] for before, after in pairs) == num_wrong
    assert abs(num_wrong - 100 * share) <= 15
    assert num_wrong == 100 * share or 0 < share < 1
    for before, after in pairs:
        assert after["answer"] in EXAMPLE["offered"](before["question"], before["answer"])
        assert {**after, "answer": None} == {**before, "answer": None}


def test_the_seed_says_which(tmp_path):
    assert spoilt(tmp_path, 0.5, 1) == spoilt(tmp_path, 0.5, 1) != spoilt(tmp_path, 0.5, 2)


def test_letters_are_those_of_the_question():
    assert EXAMPLE["offered"]("Which?\nA. ring\nB. cross", "A") == ["A", "B"]
    assert EXAMPLE["offered"]("Is it?", "no") == ["yes", "no"]
    assert "cyan" in EXAMPLE["offered"]("What color?", "red")
