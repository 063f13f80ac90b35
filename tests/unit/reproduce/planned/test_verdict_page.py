"""The page of verdicts applies the committed rules, on made-up results."""

import re

import pytest

from made_up_runs import RESULTS, made_up
from vcsd.reproduce.failures.worst_results import contrast_at_paper_size
from vcsd.reproduce.paired_runs import equivalence_interval, shown_p
from vcsd.reproduce.planned.answers import (
    LOOKS,
    answers,
    entropy_matches,
    guard_answer,
    over,
    shares,
    suite_changes,
    weakest_leads,
)
from vcsd.reproduce.planned.planned_plots import draw_verdicts
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.reproduce.planned.verdict_page import BEST_STEP, guard_rows, verdict_page


def side(runs, start, word=""):
    (found,) = [one.side for one in answers(runs) if one.text.startswith(f"**{start}") and word in one.text]
    return found


def test_a_clear_difference_over_five_bases_decides_and_four_bases_do_not():
    runs = made_up()
    assert side(runs, "1.", "`sharpened 2`") == "for"
    assert side(runs, "1.", "`sharpened 3`") == "against"
    assert side(made_up(without=("qwen3_vl-small-15",)), "1.", "`sharpened 2`") == "undecided"


def test_every_question_of_the_rules_has_an_answer():
    texts = [one.text for one in answers(made_up())]
    assert [sum(text.startswith(f"**{number}.") for text in texts) for number in range(1, 10)] == [
        *(3, 1, 1, 1, 2, 2),
        *(0, 0, 0),
    ], "7 and 8 are on the page of doses, 9 is in the section of the guard"


def test_the_share_of_sharpening_is_taken_base_by_base():
    found = shares(made_up())
    assert found["qwen3_vl-small-11", 211] == pytest.approx(100 * 20 / 40.4)
    assert found["qwen3_vl-small-12", 212] == pytest.approx(100 * 20 / 39.6)
    assert side(made_up(), "3.") == "described", "the rules ask for a mean and an interval, not for a verdict"


def test_a_base_that_vcsd_leaves_as_it_is_has_no_share_and_is_named():
    runs = made_up(VCSD=lambda base, noise: 50.0 if base == "qwen3_vl-small-13" else 90.0 + noise)
    assert len(shares(runs)) == 4
    (text,) = [one.text for one in answers(runs) if one.text.startswith("**3.")]
    assert text.endswith("Left out, because VCSD equals the base there: qwen3_vl-small-13.")


@pytest.mark.parametrize(
    ("other", "word", "expected"),
    [(90.1, "alike", "against"), (85.0, "different", "for"), (95.0, "different", "against")],
)
def test_another_picture_is_judged_by_an_equivalence_test(other, word, expected):
    runs = made_up(another_picture=lambda base, noise: other)
    assert side(runs, "4.", f": {word},") == expected


def test_a_wide_interval_around_a_small_mean_is_not_alike():
    runs = made_up(another_picture=lambda base, noise: 90.0 + 10 * (int(base[15:17]) - 13))
    assert side(runs, "4.") == "undecided"


def test_suites_are_corrected_for_seven():
    runs = made_up()
    plain = runs.change("sharpened 2", "VCSD", runs.verdict_bases, "small")
    assert suite_changes(runs)["small"].p == pytest.approx(LOOKS * 7 * plain.p)


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        ("sharpened 1.5", "sharpened 3"),
        ("contrast decoding", "majority of 8"),
        ("OPSD, best dev step", "OPSD beta 0.1"),
    ],
)
def test_a_planned_comparison_without_runs_still_counts_in_holms_correction(kept, missing):
    def spread(base, noise):
        return 84.0 + 3 * (int(base[15:17]) - 13)

    changes = {kept.replace(" ", "_").replace(".", "p").replace(",", ""): spread}
    some = made_up(without=(missing,), **changes)
    plain = some.change(kept, "VCSD", some.verdict_bases)
    (text,) = [one.text for one in answers(some) if f"VCSD minus `{kept}`" in one.text]
    assert f"Holm's p {shown_p(LOOKS * 2 * plain.p)}" in text
    assert shown_p(LOOKS * 2 * plain.p) != shown_p(LOOKS * plain.p), "they must differ for this test to see anything"


