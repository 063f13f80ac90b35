"""The labels of real models' answers, and what was measured with them."""

import json
import re
import zipfile
from collections import Counter
from pathlib import Path

import pytest

import answer_files
import fresh_answer_files
import labelled_answers
import later_answer_files
import newest_answer_files
from vcsd.evaluation.reading import READER

LABELS = [json.loads(line) for line in labelled_answers.LABELS.read_text(encoding="utf-8").splitlines()]
LATER = labelled_answers.labels(labelled_answers.LATER)
FIFTH = labelled_answers.labels(labelled_answers.FIFTH)
SIXTH = labelled_answers.labels(labelled_answers.SIXTH)
SEVENTH = labelled_answers.labels(labelled_answers.SEVENTH)
EIGHTH = labelled_answers.labels(labelled_answers.EIGHTH)
NINTH = labelled_answers.labels(labelled_answers.NINTH)
TENTH = labelled_answers.labels(labelled_answers.TENTH)
FRESH = labelled_answers.labels(labelled_answers.FRESH)
ALL = LABELS + LATER + FIFTH + SIXTH + SEVENTH + EIGHTH + NINTH + TENTH + FRESH
MEASURED = Path(labelled_answers.__file__).parent / "results" / "labelled_answers.json"


def test_many_answers_of_many_models_are_labelled_without_their_texts():
    assert len(LABELS) >= 600
    assert len({label["model"] for label in LABELS}) >= 30
    assert {label["repository"] for label in ALL} == set(labelled_answers.COMMITS)
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


def test_the_labels_for_version_5_are_of_other_repositories_and_of_every_kind():
    assert len(FIFTH) == 400
    assert not {label["repository"] for label in FIFTH} & {label["repository"] for label in LABELS + LATER}
    assert len({label["model"] for label in FIFTH}) >= 30
    kinds = Counter(label["kind"] for label in FIFTH)
    assert set(kinds) == {"option", "integer", "float", "yes_no"}
    assert min(kinds.values()) >= 40
    keys = {"repository", "file", "row", "sha256", "model", "kind", "label", "part", "draw", "language"}
    keys |= {"benchmark"}
    assert all(set(label) - {"again"} == keys and re.fullmatch("[0-9a-f]{16}", label["sha256"]) for label in FIFTH)
    assert len({(label["repository"], label["file"], label["row"]) for label in FIFTH}) == len(FIFTH)


def test_the_labels_for_version_6_are_other_answers_and_many_are_hard():
    assert len(SIXTH) == 295
    assert len({(label["repository"], label["file"], label["row"]) for label in ALL}) == len(ALL)
    assert {label["repository"] for label in SIXTH} - {label["repository"] for label in FIFTH} == {"VisOnlyQA"}
    assert sum(label["language"] == "Chinese" for label in SIXTH) >= 60
    assert sum(label["model"].endswith("LLaVA-CoT") for label in SIXTH) >= 20
    kinds = Counter(label["kind"] for label in SIXTH)
    assert set(kinds) == {"option", "integer", "float", "yes_no"}
    assert kinds["float"] >= 50
    assert all(set(label) == set(FIFTH[-1]) for label in SIXTH)


def test_the_labels_for_version_7_are_of_new_repositories_and_as_many_of_each_file_as_were_drawn():
    assert {label["repository"] for label in SEVENTH} == set(later_answer_files.FORMATS)
    assert not set(later_answer_files.FORMATS) & {label["repository"] for label in LABELS + LATER + FIFTH + SIXTH}
    by_draw = {"first": later_answer_files.DRAWN, "second": later_answer_files.DRAWN_AGAIN}
    for draw, drawn in by_draw.items():
        labelled = Counter((label["repository"], label["file"]) for label in SEVENTH if label["draw"] == draw)
        assert labelled == drawn
    models = Counter(label["model"] for label in SEVENTH)
    assert len(models) >= 25
    assert max(models.values()) <= 50
    assert sum(label["language"] == "Chinese" for label in SEVENTH) >= 0.15 * len(SEVENTH)
    keys = set(FIFTH[-1])
    assert all(set(label) - {"debatable", "again"} == keys for label in SEVENTH)


