"""The page of the paper's dose: closed until it may be read, then every verdict follows from the rules.

All results here are made up: one difference is moved at a time, and its verdict must turn.
"""

import json
import math
import re
from pathlib import Path

import pytest

from made_up_results import made_up_runs
from vcsd.errors import ConfigError
from vcsd.inspect.precheck.calibration import base_statistics, beyond_decoding, calibrated
from vcsd.reproduce.failures import after_reading
from vcsd.reproduce.failures.dose_power import CHOSEN, power_table, with_bases
from vcsd.reproduce.failures.failure_runs import ENDED_LISTS, read_once
from vcsd.reproduce.failures.paper_dose_page import (
    ALSO_JUDGED,
    DOSE,
    not_judged_here,
    paper_dose_page,
    precheck_misses,
)
from vcsd.reproduce.failures.worst_results import precheck_on_new_bases
from vcsd.reproduce.judged.claim_tables import worst_claims
from vcsd.reproduce.judged.judged_claims import AT_PAPER_DOSE
from vcsd.reproduce.pages.claims import CLAIMS
from vcsd.reproduce.pages.from_files import planned_bases
from vcsd.reproduce.planned.paper_dose import PAPER_DOSE_LIST, PAPER_DOSE_PAGE, paper_dose
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.reproduce.planned.run_list import read_run_list

ROOT = Path(__file__).parents[4]
RESULTS = ROOT / "docs" / "results"
RULES = ROOT / "docs" / "preregistration_paper_dose.md"
GAINS = {
    "base": 0.0,
    "VCSD": 4.0,
    "contrast decoding": 7.0,
    "sharpened 2": 2.0,
    "OPSD": -10.0,
    "OPSD beta 0.1": 3.8,
    "another picture": 4.2,
    "alpha 0": 1.7,
}
JUDGED = AT_PAPER_DOSE.claims


def test_the_claims_of_the_paper_that_are_not_judged_here_are_named_beside_the_count():
    page = paper_dose_page(read_once(RESULTS, PAPER_DOSE_LIST), planned_results(RESULTS))
    says = {claim.says for claim in CLAIMS}
    assert set(ALSO_JUDGED) < says, "a claim was reworded"
    comparisons = {claim.says for claim in CLAIMS if claim.says.startswith("The paper does not")}
    assert {claim.says for claim in not_judged_here()} == says - set(ALSO_JUDGED) - comparisons
    count = next(line for line in page.splitlines() if line.startswith("**Of 8 claims"))
    assert f"**{len(not_judged_here())} claims of the paper are not judged at this dose**" in count
    section = page.partition("## Claims of the paper that are not judged here")[2].partition("\n## ")[0]
    assert all(f'"{claim.says.removesuffix(".")}"' in section for claim in not_judged_here())


def made_up(*, spread=1.0, without=(), closed_because=None, **gains):
    points = {**GAINS, **{name.replace("_", " "): gain for name, gain in gains.items()}}
    return made_up_runs(PAPER_DOSE_LIST, points, spread=spread, without=without, closed_because=closed_because)


def verdicts(runs):
    changes = AT_PAPER_DOSE.changes(runs.runs)
    return {f"{claim.after} minus {claim.before}": AT_PAPER_DOSE.verdict(change) for claim, change in changes.items()}


@pytest.fixture(scope="module")
def earlier():
    return planned_results(RESULTS)


def test_the_committed_page_is_what_the_files_give(earlier):
    page = paper_dose_page(read_once(RESULTS, PAPER_DOSE_LIST), earlier)
    assert page == (RESULTS / PAPER_DOSE_PAGE).read_text(encoding="utf-8")


def test_nothing_but_a_count_is_shown_before_the_last_run(earlier):
    runs = made_up()
    runs.runs._results[runs.runs.runs[-1]] = None
    page = paper_dose_page(runs, earlier)
    assert "**63 of 64 runs are finished.** Their results are read once, after the last one." in page
    assert page.count("\n## ") == 0
    assert re.search(r"[+-]\d", page) is None, "a difference is shown"


