"""The page of doses applies the committed rules, on made-up results and cards."""

import json

import pytest

from made_up_runs import made_up
from vcsd.reproduce.planned.dose_page import common_seeds, dose_page, gain
from vcsd.reproduce.planned.paper_dose import gains_on_dev, paper_section, verdict_at_dose
from vcsd.reproduce.planned.planned_plots import draw_doses


def by_dose(points):
    """Acc 50 plus what a dose gains."""
    return lambda base, noise: 50.0 + points[base.partition("-dose-")[2] or "0.6"] + noise


GAINS = {"0": 0.2, "0.2": 3.0, "0.4": 12.0, "0.6": 30.0, "0.8": 40.0}


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "cards").mkdir()
    found = made_up(tmp_path, VCSD=by_dose(GAINS))
    for base in found.listed.bases:
        dose = base.partition("-dose-")[2] or "0.6"
        sway = {"greedy": {"mean": 50.0}, "contrast": {"mean": 50.0 + 0.9 * GAINS[dose]}}
        (tmp_path / "cards" / f"{base}.json").write_text(json.dumps({"measured": {"sway": sway}}))
    return found


def test_the_dose_of_the_papers_size_comes_from_the_cards(runs):
    assert [each.dose for each in gains_on_dev(runs)] == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert "It is dose **0.2**, with +2.70 points." in dose_page(runs)
    for base in runs.doses[0.2]:
        (runs.out / "cards" / f"{base}.json").unlink()
    page = dose_page(runs)
    assert "It is dose **0**" in page
    assert "Doses without a card, which may have been closer: 0.2." in page


def test_gains_are_means_over_the_bases_of_a_dose(runs):
    assert gain(runs, "VCSD", 0.6).num_bases == 5
    assert gain(runs, "VCSD", 0.4).num_bases == 3
    assert gain(runs, "VCSD", 0.4).mean == pytest.approx(12.0 + (0.4 - 0.4 + 0.1) / 3)


def test_the_null_world_comes_first_and_contradicts_us_only_if_all_bases_gain(runs, tmp_path):
    page = dose_page(runs)
    assert page.index("## The null world") < page.index("## The dose of the paper's size") < page.index("## Gain by")
    assert "0 of 3 bases gain more than one point" in page
    gained = made_up(tmp_path, VCSD=by_dose({**GAINS, "0": 5.0}))
    assert "which contradicts what we say about the world" in dose_page(gained)
    harmed = made_up(tmp_path, VCSD=by_dose({**GAINS, "0": -5.0}))
    assert "Training **lowers** qwen3_vl-small-11-dose-0, " in dose_page(harmed)


def test_missing_runs_are_named_and_leave_the_null_world_open(runs, tmp_path):
    some = made_up(tmp_path, without=("qwen3_vl-small-12-dose-0", "OPSD"), VCSD=by_dose(GAINS))
    page = dose_page(some)
    assert "**Missing**: base, contrast decoding, VCSD, sharpened 2 (qwen3_vl-small-12-dose-0); OPSD (" in page
    assert "2 of 3 bases are finished, so the question of the rules is open" in page
    assert "| missing |" in page


def test_a_base_that_cannot_gain_makes_the_rule_for_the_null_world_empty(runs, tmp_path):
    assert "could not have been met" not in dose_page(runs)
    full = made_up(tmp_path, base=lambda base, noise: 100.0 if base.endswith("13-dose-0") else 50.0)
    assert "qwen3_vl-small-13-dose-0 (100.0 before training) cannot gain a point" in dose_page(full)


def test_unread_answers_that_could_explain_a_loss_in_the_null_world_are_named(tmp_path):
    found = made_up(tmp_path, VCSD=by_dose(GAINS), OPSD=lambda base, noise: 45.0)
    for run in found.runs:
        if run.variant.name == "OPSD":
            found.result(run).update(unresolved=60 if run.base.endswith("12-dose-0") else 20, num_questions=1000)
    text = "Unread answers: 2.0%, 6.0%, 2.0%; alone they could explain the loss of qwen3_vl-small-12-dose-0."
    assert text in dose_page(found)


def test_doses_are_compared_on_the_seeds_that_all_of_them_have(runs, tmp_path):
    page = dose_page(runs)
    assert common_seeds(runs) == [11, 12, 13]
    assert page.index("**Doses differ in more than the dose**") < page.index("![Gain over the base")
    some = made_up(tmp_path, without=("qwen3_vl-small-13-dose-0.4",), VCSD=by_dose(GAINS))
    assert common_seeds(some) == [11, 12]
    assert "| 0.4 | +12.00 (+12.40, +11.60) |" in dose_page(some)


