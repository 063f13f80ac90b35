"""The labels of real models' answers, and what was measured with them."""

import json
import re
from collections import Counter
from pathlib import Path

import labelled_answers
from vcsd.evaluation.reading import READER

LABELS = [json.loads(line) for line in labelled_answers.LABELS.read_text(encoding="utf-8").splitlines()]
LATER = labelled_answers.labels(labelled_answers.LATER)
MEASURED = Path(labelled_answers.__file__).parent / "results" / "labelled_answers.json"


def test_many_answers_of_many_models_are_labelled_without_their_texts():
    assert len(LABELS) >= 600
    assert len({label["model"] for label in LABELS}) >= 30
    assert {label["repository"] for label in LABELS + LATER} == set(labelled_answers.COMMITS)
    keys = {"repository", "file", "row", "sha256", "model", "kind", "label", "held_out", "again"}
    assert all(set(label) <= keys and re.fullmatch("[0-9a-f]{16}", label["sha256"]) for label in LABELS)
    assert len({(label["repository"], label["file"], label["row"]) for label in LABELS}) == len(LABELS)


def test_about_half_of_the_labels_are_held_out():
    halves = Counter(label["held_out"] for label in LABELS)
    assert abs(halves[True] - halves[False]) < len(LABELS) / 10


def test_the_later_labels_are_of_other_models():
    assert len(LATER) >= 300
    assert len({label["model"] for label in LATER} - {label["model"] for label in LABELS}) >= 15
    files = {(label["repository"], label["file"]) for label in LABELS}
    assert not files & {(label["repository"], label["file"]) for label in LATER}
    keys = {"repository", "file", "row", "sha256", "model", "kind", "label", "part"}
    assert all(set(label) == keys and re.fullmatch("[0-9a-f]{16}", label["sha256"]) for label in LATER)


def test_the_measured_reader_is_the_one_in_use():
    measured = json.loads(MEASURED.read_text())
    assert measured["reader"] == READER
    assert measured["skipped"] == {}
    assert measured["parts"]["held out"]["by kind"]["all"]["answers"] == sum(label["held_out"] for label in LABELS)
    later = measured["parts"]["later"]["by kind"]["all"]
    assert later["answers"] == len(LATER)
    assert later["right"] >= 0.98 * later["decided"]


def test_answers_whose_files_are_missing_or_changed_are_skipped(tmp_path):
    assert labelled_answers.judged(tmp_path)[2] == {"missing": len(LABELS) + len(LATER)}
    label = next(label for label in LABELS if label["repository"] == "HallusionBench")
    rows = [{"model_prediction": "Yes.", "question": "Is it?"}] * (int(label["row"]) + 1)
    path = tmp_path / "new" / "HallusionBench" / label["file"]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(rows))
    assert labelled_answers.judged(tmp_path / "new")[2]["changed"] > 0


def test_values_are_compared_as_values():
    assert labelled_answers.is_same("integer", "4.0", "4", {})
    assert not labelled_answers.is_same("float", "4.01", "4", {})
    assert labelled_answers.is_same("option", "A", "B", {"A": "18", "B": "18"})
    assert not labelled_answers.is_same("option", "A", "B", {"A": "", "B": ""})
    assert labelled_answers.read_theirs("option", "(b)", {"A": "red", "B": "green"}) == "B"
    assert labelled_answers.read_theirs("integer", "1,200", {}) == "1200.0"
    assert labelled_answers.wilson(9, 10) == (59.6, 98.2)