def test_every_rule_gives_its_verdict():
    assert verdicts(made_up()) == {
        "VCSD minus base": "agrees",
        "VCSD minus OPSD": "agrees",
        "VCSD minus sharpened 2": "agrees",
        "VCSD minus contrast decoding": "disagrees",
        "contrast decoding minus base": "agrees",
        "VCSD minus alpha 0": "agrees",
        "VCSD minus OPSD beta 0.1": "disagrees: alike",
        "VCSD minus another picture": "disagrees: alike",
    }


@pytest.mark.parametrize("claim", JUDGED, ids=lambda claim: f"{claim.after} minus {claim.before}")
def test_every_verdict_turns_with_the_difference(claim):
    """With its first result moved: clearly above, clearly below, less than a point apart, and too scattered."""
    name = f"{claim.after} minus {claim.before}"
    first = claim.before if claim.before != "base" else claim.after
    side = 1 if first == claim.before else -1
    other = GAINS[claim.after if first == claim.before else claim.before]

    def judged(difference, **changes):
        return verdicts(made_up(**changes, **{first: other - side * difference}))[name]

    assert judged(+3.0) == "agrees"
    assert judged(-3.0) == "disagrees"
    assert judged(+0.5) == judged(-0.5) == "disagrees: alike"
    if claim.after == "VCSD":  # the only one that scatters
        assert judged(+3.0, spread=20.0) == judged(-3.0, spread=20.0) == "undecided"


def test_a_clear_difference_of_less_than_a_point_does_not_carry_a_claim():
    (claim,) = [claim for claim in JUDGED if claim.before == "sharpened 2"]
    change = AT_PAPER_DOSE.changes(made_up(sharpened_2=3.5).runs)[claim]
    assert change.mean == pytest.approx(0.5)
    assert change.p < 0.01
    assert AT_PAPER_DOSE.verdict(change) == "disagrees: alike"


def test_the_correction_counts_all_eight_claims_also_those_without_runs():
    kept = made_up(spread=8.0, without=set(GAINS) - {"VCSD", "sharpened 2"}, closed_because="Over.")
    (claim,) = [claim for claim in JUDGED if claim.before == "sharpened 2"]
    plain = kept.runs.change("sharpened 2", "VCSD", kept.runs.listed.bases)
    assert 0.01 < plain.p < 0.05
    assert AT_PAPER_DOSE.changes(kept.runs)[claim].p == pytest.approx(8 * plain.p)
    assert AT_PAPER_DOSE.verdict(plain) == "agrees"
    assert AT_PAPER_DOSE.verdict(AT_PAPER_DOSE.changes(kept.runs)[claim]) == "undecided"


def test_five_bases_give_a_verdict_and_four_do_not(earlier):
    names = list(read_run_list(RESULTS / PAPER_DOSE_LIST).bases)
    assert set(verdicts(made_up(without=names[5:], closed_because="Over.")).values()) > {"agrees", "disagrees"}
    four = made_up(without=names[4:], closed_because="The machine was lost.")
    assert set(verdicts(four).values()) == {"no verdict, 4 of 5 bases"}
    page = paper_dose_page(four, earlier)
    assert "**32 of 64 runs are finished.** No more will be made: The machine was lost." in page
    assert "**Of 8 claims, 8 have no verdict.**" in page
    assert (
        "- Missing: base, VCSD, contrast decoding, sharpened 2, OPSD, OPSD beta 0.1, another picture, alpha 0 (" in page
    )