def test_the_labels_for_version_8_are_further_answers_of_the_same_files_as_many_as_were_drawn():
    labelled = Counter((label["repository"], label["file"]) for label in EIGHTH)
    assert labelled == later_answer_files.DRAWN_FOR_8
    assert set(labelled) <= set(later_answer_files.DRAWN)
    assert {label["draw"] for label in EIGHTH} == {"first"}
    keys = set(FIFTH[-1])
    assert all(set(label) - {"debatable"} == keys for label in EIGHTH)


def test_the_labels_for_version_9_are_of_new_repositories_and_new_chinese_files_as_many_as_were_drawn():
    labelled = Counter((label["repository"], label["file"]) for label in NINTH)
    assert labelled == {**newest_answer_files.DRAWN, **newest_answer_files.DRAWN_FOR_9}
    before = LABELS + LATER + FIFTH + SIXTH + SEVENTH + EIGHTH
    assert not set(newest_answer_files.FORMATS) & {label["repository"] for label in before}
    assert not set(labelled) & {(label["repository"], label["file"]) for label in before}
    models = Counter(label["model"] for label in NINTH)
    assert len(models) >= 15
    assert max(models.values()) <= 50
    assert sum(label["language"] == "Chinese" for label in NINTH) >= 0.15 * len(NINTH)
    kinds = Counter(label["kind"] for label in NINTH)
    assert set(kinds) == {"option", "integer", "float", "yes_no"}
    assert min(kinds.values()) >= 40
    assert {label["draw"] for label in NINTH} == {"first"}
    keys = set(FIFTH[-1])
    assert all(set(label) - {"debatable", "again"} == keys for label in NINTH)


def test_the_labels_for_version_10_are_further_answers_of_known_files_as_many_as_were_drawn():
    labelled = Counter((label["repository"], label["file"]) for label in TENTH)
    assert labelled == newest_answer_files.DRAWN_FOR_10
    before = LABELS + LATER + FIFTH + SIXTH + SEVENTH + EIGHTH + NINTH
    assert set(labelled) <= {(label["repository"], label["file"]) for label in before}
    models = Counter(label["model"] for label in TENTH)
    assert len(models) >= 20
    assert max(models.values()) <= 70
    assert sum(label["language"] == "Chinese" for label in TENTH) >= 0.12 * len(TENTH)
    kinds = Counter(label["kind"] for label in TENTH)
    assert set(kinds) == {"option", "integer", "float", "yes_no"}
    assert min(kinds.values()) >= 50
    assert {label["draw"] for label in TENTH} == {"first"}
    keys = set(FIFTH[-1])
    assert all(set(label) - {"debatable", "again"} == keys for label in TENTH)


def test_the_fresh_labels_are_of_new_repositories_and_as_many_of_each_file_as_were_drawn():
    by_draw = {"first": fresh_answer_files.DRAWN, "second": fresh_answer_files.DRAWN_AGAIN}
    for draw, drawn in by_draw.items():
        labelled = Counter((label["repository"], label["file"]) for label in FRESH if label["draw"] == draw)
        assert labelled == drawn
    before = LABELS + LATER + FIFTH + SIXTH + SEVENTH + EIGHTH + NINTH + TENTH
    assert {label["repository"] for label in FRESH} == set(fresh_answer_files.FORMATS)
    assert not set(fresh_answer_files.FORMATS) & {label["repository"] for label in before}
    benchmarks = {label["model"].partition("/")[0] for label in before}
    assert not {label["benchmark"] for label in FRESH} & benchmarks
    models = Counter(label["model"] for label in FRESH)
    assert len(models) >= 15
    assert max(models.values()) <= 80
    assert sum(label["language"] == "Chinese" for label in FRESH) >= 0.15 * len(FRESH)
    kinds = Counter(label["kind"] for label in FRESH)
    assert set(kinds) == {"option", "integer", "float", "yes_no"}
    assert min(kinds.values()) >= 40
    keys = set(FIFTH[-1])
    assert all(set(label) - {"debatable"} == keys for label in FRESH)


@pytest.mark.parametrize("labels", [SEVENTH, EIGHTH, NINTH, TENTH, FRESH], ids=labelled_answers.PARTS[-5:])
def test_a_label_is_a_value_of_its_kind_or_none(labels):
    number = r"-?\d+(\.\d+)?"
    whole = number if labels is TENTH else r"-?\d+"  # one of them answers 0.2 to a question for a whole number
    values = {"option": "[A-J]", "yes_no": "Yes|No", "integer": whole, "float": number}
    readable = [label for label in labels if label["label"] is not None]
    assert all(re.fullmatch(values[label["kind"]], label["label"]) for label in readable)
    assert len(readable) < len(labels)


