"""The pages of the failure list and of the power list: closed until they may be read, then failures first."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from vcsd.errors import ConfigError
from vcsd.reproduce.abilities.measure_abilities import NUM_KEPT, ability_examples
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, OPSD, VCSD
from vcsd.reproduce.failures.failure_pictures import broken_answers, draw_failures, shortened
from vcsd.reproduce.failures.failure_runs import ENDED_LISTS, FAILURE_LIST, POWER_LIST, ReadOnce, read_once
from vcsd.reproduce.failures.failure_settings import ORDINARY_SETTING, SETTINGS
from vcsd.reproduce.failures.failures_page import PAGE, PICTURE, change_of, draw_kept, failures_page
from vcsd.reproduce.failures.power_page import PAGE as POWER_PAGE
from vcsd.reproduce.failures.power_page import changes, draw_more_bases, power_page, says, without_lost
from vcsd.reproduce.failures.worst_results import _failures, worst_results
from vcsd.reproduce.pages.from_files import RecordedBase, planned_bases, recorded_results
from vcsd.reproduce.planned.planned_results import PlannedResults
from vcsd.reproduce.planned.run_list import SHIPPED, read_run_list
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.kinds import KINDS

RESULTS = Path(__file__).parents[4] / "docs" / "results"
GAINS = {
    "VCSD": 30.0,
    "OPSD": 15.0,
    "VCSD, told prompts": 0.1,
    "VCSD, color prompts": 5.0,
    "VCSD, 300 steps": 27.0,
    "VCSD, long answers": 0.2,
    "VCSD, usual prompts": 2.0,
}
NOISE = (0.0, 0.3, -0.2, 0.1, -0.1, 0.2)


def abilities(level, *, answers):
    """Made-up abilities: nothing here was measured."""
    return {
        **{"num_questions": NUM_KEPT * len(KINDS), "right": level, "kinds": dict.fromkeys(KINDS, level)},
        **{"sight": {"3": 99.0}, "hint": 99.0, "text_only": 99.0 if level < 60 else 80.0 + level / 100, "black": 30.0},
        **{"black_same": 60.0, "usual": dict.fromkeys(KINDS, level), "pass_at": {"1": level, "8": 97.0}},
        **{"distinct": 2.0, "entropy": 1.0, "ece": 10.0, "confidence_right": 60.0, "confidence_wrong": None},
        "unread": {"right": level / 10, "hint": 1.0, "text_only": 2.0, "black": 3.0, "usual": 0.0, "sampled": 0.0},
        "answers": answers,
    }


def made_up(name, without=(), closed_because=None):
    """A result for every run of a list."""
    listed = read_run_list(RESULTS / name)
    examples = ability_examples(NUM_KEPT, "test", PARAMETERS)
    texts = [f"The answer is {example.answer}." for example in examples]
    right = {kind: texts[k * NUM_KEPT : (k + 1) * NUM_KEPT] for k, kind in enumerate(KINDS)}
    wrong = {**right, "color": ["The answer is nothing."] * NUM_KEPT}
    found = {}
    for run in listed.runs:
        gain = GAINS.get(run.variant.name, 0.0)
        if run.base.endswith("-blurred") and gain:
            gain = -5.0
        acc = 50.0 + gain + (NOISE[run.seed % 10 - 1] if gain else 0.0)
        found[run] = {
            **{"acc": acc, "scores": dict.fromkeys(SEVEN, acc), "seconds": 10.0, "hardware": "made up"},
            **{"group": "made up", "abilities": abilities(acc, answers=wrong if gain else right)},
            "guard": {"warn": None, "stop": None, "acc_at_stop": None},
        }
        if run.variant.name in without or run.base in without:
            found[run] = None
    recorded = {base: RecordedBase(Path(base), "Qwen3-VL 3.2M", "0") for base in listed.bases}
    on_bases = PlannedResults(listed, RESULTS, recorded, {r: each for r, each in found.items() if r.base in recorded})
    shipped = {run: each for run, each in found.items() if run.base.startswith(SHIPPED)}
    return ReadOnce(name, on_bases, shipped, closed_because)


def test_the_committed_pages_are_what_the_files_give():
    assert failures_page(read_once(RESULTS, FAILURE_LIST)) == (RESULTS / PAGE).read_text(encoding="utf-8")
    earlier = recorded_results(RESULTS, planned_bases(RESULTS))
    page = power_page(read_once(RESULTS, POWER_LIST), earlier)
    assert page == (RESULTS / POWER_PAGE).read_text(encoding="utf-8")


def test_nothing_is_shown_before_the_last_run():
    runs = made_up(FAILURE_LIST, without=("VCSD, 600 steps",))
    page = failures_page(runs)
    assert f"**{runs.num_listed - 1} of {runs.num_listed} runs are finished.** Their results are read once" in page
    assert "fails" not in page.split("\n", 1)[1].replace("preregistration_failures", "")
    assert "+30" not in page
    assert draw_failures(runs) is None
    assert "agrees" not in power_page(made_up(POWER_LIST, without=("qwen3_5-small-26",)), None)


def test_a_list_whose_time_is_over_is_read_and_names_what_is_missing():
    page = failures_page(made_up(FAILURE_LIST, ("VCSD, 600 steps", "VCSD, long answers"), "The time is spent."))
    assert "No more will be made: The time is spent." in page
    assert "- Versions of the reader: not recorded (60 runs)" in page
    assert "Missing: VCSD, 600 steps (shipped:qwen3_vl); VCSD, long answers (qwen3_vl-small-21-reasons" in page
    assert "## Long answers: what it keeps\n\nNo base has both results." in page


def test_failures_come_first_and_the_rules_are_applied():
    page = failures_page(made_up(FAILURE_LIST))
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and " | Acc | " in line]
    words = {row[0].removeprefix("| ").partition(":")[0]: row[-1].removesuffix(" |") for row in rows}
    assert words["cannot see"] == "**fails: harm**"
    assert words["300 steps"] == "**fails: harm**"
    assert words["needs no picture"] == words["long answers"] == "**fails: no gain**"
    order = [page.index(f"| {name}: ") for name in ("cannot see", "needs no picture", "other questions")]
    assert order == sorted(order)
    row = next(line for line in page.splitlines() if line.startswith("| other questions"))
    assert row.endswith("| +5.0 | +0.5 | +4.8 to +5.3 | 0.3 | 5 | a gain, smaller than for the 5 kinds | works |")


def test_every_judged_difference_says_what_its_bases_could_show():
    runs = made_up(FAILURE_LIST)
    page = failures_page(runs)
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    settings = {row[0].removeprefix("| ").partition(":")[0]: row[7] for row in rows if len(row) == 11}
    assert settings.pop("setting") == "could show"
    assert settings == {each.name: f"{change_of(runs, each).detectable:.1f}" for each in SETTINGS}
    kept = page.partition("## Ordinary: what it keeps")[2].partition("## ")[0].splitlines()
    shown = {line.split(" | ")[0]: line.split(" | ")[6] for line in kept if line.startswith("| ")}
    assert shown["| ability"] == "could show"
    assert float(shown["| usual pictures"]) > 0
    assert shown["| right under black"] == "", "it is described, not judged"


def test_what_was_expected_is_in_the_rules():
    rules = (RESULTS.parent / "preregistration_failures.md").read_text(encoding="utf-8").splitlines()
    for setting in SETTINGS:
        row = next(line for line in rules if line.startswith(f"| {setting.name} |"))
        assert row.endswith(f"| {setting.expected} |")


def test_a_lost_ability_is_called_lost_and_a_kept_one_kept():
    ordinary = failures_page(made_up(FAILURE_LIST)).partition("## Ordinary")[2]
    text_only, sight = (
        next(line for line in ordinary.splitlines() if line.startswith(f"| {name} |"))
        for name in ("text only", "sight")
    )
    assert text_only.startswith("| text only | 99.0 | 80.8 | -18.2 |")
    assert text_only.endswith("| **lost** |")
    assert sight.endswith("| kept |")


def test_what_is_lost_is_said_before_the_verdicts():
    runs = made_up(FAILURE_LIST)
    page = failures_page(runs)
    assert page.index("**Abilities lost by the rules, in points: text only -18.20 (95%") < page.index("| setting |")
    assert re.match(r"text only -18\.20 \(.*?\), after ordinary training", _failures(runs).came_out)


def test_single_bases_and_kinds_of_questions_are_shown():
    runs = made_up(FAILURE_LIST)
    details = failures_page(runs).partition("## What the averages hide")[2]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in details.splitlines() if line.startswith("| ")}
    assert rows["ordinary, Acc"] == "| ordinary, Acc | +30.0 | +30.3 | +29.8 | +30.1 | +29.9 |"
    assert rows["count"].startswith("| count | +30.0 | **-5.0** | +0.1 | +5.0 |")  # ordinary, cannot see, ...
    losses = [line for line in details.splitlines() if " | qwen3_vl-small-" in line]
    assert losses[0] == "| ordinary | text only | qwen3_vl-small-23 | 99.0 | 80.8 | -18.2 | +29.8 (Acc) |"


def test_every_difference_has_the_change_in_unread_answers_or_says_that_it_is_not_recorded():
    runs = made_up(FAILURE_LIST)
    page = failures_page(runs)
    row = next(line for line in page.splitlines() if line.startswith("| 300 steps"))
    assert "| not recorded |" in row  # of the exam, whose unread answers these results lack
    assert "For `other questions` and `prior mostly right`, unread answers are counted over all kinds" in page
    kept = page.partition("## Other questions")[2].partition("## ")[0].splitlines()
    cells = {line.split(" | ")[0]: line.split(" | ")[4] for line in kept if line.startswith("| ")}
    assert (cells["| hints"], cells["| pass@8"], cells["| sight"]) == ("+0.0", "+0.0", "")
    for result in runs.runs._results.values():
        del result["abilities"]["unread"]
        result |= {"unresolved": 12 if result["acc"] < 60 else 2, "num_questions": 1000}
    page = failures_page(runs)
    row = next(line for line in page.splitlines() if line.startswith("| cannot see"))
    assert row.split(" | ")[5] == "+0.0"
    kept = page.partition("## Other questions")[2].partition("## ")[0].splitlines()
    assert next(line for line in kept if line.startswith("| hints")).split(" | ")[4] == "not recorded"


def test_a_page_without_broken_answers_names_no_picture():
    runs = made_up(FAILURE_LIST)
    assert f"]({PICTURE})" in failures_page(runs)
    for result in runs.runs._results.values():
        result["abilities"] = {**result["abilities"], "answers": {kind: [""] * NUM_KEPT for kind in KINDS}}
    assert f"]({PICTURE})" not in failures_page(runs)
    assert draw_failures(runs) is None


def test_four_bases_decide_nothing():
    runs = made_up(FAILURE_LIST, without=("qwen3_vl-small-25-blurred",), closed_because="Over.")
    assert change_of(runs, SETTINGS[0]).num_bases == 4
    row = next(line for line in failures_page(runs).splitlines() if line.startswith("| cannot see"))
    assert row.endswith("| 4 | no gain | undecided |")


def test_the_picture_shows_what_was_right_before_and_is_wrong_after():
    runs = made_up(FAILURE_LIST)
    before, after = runs.finished(SETTINGS[0])
    run = next(iter(before))
    broken = list(broken_answers(before[run]["abilities"], after[run]["abilities"], PARAMETERS))
    assert len(broken) == NUM_KEPT
    assert {each.example.category for each in broken} == {"color"}
    assert broken[0].before == f"The answer is {broken[0].example.answer}."
    assert draw_failures(runs) is not None


def test_the_page_counts_broken_answers_whose_description_stays_the_same():
    runs = made_up(FAILURE_LIST)
    num = 5 * NUM_KEPT  # on each of five bases, the answers to one kind of question break
    assert f"in {num} of {num} (`ordinary`), " in failures_page(runs)
    _, after = runs.finished(ORDINARY_SETTING)
    own = next(iter(after.values()))["abilities"]
    own["answers"] = {**own["answers"], "color": [f"It is. {text}" for text in own["answers"]["color"]]}
    assert f"in {num - NUM_KEPT} of {num} (`ordinary`), " in failures_page(runs)


def test_pictures_of_differences_have_a_row_for_each_and_no_line_between_them():
    left, right = draw_kept(made_up(FAILURE_LIST)).axes
    assert len(left.containers) == len(SETTINGS)
    assert [label.get_text() for label in right.get_yticklabels()] == [
        f"{name} (5)" for name in ("sight", "hints", "text only", "usual pictures", "pass@8")
    ]
    (axis,) = draw_more_bases(made_up(POWER_LIST)).axes
    assert len(axis.containers) == 4
    rows = [line for each in (left, right, axis) for line in each.lines if len(line.get_ydata()) > 1]
    assert all(len(set(line.get_ydata())) == 1 or set(line.get_xdata()) == {0} for line in rows)
    assert draw_kept(made_up(FAILURE_LIST, without=("VCSD, 600 steps",))) is None
    assert draw_more_bases(made_up(POWER_LIST, without=("qwen3_5-small-26",))) is None


def test_a_long_answer_is_cut_at_a_word_and_an_ellipsis_marks_it():
    text = "blue triangle " * 20 + "so the answer is A."
    assert text[-130:].startswith("lue triangle"), "the test sees nothing otherwise"
    assert shortened(text).startswith("… triangle blue triangle")
    assert shortened(text).endswith("the answer is A.")
    assert len(shortened(text)) <= 132
    assert shortened("蓝" * 200) == "… " + "蓝" * 130, "a script without spaces is cut anywhere"
    assert shortened(text[-130:]) == text[-130:]


def test_more_bases_are_judged_family_by_family():
    runs = made_up(POWER_LIST)
    over_opsd, over_base = (changes(runs, reference) for reference in (OPSD, BASE))
    assert {family: (change.num_bases, says(change)) for family, change in over_opsd.items()} == {
        "qwen3_vl": (6, "agrees"),
        "qwen3_5": (6, "agrees"),
    }
    assert over_base["qwen3_5"].mean == pytest.approx(30.05)
    worse = replace(over_opsd["qwen3_5"], difference=replace(over_opsd["qwen3_5"].difference, mean=-1.0))
    assert says(worse) == "**disagrees**"
    page = power_page(runs, recorded_results(RESULTS, planned_bases(RESULTS)))
    assert "| Qwen3-VL: VCSD minus OPSD | 6 | +15.00" in page
    assert "no verdict" in page


def test_bases_that_were_made_again_are_named(tmp_path):
    runs = made_up(POWER_LIST, without=("qwen3_5-small-26",))
    runs = replace(runs, runs=replace(runs.runs, out=tmp_path))
    assert "were lost" not in power_page(runs, None)
    (tmp_path / "lost" / "cells").mkdir(parents=True)
    lost = {"base": "qwen3_5-small-23", "variant": "base", "acc": 12.5}
    (tmp_path / "lost" / "cells" / "0.json").write_text(json.dumps(lost))
    page = power_page(runs, None)
    assert "The weights of qwen3_5-small-23 were lost when only `base` had been run on them." in page
    assert "1 result of the first ones is in `lost/cells` and not used." in page
    assert "12.5" not in page


def test_a_verdict_that_rests_on_bases_made_again_says_so_first_and_wherever_it_stands():
    runs = made_up(POWER_LIST)  # of the published results, those of three bases of Qwen3.5 were lost
    assert without_lost(runs, "qwen3_vl", OPSD) is None
    assert says(without_lost(runs, "qwen3_5", OPSD)) == "undecided"
    page = power_page(runs, recorded_results(RESULTS, planned_bases(RESULTS)))
    first = page.index("**Without the bases that were made again, Qwen3.5 has 3, and VCSD minus OPSD is undecided**")
    assert first < page.index("| points of Acc |")
    for reference in ("OPSD", "base"):
        (row,) = re.findall(rf"(?m)^\| Qwen3\.5: VCSD minus {reference} \| 6 .*$", page)
        assert row.endswith("| undecided (with bases made again: agrees) |")
    worst = worst_results(RESULTS)[POWER_PAGE]
    assert worst.came_out.endswith("; only 3 of its 6 bases were not made again")
    assert worst.verdict == "undecided on Qwen3.5, agrees on Qwen3-VL"


def test_bases_that_were_looked_at_twice_are_pooled_without_a_p():
    page = power_page(made_up(POWER_LIST), recorded_results(RESULTS, planned_bases(RESULTS)))
    assert "p " not in page.partition("Old and new bases")[2].partition("## ")[0].replace("no p.", "")


def test_versions_of_the_reader_within_a_base_are_named():
    runs = made_up(POWER_LIST)
    for run in runs.runs.runs:
        runs.runs.result(run)["reader"] = 9 if run.base == "qwen3_5-small-26" else 4
    page = power_page(runs, recorded_results(RESULTS, planned_bases(RESULTS)))
    assert "differs between bases**, but not between the runs of a base" in page
    runs.runs.result(next(run for run in runs.runs.runs if run.base == "qwen3_5-small-26"))["reader"] = 4
    page = power_page(runs, recorded_results(RESULTS, planned_bases(RESULTS)))
    assert "differs between bases**; runs of qwen3_5-small-26 differ, too" in page


def test_an_interval_below_zero_that_the_correction_leaves_undecided_is_named():
    runs = made_up(FAILURE_LIST)
    assert "Undecided after the correction" not in failures_page(runs)
    changed = [result for run, result in runs.runs._results.items() if run.variant.name == "VCSD, told prompts"]
    for loss, result in zip((-1.0, -5.0, -2.0, -9.0, -4.0), changed, strict=True):
        result["abilities"]["text_only"] += loss
    page = failures_page(runs)
    assert re.search(r"text only -4\.20 \(95% -8\.07 to -0\.33[^)]*\), in the setting `needs no picture`", page)
    assert "not corrected" in page


def test_a_family_without_runs_still_counts_in_the_correction():
    whole = made_up(POWER_LIST)
    missing = [name for name, base in whole.runs.listed.bases.items() if base.family != "qwen3_vl"]
    runs = made_up(POWER_LIST, without=missing, closed_because="Over.")
    found = [result for run, result in runs.runs._results.items() if run.variant.name == VCSD.name]
    trained = [result for result in found if result is not None]
    for place, result in enumerate(trained):
        result["acc"] += 15.0 * (place % 3 - 1)  # spread, so that p is not zero
    bases = [name for name in runs.runs.listed.bases if name not in missing]
    plain = runs.runs.change(OPSD.name, VCSD.name, bases)
    assert 0.001 < plain.p < 0.5
    (found,) = changes(runs, OPSD).values()
    assert found.p == pytest.approx(2 * plain.p)


def test_looks_must_name_a_list(tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / FAILURE_LIST).write_bytes((RESULTS / FAILURE_LIST).read_bytes())
    (tmp_path / ENDED_LISTS).write_text(json.dumps({FAILURE_LIST: "Over."}))
    assert read_once(tmp_path, FAILURE_LIST).may_be_read
    (tmp_path / ENDED_LISTS).write_text(json.dumps({"failures": "Over."}))
    with pytest.raises(ConfigError, match=r"must map failure_runs.json or paper_dose_runs.json or power_runs.json"):
        read_once(tmp_path, FAILURE_LIST)


def test_the_lists_promise_what_the_rules_say():
    failures, power = (read_run_list(RESULTS / name) for name in (FAILURE_LIST, POWER_LIST))
    for setting in SETTINGS:
        runs = made_up(FAILURE_LIST)
        before, after = runs.finished(setting)
        assert len(set(before) & set(after)) == 5, f"{setting.name} needs five bases"
    families = [base.family for base in power.bases.values()]
    assert families.count("qwen3_vl") == families.count("qwen3_5") == 6
    assert [run.variant.name for run in power.runs] == ["base", "OPSD", "VCSD"] * 12
    assert len({run.base for run in power.runs[:3]}) == 1, "an interrupted list has whole bases"
    assert all(run.seed == 400 + power.bases[run.base].seed for run in power.runs)
    shared = set(failures.runs) & set(power.runs)
    assert len(shared) == 10, "base and VCSD on five bases are made once"
    assert all(base.stem == f"qwen3_vl-small-{base.seed}" for base in failures.bases.values() if not base.shared)
    assert {base.stem for base in failures.bases.values() if base.shared} == {
        f"qwen3_vl-small-{seed}-blur=32" for seed in range(21, 26)
    }
