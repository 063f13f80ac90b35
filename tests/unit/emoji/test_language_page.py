"""The page of the study: its verdict, whether monitors saw broken counting in time, and what is left out."""

import json
import math
import random
import re
import sys
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch
from PIL import Image

from vcsd.emoji.questions import KEY_WORDS, SUITES, draw_question
from vcsd.emoji.study import language_page
from vcsd.emoji.study.key_contrast import _Case, _summary
from vcsd.emoji.study.key_monitor import KEYS
from vcsd.emoji.study.language_page import page
from vcsd.emoji.study.sections.language_tables import could_be_kept_within
from vcsd.emoji.study.settle import GATES, Counted, seen_in_time, study_verdict
from vcsd.emoji.study.study_list import read_study
from vcsd.errors import ConfigError
from vcsd.method import METHODS
from vcsd.monitor.lines import Lines
from vcsd.reproduce.paired_runs import paired

RESULTS = Path(__file__).parents[3] / "docs" / "results"
LISTED = read_study(RESULTS / "language_runs.json")


def scores(unusual, count=95.0):
    right = dict.fromkeys(SUITES, 95.0) | {"unusual_prompted": unusual, "unusual_unprompted": unusual, "count": count}
    marks = {suite: "1" * round(2 * value) + "0" * round(200 - 2 * value) for suite, value in right.items()}
    return {suite: {"right": value, "marks": marks[suite]} for suite, value in right.items()}


def loses(points):
    """The counting of a run that loses so many points against its base."""
    return {"right": 95.0 - points, "marks": scores(0.0)["count"]["marks"]}


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
        ([(True, "success")] * 5, "succeeds"),
        ([(True, "success")] * 4 + [(True, "breaks count")], "is undecided"),
        ([(True, "success")] * 3 + [(True, "breaks count")] * 2, "fails"),
    ],
)
def test_the_study_is_judged_as_promised(bases, said):
    assert study_verdict(bases) == said


def counted(*rights):
    return [Counted(step, 8, right) for step, right in enumerate(rights, start=1)]


def test_an_alarm_is_in_time_if_fewer_than_ten_points_are_lost_around_it():
    run = counted(*[100.0] * 20, *[40.0] * 20)
    assert seen_in_time(run, [14]) is True
    assert seen_in_time(run, [16]) is True  # 10 steps with 100, one with 40: 5.5 points
    assert seen_in_time(run, [17]) is False  # 10.9 points
    assert seen_in_time(run, [30, 14]) is True
    assert seen_in_time(run, []) is False


def test_one_bad_step_does_not_make_an_alarm_late():
    assert seen_in_time(counted(*[100.0] * 14, 0.0, *[100.0] * 10), [15]) is True


def test_without_counting_questions_around_an_alarm_nothing_is_known():
    run = [Counted(2, 8, 100.0), Counted(9, 24, 80.0), Counted(20, 8, 80.0), Counted(40, 8, 40.0)]  # first: 85
    assert seen_in_time(run, [25]) is True
    assert seen_in_time(run, [30]) is None
    assert seen_in_time(run, [40]) is False
    assert seen_in_time(run[2:], [25]) is None


def write_results(out, vcsd, slow=None):
    """Write made-up results of all runs; at the lowest rate VCSD has the results `slow` on dev."""
    (out / "cells").mkdir()
    own = {"VCSD": vcsd, "alpha 0": scores(21.0), "sharpened 2": scores(22.0), "OPSD": scores(60.0, count=60.0)}
    numbers = {"original": 99.0, "control": 25.0, "target": 60.0, "control_says": {"two": 9}, "pushed": {"two": -1.5}}
    for run in LISTED.runs:
        mine = own.get(run.variant, scores(20.0))
        if slow is not None and run.variant == "VCSD" and run.setting is not None and run.setting.rate == "5e-6":
            mine = slow
        result = {"list": LISTED.digest, "scores": mine, "base_weights": run.base}
        if run.variant != "contrast decoding":
            result["key_contrast"] = {"count": numbers, "presence": numbers}
        if run.trains:
            result["alarms"] = {"run": {"warn": 12, "stop": None}, "count": {"warn": None, "stop": None}}
            result |= {"measured": "bfloat16", "unrounded_at": {"30": scores(66.0)}}
        if run.stage == "dev" and run.trains:
            result["scores_at"] = {str(steps): mine for steps in LISTED.steps}
        (out / "cells" / f"{run.name}.json").write_text(json.dumps(result))