def test_options_that_are_only_in_a_picture_have_no_words_and_options_in_a_prompt_have(tmp_path):
    path = tmp_path / "output.json"
    row = {"question": "Which?", "options": ["A", "two"], "response": "It is A.", "extraction": ""}
    path.write_text(json.dumps({"math_1": row}))
    options = {"A": "", "B": "two"}
    expected = answer_files.Answer("It is A.", options, "Which?", answer_files.NOTHING)
    assert dict(later_answer_files.emma(tmp_path, path)) == {"math_1": expected}
    prompt = "Answer.\nQuestions: What is it?\nChoices: a cat, dog.\nAnswer: "
    row = {"text_input_id": "x", "prompt_multiple choice (aokvqa)": prompt, "output_multiple choice (aokvqa)": "A dog."}
    path.write_text(json.dumps([row]))
    expected = answer_files.Answer("A dog.", {"A": "a cat", "B": "dog"}, "What is it?")
    assert dict(later_answer_files.fluffy(tmp_path, path)) == {"x": expected}


def test_the_first_reply_of_a_conversation_is_its_answer_and_only_options_and_statements_are_read(tmp_path):
    path = tmp_path / "cot.jsonl"
    messages = ["[Question]\nWho?\n[Choices]\n(A) Ann\n(B) Bob", "Bob, I think.", "Choose.", "(B)"]
    path.write_text(json.dumps({"id": "1", "choices": ["Ann", "Bob"], "messages": messages}))
    expected = answer_files.Answer("Bob, I think.", {"A": "Ann", "B": "Bob"}, "Who?")
    assert dict(later_answer_files.m3cot(tmp_path, path)) == {"1": expected}
    (tmp_path / "data").mkdir()
    kinds = json.dumps({"选择题列表": ["1"], "判断题列表": ["2"]})
    (tmp_path / "data" / "Question_type_index.txt").write_text(kinds, encoding="utf-8")
    path.write_text("\n".join(json.dumps({"id": row, "answer": "对"}) for row in "123"))
    found = dict(later_answer_files.cmm_math(tmp_path, path))
    assert {row: answer.options for row, answer in found.items()} == {"1": dict.fromkeys("ABCD", ""), "2": {}}


def test_options_in_brackets_are_read_from_the_question_and_an_extraction_of_no_letter_is_nothing(tmp_path):
    two = {"A": "a cup", "B": "bowl"}
    assert newest_answer_files.in_brackets("Which is it: (A) a cup or (B) bowl?") == two
    assert newest_answer_files.in_brackets("Is it a bowl?") == {}
    path = tmp_path / "output.json"
    row = {"question": "<image>\nWhich?\nContext: N/A\nOptions: (A) a cup (B) bowl\nRespond.", "pred": "It is a bowl."}
    judged = {"correct": [row | {"question_id": "1", "parsed_ans": "B"}]}
    judged["incorrect"] = [row | {"question_id": "2", "parsed_ans": "FAILED"}]
    path.write_text(json.dumps(judged))
    first, second = dict(newest_answer_files.scienceqa(tmp_path, path)).values()
    assert first == answer_files.Answer("It is a bowl.", two, "Which?\nContext: N/A", "B")
    assert second.theirs == answer_files.NOTHING
    row = {"question": "Which is it: (A) a cup or (B) bowl?", "raw_response": "A bowl."}
    path.write_text(json.dumps([row, row | {"raw_response": None}]))
    first, second = dict(newest_answer_files.probes(tmp_path, path)).values()
    assert first == answer_files.Answer("A bowl.", two, "Which is it: (A) a cup or (B) bowl?")
    assert second.text == ""