def test_suites_without_scores_still_count_in_holms_correction():
    def apart(base, noise):
        return 70.0 + 3 * (int(base[15:17]) - 13)

    runs = made_up(sharpened_2=apart)
    for run in runs.runs:
        scores = runs.result(run)["scores"]
        runs.result(run)["scores"] = {"small": scores["small"], "mixed": scores["mixed"]}
    plain = runs.change("sharpened 2", "VCSD", runs.verdict_bases, "small")
    changes = suite_changes(runs)
    assert set(changes) == {"small", "mixed"}
    assert changes["small"].p == pytest.approx(LOOKS * 7 * plain.p)


def test_sharpening_is_matched_by_the_closest_final_entropy():
    matches = entropy_matches(made_up())
    assert [match.chosen for match in matches] == ["sharpened 2"] * 5
    assert all(match.is_inside for match in matches)
    (match, *_) = entropy_matches(made_up(without=("sharpened 2", "sharpened 1.5")))
    assert match.chosen == "sharpened 3"
    assert not match.is_inside
    assert match.acc - match.control_acc == pytest.approx(90.4 - 95.0)


def test_a_run_that_the_guard_stops_without_need_speaks_against_it():
    runs = made_up()
    assert guard_answer(runs).side == "described"
    assert "Of all 76 runs it stops none, so this shows little." in verdict_page(runs)
    for run in runs.runs:
        if (run.variant.name, run.base) == ("VCSD", "qwen3_vl-small-12"):
            runs.result(run)["guard"] = {"warn": 40, "stop": 50}
            runs.result(run)["series"] = {}
    assert guard_answer(runs).side == "against"
    page = verdict_page(runs)
    assert "it stops qwen3_vl-small-12." in page[page.index("## Against") : page.index("## Undecided")]
    assert next(row for row in guard_rows(runs) if row[0] == "VCSD") == ["VCSD", "17", "0", "0", "1", "1", "1"]


def test_the_page_puts_what_is_against_first_and_names_what_is_missing():
    page = verdict_page(made_up(without=("majority of 8",)))
    assert page.index("## Against") < page.index("## Undecided") < page.index("## For the contrast")
    assert "50 of 55 planned runs" in page
    assert "Missing: majority of 8 (qwen3_vl-small-11, " in page
    assert "The one-look rule was broken" in page
    against = page[page.index("## Against") : page.index("## Undecided")]
    assert "`contrast decoding`: -3.00" in against
    assert "5 bases; 80% power from" in against
    assert "**9. The guard**" in page[page.index("## The guard on new runs") :]


def lines_against(**changes):
    page = verdict_page(made_up(**changes))
    return page[page.index("## Against") : page.index("## Undecided")]


def test_what_the_support_gives_counts_against_the_contrast():
    most = lines_against()
    assert "- Most of the lead over OPSD comes from the support: `OPSD beta 0.1` minus OPSD is +20.00" in most
    assert "`OPSD beta 0.1` is ahead of VCSD on 2 of 5 bases" in most
    assert "The change in unread answers from OPSD to `OPSD beta 0.1`: not recorded." in most  # these results lack them
    assert "nan" not in most
    part = lines_against(OPSD_beta_0p1=lambda base, noise: 75.0)
    assert "- A part of the lead over OPSD comes from the support: `OPSD beta 0.1` minus OPSD is +5.00" in part


def test_suites_on_which_vcsd_is_behind_and_sizes_unlike_the_papers_count_against_it():
    against = lines_against()
    assert against.count("VCSD minus `contrast decoding` is -3.00") == 7
    assert "VCSD minus base +40.00" in against
    alike = lines_against(VCSD=lambda base, noise: 53.0 + noise)
    assert "minus base" not in alike, "the interval holds gains of the paper"


def clear_by_one_look_alone():
    """VCSD minus `sharpened 2` has a p between 0.025 and 0.05."""
    spread = {11: 20, 12: 22, 13: 4, 14: 4, 15: 10}
    return made_up(VCSD=lambda base, noise: 70.0 + spread[int(base[15:17])])


def test_a_verdict_that_two_looks_take_away_is_undecided_and_named_as_lost():
    assert "No verdict is lost." in verdict_page(made_up())
    runs = clear_by_one_look_alone()
    plain = runs.change("sharpened 2", "VCSD", runs.verdict_bases)
    assert 0.025 < plain.p < 0.05, "the test sees nothing otherwise"
    page = verdict_page(runs)
    said = f"VCSD minus `sharpened 2` (p = {plain.p:.3f}, now {LOOKS * plain.p:.3f})"
    assert f"Lost by this correction, and now undecided: {said}" in page
    assert side(runs, "1.", "`sharpened 2`") == "undecided"
    row = next(line for line in page.splitlines() if line.startswith("| Acc | 70.0"))
    assert row.endswith(f"| {LOOKS * plain.p:.3f} | {over(runs, 'sharpened 2').detectable:.1f} | undecided |")


