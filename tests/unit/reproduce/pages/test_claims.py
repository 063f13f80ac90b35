"""The rules that judge claims, on made-up results that agree, disagree, or decide nothing."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD
from vcsd.reproduce.pages.claims import CLAIMS
from vcsd.reproduce.pages.details import guard_line, guard_lines, guard_of
from vcsd.reproduce.pages.judges import variant
from vcsd.reproduce.pages.write_pages import claims_page, judged

SMALL, OTHER = "Qwen3-VL 1.0M", "Qwen3.5 1.0M"
NEVER_BLACK = "Qwen3-VL 1.0M, black_share=0"
NOISE = (0.1, -0.1, 0.05, 0.0, -0.05)


class MadeUp:
    """Results from a table of variants and their results, five runs each with a little noise."""

    def __init__(self, **by_name):
        self.ordinary, self.smallest, self.never_black = [SMALL, OTHER], SMALL, [NEVER_BLACK]
        self.groups = {SMALL: [], OTHER: [], NEVER_BLACK: []}
        self.seeds = list(range(5))
        self.sweep = SimpleNamespace(split="test", num_questions=8, out=Path("nowhere"))
        self.whole, self.bases = True, "abcde"
        self._by_name = by_name

    def looks(self, group):
        return 1

    def num_missing(self, experiment):
        return int(not self.whole)

    def on_one_base(self):
        self.bases = "aaaaa"
        return self

    def finished(self, which, group):
        key = which.name.replace(" ", "_").replace(".", "p")
        on = "never_black" if group == NEVER_BLACK else group.split()[0]
        make = self._by_name.get(f"{key}_on_{on}", None if on == "never_black" else self._by_name.get(key))
        runs = zip(self.bases, enumerate(NOISE), strict=True)
        return {} if make is None else {(base, seed): make(noise) for base, (seed, noise) in runs}

    def values(self, which, group, read):
        found = {run: read(result) for run, result in self.finished(which, group).items()}
        return {run: value for run, value in found.items() if value is not None}

    def acc(self, which, group):
        return self.values(which, group, lambda result: result.get("acc"))


def at(acc, **more):
    """A result maker: this accuracy everywhere."""
    return lambda noise: {"acc": acc + noise, "scores": dict.fromkeys(SEVEN, acc + noise), **more}


def still(acc):
    return lambda noise: {"acc": acc, "scores": dict.fromkeys(SEVEN, acc)}


def judge(text, results):
    (claim,) = [each for each in CLAIMS if text in each.says]
    return claim.judge(results)[:2]


def test_vcsd_must_be_above_on_every_model():
    good = MadeUp(base=still(40.0), VCSD=at(45.0))
    assert judge("improves every model", good)[1] == "agrees"
    bad_on_one = MadeUp(base=still(40.0), VCSD=at(45.0), **{"VCSD_on_Qwen3.5": at(38.0)})
    said, verdict = judge("improves every model", bad_on_one)
    assert verdict == "disagrees"
    assert "Qwen3-VL 1.0M +5.00" in said
    assert "Qwen3.5 1.0M -2.00" in said
    assert judge("improves every model", MadeUp(base=still(40.0), VCSD=at(40.0)))[1] == "undecided"
    assert judge("improves every model", MadeUp(base=still(40.0)))[1] == "not run"


@pytest.mark.parametrize(
    ("text", "lower", "higher"),
    [
        ("(alpha 0), accuracy is lower", "alpha_0", "alpha_1"),
        ("(alpha 2) is worse", "alpha_2", "alpha_1"),
        ("above reverse KL", "reverse_KL", "forward_KL"),
        ("above the Jensen", "JSD", "forward_KL"),
    ],
)
def test_the_direction_of_an_ablation_counts(text, lower, higher):
    assert judge(text, MadeUp(**{lower: still(40.0), higher: at(43.0)}))[1] == "agrees"
    assert judge(text, MadeUp(**{lower: still(43.0), higher: at(40.0)}))[1] == "disagrees"


def test_alike_means_within_a_point_or_not_clearly_apart():
    names = ("noise", "black", "blur", "no_image")
    near = MadeUp(**{name: at(50.0 + place / 4) for place, name in enumerate(names)})
    assert judge("four controls", near)[1] == "agrees"
    far = MadeUp(noise=at(50.0), black=still(50.0), blur=still(50.0), no_image=still(44.0))
    assert judge("four controls", far)[1] == "disagrees"
    loud = MadeUp(noise=lambda n: {"acc": 50 + 100 * n}, black=still(50.0), blur=still(50.0), no_image=still(47.9))
    assert judge("four controls", loud)[1] == "undecided"


def test_one_base_alone_decides_nothing():
    alone = MadeUp(
        base=still(40.0), OPSD=still(41.0), VCSD=at(45.0), **{f"alpha_{name}": at(44.0) for name in (1, "1p25", "1p5")}
    ).on_one_base()
    for text in ("improves every model", "every benchmark", "no consistent gain", "less than a point"):
        assert judge(text, alone)[1] == "undecided", text


def test_every_suite_counts_not_their_mean():
    def one_worse(noise):
        return {"acc": 50.0, "scores": {**dict.fromkeys(SEVEN, 50.0 + noise), "small": 30.0 + noise}}

    def one_unclear(noise):
        return {"acc": 50.0, "scores": {**dict.fromkeys(SEVEN, 50.0 + noise), "small": 40.01 + noise}}

    assert judge("every benchmark", MadeUp(OPSD=still(40.0), VCSD=at(45.0)))[1] == "agrees"
    assert judge("every benchmark", MadeUp(OPSD=still(40.0), VCSD=one_worse))[1] == "disagrees"
    said, verdict = judge("every benchmark", MadeUp(OPSD=still(40.0), VCSD=one_unclear))
    assert verdict == "undecided"
    assert said.endswith("clear in 6; unread not recorded")


def test_opsd_without_a_gain_is_within_a_point_or_clearly_worse():
    def on_qwen3_5(make):
        return judge("no consistent gain", MadeUp(base=still(50.0), **{"OPSD_on_Qwen3.5": make}))[1]

    assert on_qwen3_5(at(60.0)) == "disagrees"
    assert on_qwen3_5(at(50.01)) == "agrees"
    assert on_qwen3_5(at(45.0)) == "agrees"
    assert on_qwen3_5(lambda noise: {"acc": 70.0 + 300 * noise}) == "undecided"


def test_alpha_1_is_the_peak_if_it_is_the_best_and_clearly_above_both_ends():
    others = {f"alpha_{name}": still(40.0) for name in ("0", "0p5", "1p25", "1p5")}
    assert judge("peaks around", MadeUp(alpha_1=at(44.0), alpha_2=still(43.0), **others))[1] == "agrees"
    said, verdict = judge("peaks around", MadeUp(alpha_1=at(44.0), alpha_2=still(43.99), **others))
    assert verdict == "undecided", "a plateau has no peak"
    assert said.startswith("alpha 1 is the best: +4.00 ± 0.04 (p < 0.001) over alpha 0, unread not recorded; +0.01")
    assert judge("peaks around", MadeUp(alpha_1=at(44.0), alpha_2=still(44.01), **others))[1] == "undecided"
    said, verdict = judge("peaks around", MadeUp(alpha_1=at(44.0), alpha_2=still(44.6), **others))
    assert verdict == "disagrees"
    assert said.startswith("alpha 2 is the best, +0.60")
    assert judge("peaks around", MadeUp(alpha_1=at(44.0), **others))[1] == "not run"


def test_the_furthest_of_many_pairs_must_be_clear_for_all_of_them():
    """p = 0.047 is clear for one pair, and not as the largest of six."""

    def lower(noise):
        return {"acc": 46.0 + 40 * noise}

    pair = MadeUp(anchor_1=still(50.0), no_anchor=lower)
    said, verdict = judge("with and without the anchor", pair)
    assert verdict == "disagrees"
    assert said == (
        "no anchor 46.00, anchor 1 50.00; anchor 1 +4.00 ± 1.41 (p = 0.047), "
        "90% interval +0.99 to +7.01 over no anchor, unread not recorded"
    )
    four = MadeUp(noise=still(50.0), black=still(49.9), blur=still(49.9), no_image=lower)
    said, verdict = judge("four controls", four)
    assert verdict == "undecided"
    assert said.endswith(
        "(p = 0.047), 90% interval +0.99 to +7.01 over no image, the largest of 6 differences, unread not recorded"
    )


def test_what_is_said_of_two_variants_is_said_of_the_runs_that_both_have():
    results = MadeUp(OPSD=still_curve(45, 40, 39), VCSD=curve(41, 43, 44))
    every = results.finished
    results.finished = lambda which, group: dict(list(every(which, group).items())[: 3 if which.name == "VCSD" else 5])
    results._by_name["OPSD"] = lambda noise: curve(45, 40, 39 - 100 * (noise == 0.0))(0.0)
    said, _ = judge("late in training", results)
    assert "OPSD 6.00 ± 0.00, VCSD 0.00 ± 0.00; difference +6.00" in said


def test_forward_kl_must_be_first_in_six_suites():
    def ahead_in(num):
        return lambda noise: {
            "acc": 0.0,
            "scores": {n: (45.0 if i < num else 35.0) + noise for i, n in enumerate(SEVEN)},
        }

    verdicts = [
        judge("first on six", MadeUp(forward_KL=ahead_in(num), JSD=still(40.0), reverse_KL=still(39.0)))[1]
        for num in (7, 6, 5)
    ]
    assert verdicts == ["agrees", "agrees", "disagrees"]


def curve(*accs):
    return lambda noise: {
        "acc": accs[-1] + noise,
        "curve": [_point(30 * place, acc + noise * place) for place, acc in enumerate(accs, 1)],
        "guard": {"warn": None, "stop": None},
    }


def still_curve(*accs):
    return lambda noise: curve(*accs)(0.0)


def long_curve(*accs):
    """Accuracies at steps 30, 90 and 300."""
    return lambda noise: {"curve": [_point(step, acc + noise) for step, acc in zip((30, 90, 300), accs, strict=True)]}


def _point(step, acc):
    return {"step": step, "acc": acc, "scores": dict.fromkeys(SEVEN, acc)}


def test_a_collapse_without_the_support_agrees():
    fall, hold = curve(50.0, 51.0, 20.0), curve(50.0, 51.0, 50.5)
    assert judge("Without the plausible support", MadeUp(beta_0p1=hold, beta_0=fall))[1] == "agrees"
    assert judge("Without the plausible support", MadeUp(beta_0p1=fall, beta_0=hold))[1] == "disagrees"
    long_fall, long_hold = (long_curve(90.0, 70.0, end) for end in (20.0, 70.1))
    assert judge("With the plausible support", MadeUp(beta_0p1=long_hold))[1] == "agrees", "the best step is another"
    assert judge("With the plausible support", MadeUp(beta_0p1=long_fall))[1] == "disagrees"
    assert judge("Early in training", MadeUp(beta_0p1=hold, beta_0=fall))[1] == "agrees"
    assert judge("Early in training", MadeUp(beta_0p1=hold, beta_0=curve(40.0, 20.0)))[1] == "disagrees"


def test_every_step_counts_in_the_dynamics():
    assert judge("every evaluated step", MadeUp(OPSD=still_curve(40, 40, 39), VCSD=curve(41, 43, 44)))[1] == "agrees"
    assert judge("every evaluated step", MadeUp(OPSD=still_curve(45, 40, 39), VCSD=curve(41, 43, 44)))[1] == "disagrees"
    assert judge("on MMStar", MadeUp(OPSD=still_curve(45, 40, 39), VCSD=curve(41, 43, 44)))[1] == "agrees"
    assert judge("on MathVista", MadeUp(OPSD=still_curve(45, 40, 39), VCSD=curve(41, 43, 44)))[1] == "disagrees"
    assert judge("late in training", MadeUp(OPSD=still_curve(45, 40, 39), VCSD=curve(41, 43, 44)))[1] == "agrees"
    assert judge("late in training", MadeUp(OPSD=still_curve(50, 50, 50), VCSD=curve(90, 70, 52)))[1] == "disagrees"


def drifts(share):
    return lambda noise: {"acc": 50.0, "series": {"language_drift": [share + noise / 10, share - noise / 20]}}


def test_the_anchor_must_reduce_drift():
    assert judge("language drift", MadeUp(anchor_1=drifts(0.02), no_anchor=drifts(0.30)))[1] == "agrees"
    said, verdict = judge("language drift", MadeUp(anchor_1=drifts(0.30), no_anchor=drifts(0.02)))
    assert verdict == "disagrees"
    assert said.startswith("30.")


def test_the_contrast_must_grow_on_visual_words():
    def profiled(seen, other):
        return lambda noise: {"acc": 50.0, "profile": {"seen": seen + noise, "other": other}}

    def after(seen, other):
        return judge("second rule", MadeUp(OPSD=profiled(1.0, 0.2), VCSD=lambda n: profiled(seen, other)(2 * n)))[1]

    assert after(2.0, 0.3) == "agrees"
    assert after(1.5, 2.3) == "disagrees", "it grew, and more on other words"
    assert after(0.5, 0.2) == "disagrees", "it shrank"
    assert after(1.01, 0.2) == "undecided"


def test_both_rules_for_figure_6_are_judged():
    def profiled(right, wrong):
        numbers = {"other": 0.0, "num_seen": 10.0, "num_other": 10.0}
        return lambda noise: {
            "profile": {"seen": right + noise, **numbers},
            "profile_of_wrong": {"seen": wrong + noise, **numbers},
        }

    results = MadeUp(OPSD=profiled(1.0, 1.0), VCSD=lambda noise: profiled(2.0, -3.0)(2 * noise))
    assert judge("second rule", results)[1] == "agrees"
    said, verdict = judge("first rule", results)
    assert verdict == "disagrees"
    assert said.startswith("nats over OPSD, in all answers: -1.50")


def test_a_second_look_doubles_p_and_four_bases_decide_nothing():
    def lower(noise):
        return {"acc": 46.0 + 40 * noise}

    results = MadeUp(anchor_1=still(50.0), no_anchor=lower)
    results.looks = lambda group: 2
    said, verdict = judge("with and without the anchor", results)
    assert verdict == "undecided", "p = 0.047 before the correction"
    assert "(p = 0.095), 95% interval" in said
    assert said.endswith(" over no anchor, unread not recorded")
    results = MadeUp(base=still(40.0), VCSD=at(45.0))
    results.bases = "abcdd"
    said, verdict = judge("improves every model", results)
    assert verdict == "undecided"
    assert "4 bases" in said


def test_an_interval_that_excludes_the_papers_number_disagrees():
    said, verdict = judge("above the Jensen", MadeUp(JSD=still(50.0), forward_KL=at(50.05)))
    assert verdict == "disagrees"
    assert said.endswith("excludes the paper's +0.79")
    loud = MadeUp(JSD=still(50.0), forward_KL=lambda noise: {"acc": 50.0 + 20 * noise})
    assert judge("above the Jensen", loud)[1] == "undecided"


def test_each_claim_says_whether_its_runs_could_decide_it():
    quiet = MadeUp(JSD=still(50.0), forward_KL=at(50.0), noise=at(50.0), black=still(50.0), blur=still(50.0))
    quiet._by_name["no_image"] = lambda noise: {"acc": 50.0 + 30 * noise}
    quiet.looks = lambda group: 2
    rows = {row["claim"]: row["could_decide"] for row in judged(quiet)}
    error = 0.1 * math.sqrt(2.5 / 4 / 5)
    assert rows["Forward KL is above the Jensen-Shannon divergence."] == (
        f"decided: differences from {error * (3.49541 + 0.94096):.2f} points"
    )
    assert rows["The four controls give similar accuracy."].startswith("no: alike within")
    quiet.bases = "aabbb"
    assert {row["could_decide"] for row in judged(quiet)} == {"", "no: 2 bases of 5"}


def test_mutual_information_is_judged_by_its_correlation():
    def measured(r):
        return lambda noise: {"pmi": {"black": {"correlation": r, "same_sign": 0.9, "same_choice": 0.9}}}

    verdicts = [judge("mutual information", MadeUp(contrast_and_PMI=measured(r)))[1] for r in (0.9, 0.5, 0.1, math.nan)]
    assert verdicts == ["agrees", "undecided", "disagrees", "undecided"]


def test_the_correlation_says_from_which_value_its_runs_could_have_shown_it():
    def measured(noise):
        return {"pmi": {"black": {"correlation": 0.9 + noise, "same_sign": 0.9, "same_choice": 0.9}}}

    results = MadeUp(contrast_and_PMI=measured)
    (row,) = [row for row in judged(results) if "mutual information" in row["claim"]]
    error = 0.1 * math.sqrt(2.5 / 4 / 5)
    least = 0.7 + error * (2.77645 + 0.94096)
    assert row["could_decide"] == f"decided: r from {least:.2f} would be clearly above 0.7"
    results.bases = "aabbb"
    (row,) = [row for row in judged(results) if "mutual information" in row["claim"]]
    assert (row["could_decide"], row["verdict"]) == ("no: 2 bases of 5", "undecided")


def test_the_table_of_claims_starts_with_disagreements_and_ends_with_agreements():
    vcsd = at(45.0, guard={"warn": None, "stop": None})
    results = MadeUp(base=still(40.0), VCSD=vcsd, OPSD=still(46.0), paper=still(40.0), author_code=at(45.0))
    table = claims_page(results).partition("| claim |")[2].partition("\n\n")[0]
    words = [line.rpartition(" | ")[2].strip("*| ") for line in table.splitlines()[2:]]
    order = [word for place, word in enumerate(words) if place == 0 or words[place - 1] != word]
    assert order == ["disagrees", "agrees", "no claim"]


def test_decoding_says_its_cost():
    results = MadeUp(base=still(40.0), VCSD=at(45.0), contrast_decoding=at(44.0, cost={"ratio": 2.1}))
    said, verdict = judge("helps at inference", results)
    assert verdict == "agrees"
    assert "2.10 times" in said
    assert "VCSD +1.00" in said


def test_what_the_paper_does_not_compare_is_no_claim():
    assert judge("does not compare", MadeUp(paper=still(40.0), author_code=at(45.0)))[1] == "no claim"


def test_bases_that_never_saw_black_are_told_apart_and_judged_by_no_claim():
    own = {
        "base_on_never_black": still(40.0),
        "VCSD_with_black_on_never_black": at(38.0),
        "VCSD_with_noise_on_never_black": at(44.0),
    }
    good = MadeUp(base=still(40.0), VCSD=at(45.0), **own)
    assert judge("improves every model", good)[1] == "agrees", "the paper's claims are about ordinary bases"
    said, verdict = judge("never saw a black picture", good)
    assert verdict == "no claim"
    assert said.startswith("Qwen3-VL 1.0M, black_share=0: VCSD with black -2.00")
    assert "VCSD with noise +4.00" in said
    assert "no image" not in said, "it was not run"
    assert judge("never saw a black picture", MadeUp(base=still(40.0), VCSD=at(45.0))) == ("", "not run")


def test_the_page_counts_verdicts_and_names_what_was_not_run(tmp_path):
    results = MadeUp(base=still(40.0), VCSD=at(45.0, guard={"warn": 3, "stop": None}), OPSD=still(46.0))
    results.sweep.out = tmp_path
    (tmp_path / "main.md").touch()
    page = claims_page(results)
    assert (
        "4 disagree with the paper, 0 are undecided, 2 agree, 0 are not made in the paper, 25 have not been run" in page
    )
    assert "| VCSD improves every model over its base. | [main](main.md) | +1.86 to +4.77 points |" in page
    assert "**disagrees**" in page
    assert "- Qwen3-VL 1.0M, healthy runs (VCSD, 5): it stops none." in page


def test_a_page_without_watched_runs_has_no_part_about_the_guard():
    assert "## The guard" not in claims_page(MadeUp(base=still(40.0)))


def test_half_an_experiment_is_said_to_be_half_and_has_no_verdict(tmp_path):
    results = MadeUp(base=still(40.0), VCSD=at(45.0, guard={"warn": 3, "stop": None}), OPSD=still(46.0))
    results.whole = False
    page = claims_page(results)
    assert "0 disagree with the paper, 6 are undecided, 0 agree" in page
    assert "some runs are missing" in page
    assert "[main]" not in page, "there is no page to link to yet"


def test_every_variant_that_a_claim_reads_exists():
    assert {claim.experiment for claim in CLAIMS} == set(EXPERIMENTS) - {"sharpening", "dose"}, "the paper has neither"
    assert (BASE.kind, OPSD.kind, VCSD.kind) == ("base", "train", "train")
    with pytest.raises(StopIteration):
        variant("alpha", "alpha 3")


def test_the_guard_is_too_late_when_more_than_five_points_are_gone():
    points = [{"step": 30, "acc": 50.0}, {"step": 60, "acc": 44.0}, {"step": 90, "acc": 20.0}]

    def said(start=None, curve=points, **guard):
        return guard_line({"guard": {"stop": None, **guard}, "curve": curve}, start)

    assert said(stop=60).endswith("stopped at step 60 with 6.0 points lost: too late")
    assert said(stop=55, acc_at_stop=46.0).endswith("with 4.0 points lost: in time")
    assert said(stop=55).endswith("stopped at step 55 with 6.0 points lost by step 60: perhaps too late")
    assert said(stop=20).endswith("with 0.0 points lost by step 30: in time")
    assert said(stop=20, start=57.0).endswith("with 7.0 points lost by step 30: perhaps too late")
    assert said().endswith("not stopped: too late")
    assert said(curve=points[:1]).endswith("did not lose 5 points")


def test_the_guard_of_today_judges_runs_of_yesterday():
    pull = [0.1] * 20 + [0.5] * 30
    result = {"guard": {"warn": None, "stop": None}, "series": {"kl_target_original": pull, "length": [None] * 50}}
    found = guard_of(result)
    assert found["warn"] < found["stop"] < 40
    assert found["acc_at_stop"] is None
    asked = {"warn": 1, "stop": found["stop"], "acc_at_stop": 33.0}
    assert guard_of({**result, "guard": asked})["acc_at_stop"] == 33.0
    assert guard_of({**result, "guard": {**asked, "stop": 49}})["acc_at_stop"] is None, "asked at another step"


def test_healthy_runs_of_every_model_are_watched():
    sound, broken = {"warn": None, "stop": None}, {"warn": 3, "stop": 9}
    results = MadeUp(VCSD=at(45.0, guard=sound), **{"VCSD_on_Qwen3.5": at(45.0, guard=broken)})
    first, second = guard_lines(VCSD, BASE, results)
    assert first == "- Qwen3-VL 1.0M, healthy runs (VCSD, 5): it stops none."
    assert second.startswith("- Qwen3.5 1.0M, healthy runs (VCSD, 5): it would have stopped a seed 0, b seed 1")