def test_puzzles_and_tables_and_changed_questions_are_read_row_by_row(tmp_path):
    path = tmp_path / "output.json"
    row = {"question": "Which?", "options": ["red", "blue"], "raw_output": "(B) blue", "pred": "blue"}
    path.write_text("\n".join(json.dumps(puzzle) for puzzle in (row, row | {"pred": ""})))
    first, second = newest_answer_files.puzzles(tmp_path, path)
    options = {"A": "red", "B": "blue"}
    assert first == ("0", answer_files.Answer("(B) blue", options, "Which?", "blue"))
    assert second == ("1", answer_files.Answer("(B) blue", options, "Which?", answer_files.NOTHING))
    path.write_text(json.dumps({"results": [{"id": 4, "Question": "How many?", "Prediction": "2, 3"}]}))
    expected = answer_files.Answer("2, 3", {}, "How many?")
    assert dict(newest_answer_files.tables(tmp_path, path)) == {"4": expected}
    changed = {"counterfactual_question": "Is it not?", "model_prediction": "No."}
    original = {"question": "Is it?", "model_prediction": "Yes."}
    path.write_text(json.dumps([{"question_id": "7", "original": original, "counterfactuals": [changed]}]))
    assert dict(newest_answer_files.counterfactual(tmp_path, path)) == {
        "7/original": answer_files.Answer("Yes.", {}, "Is it?"),
        "7/0": answer_files.Answer("No.", {}, "Is it not?"),
    }


def test_the_questions_of_a_batch_are_in_its_file_of_requests(tmp_path):
    content = [{"type": "text", "text": "How many squares?"}, {"type": "image_url"}]
    request = {"custom_id": "1", "body": {"messages": [{"role": "user", "content": content}]}}
    reply = {"custom_id": "1", "response": {"body": {"choices": [{"message": {"content": "Two squares."}}]}}}
    path = tmp_path / newest_answer_files.SQUARES
    path.write_text(json.dumps(reply))
    path.with_name(newest_answer_files.REQUESTS[path.name]).write_text(json.dumps(request))
    expected = answer_files.Answer("Two squares.", {}, "How many squares?")
    assert dict(newest_answer_files.batch(tmp_path, path)) == {"1": expected}


def test_drawings_and_videos_are_read_row_by_row_and_options_come_from_lists(tmp_path):
    path = tmp_path / "output.csv"
    path.write_text('image_id,qa_id,question,model_answer\n1,cnt2,How many?,"**2** doors\n\nin all"\n')
    expected = answer_files.Answer("**2** doors\n\nin all", {}, "How many?")
    assert dict(fresh_answer_files.drawings(tmp_path, path)) == {"1/cnt2": expected}
    asked = [{"question": "Is it?", "prediction": "Yes, it is."}, {"question": "Why?", "prediction": None}]
    path.write_text(json.dumps({"entire": {"entire_001": {"qa": asked}}}))
    found = dict(fresh_answer_files.events(tmp_path, path))
    assert found["entire_001/0"] == answer_files.Answer("Yes, it is.", {}, "Is it?")
    assert found["entire_001/1"].text == ""
    two = {"A": "cat", "B": "dog"}
    path.write_text(json.dumps({"record": [{"question": "?", "options": "['cat', 'dog']", "predict": "(B) dog"}]}))
    assert dict(fresh_answer_files.disciplines(tmp_path, path)) == {"0": answer_files.Answer("(B) dog", two, "?")}
    row = {"id": "test-1", "question": "?", "options": ["cat", "dog"], "response": "B\n###"}
    path.write_text(json.dumps({"questions": [row]}))
    assert dict(fresh_answer_files.implications(tmp_path, path)) == {"test-1": answer_files.Answer("B\n###", two, "?")}
    row = {"id": 3, "question": "?", "options": ["cat", "dog"]}
    path.write_text(json.dumps([row | {"vlm_answer": "dog"}, row | {"id": 4, "intern_answer": "b. dog"}]))
    found = dict(fresh_answer_files.illusions(tmp_path, path))
    assert {key: answer.text for key, answer in found.items()} == {"3": "dog", "4": "b. dog"}
    assert found["3"].options == two


def test_the_measured_reader_is_the_one_in_use():
    measured = json.loads(MEASURED.read_text())
    assert measured["reader"] == READER
    assert measured["skipped"] == {}
    assert measured["parts"]["held out"]["by kind"]["all"]["answers"] == sum(label["held_out"] for label in LABELS)
    later = measured["parts"]["later"]["by kind"]["all"]
    assert later["answers"] == len(LATER)
    assert later["right"] >= 0.98 * later["decided"]
    assert measured["parts"]["version 5"]["by kind"]["all"]["answers"] == len(FIFTH)
    assert measured["parts"]["version 6"]["by kind"]["all"]["answers"] == len(SIXTH)


