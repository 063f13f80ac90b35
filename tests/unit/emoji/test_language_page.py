"""The page of the study: its verdict, whether monitors saw broken counting in time, and what is left out."""

import json
from pathlib import Path

import pytest
import torch

from vcsd.emoji.questions import KEY_WORDS, SUITES
from vcsd.emoji.study.emoji_runs import read_study
from vcsd.emoji.study.key_contrast import _Case, _summary
from vcsd.emoji.study.key_monitor import KEYS
from vcsd.emoji.study.language_page import page
from vcsd.emoji.study.settle import Counted, seen_in_time, study_verdict
from vcsd.method import METHODS
from vcsd.monitor.lines import Lines

RESULTS = Path(__file__).parents[3] / "docs" / "results"
LISTED = read_study(RESULTS / "language_runs.json")


def scores(unusual, count=95.0):
    right = dict.fromkeys(SUITES, 95.0) | {"unusual_prompted": unusual, "unusual_unprompted": unusual, "count": count}
    return {suite: {"right": value} for suite, value in right.items()}


@pytest.mark.parametrize(
    ("bases", "said"),
    [
        ([(True, "success")] * 3, "succeeds"),
        ([(True, "success")] * 2 + [(False, "success")], "is undecided"),
        ([(True, "success")] * 2 + [(True, "no gain")], "is undecided"),
        ([(True, "success"), (True, "no gain"), (True, "breaks count")], "fails"),
        ([(False, "success"), (True, "no gain"), (True, "breaks count")], "fails"),
        ([(False, "no gain"), (False, "no gain"), (True, "breaks count")], "is undecided"),
        ([(True, "gain without the contrast")] * 3, "fails"),
    ],
)
def test_the_study_is_judged_as_promised(bases, said):
    assert study_verdict(bases) == said


def counted(*rights):
    return [Counted(step, 8, right) for step, right in enumerate(rights, start=1)]


def test_an_alarm_is_in_time_if_fewer_than_ten_points_are_lost_at_its_step():
    run = counted(*[100.0] * 10, 90.5, 90.0, 40.0)
    assert seen_in_time(run, [11]) is True
    assert seen_in_time(run, [12]) is False
    assert seen_in_time(run, [13, 11]) is True
    assert seen_in_time(run, []) is False


def test_a_step_without_counting_has_the_loss_of_the_latest_one_with_it():
    run = [Counted(2, 8, 100.0), Counted(9, 24, 80.0), Counted(15, 8, 80.0), Counted(20, 8, 40.0)]  # first: 85
    assert seen_in_time(run, [19]) is True
    assert seen_in_time(run, [20]) is False
    assert seen_in_time(run, [1]) is None
    assert seen_in_time(run[2:], [19]) is None


def write_results(out, vcsd, bases=("emoji-1", "emoji-2", "emoji-3")):
    """Write made-up results of the final runs that a verdict needs."""
    (out / "cells").mkdir()
    own = {"base": scores(20.0), "VCSD": vcsd, "alpha 0": scores(21.0), "sharpened 2": scores(22.0)}
    for run in LISTED.runs:
        if run.stage == "test" and run.base in bases and run.variant in own:
            result = {"list": LISTED.digest, "scores": own[run.variant]}
            if run.trains:
                result["alarms"] = {"run": {"warn": 3, "stop": None}, "count": {"warn": None, "stop": None}}
            (out / "cells" / f"{run.name}.json").write_text(json.dumps(result))


@pytest.mark.parametrize(("vcsd", "said"), [(scores(40.0), "succeeds"), (scores(40.0, count=41.0), "fails")])
def test_the_verdict_of_the_study_comes_first(tmp_path, vcsd, said):
    write_results(tmp_path, vcsd)
    text = page(LISTED, tmp_path)
    assert text.index(f"**The study {said}.**") < text.index("## Verdicts")
    assert ("does not help this kind of model" in text) == (said == "fails")


def test_without_a_planned_base_the_study_has_no_verdict(tmp_path):
    write_results(tmp_path, scores(40.0), bases=("emoji-1", "emoji-3"))
    text = page(LISTED, tmp_path)
    assert "**The study has no verdict yet:** runs of emoji-2 are missing." in text
    assert "The study succeeds" not in text


@pytest.mark.parametrize(("right", "said"), [(95.0, "yes"), (80.0, "no")])
def test_the_page_says_whether_broken_counting_was_seen_in_time(tmp_path, right, said):
    write_results(tmp_path, scores(40.0, count=41.0))
    lines = Lines(tmp_path / "runs" / "test-emoji-1-VCSD" / KEYS)
    for step, at_step in ((1, 100.0), (2, 100.0), (3, right)):
        own = {"step": step, "suite": "count", "responses": 8, "right": at_step, "keys": 8}
        lines.append(own | {"key": {"argmax_changed": 0.5, "kl_target_original": 0.1}})
    rows = [line for line in page(LISTED, tmp_path).splitlines() if line.startswith("| test-emoji-1-")]
    assert rows[0] == f"| test-emoji-1-VCSD | 41.0 | 0.500 | 0.500 | 0.100 | 0.100 | 3 | - | {said} |"
    assert rows[1].endswith("| 3 | - | - |"), "alpha 0 does not break counting"
    (tmp_path / "cells" / "test-emoji-1-base.json").unlink()
    rows = [line for line in page(LISTED, tmp_path).splitlines() if line.startswith("| test-emoji-1-")]
    assert rows[0].endswith("| 3 | - | no base |")


def test_files_that_are_not_of_the_list_are_counted_and_named(tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "dev-emoji-1-base.json").write_text(json.dumps({"list": "other", "scores": scores(1.0)}))
    (tmp_path / "cells" / "dev-emoji-9-base.json").write_text(json.dumps({"list": LISTED.digest}))
    text = page(LISTED, tmp_path)
    assert "0 of 31 planned runs" in text
    assert text.endswith("2 result files are of another list of runs and count nowhere on this page:\n\n"
                         "- dev-emoji-1-base.json\n- dev-emoji-9-base.json\n")  # fmt: skip


def test_the_committed_page_is_what_its_command_writes():
    path, folder = RESULTS / "language.md", RESULTS / "language"
    assert path.is_file() == any(folder.glob("cells/*.json")), "results and their page are committed together"
    if path.is_file():
        assert path.read_text(encoding="utf-8") == page(LISTED, folder)


def test_words_that_begin_with_the_same_token_count_as_one():
    one, two, other = KEY_WORDS["name"][:3]
    cases = [_Case(None, None, (9, token), key) for token, key in ((4, one), (4, two), (5, other))]
    log_p = torch.log_softmax(torch.tensor([[0.0] * 4 + [9.0, 0.0]] * 2 + [[0.0] * 4 + [0.0, 9.0]]), -1)
    measured = _summary("name", cases, log_p, log_p, METHODS["vcsd"].objective((0,)))
    assert (measured["original"], measured["control"], measured["target"]) == (100.0, 100.0, 100.0)
    assert measured["control_says"] == {f"{one}/{two}": 2, other: 1}