@pytest.mark.parametrize(("vcsd", "said"), [(scores(40.0), "succeeds"), (scores(40.0, count=41.0), "fails")])
def test_the_verdict_of_the_study_comes_first(tmp_path, vcsd, said):
    write_results(tmp_path, vcsd)
    text = page(LISTED, tmp_path)
    assert "43 of 43 planned runs are finished." in text
    assert text.index(f"**The study {said}.**") < text.index("## Base by base")
    assert ("does not help this kind of model" in text) == (said == "fails")
    assert max(map(len, [line for line in text.splitlines() if not line.startswith("|")])) <= 120


def test_what_a_success_may_hide_is_said_beside_it(tmp_path):
    """Twelve gates that each lose 2.5 points on every base break none, but they are not shown to be kept."""
    vcsd = scores(40.0)
    for suite in GATES:
        vcsd[suite] = scores(40.0)[suite] | {"right": 92.5}
    write_results(tmp_path, vcsd)
    for base, loss in (("emoji-1", 2.9), ("emoji-2", 0.1)):
        path = tmp_path / "cells" / f"test-{base}-VCSD.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": vcsd | {"count": loses(loss)}}))
    text = " ".join(page(LISTED, tmp_path).split())
    assert "**The study succeeds.**" in text
    assert "- VCSD breaks at least one gate on 0 of 5 bases. - Of 12 gates, 11 are shown to be kept" in text
    assert "0 to be lost (below), and 1 undecided" in text
    assert "VCSD minus contrast decoding, which needs no training, is +20.00 ± 0.00 (p < 0.001) on unusual" in text
    assert "12 of VCSD, 6 of alpha 0, 6 of sharpened 2" in text


def test_a_loss_is_excluded_in_80_percent_of_cases_by_one_end_of_the_interval():
    """Not by both, as two methods that are called alike would need: that needs a loss of 3.7 standard errors."""
    bases = {("a", 0): -2.0, ("b", 0): 2.0, ("c", 0): 0.0, ("d", 0): 1.0, ("e", 0): -1.0}
    change = paired(dict.fromkeys(bases, 0.0), bases)
    dice = random.Random(7)
    drawn = [[dice.gauss(0, change.difference.sd) for _ in bases] for _ in range(4000)]
    lower = [mean(each) - 2.132 * stdev(each) / math.sqrt(5) for each in drawn]
    assert mean(end > -could_be_kept_within(change) for end in lower) == pytest.approx(0.8, abs=0.02)
    assert change.alike_within == pytest.approx(3.665 * change.error, rel=1e-3)


def test_training_that_adds_nothing_to_contrast_decoding_is_said(tmp_path):
    write_results(tmp_path, scores(23.0))
    assert "so training adds less than a gain that counts" in " ".join(page(LISTED, tmp_path).split())


def test_the_page_says_how_its_runs_were_made(tmp_path):
    write_results(tmp_path, scores(40.0))
    text = " ".join(page(LISTED, tmp_path).split())
    assert f"List {LISTED.digest}, on a machine that no result names" in text
    assert "emoji-1 21, emoji-2 22" in text
    assert "settling on emoji-1 with 11" in text


def test_before_all_runs_are_finished_the_page_says_how_many_are_and_nothing_else(tmp_path):
    (empty := tmp_path / "empty").mkdir()
    assert "0 of 43 planned runs are finished." in page(LISTED, empty)
    write_results(tmp_path, scores(40.0))
    (tmp_path / "cells" / "test-emoji-3-OPSD.json").unlink()
    _, question, *rest = page(LISTED, tmp_path).rstrip().split("\n\n")
    assert question.startswith("**Question:** Does VCSD help")
    assert rest == ["42 of 43 planned runs are finished.\nNothing else is shown before all of them are."]


def test_the_page_also_says_what_the_bases_planned_first_come_to(tmp_path):
    write_results(tmp_path, scores(40.0))
    for base in ("emoji-4", "emoji-5"):
        path = tmp_path / "cells" / f"test-{base}-VCSD.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": scores(40.0, count=41.0)}))
    text = page(LISTED, tmp_path)
    assert "**The study fails.**" in text
    assert "By the same rule for the 3 bases that were planned first, it succeeds.\nThat only describes them" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| count | -2")]
    assert row.startswith("| count | -21.60 ± ")
    assert row.endswith("| emoji-4, emoji-5 |")