def test_the_worst_claim_comes_first_with_what_the_interval_excludes(earlier):
    page = paper_dose_page(made_up(), earlier)
    assert "**Of 8 claims, 3 disagree and 5 agree.**" in page
    rows = [line for line in page.splitlines() if line.startswith("| ") and "minus `" in line][: len(JUDGED)]
    assert rows[0].startswith("| Decoding cannot replace training: VCSD minus `contrast decoding` |  | -3.00")
    assert rows[0].endswith("| < 0.001 | **disagrees** | excludes zero | -0.66 |")
    assert "| VCSD minus `contrast decoding`" not in rows[1]
    (gained,) = [row for row in rows if "VCSD minus `base`" in row]
    assert "| +1.86 to +4.77 | +4.00" in gained
    assert gained.endswith("| agrees | includes some of the paper's numbers | +4.29 |")
    (plain,) = [row for row in rows if "VCSD minus `alpha 0`" in row]
    assert "| +2.33 | +2.30" in plain
    assert plain.endswith("| agrees | includes the paper's numbers | no runs |")
    assert worst_claims(AT_PAPER_DOSE, made_up().runs).startswith(
        "VCSD minus `contrast decoding` -3.00 (95% -3.20 to -2.80, unread"
    )


def test_a_lead_that_unread_answers_could_explain_is_named(earlier):
    runs = made_up()
    assert "which alone could explain it" not in paper_dose_page(runs, earlier)
    for run, result in runs.runs._results.items():
        result["unresolved"] = 150 if run.variant.name == "OPSD" else 0
    page = paper_dose_page(runs, earlier)
    assert "The lead of VCSD over `OPSD` (+14.00) is no larger than the change in unread answers (-15.00)" in page
    assert page.count("which alone could explain it") == 1


def test_gains_of_another_size_are_named_and_change_no_verdict(earlier):
    assert "within the paper's +1.86 to +4.77" in paper_dose_page(made_up(), earlier)
    large = paper_dose_page(made_up(VCSD=9.0), earlier)
    assert "VCSD gains +9.00" in large
    assert "**outside** the paper's +1.86 to +4.77; 0 of 8 bases are within. By the rules, the dose" in large


def test_shares_are_left_out_where_there_is_no_gain_to_share(earlier):
    assert "| `sharpened 2` minus base | +2.00 | +2.00 to +2.00 | 50% |" in paper_dose_page(made_up(), earlier)
    assert "| `sharpened 2` minus base | +2.00 | +2.00 to +2.00 |  |" in paper_dose_page(made_up(VCSD=0.5), earlier)


