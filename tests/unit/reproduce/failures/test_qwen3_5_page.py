"""The page of Qwen3.5: closed until it may be read, judged on whole bases alone, by rules that were written before.

All results here are made up: one difference is moved at a time, and its verdict must turn.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from made_up_results import RESULTS, made_up_runs
from vcsd.errors import ConfigError
from vcsd.inspect.precheck.calibration import base_statistics
from vcsd.reproduce.cell import Cell, full_sweep
from vcsd.reproduce.every_page import page_texts
from vcsd.reproduce.failures.dose_power import CHOSEN_QWEN3_5, power_table_qwen3_5, with_bases
from vcsd.reproduce.failures.failure_runs import ENDED_LISTS, POWER_LIST, read_once
from vcsd.reproduce.failures.power_page import LOST
from vcsd.reproduce.failures.qwen3_5_page import PAGE, draw_qwen3_5, qwen3_5_page
from vcsd.reproduce.failures.worst_results import _claims
from vcsd.reproduce.judged.judged_claims import FEWEST_WHOLE_BASES, ON_QWEN3_5, QWEN3_5_LIST, on_whole_bases
from vcsd.reproduce.pages.from_files import RUN_LISTS, RecordedBase, planned_bases
from vcsd.reproduce.planned.planned_results import AGAIN, planned_results
from vcsd.reproduce.planned.run_list import read_run_list

RULES = RESULTS.parent / "preregistration_qwen3_5.md"
BASES = [f"qwen3_5-small-{seed}" for seed in range(51, 63)]
GAINS = {
    "base": 0.0,
    "VCSD": 20.0,
    "OPSD": 10.0,
    "sharpened 2": 5.0,
    "contrast decoding": 24.0,
    "another picture": 20.3,
    "OPSD beta 0.1": 16.0,
}


def made_up(*, spread=1.0, without=(), closed_because=None, out=RESULTS, **gains):
    points = {**GAINS, **{name.replace("_", " "): gain for name, gain in gains.items()}}
    return made_up_runs(QWEN3_5_LIST, points, spread=spread, without=without, closed_because=closed_because, out=out)


def verdicts(runs):
    changes = ON_QWEN3_5.changes(on_whole_bases(runs.runs))
    return {claim.before: ON_QWEN3_5.verdict(change) for claim, change in changes.items()}


def result_of(runs, base, variant):
    (run,) = [run for run in runs.runs.runs if (run.base, run.variant.name) == (base, variant)]
    return run, runs.runs._results[run]


def test_the_committed_page_is_what_the_files_give():
    assert qwen3_5_page(read_once(RESULTS, QWEN3_5_LIST)) == (RESULTS / PAGE).read_text(encoding="utf-8")


def test_nothing_but_a_count_is_shown_before_the_last_run():
    runs = made_up()
    runs.runs._results[runs.runs.runs[-1]] = None
    page = qwen3_5_page(runs)
    assert "**83 of 84 runs are finished.** Their results are read once, after the last one." in page
    assert page.count("\n## ") == 0
    assert re.search(r"(?<![a-z])[+-]\d", page) is None, "a difference is shown"


def test_every_rule_gives_its_verdict():
    assert verdicts(made_up()) == {
        "base": "agrees",
        "OPSD": "agrees",
        "sharpened 2": "agrees",
        "contrast decoding": "disagrees",
        "OPSD beta 0.1": "agrees",
        "another picture": "disagrees: alike",
    }


@pytest.mark.parametrize("name", [claim.before for claim in ON_QWEN3_5.claims])
def test_every_verdict_turns_with_the_difference(name):
    """Clearly above, clearly below, less than a point apart, and too scattered."""

    def judged(difference, **changes):
        return verdicts(made_up(**changes, **{name: GAINS["VCSD"] - difference}))[name]

    assert judged(+3.0) == "agrees"
    assert judged(-3.0) == "disagrees"
    assert judged(+0.5) == judged(-0.5) == "disagrees: alike"
    assert judged(+3.0, spread=30.0) == judged(-3.0, spread=30.0) == "undecided"


def test_the_correction_counts_all_six_claims_also_those_without_runs():
    runs = made_up(spread=15.0, sharpened_2=17.7, without=set(GAINS) - {"VCSD", "sharpened 2"}).runs
    (claim,) = [claim for claim in ON_QWEN3_5.claims if claim.before == "sharpened 2"]
    plain, corrected = runs.change("sharpened 2", "VCSD", BASES), ON_QWEN3_5.changes(runs)[claim]
    assert 0.05 / 6 < plain.p < 0.05
    assert corrected.p == pytest.approx(6 * plain.p)
    assert ON_QWEN3_5.verdict(plain) == "agrees"
    assert ON_QWEN3_5.verdict(corrected) == "undecided"


def test_eight_whole_bases_give_a_verdict_and_seven_do_not():
    assert FEWEST_WHOLE_BASES == 8
    eight = made_up(without=BASES[8:], closed_because="The GPU time is over.")
    assert set(verdicts(eight).values()) >= {"agrees", "disagrees"}
    seven = made_up(without=BASES[7:], closed_because="The machine was lost.")
    assert set(verdicts(seven).values()) == {"no verdict, 7 of 8 bases"}
    page = qwen3_5_page(seven)
    assert "**49 of 84 runs are finished.** No more will be made: The machine was lost." in page
    assert "**Of 6 claims, 6 have no verdict.**" in page


def test_no_base_at_all_gives_a_page_without_verdicts():
    none = made_up(without=BASES, closed_because="The machine never came.")
    assert "6 have no verdict" in qwen3_5_page(none)
    assert draw_qwen3_5(none.runs) is None


def test_a_base_with_a_missing_run_is_left_out_of_every_number():
    """Its finished runs are as far from the others as can be, and still change nothing."""
    closed = "The GPU time is over."
    without = qwen3_5_page(made_up(without=BASES[11:], closed_because=closed))
    runs = made_up(closed_because=closed)
    run, _ = result_of(runs, BASES[11], "contrast decoding")
    runs.runs._results[run] = None
    for name in ("VCSD", "OPSD", "base"):
        result_of(runs, BASES[11], name)[1].update(acc=1.0 if name == "VCSD" else 99.0)
    page = qwen3_5_page(runs)
    assert f"**Left out, because not all of their runs are finished**: {BASES[11]}.\n" in page
    assert verdicts(runs) == verdicts(made_up(without=BASES[11:], closed_because=closed))

    def judged(text):
        return text[text.index("**Of 6 claims") : text.index("## How this was made")]

    assert judged(page) == judged(without)
    assert "- Missing: contrast decoding (qwen3_5-small-62)" in page


def test_bases_that_started_over_are_named_and_the_verdicts_are_also_given_without_them(tmp_path):
    runs = made_up(out=tmp_path)
    assert "Started over" not in qwen3_5_page(runs)
    (tmp_path / LOST / "cells").mkdir(parents=True)
    for base, variant in ((BASES[0], "base"), (BASES[0], "VCSD"), (BASES[3], "base"), ("qwen3_5-small-23", "base")):
        cell = {"base": base, "variant": variant, "acc": 12.34}
        (tmp_path / LOST / "cells" / f"{base}-{variant}.json").write_text(json.dumps(cell))
    for base in (BASES[0], BASES[3]):  # as the rules want them: they count, though they were made again
        for name, acc in (("VCSD", 99.0), ("OPSD", 60.0)):
            result_of(runs, base, name)[1].update(acc=acc)
    page = qwen3_5_page(runs)
    words = (
        "were lost before all their runs were finished: qwen3_5-small-51, qwen3_5-small-54. By the rules, their first"
    )
    assert words in page
    assert "first results (3) were moved to `lost/cells` unread" in page
    assert "12.34" not in page
    assert "Without the bases that started over, 10 are left; no verdict rests on this. Of 6 claims," in page
    assert "VCSD minus `OPSD` agrees" in page
    unfinished = made_up(out=tmp_path)
    unfinished.runs._results[unfinished.runs.runs[0]] = None
    assert "Started over" in qwen3_5_page(unfinished), "the count is known before the look"


def test_a_base_that_was_made_twice_by_mistake_is_named_and_its_second_results_are_not_used(tmp_path):
    (tmp_path / AGAIN / "cells").mkdir(parents=True)
    cell = {"base": BASES[2], "group": "Qwen3.5 3.0M", "identity": {"base": "second"}, "variant": "VCSD", "acc": 12.34}
    (tmp_path / AGAIN / "cells" / "second.json").write_text(json.dumps(cell))
    page = qwen3_5_page(made_up(out=tmp_path))
    assert f"**Made twice by mistake**: {BASES[2]}. The later results are in `again/cells`, and not used." in page
    assert "12.34" not in page
    assert page.count("12 of 12") == qwen3_5_page(made_up()).count("12 of 12")


def test_results_on_two_bases_of_one_name_are_refused(tmp_path):
    (tmp_path / "cells").mkdir()
    shutil.copy(RESULTS / QWEN3_5_LIST, tmp_path)
    for digest in ("first", "second"):
        cell = {"base": BASES[0], "group": "Qwen3.5 3.0M", "identity": {"base": digest}}
        (tmp_path / "cells" / f"{digest}.json").write_text(json.dumps(cell))
    with pytest.raises(ConfigError, match=f"{BASES[0]} is the name of two bases"):
        read_once(tmp_path, QWEN3_5_LIST)


def test_earlier_bases_stand_in_a_column_of_their_own():
    page = qwen3_5_page(made_up())
    (row,) = [line for line in page.splitlines() if line.startswith("| VCSD is above matched OPSD")]
    assert "| +10.00 (bases +9.70 to +10.30)" in row
    assert row.endswith("| agrees | excludes the paper's numbers | +12.59 |")
    assert "qwen3_5-small-21" not in page
    assert "| 12 of 12 |" in row


def test_weak_bases_and_what_unread_answers_could_explain_are_named():
    runs = made_up()
    assert "Weak bases" not in qwen3_5_page(runs)
    result_of(runs, BASES[1], "base")[1].update(acc=30.0)
    for run, result in runs.runs._results.items():
        result["unresolved"] = 120 if run.variant.name == "OPSD" else 0
    page = qwen3_5_page(runs)
    assert "**Weak bases**: before training, 52 answer less than 40% correctly. VCSD minus OPSD is +9.70 there" in page
    assert "The lead of VCSD over `OPSD` (+10.00) is no larger than the change in unread answers (-12.00)" in page
    assert "had been right, VCSD minus OPSD would be -2.00" in page


def test_bases_are_also_named_if_all_of_them_are_weak_or_at_the_ceiling():
    page = qwen3_5_page(made_up(base=-40.0, VCSD=29.5, spread=0.0))
    assert "60, 61, 62 answer less than 40% correctly. VCSD minus OPSD is +19.50 (95%" in page
    assert "there; there are no others." in page
    assert "60, 61, 62, where no control has room to be ahead. There are no others." in page


def test_the_front_page_says_so_if_the_list_was_closed_without_a_whole_base():
    row = _claims(ON_QWEN3_5, made_up(without=BASES, closed_because="The machine never came."), are_whole=True)
    assert row.came_out == "0 of 84 runs are finished. No more will be made: The machine never came."
    assert row.verdict == "no verdict: no base has all its runs"


def test_the_list_is_what_the_rules_promise():
    listed = read_run_list(RESULTS / QWEN3_5_LIST)
    assert list(listed.bases) == BASES
    assert len(BASES) == CHOSEN_QWEN3_5
    assert {(base.family, base.size, base.overrides) for base in listed.bases.values()} == {("qwen3_5", "small", ())}
    assert all(run.seed == 500 + listed.bases[run.base].seed for run in listed.runs)
    assert len(listed.runs) == 84
    for place in range(0, 84, 7):
        assert {run.variant.name for run in listed.runs[place : place + 7]} == set(GAINS)
        assert len({run.base for run in listed.runs[place : place + 7]}) == 1, "an interrupted list has whole bases"


def test_no_base_and_no_run_has_had_these_seeds():
    own = read_run_list(RESULTS / QWEN3_5_LIST)
    lists = [read_run_list(RESULTS / name) for name in (*RUN_LISTS, "lag_runs.json") if name != QWEN3_5_LIST]
    cells = [json.loads(path.read_bytes()) for path in RESULTS.glob("cells/*.json")]
    names = {cell["base"] for cell in cells} | {path.stem for path in RESULTS.glob("**/cards/*.json")}
    seeds = {base.seed for each in lists for base in each.bases.values()}
    seeds |= {int(seed) for name in names - set(BASES) for seed in re.findall(r"-(?:small|medium)-(\d+)", name)}
    assert {1, 15, 26, 48} <= seeds
    assert seeds.isdisjoint(base.seed for base in own.bases.values())
    trained = {run.seed for each in lists for run in each.runs}
    trained |= {cell["seed"] for cell in cells if cell["base"] not in BASES}
    assert {101, 215, 305, 426, 448} <= trained
    assert trained.isdisjoint(run.seed for run in own.runs)


def test_the_table_of_power_in_the_rules_is_what_the_command_prints():
    rules = RULES.read_text(encoding="utf-8")
    more = planned_results(RESULTS, POWER_LIST)
    assert power_table_qwen3_5(planned_results(RESULTS), more) in rules
    assert "python -m vcsd.reproduce.failures.dose_power docs/results --claims qwen3_5" in rules
    own = [name for name, base in more.listed.bases.items() if base.family == "qwen3_5"]
    known, num_tests = more.change("OPSD", "VCSD", own), len(ON_QWEN3_5.claims)
    fewest = {
        tests: next(num for num in range(3, 30) if with_bases(known, num, tests).detectable <= known.mean)
        for tests in (1, num_tests)
    }
    words = " ".join(rules.split())
    assert (
        f"For the known difference of {known.mean:+.2f} with its spread of {known.difference.sd:.2f}, 80% power needs "
        f"{fewest[1]} bases for one test, and {fewest[num_tests]} at the hardest step."
    ) in words
    assert fewest[num_tests] < CHOSEN_QWEN3_5
    strict = more.change("OPSD", "VCSD", [name for name in own if name[-2:] in ("21", "22", "26")])
    assert f"without them the spread was {strict.difference.sd:.2f} on three bases" in words
    for claim in ON_QWEN3_5.claims:
        assert f"| {claim.text} | {claim.after} minus `{claim.before}` |" in rules


def test_the_time_can_be_declared_over(tmp_path):
    (tmp_path / "cells").mkdir()
    shutil.copy(RESULTS / QWEN3_5_LIST, tmp_path)
    assert not read_once(tmp_path, QWEN3_5_LIST).may_be_read
    (tmp_path / ENDED_LISTS).write_text(json.dumps({QWEN3_5_LIST: "Over."}))
    assert read_once(tmp_path, QWEN3_5_LIST).may_be_read
    (tmp_path / ENDED_LISTS).write_text(json.dumps({QWEN3_5_LIST: ""}))
    with pytest.raises(ConfigError, match="the reason why its time is over"):
        read_once(tmp_path, QWEN3_5_LIST)


def test_the_page_about_the_evidence_follows_the_look():
    """It is written by hand: once the results are read, it may not say that there are none."""
    evidence = (RESULTS.parent / "evidence.md").read_text(encoding="utf-8")
    is_open = read_once(RESULTS, QWEN3_5_LIST).may_be_read
    assert ("Twelve more bases of Qwen3.5 are planned, and have no result yet" in evidence) is not is_open


def write_result(folder: Path, run, acc):
    """A result file under the name that the run looks for."""
    base = RecordedBase(Path(run.base), "Qwen3.5 3.0M", f"weights of {run.base}")
    cell = Cell(run.variant, base, run.seed, full_sweep(folder))
    (like,) = [
        result
        for path in RESULTS.glob("cells/*.json")
        if (result := json.loads(path.read_bytes()))["base"] == "qwen3_vl-small-41-dose-0.4"
        and result["variant"] == run.variant.name
    ]
    identity = {**like["identity"], "base": base.digest}
    changed = {"base": run.base, "group": base.group, "seed": run.seed, "acc": acc, "identity": identity}
    (folder / "cells" / f"{cell.key}.json").write_text(json.dumps({**like, **changed}))


@pytest.mark.slow
def test_results_of_the_unfinished_list_change_nothing_but_a_count_and_the_last_one_opens_the_page(tmp_path):
    """No other page may show them before the one look, and none may count them as its own after it."""
    runs = read_run_list(RESULTS / QWEN3_5_LIST).runs
    for name in ("cells", "cards", "again", "lost"):
        shutil.copytree(RESULTS / name, tmp_path / name)
    for path in (path for path in RESULTS.iterdir() if path.is_file()):
        shutil.copy(path, tmp_path)
    for path in (tmp_path / "cells").iterdir():
        if json.loads(path.read_bytes())["base"] in BASES:
            path.unlink()
    before = page_texts(tmp_path)
    calibrated = base_statistics(tmp_path / "cells")
    for run in runs[:-1]:
        write_result(tmp_path, run, 50.0 + GAINS[run.variant.name])
    during = page_texts(tmp_path)
    assert {name for name, text in during.items() if text != before[name]} == {PAGE, "README.md", "how_made.md"}
    assert "**83 of 84 runs are finished.** Their results are read once" in during[PAGE]
    assert "(qwen3_5.md) | 12 Qwen3.5 | planned, no result yet: 83 of 84 runs are finished." in during["README.md"]
    for page, words in {"README.md": "83 of 84 runs are finished", "how_made.md": "holds"}.items():
        assert all(words in line for line in set(during[page].splitlines()) - set(before[page].splitlines()))
    write_result(tmp_path, runs[-1], 50.0 + GAINS[runs[-1].variant.name])
    after = page_texts(tmp_path)
    assert {name for name, text in after.items() if text != before[name]} == {PAGE, "README.md", "how_made.md"}
    assert "**84 of 84 runs are finished.**" in after[PAGE]
    assert "**Of 6 claims, 2 disagree and 4 agree.**" in after[PAGE]
    assert "VCSD minus `contrast decoding` -4.00" in after["README.md"]
    assert base_statistics(tmp_path / "cells") == calibrated
    assert set(BASES) <= planned_bases(tmp_path)