def test_the_picture_is_drawn_beside_the_page_when_all_runs_are_finished(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    path = tmp_path / "page" / "language.md"
    path.parent.mkdir()
    command = ["language_page", str(RESULTS / "language_runs.json"), "--out", str(tmp_path), "--page", str(path)]
    monkeypatch.setattr(sys, "argv", command)
    language_page.main()
    assert [each.name for each in path.parent.iterdir()] == ["language.md"], "nothing is shown before the end"
    write_results(tmp_path, scores(40.0))
    language_page.main()
    assert "](language.png)" in path.read_text()
    with Image.open(path.with_name("language.png")) as image:
        assert min(image.size) > 300


def test_results_of_two_bases_under_one_name_are_refused(tmp_path):
    write_results(tmp_path, scores(40.0))
    path = tmp_path / "cells" / "test-emoji-2-OPSD.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_weights": "other"}))
    with pytest.raises(ConfigError, match="the results of emoji-2 come from different weights"):
        page(LISTED, tmp_path)


def test_the_page_says_what_was_settled_for_each_method(tmp_path):
    write_results(tmp_path, scores(40.0, count=41.0), slow=scores(30.0))
    text = page(LISTED, tmp_path)
    assert "- VCSD: rate 5e-6, beta 0.1, 30 steps, which passes all gates." in text
    assert "| VCSD | 2e-5 | 0.01 | 60 | 40.0 | 54.0 | count |" in text
    assert "- sharpened 2: rate 5e-6, beta 0.1, 30 steps, which passes all gates." in text


def test_differences_have_intervals_by_base_and_over_bases(tmp_path):
    write_results(tmp_path, scores(40.0))
    (row,) = [line for line in page(LISTED, tmp_path).splitlines() if line.startswith("| sharpened 2 | +")]
    assert row.startswith("| sharpened 2 | " + 5 * "+18.0 +- 3.8 | " + "+18.00")


@pytest.mark.parametrize(("right", "said"), [(95.0, "yes"), (80.0, "no")])
def test_the_page_says_why_counting_broke_and_whether_it_was_seen_in_time(tmp_path, right, said):
    write_results(tmp_path, scores(40.0, count=41.0))
    lines = Lines(tmp_path / "runs" / "test-emoji-1-VCSD" / KEYS)
    for step, at_step in ((1, 100.0), (2, 100.0), (12, right)):
        own = {"step": step, "suite": "count", "responses": 8, "right": at_step, "keys": 8}
        lines.append(own | {"key": {"argmax_changed": 0.5, "kl_target_original": 0.1}})
    text = page(LISTED, tmp_path)
    rows = [line for line in text.splitlines() if line.startswith("| test-emoji-1-")]
    assert rows[0] == f"| test-emoji-1-VCSD | 41.0 | 0.500 | 0.500 | 0.100 | 0.100 | 12 | - | contrast | {said} |"
    assert rows[1].endswith("| 12 | - | - | - |"), "alpha 0 does not break counting"
    assert rows[3].endswith("| 12 | - | training | unknown |"), "OPSD has no contrast"
    assert "| test-emoji-1-base | 99.0 | 25.0 | 60.0 | two 9 | two -1.50 |" in text


def test_files_that_are_not_of_the_list_are_counted_and_named(tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "dev-emoji-1-base.json").write_text(json.dumps({"list": "other", "scores": scores(1.0)}))
    (tmp_path / "cells" / "dev-emoji-9-base.json").write_text(json.dumps({"list": LISTED.digest}))
    text = page(LISTED, tmp_path)
    assert "0 of 43 planned runs" in text
    assert text.endswith("2 result files are of another list of runs and count nowhere on this page:\n\n"
                         "- dev-emoji-1-base.json\n- dev-emoji-9-base.json\n")  # fmt: skip


@pytest.mark.parametrize("study", ["language", "language_exported"])
def test_the_committed_page_is_what_its_command_writes(study):
    path, folder = RESULTS / f"{study}.md", RESULTS / study
    assert path.is_file() == any(folder.glob("**/cells/*.json")), "results and their page are committed together"
    if path.is_file():
        assert path.read_text(encoding="utf-8") == page(read_study(RESULTS / f"{study}_runs.json"), folder, study)


def test_the_page_shows_what_training_sampled_beside_the_exam(tmp_path):
    write_results(tmp_path, scores(40.0))
    for base, first, last in (("emoji-1", 20.0, 30.0), ("emoji-2", 30.0, 50.0)):
        lines = Lines(tmp_path / "runs" / f"test-{base}-VCSD" / KEYS)
        for step, num, right in ((1, 8, first), (3, 8, 99.0), (20, 8, 99.0), (21, 24, last), (30, 8, last + 20.0)):
            own = {"step": step, "suite": "unusual_prompted", "responses": num, "right": right, "keys": num}
            lines.append(own | {"key": {}})
    text = page(LISTED, tmp_path)
    (row,) = [line for line in text.splitlines() if line.startswith("| unusual_prompted | 25.0")]
    assert row == "| unusual_prompted | 25.0 | 20.0 | 45.0 | 40.0 | - | 21.0 | - | 22.0 | - | 60.0 |"
    assert "| unusual_prompted | 40.0 | 66.0 | 21.0 | 66.0 | 22.0 | 66.0 | 60.0 | 66.0 |" in text