def test_the_pre_check_is_tested_on_bases_that_it_does_not_know(earlier):
    runs = made_up(spread=0.0)
    beyond = sorted(beyond_decoding(calibrated()))
    middle = beyond[len(beyond) // 2] if len(beyond) % 2 else sum(beyond[len(beyond) // 2 - 1 :][:2]) / 2
    found = precheck_misses(runs.runs)
    assert len(found) == 8
    assert found["qwen3_vl-small-41-dose-0.4"] == (pytest.approx(7.0 + middle), pytest.approx(4.0))
    assert f"It is off by {abs(4.0 - 7.0 - middle):.2f} points typically" in paper_dose_page(runs, earlier)
    assert not set(found) & set(calibrated())


def test_bases_of_the_list_never_enter_the_calibration(tmp_path):
    (tmp_path / "cells").mkdir()
    name = "qwen3_vl-small-41-dose-0.4"
    for variant, acc in (("base", 70.0), ("VCSD", 74.0), ("contrast decoding", 75.0)):
        for base in (name, "another"):
            cell = {"base": base, "variant": variant, "acc": acc, "seed": 1, "identity": {"base": base}}
            (tmp_path / "cells" / f"{base}-{variant}.json").write_text(json.dumps(cell))
    assert set(base_statistics(tmp_path / "cells")) == {name, "another"}
    (tmp_path / PAPER_DOSE_LIST).write_bytes((RESULTS / PAPER_DOSE_LIST).read_bytes())
    assert set(base_statistics(tmp_path / "cells")) == {"another"}


def test_the_list_is_what_the_rules_promise(earlier):
    listed = read_run_list(RESULTS / PAPER_DOSE_LIST)
    assert paper_dose(earlier).dose == DOSE
    assert [base.seed for base in listed.bases.values()] == [*range(41, 49)]
    assert len(listed.bases) == CHOSEN
    assert all(base.overrides == (f"ignore_share={DOSE:g}",) for base in listed.bases.values())
    assert all(run.seed == 400 + listed.bases[run.base].seed for run in listed.runs)
    assert len(listed.runs) == 64
    for place in range(0, 64, 8):
        assert {run.variant.name for run in listed.runs[place : place + 8]} == set(GAINS)
        assert len({run.base for run in listed.runs[place : place + 8]}) == 1, "an interrupted list has whole bases"
    seeds = {base.seed for path in RESULTS.glob("*.json") if path.name != PAPER_DOSE_LIST for base in _bases(path)}
    assert not seeds & {base.seed for base in listed.bases.values()}, "a seed that another base has"
    assert set(listed.bases) <= planned_bases(RESULTS)


def _bases(path):
    try:
        return list(read_run_list(path).bases.values())
    except ConfigError:  # not a list of runs
        return []


def test_the_table_of_power_in_the_rules_is_what_the_command_prints(earlier):
    rules = RULES.read_text(encoding="utf-8")
    assert power_table(earlier) in rules
    assert "python -m vcsd.reproduce.failures.dose_power docs/results" in rules
    sharpened, decoding = (
        earlier.change(name, "VCSD", earlier.doses[DOSE]) for name in ("sharpened 2", "contrast decoding")
    )
    assert f"six need {with_bases(decoding, 6).alike_within:.2f}" in rules
    assert with_bases(decoding, CHOSEN).alike_within < 1 < with_bases(decoding, 6).alike_within
    twice = [2 * with_bases(sharpened, num).detectable for num in (CHOSEN, 6)]
    assert f"({twice[0]:.2f} points, tested alone; six need\n{twice[1]:.2f})" in rules
    assert twice[0] < sharpened.mean < twice[1]
    assert f"{math.sqrt(2 / (-2 * math.log(0.8))):.1f} times what they show" in rules


def test_the_rules_name_every_claim_and_the_time_can_be_declared_over(tmp_path):
    rules = " ".join(RULES.read_text(encoding="utf-8").split())
    for claim in JUDGED:
        assert f"| {claim.text} | {claim.after} minus `{claim.before}` |" in rules
    (tmp_path / "cells").mkdir()
    (tmp_path / PAPER_DOSE_LIST).write_bytes((RESULTS / PAPER_DOSE_LIST).read_bytes())
    assert not read_once(tmp_path, PAPER_DOSE_LIST).may_be_read
    (tmp_path / ENDED_LISTS).write_text(json.dumps({PAPER_DOSE_LIST: "Over."}))
    assert read_once(tmp_path, PAPER_DOSE_LIST).may_be_read


def test_what_the_averages_hide_is_on_the_page(earlier):
    page = paper_dose_page(read_once(RESULTS, PAPER_DOSE_LIST), earlier).partition("## What the averages hide")[2]
    assert page.startswith("\n\nAdded after the results had been read; no verdict rests on it.")
    for words in (
        "breaks down",
        "is behind",
        "lowers",
        "A ceiling",
        "as a share",
        "from *alike*",
    ):
        assert words in page


def test_the_bases_on_which_a_control_is_ahead_and_those_at_the_ceiling_are_named():
    runs = made_up(spread=0.0, another_picture=4.5).runs
    bases = list(runs.listed.bases)
    (text,) = after_reading.behind(runs, ["another picture", "sharpened 2"], bases)
    assert text.startswith("- **VCSD is behind** `another picture` on 41 (-0.50), 42 (-0.50)")
    assert "sharpened 2" not in text
    assert list(after_reading.ceiling(runs, ["sharpened 2"], bases)) == []
    first = next(run for run in runs.runs if run.variant.name == "VCSD")
    runs._results[first] |= {"acc": 99.5}
    (text,) = after_reading.ceiling(runs, ["sharpened 2"], bases)
    assert "on 41, where" in text
    assert "On the other 7, VCSD minus `sharpened 2` +2.00" in text


def test_the_guards_misses_and_needless_stops_are_named():
    runs = made_up(spread=0.0).runs
    text = "\n".join(after_reading.guard_on(runs))
    assert "Of all 48 runs it stops none, so this shows little. Of the 8 bad ones it did not even warn about 8." in text
    assert "**It misses 8 of the 8 that end more than 5 points below**: OPSD on qwen3_vl-small-41-dose-0.4" in text
    assert "It stops none that ends above its base." in text
    by_name = {(run.variant.name, run.base[:17]): result for run, result in runs._results.items()}
    by_name["OPSD", "qwen3_vl-small-41"] |= {"guard": {"warn": 40, "stop": 50, "acc_at_stop": None}}
    by_name["OPSD", "qwen3_vl-small-42"] |= {"guard": {"warn": 60, "stop": None, "acc_at_stop": None}}
    by_name["VCSD", "qwen3_vl-small-43"] |= {"guard": {"warn": 70, "stop": 80, "acc_at_stop": None}}
    text = "\n".join(after_reading.guard_on(runs))
    assert "| OPSD | 8 | 8 | 7 | 1 | 0 | 2 |" in text
    assert "misses 7 of the 8 that end more than 5 points below**: OPSD on qwen3_vl-small-42-dose-0.4" in text
    assert "(70.0 to 60.0, with a warning), OPSD on qwen3_vl-small-43-dose-0.4 (70.0 to 60.0, no warning)" in text
    assert "**It stops 1 that ends above its base**: VCSD on qwen3_vl-small-43-dose-0.4 (70.0 to 74.0" in text
    for run in runs.runs:
        if run.variant.name == "OPSD":
            runs._results[run] |= {"acc": 70.0}
    assert "so none tests whether it stops one." in "\n".join(after_reading.guard_on(runs))


def test_numbers_of_the_paper_that_are_contradicted_stand_before_the_claims(earlier):
    page = paper_dose_page(made_up(spread=0.0), earlier)
    words = "**The paper's numbers for VCSD minus `OPSD` are contradicted here**, whatever the verdict: +1.76 to +5.33"
    assert page.index(words) < page.index("| claim |")
    assert "for VCSD minus `base` are contradicted" not in page


def test_the_page_of_the_pre_check_says_how_its_test_came_out():
    text = precheck_on_new_bases(RESULTS)
    assert text.startswith("It was tested on [8 bases that it has not seen](paper_dose.md#")
    assert "is no better than a constant there**: it is off by 2.40 points" in text
    assert text in (RESULTS / "precheck.md").read_text(encoding="utf-8")


def test_a_lead_is_also_shown_as_if_all_unread_answers_had_been_right():
    runs = made_up(spread=0.0).runs
    bases = list(runs.listed.bases)
    assert after_reading.if_unread_were_right(runs, bases).mean == pytest.approx(14.0)
    for run in runs.runs:
        if run.variant.name == "OPSD":
            runs._results[run] |= {"unresolved": 60}  # of 1,000 questions
    assert after_reading.if_unread_were_right(runs, bases).mean == pytest.approx(8.0)


def test_the_pre_check_is_compared_with_what_was_known_before():
    gains = {"a": (4.0, 1.0), "b": (5.0, 2.0), "c": (6.0, 3.0)}
    text = after_reading.precheck_beside_a_constant(gains, 2.0)
    assert "no better than a constant here**: it is off by 3.00 points (correlation +1.00)" in text
    text = after_reading.precheck_beside_a_constant({name: (high, high) for name, (_, high) in gains.items()}, 2.0)
    assert "is better than a constant" in text