def test_the_picture_has_a_line_for_every_variant(runs):
    (axis,) = draw_doses(runs).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        *("VCSD", "sharpened 2", "contrast decoding", "OPSD")
    ]
    assert axis.get_ylim()[0] < 0 < axis.get_ylim()[1]


def test_the_picture_counts_the_bases_of_each_dose_and_joins_only_the_same_seed(tmp_path):
    some = made_up(tmp_path, without=tuple(f"qwen3_vl-small-{seed}-dose-0.2" for seed in (11, 12, 13)))
    (axis,) = draw_doses(some).axes
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert labels == ["0\n3 bases", "0.2\nmissing", "0.4\n3 bases", "0.6\n5 bases", "0.8\n3 bases"]
    joined = [line for line in axis.get_lines() if line.get_linestyle() == "-" and line.get_marker() == "."]
    assert len(joined) == 4 * 5, "one line for each variant and seed"


def test_the_choice_says_which_single_seed_would_change_it(runs):
    assert "Leaving out any one pre-training seed does not change the choice." in dose_page(runs)
    assert "would also choose 0.2 (+3.03)" in dose_page(runs)
    card = runs.out / "cards" / "qwen3_vl-small-11-dose-0.2.json"
    card.write_text(json.dumps({"measured": {"sway": {"greedy": {"mean": 50.0}, "contrast": {"mean": 59.0}}}}))
    page = dose_page(runs)
    assert "It is dose **0.2**, with +4.80 points." in page, "the mean of 9.0, 2.7 and 2.7"
    assert "does not change the choice" in page
    for seed, points in ((12, -1.0), (13, 4.0)):
        card = runs.out / "cards" / f"qwen3_vl-small-{seed}-dose-0.2.json"
        sway = {"greedy": {"mean": 50.0}, "contrast": {"mean": 50.0 + points}}
        card.write_text(json.dumps({"measured": {"sway": sway}}))
    assert "Without pre-training seed 12 it would be 0." in dose_page(runs), "6.5 is further from 3.3 than 0.18"


def test_claims_at_the_dose_of_the_papers_size_get_no_verdict_from_three_bases(runs):
    text = "\n".join(paper_section(runs))
    rows = [line for line in text.splitlines() if "minus `" in line]
    assert len(rows) == 5
    assert all("no verdict, 3 of 5 bases" in row for row in rows)
    (gained,) = [row for row in rows if row.startswith("| VCSD improves over its base: VCSD minus `base`")]
    assert "| +1.86 to +4.77 | +3.03 (bases +2.60 to +3.40) |" in gained
    assert "| 3 of 3 |" in gained
    assert "The paper's other claims have no runs on these bases." in text


def test_five_bases_give_a_verdict_by_the_rules(runs):
    five = runs.doses[0.6]
    assert verdict_at_dose(runs.change("base", "VCSD", five)) == "agrees"
    assert verdict_at_dose(runs.change("VCSD", "base", five)) == "disagrees"
    assert verdict_at_dose(runs.change("base", "VCSD", five[:4])) == "no verdict, 4 of 5 bases"
    assert verdict_at_dose(None) == "no verdict, 0 of 5 bases"


def test_the_page_says_which_runs_were_read_before_the_others_were_made(runs):
    assert "the 25 runs at dose 0, and at dose 0.4 on the pre-training seeds 11 and 12" in dose_page(runs)
    assert "- The seven bases of the last 35 runs were made twice" in dose_page(runs)


def test_an_interval_that_excludes_zero_does_not_start_at_a_rounded_zero(runs, tmp_path):
    half = 4.302653 / 3**0.5  # Student's t of two degrees of freedom, for differences whose standard deviation is 1
    apart = {"11": -1.0, "12": 0.0, "13": 1.0, "14": 0.0, "15": 0.0}
    found = made_up(tmp_path, VCSD=lambda base, noise: 70.0012 + half + apart[base.split("-")[2]])  # sharpened 2: 70
    (row,) = [line for line in paper_section(found) if "VCSD minus `sharpened 2`" in line]
    (sharpened,) = [line for line in row.splitlines() if "VCSD minus `sharpened 2`" in line]
    assert f"| +0.001 to +{2 * half + 0.0012:.2f} | 3 of 3 |" in sharpened
    assert sharpened.endswith("| excludes zero |")