def test_the_page_says_so_if_the_exam_measured_other_weights_than_training_used(tmp_path):
    write_results(tmp_path, scores(40.0))
    assert "Found after the look: the exam" not in page(LISTED, tmp_path)
    rounded = page(LISTED, tmp_path)
    assert "All scores are of weights rounded to bfloat16" in rounded
    assert rounded.index("**Found after the look: on questions about presence") < rounded.index(
        "What the verdict may hide"
    )
    path = tmp_path / "cells" / "test-emoji-2-VCSD.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in result.items() if key != "measured"}))
    text = page(LISTED, tmp_path)
    assert text.index("**Found after the look: the exam measured other weights") < text.index("## Base by base")
    with pytest.raises(ConfigError, match="exams without rounding"):
        page(LISTED, tmp_path, "language_exported")


def test_presence_is_shown_by_its_true_answer(tmp_path):
    """One who always says "yes" is right in half of all cases: all of one half, none of the other."""
    write_results(tmp_path, scores(40.0))
    keys = [draw_question("test", "presence", number).key for number in range(200)]
    always_yes = scores(40.0) | {"presence": {"right": 50.0, "marks": "".join("01"[key == "yes"] for key in keys)}}
    path = tmp_path / "cells" / "test-emoji-2-OPSD.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": always_yes}))
    rows = page(LISTED, tmp_path).split("## Presence, by the true answer")[1].splitlines()
    assert rows[5].split(" | ")[-2:] == ["OPSD", "OPSD, unrounded |"]
    assert rows[8].startswith("| emoji-2 | ")
    assert rows[8].split(" | ")[-2] == "100.0 / 0.0"
    assert "- OPSD: broken on emoji-2." in rows
    assert "- VCSD: broken on none." in rows
    assert "- VCSD on `dev`: broken by 0 of 12 settings." in rows
    (over_bases,) = [row for row in rows if row.startswith("Over bases, on these questions: ")]
    assert re.search(r"VCSD minus base \+0\.00 .*, VCSD minus OPSD \+1[89]\.\d\d ± ", over_bases)


def test_settings_that_lean_towards_yes_on_dev_are_counted(tmp_path):
    keys = [draw_question("dev", "presence", number).key for number in range(200)]
    always_yes = scores(40.0) | {"presence": {"right": 50.0, "marks": "".join("01"[key == "yes"] for key in keys)}}
    write_results(tmp_path, scores(40.0), slow=always_yes)
    text = " ".join(page(LISTED, tmp_path).split())
    assert "On `dev`, 4 of 12 settings of VCSD break it. " in text, "the settled one is not among them"
    assert "- VCSD on `dev`: broken by 4 of 12 settings." in text


def test_a_lean_towards_yes_that_the_mean_hides_is_said_beside_the_verdict(tmp_path):
    """Ten answers "no" are lost and ten answers "yes" are won: presence keeps its score."""
    base, vcsd = scores(20.0), scores(40.0)
    true = [draw_question("test", "presence", number).key for number in range(200)]
    seen = {"yes": 0, "no": 0}
    marks = {"base": "", "VCSD": ""}
    for key in true:
        seen[key] += 1
        marks["base"] += "01"[key == "no" or seen[key] > 10]
        marks["VCSD"] += "01"[key == "yes" or seen[key] > 10]
    assert marks["base"].count("1") == marks["VCSD"].count("1") == 190
    write_results(tmp_path, vcsd)
    for name, own, right in (("base", base, marks["base"]), ("VCSD", vcsd, marks["VCSD"])):
        for number in (2, 4, 5):
            path = tmp_path / "cells" / f"test-emoji-{number}-{name}.json"
            changed = own | {"presence": {"right": 95.0, "marks": right}}
            path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": changed}))
    text = " ".join(page(LISTED, tmp_path).split())
    assert "**The study succeeds.**" in text
    assert "VCSD breaks the gate on 3 of 5 bases; judged by these alone, the study fails.**" in text


