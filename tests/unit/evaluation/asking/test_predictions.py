"""An answer belongs to its question and to everything it depends on; a kill loses no more than half a line."""

import json
from dataclasses import replace

import pytest

from tiny_examples import picture
from toy_questions import question
from vcsd.errors import ConfigError
from vcsd.evaluation.asking.predictions import PredictionFile, answer_key, image_identity
from vcsd.rollout.sampling import Sampling
from vcsd.types import Prediction

GREEDY = Sampling(temperature=0)
ASKER = {"model": "a", "chat_template_kwargs": {}}


def key(asked=None, sampling=GREEDY, asker=ASKER, seed=0):
    return answer_key(question() if asked is None else asked, sampling, asker=asker, seed=seed)


@pytest.mark.parametrize(
    "other",
    [
        {"asked": question(text="how many ?")},
        {"asked": question(images=(picture(95),))},
        {"asked": question(images=())},
        {"sampling": replace(GREEDY, presence_penalty=1.5)},
        {"sampling": replace(GREEDY, max_new_tokens=7)},
        {"sampling": replace(GREEDY, top_k=20)},
        {"asker": {**ASKER, "model": "b"}},
        {"asker": {**ASKER, "chat_template_kwargs": {"enable_thinking": False}}},
    ],
)
def test_whatever_changes_an_answer_changes_its_key(other):
    assert key(**other) != key()


def test_gold_and_groups_do_not_change_the_key_for_no_model_sees_them():
    assert key(question(gold="9", groups={"category": "x"})) == key()


def test_the_seed_counts_where_tokens_are_drawn_and_only_there():
    assert key(seed=1) == key(seed=0)
    drawn = Sampling(temperature=1.0)
    assert key(sampling=drawn, seed=1) != key(sampling=drawn, seed=0)


def test_an_image_is_known_by_its_content_wherever_it_lies(tmp_path):
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    picture().save(first)
    picture().save(second)
    assert image_identity(first) == image_identity(str(second))
    picture(90).save(second)
    assert image_identity(first) != image_identity(second)
    assert "unreadable" in image_identity(tmp_path / "missing.png")


def test_half_a_line_after_a_kill_costs_that_answer_alone(tmp_path):
    path = tmp_path / "predictions.jsonl"
    answers = PredictionFile(path)
    asked = [question(str(place)) for place in range(3)]
    for each in asked:
        answers.add(each, "k", Prediction(each.id, f"said {each.id}", "end", 2))
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    again = PredictionFile(path)
    assert [again.find(each, "k") is None for each in asked] == [False, False, True]
    again.add(asked[2], "k", Prediction("2", "said 2", "end", 2))
    assert path.read_bytes() == content


def test_the_last_answer_wins_and_other_benchmarks_have_their_own(tmp_path):
    path = tmp_path / "predictions.jsonl"
    answers = PredictionFile(path)
    answers.add(question(), "k", Prediction("0", "", None, error="broken"))
    answers.add(question(), "k", Prediction("0", "two\n", "length", 4))
    answers.add(question(benchmark="other"), "k", Prediction("0", "three", "end", 1))
    again = PredictionFile(path)
    assert again.find(question(), "k") == Prediction("0", "two\n", "length", 4)
    assert again.find(question(benchmark="other"), "k").text == "three"


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    with pytest.raises(ConfigError, match="record 1 has no 'benchmark': this is not a file of predictions"):
        PredictionFile(path)
    path.write_text(
        '{"benchmark": [], "question": "0", "key": "k", "text": "", "stop": null, "num_tokens": 1, "error": null}\n'
    )
    with pytest.raises(ConfigError, match="record 1 is not a prediction"):
        PredictionFile(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("num_tokens", value) for value in ("x", -3, [1], True, 10**400, 1.5)),
        *(("stop", 5), ("stop", "weird"), ("error", 5), ("text", None)),
    ],
)
def test_a_record_whose_fields_are_of_other_types_is_named(tmp_path, field, value):
    path = tmp_path / "predictions.jsonl"
    PredictionFile(path).add(question(), "k", Prediction("0", "said", "end", 2))
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}) + "\n")
    with pytest.raises(ConfigError, match=r"record 1 is not a prediction. Correct or remove the line"):
        PredictionFile(path)