@pytest.mark.parametrize("part", labelled_answers.PARTS)
def test_every_answer_that_is_read_otherwise_than_labelled_is_recorded(part):
    measured = json.loads(MEASURED.read_text())["parts"][part]
    rows, counts = measured["read otherwise"], measured["by kind"]["all"]
    missed = [row for row in rows if row["found"] is None]
    assert len(missed) == counts["missed"]
    assert len(rows) - len(missed) == counts["decided"] - counts["right"]
    labels = {(label["repository"], label["file"], label["row"]): label["label"] for label in ALL}
    assert all(labels[row["repository"], row["file"], row["row"]] == row["label"] != row["found"] for row in rows)


def test_a_changed_reading_is_reported():
    recorded = json.loads(MEASURED.read_text())
    assert labelled_answers.changes(recorded, recorded) == []
    changed = json.loads(MEASURED.read_text())
    row = changed["parts"]["version 5"]["read otherwise"].pop()
    (line,) = labelled_answers.changes(changed, recorded)
    assert row["row"] in line
    assert line.endswith("now as labelled")
    changed = json.loads(MEASURED.read_text()) | {"skipped": {"missing": 1}}
    assert labelled_answers.changes(changed, recorded) == ["skipped answers: recorded {}, now {'missing': 1}"]


def test_answers_whose_files_are_missing_or_changed_are_skipped(tmp_path):
    assert labelled_answers.judged(tmp_path)[2] == {"missing": len(ALL)}
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


SHARED = '<sst xmlns="{0}">{1}</sst>'
CELLS = """<worksheet xmlns="{0}"><sheetData>
<row><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="D1" t="s"><v>3</v></c></row>
<row><c r="A2"><v>7</v></c><c r="B2" t="inlineStr"><is><t>Which?</t></is></c><c r="D2" t="s"><v>2</v></c></row>
</sheetData></worksheet>"""


def test_workbooks_are_read_by_their_columns(tmp_path):
    space = answer_files.SHEET.strip("{}")
    strings = "".join(f"<si><t>{text}</t></si>" for text in ("index", "question", "A", "prediction"))
    with zipfile.ZipFile(tmp_path / "model_ScienceQA.xlsx", "w") as book:
        book.writestr("xl/sharedStrings.xml", SHARED.format(space, strings))
        book.writestr("xl/worksheets/sheet1.xml", CELLS.format(space))
    rows = dict(answer_files.vlmevalkit(tmp_path, tmp_path / "model_ScienceQA.xlsx"))
    assert rows == {"7": answer_files.Answer("A", {}, "Which?")}


def test_options_in_small_letters_are_read_from_the_prompt(tmp_path):
    path = tmp_path / "answers.jsonl"
    rows = [
        {"prompt": "<image>\nHow long? (a) 4 (b) 0.5 \n\nIn your response, explain.", "response": "b", "y_pred": "b"},
        {"prompt": "<image>\nIt is round. True or False?\n\nIn your response, explain.", "response": "?", "y_pred": ""},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = dict(answer_files.visonlyqa(tmp_path, path)).values()
    assert first == answer_files.Answer("b", {"A": "4", "B": "0.5"}, "How long? (a) 4 (b) 0.5", "b")
    assert second.options == {"A": "True", "B": "False"}
    assert second.theirs == answer_files.NOTHING


def test_options_in_a_question_count_only_in_their_order():
    assert answer_files.in_question("Who? (A) Ann, (B) Bob.") == {"A": "Ann", "B": "Bob"}
    assert answer_files.in_question("Who? (A)(B)") == {"A": "", "B": ""}
    assert answer_files.in_question("Which is like (C)?") == dict.fromkeys("ABCDE", "")


def test_reports_and_logs_are_split_into_answers(tmp_path):
    log = tmp_path / "log.md"
    log.write_text(
        "## === Evaluation Step 10 === | now\n### Sample 2\n\n"
        "**Prompt:** <|vision_end|>What?\nA: cat\nB: dog<|im_end|>\n\n"
        "**Completion:** It is\nB\n\n**Rewards:** 1\n"
    )
    assert dict(answer_files.training_log(tmp_path, log)) == {
        "10/2": answer_files.Answer("It is\nB", {"A": "cat", "B": "dog"}, "What?")
    }
    page = tmp_path / "page.md"
    page.write_text(
        "## Model\n**Question:** Is it?  \n\n**Ground Truth:**  \n> yes\n\n**Model Answer:**  \n> Yes,\n> it is.\n\n"
        "**Status:** fine\n"
    )
    assert dict(answer_files.halp(tmp_path, page)) == {"Model/0": answer_files.Answer("Yes,\nit is.", {}, "Is it?")}