def test_a_lead_that_two_looks_take_away_is_not_called_clear_on_the_front_page():
    assert "`sharpened 2` +" not in weakest_leads(made_up()).partition("VCSD minus")[0]
    leads = weakest_leads(clear_by_one_look_alone()).partition("; VCSD minus")[0]
    assert re.search(r"`sharpened 2` \+12\.00 \(95% \+[\d.]+ to [^)]*, corrected p = 0\.0", leads)


def test_another_picture_is_tested_for_two_looks_and_says_which_margin_could_be_shown():
    picture = {11: 89.9, 12: 88.2, 13: 90.1, 14: 89.1, 15: 89.9}
    runs = made_up(another_picture=lambda base, noise: picture[int(base[15:17])])
    plain, strict = (over(runs, "another picture", looks=looks) for looks in (1, LOOKS))
    assert strict.alike_within > plain.alike_within
    (text,) = [one.text for one in answers(runs) if one.text.startswith("**4.")]
    assert f"would show alike within {strict.alike_within:.2f} points" in text
    ends = equivalence_interval(strict)
    assert f"95% interval for 2 looks {ends[0]:+.2f} to {ends[1]:+.2f} (the rules' 90% interval" in text


def test_a_size_that_only_an_interval_for_one_look_excludes_does_not_contradict_the_paper():
    far = {11: 67, 12: 72, 13: 80, 14: 89, 15: 82}
    runs = made_up(OPSD=lambda base, noise: 60.0, VCSD=lambda base, noise: far[int(base[15:17])])
    page = verdict_page(runs)
    assert "minus OPSD" not in next(line for line in page.splitlines() if line.startswith("- Sizes: "))
    undecided = page[page.index("## Undecided") : page.index("## Described")]
    assert "- **Sizes**: VCSD minus OPSD +18.00" in undecided
    assert "that the size of VCSD minus OPSD contradicts the paper's" in page


def test_the_bases_that_judge_at_gains_of_the_papers_size_come_before_the_three_that_do_not():
    runs = planned_results(RESULTS)
    said = contrast_at_paper_size(RESULTS)
    first = next(line for line in verdict_page(runs, said).splitlines() if line.startswith("- Where gains"))
    places = [first.index(words) for words in ("8 bases", "Read before, on other bases", "3 bases, no verdict")]
    assert places == sorted(places)
    assert "`contrast decoding` is -1.27" in first[: places[1]]
    alone = next(line for line in verdict_page(runs).splitlines() if line.startswith("- Where gains"))
    assert "3 bases, no verdict" in alone
    assert "Read before" not in alone


def test_a_loss_of_the_control_against_its_base_is_told_apart_from_a_gain():
    page = verdict_page(made_up(sharpened_2=lambda base, noise: 40.0))
    assert "`sharpened 2` itself loses against its base: -10.00" in page
    assert "That is 20% of VCSD's lead over it (+50.00)" in page
    assert "itself loses" not in verdict_page(made_up())


def test_the_page_names_the_steps_that_were_chosen_on_dev():
    runs = made_up()
    assert "the best of nine steps" not in verdict_page(runs), "these results do not say which"
    chosen = [run for run in runs.runs if run.variant.name == BEST_STEP and run.base in runs.verdict_bases]
    for place, run in enumerate(chosen):
        runs.result(run)["chosen_step"] = 10 * place + 50
    line = "- `OPSD, best dev step`: the best of nine steps on `dev`, here step 50, 60, 70, 80, 90, base by base"
    assert line in verdict_page(runs).splitlines()


def test_unread_answers_have_a_column():
    runs = made_up()
    for place, run in enumerate(run for run in runs.runs if run.variant.name == "OPSD"):
        runs.result(run).update(unresolved=10 + place, num_questions=100)
    assert "| 12.0 (10.0 to 14.0) |" in verdict_page(runs)


def test_without_runs_there_is_a_page_and_no_picture():
    runs = made_up(without=tuple(run.base for run in made_up().runs))
    assert "0 of 55 planned runs" in verdict_page(runs)
    assert draw_verdicts(runs) is None


def test_the_picture_has_an_interval_for_every_suite_and_control():
    left, right = draw_verdicts(made_up()).axes
    assert len(left.containers) == 8
    assert len(right.containers) == 9
    assert [label.get_text() for label in left.get_yticklabels()][-1] == "all seven (5)"