def test_losses_come_before_gains(tmp_path):
    write_results(tmp_path, scores(40.0))
    path = tmp_path / "cells" / "test-emoji-4-VCSD.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": scores(40.0, count=41.0)}))
    text = page(LISTED, tmp_path)
    assert text.index("- emoji-4: **breaks count**.") < text.index("- emoji-1: **success**.")
    assert text.index("VCSD minus the base, on every other suite") < text.index("## VCSD minus the others")
    assert "VCSD minus OPSD, which sees the answers, is -20.00 " in text.split("## ")[0]
    rows = text.split("## VCSD minus the others")[1].splitlines()
    assert [row.split(" | ")[0] for row in rows[10:15]] == [
        "| OPSD",
        "| sharpened 2",
        "| alpha 0",
        "| base",
        "| contrast decoding",
    ]


def test_the_largest_loss_that_breaks_nothing_is_named(tmp_path):
    write_results(tmp_path, scores(40.0))
    assert "No other gate loses anything." in " ".join(page(LISTED, tmp_path).split())
    path = tmp_path / "cells" / "test-emoji-4-VCSD.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": scores(40.0) | {"count": loses(2.7)}}))
    text = " ".join(page(LISTED, tmp_path).split())
    assert "The largest loss that breaks no gate is 2.7 points of count on emoji-4; 3 are allowed." in text


def test_the_target_of_the_base_is_shown_beside_decoding_and_training(tmp_path):
    write_results(tmp_path, scores(40.0))
    assert "in the target, before training" not in page(LISTED, tmp_path)
    for number, targets in ((1, (30.0, 20.0)), (2, (50.0, 40.0))):
        path = tmp_path / "cells" / f"test-emoji-{number}-base.json"
        result = json.loads(path.read_text())
        for suite, target in zip(("unusual_prompted", "unusual_unprompted"), targets, strict=True):
            result["key_contrast"][suite] = {"target": target, "num": 100}
        path.write_text(json.dumps(result))
    rows = page(LISTED, tmp_path).split("## Unusual colours in the target, before training")[1].splitlines()
    assert rows[9] == "| emoji-1 | 40.0 | 40.0 | 25.0 | 80.0 |", "the first 100 of 200 marks"
    assert rows[10] == "| emoji-2 | 40.0 | 40.0 | 45.0 | 80.0 |"
    assert rows[12].startswith("VCSD minus the target: +45.00 ")


def test_a_setting_at_the_edge_of_the_grid_is_named(tmp_path):
    write_results(tmp_path, scores(40.0), slow=scores(30.0))
    text = page(LISTED, tmp_path)
    assert "- VCSD: rate 1e-5, beta 0.1, 30 steps, which passes all gates.\n" in text
    for path in (tmp_path / "cells").glob("dev-emoji-1-VCSD-*.json"):
        result = json.loads(path.read_text())
        if "lr_2e-5-beta_0.1" in path.name:
            result["scores_at"]["60"] = scores(50.0)
        path.write_text(json.dumps(result))
    edge = "This is the edge of the grid: nothing beyond it was tried."
    text = " ".join(page(LISTED, tmp_path).split())
    assert f"- VCSD: rate 2e-5, beta 0.1, 60 steps, which passes all gates. {edge}" in text
    mildest = "This is the lowest rate and the fewest steps of the grid: nothing milder was tried."
    assert f"- alpha 0: rate 5e-6, beta 0.1, 30 steps, which passes all gates. {mildest}" in text


def test_both_studies_have_the_same_plan_with_other_bases_and_seeds():
    other = read_study(RESULTS / "language_exported_runs.json")
    assert len(other.runs) == len(LISTED.runs)
    assert (other.language, other.tokenizer, other.sprites) == (LISTED.language, LISTED.tokenizer, LISTED.sprites)
    assert (other.steps, other.num_questions, other.num_prompts) == ((30, 60), 256, 1920)
    plans = [[(run.stage, run.variant, run.setting) for run in study.runs] for study in (LISTED, other)]
    assert plans[0] == plans[1]
    for used in ("base", "seed"):
        assert not {getattr(run, used) for run in LISTED.runs} & {getattr(run, used) for run in other.runs}
    assert not {plan.seed for plan in LISTED.bases.values()} & {plan.seed for plan in other.bases.values()}


def test_words_that_begin_with_the_same_token_count_as_one():
    one, two, other = KEY_WORDS["name"][:3]
    cases = [_Case(None, None, (9, token), key) for token, key in ((4, one), (4, two), (5, other))]
    log_p = torch.log_softmax(torch.tensor([[0.0] * 4 + [9.0, 0.0]] * 2 + [[0.0] * 4 + [0.0, 9.0]]), -1)
    measured = _summary("name", cases, log_p, log_p, METHODS["vcsd"].objective((0,)))
    assert (measured["original"], measured["control"], measured["target"]) == (100.0, 100.0, 100.0)
    assert measured["control_says"] == {f"{one}/{two}": 2, other: 1}
