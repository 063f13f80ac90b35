"""What docs say about the emoji studies is what their result files give, computed without the code of their pages."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from statistics import mean, stdev

import pytest

from vcsd.emoji.questions import draw_question
from vcsd.emoji.study.settle import sign_test
from vcsd.evaluation.scoring.student_t import two_sided

DOCS = Path(__file__).parents[3] / "docs"
UNUSUAL = ("unusual_prompted", "unusual_unprompted")
QUESTIONS = [draw_question("test", "presence", number).key for number in range(256)]
METHODS = ("contrast_decoding", "VCSD", "alpha_0", "sharpened_2", "OPSD")


EACH = 8
"""Rollouts of a prompt."""


def changed_prompts(lines):
    changed = [line["flips"] * line["keys"] / EACH for line in lines]
    assert all(abs(num - round(num)) < 1e-3 for num in changed), "the answers to a prompt change together"
    return round(sum(changed))


@dataclass(frozen=True)
class Study:
    """The result files of one study."""

    name: str
    bases: tuple[str, ...]

    def cell(self, run):
        return json.loads((DOCS / "results" / self.name / "cells" / f"{run}.json").read_text(encoding="utf-8"))

    def result(self, base, variant):
        return self.cell(f"test-{base}-{variant}")

    def alarms(self):
        names = [path.stem for path in (DOCS / "results" / self.name / "cells").glob("*.json")]
        return {name: result["alarms"] for name in names if "alarms" in (result := self.cell(name))}

    def warned(self, suite):
        return sorted(name for name, own in self.alarms().items() if own.get(suite, {}).get("warn"))

    def right(self, base, variant, *suites):
        return mean(self.result(base, variant)["scores"][suite]["right"] for suite in suites)

    def unrounded(self, base, variant, *suites):
        (scores,) = self.result(base, variant)["unrounded_at"].values()
        return mean(scores[suite]["right"] for suite in suites)

    def over_bases(self, variant, *suites):
        return mean(self.right(base, variant, *suites) for base in self.bases)

    def gains(self, variant):
        return [self.right(base, variant, *UNUSUAL) - self.right(base, "base", *UNUSUAL) for base in self.bases]

    def unrounded_gain(self, variant):
        return mean(self.unrounded(base, variant, *UNUSUAL) - self.right(base, "base", *UNUSUAL) for base in self.bases)

    def falls(self, suite, variant="VCSD"):
        return sorted(self.right(base, "base", suite) - self.right(base, variant, suite) for base in self.bases)

    def sampled_in(self, run, suite, first, last):
        """Percent of right rollouts of a run from one step to another."""
        text = (DOCS / "results" / self.name / "runs" / run / "keys.jsonl").read_text(encoding="utf-8")
        lines = [line for line in map(json.loads, text.splitlines()) if line["suite"] == suite]
        lines = [line for line in lines if first <= line["step"] <= last]
        return sum(line["right"] * line["responses"] for line in lines) / sum(line["responses"] for line in lines)

    def counting(self, run):
        """What a run recorded of counting, step by step."""
        text = (DOCS / "results" / self.name / "runs" / run / "keys.jsonl").read_text(encoding="utf-8")
        return [line for line in map(json.loads, text.splitlines()) if line["suite"] == "count"]

    def changed_while_right(self, run, other):
        """On how many prompts the contrast changed the most likely number before the first wrong one of `run`: in
        `run`, in `other`, which has the same prompts, and of how many.
        """
        early = list(takewhile(lambda line: line["right"] == 100, self.counting(run)))
        same = self.counting(other)[: len(early)]
        assert [(line["step"], line["keys"]) for line in same] == [(line["step"], line["keys"]) for line in early]
        return changed_prompts(early), changed_prompts(same), sum(line["keys"] for line in early) // EACH

    def sampled(self, suite, variant, first, last):
        """The mean over bases on `test`."""
        return mean(self.sampled_in(f"test-{base}-{variant}", suite, first, last) for base in self.bases)

    def right_by_key(self, base, variant):
        """Percent of right answers to questions about presence, by the true answer."""
        marks = self.result(base, variant)["scores"]["presence"]["marks"]
        return {
            key: 100 * mean(mark == "1" for mark, true in zip(marks, QUESTIONS, strict=True) if true == key)
            for key in ("yes", "no")
        }

    def losses_by_key(self, variant, key):
        """Points that each base loses on the questions with one true answer."""
        return [self.right_by_key(base, "base")[key] - self.right_by_key(base, variant)[key] for base in self.bases]

    def changed(self, base, variant, suite):
        """The numbers of the questions that were right only before, and only after."""
        before, after = (self.result(base, name)["scores"][suite]["marks"] for name in ("base", variant))
        pairs = list(enumerate(zip(before, after, strict=True)))
        return {n for n, pair in pairs if pair == ("1", "0")}, {n for n, pair in pairs if pair == ("0", "1")}

    def lost_answers_no(self, variant):
        """Questions about presence whose true answer is "no", right only before, on all bases."""
        lost = {base: self.changed(base, variant, "presence")[0] for base in self.bases}
        return {(base, number) for base, own in lost.items() for number in own if QUESTIONS[number] == "no"}

    def of_first_128(self, variant):
        """Percent of right unusual colours on the questions whose target was measured, over bases."""
        scores = [
            self.result(base, variant)["scores"][suite]["marks"][:128] for base in self.bases for suite in UNUSUAL
        ]
        return 100 * mean(mark == "1" for marks in scores for mark in marks)

    def contrasts(self, suite):
        return [self.result(base, "base")["key_contrast"][suite] for base in self.bases]


FIRST = Study("language", tuple(f"emoji-{number}" for number in range(1, 6)))
SECOND = Study("language_exported", tuple(f"emoji-{number}" for number in range(6, 11)))


def first_said() -> Iterator[tuple[str, str]]:
    """What each page says of the first study, with its numbers computed here."""
    presence = [f"{FIRST.over_bases(name, 'presence'):.1f}" for name in ("base", "VCSD")]
    prompted = [f"{FIRST.over_bases(name, 'unusual_prompted'):.1f}" for name in ("base", "VCSD")]
    unprompted = [f"{FIRST.over_bases(name, 'unusual_unprompted'):.1f}" for name in ("base", "VCSD")]
    seen = [f"{FIRST.sampled(suite, 'VCSD', 21, 30):.1f}" for suite in ("unusual_prompted", "presence")]
    gain = f"{mean(FIRST.gains('VCSD')):.1f}"
    lost = FIRST.falls("presence")
    count = FIRST.falls("count")
    yield "real_language.md", f"| unusual colours, VCSD minus base | +{gain} points |"
    yield "real_language.md", f"breaks on all five bases, from {presence[0]}% to {presence[1]}% on average"
    yield "real_language.md", f"presence falls on every base, by {lost[0]:.1f} to {lost[-1]:.1f} points"
    yield "faq.md", f"VCSD lost {lost[0]:.1f} to {lost[-1]:.1f} points of presence on each of five bases"
    yield "real_language.md", f"on two of five bases, by {count[-1]:.1f} and {count[-2]:.1f} points"
    lowest = min(FIRST.right(base, "OPSD", "count") for base in FIRST.bases)
    yield "real_language.md", f"on all five, down to {lowest:.1f}."
    yield "real_language.md", f"rise from {prompted[0]}% to {prompted[1]}% for things"
    yield "real_language.md", f"from {unprompted[0]}% to {unprompted[1]}% for things that no prompt"
    yield "real_language.md", f"within {max(map(abs, FIRST.gains('alpha_0'))):.1f} points of the base"
    yield "real_language.md", f"sharpening falls to {FIRST.over_bases('sharpened_2', *UNUSUAL):.1f}%"
    yield "real_language.md", f"sampled {seen[0]}% of unusual colours and {seen[1]}% of presence right"
    yield "real_language.md", f"weights says {prompted[1]}% and {presence[1]}%"
    yield "real_language.md", f"rollouts counted right in {FIRST.sampled('count', 'OPSD', 21, 30):.1f}% of cases"
    yield "real_language.md", f"of cases; the evaluation says {FIRST.over_bases('OPSD', 'count'):.1f}%"
    yield "real_language.md", f"they fall by {mean(FIRST.falls('usual_prompted')):.1f} points in the first study"
    settling = [
        FIRST.sampled_in(f"dev-emoji-1-VCSD-lr_{rate}-beta_0.1", "unusual_prompted", 51, 60)
        for rate in ("5e-6", "1e-5", "2e-5")
    ]
    rules = "preregistration_language_exported.md"
    yield rules, f"sampled {min(settling):.0f} to {max(settling):.0f}% right"
    yield rules, f"VCSD raised unusual colours by {gain} points"
    yield rules, f"answers to {seen[1]}% of presence and {seen[0]}% of unusual"
    yield rules, f"the exam found {presence[1]}% and {prompted[1]}%"
    yield "../CHANGELOG.md", f"VCSD gains {gain} points on unusual colours and breaks presence"


def second_said() -> Iterator[tuple[str, str]]:
    """The same for the second study."""
    gains = {name: mean(SECOND.gains(name)) for name in METHODS}
    prompted = [f"{SECOND.over_bases(name, 'unusual_prompted'):.1f}%" for name in ("base", "VCSD")]
    unprompted = [f"{SECOND.over_bases(name, 'unusual_unprompted'):.1f}%" for name in ("base", "VCSD")]
    presence = SECOND.falls("presence")
    no = sorted(SECOND.losses_by_key("VCSD", "no"))
    over_decoding = [vcsd - other for vcsd, other in zip(*map(SECOND.gains, METHODS[1::-1]), strict=True)]
    half = 2.776445 * stdev(over_decoding) / len(over_decoding) ** 0.5  # Student's t with 4 degrees of freedom
    perplexity = [
        mean(SECOND.result(base, name)["english_perplexity"] for base in SECOND.bases) for name in ("base", "VCSD")
    ]
    unrounded = mean(SECOND.unrounded(base, "VCSD", "presence") for base in SECOND.bases)
    yield "real_language.md", f"points | +{gains['VCSD']:.1f} points |"
    yield "real_language.md", f"presence breaks on `emoji-9`, by {presence[-1]:.1f} points"
    yield "real_language.md", f"| breaks on `emoji-9`, by {presence[-1]:.1f} points |"
    yield "real_language.md", f"On average it falls by {mean(presence):.1f} points"
    yield "real_language.md", f'whose answer is "no" correctly, by {no[0]:.1f} to {no[-1]:.1f} points'
    yield "faq.md", f"worse on all five, by {no[0]:.1f} to {no[-1]:.1f} points"
    yield "real_language.md", f"from {' to '.join(prompted)} and from {' to '.join(unprompted)}; alpha 0"
    yield "real_language.md", f"by {gains['alpha_0']:.1f} and {gains['sharpened_2']:.1f} points on average"
    yield "real_language.md", f"at its one setting**: {mean(over_decoding):.1f} points in the second study"
    yield "real_language.md", f"(95% {mean(over_decoding) - half:+.1f} to {mean(over_decoding) + half:+.1f}, not"
    yield "real_language.md", f"contrast decoding gains {gains['contrast_decoding']:.1f} points there"
    yield "real_language.md", f"gains more**: {mean(FIRST.gains('OPSD')):.1f} and {gains['OPSD']:.1f} points"
    yield "real_language.md", f"English goes from {perplexity[0]:.1f} to {perplexity[1]:.1f}"
    yield "real_language.md", f"Unrounded, VCSD gains {SECOND.unrounded_gain('VCSD'):.1f} points"
    yield "real_language.md", f"and presence falls to {unrounded:.1f}%"
    yield "real_language.md", f"rounded, {gains['VCSD']:.1f} points and {SECOND.over_bases('VCSD', 'presence'):.1f}%"
    yield "../CHANGELOG.md", f"VCSD gains {gains['VCSD']:.1f} points and breaks presence on one base"


def lost_no_on_dev(study, rate, beta, steps):
    """p of the sign test, and points lost, on the questions of `dev` whose true answer is "no"."""
    base = study.cell(f"dev-{study.bases[0]}-base")["scores"]["presence"]["marks"]
    run = study.cell(f"dev-{study.bases[0]}-VCSD-lr_{rate}-beta_{beta}")
    after = run["scores_at"][str(steps)]["presence"]["marks"]
    pairs = [
        (base[number], after[number])
        for number in range(len(base))
        if draw_question("dev", "presence", number).key == "no"
    ]
    lost, won = pairs.count(("1", "0")), pairs.count(("0", "1"))
    return sign_test(lost, won), 100 * (lost - won) / len(pairs)


def second_in_detail() -> Iterator[tuple[str, str]]:
    """What pages say of single settings and questions of the second study."""
    target = mean(own["target"] for suite in UNUSUAL for own in SECOND.contrasts(suite))
    shares = [f"{share:.1f}%" for share in (target, *map(SECOND.of_first_128, ("contrast_decoding", "VCSD")))]
    yield "real_language.md", f"already gets {shares[0]} right, decoding {shares[1]}, and VCSD {shares[2]}"
    no_lost = {name: SECOND.lost_answers_no(name) for name in METHODS}
    both = len(no_lost["VCSD"] & no_lost["contrast_decoding"])
    yield "real_language.md", f'{both} of the {len(no_lost["VCSD"])} answers "no" that VCSD loses'
    lost, won = (len(numbers) for numbers in SECOND.changed("emoji-8", "VCSD", "usual_unnamed"))
    yield "real_language.md", f"lose {lost} answers and gain {won}, which is {100 * (lost - won) / 256:.1f} points"
    p = sign_test(lost, won - 1)
    yield "real_language.md", f"breaks too ({100 * (lost - won + 1) / 256:.1f} points, p = {p:.2f})"
    on_dev = SECOND.cell("dev-emoji-6-base")["scores"]["presence"]["right"]
    at_30 = SECOND.cell("dev-emoji-6-VCSD-lr_5e-6-beta_0.1")["scores_at"]["30"]["presence"]["right"]
    yield "real_language.md", f"It loses {on_dev - at_30:.1f} points of presence on `dev`"
    yield "real_language.md", f"would break too, by {lost_no_on_dev(SECOND, '5e-6', '0.1', 30)[1]:.1f} points"
    grid = [(rate, beta, steps) for rate in ("5e-6", "1e-5", "2e-5") for beta in ("0.1", "0.01") for steps in (30, 60)]
    broken = sum(points > 3 and p < 0.05 for p, points in (lost_no_on_dev(SECOND, *setting) for setting in grid))
    assert broken == len(grid) == 12
    yield "real_language.md", 'in all twelve if only the questions whose answer is "no" count'
    more = [
        own - other for own, other in zip(*(SECOND.losses_by_key(name, "no") for name in ("VCSD", "OPSD")), strict=True)
    ]
    p = two_sided(mean(more) / (stdev(more) / math.sqrt(5)), 4)
    yield "real_language.md", f"({mean(more):.1f} points more than OPSD, p = {p:.2f})"
    counted = SECOND.cell("dev-emoji-6-VCSD-lr_2e-5-beta_0.1")["scores_at"]["60"]["count"]["right"]
    yield "real_language.md", f"60 steps broke it ({counted:.1f}%)"


def both_said() -> Iterator[tuple[str, str]]:
    """What pages say of both."""
    targets = [own["target"] for study in (FIRST, SECOND) for own in study.contrasts("count")]
    yield "real_language.md", f"in {min(targets):.1f} to {max(targets):.1f}% of cases on all ten bases"
    decoding = [loss for study in (FIRST, SECOND) for loss in study.losses_by_key("contrast_decoding", "no")]
    yield "real_language.md", f"on all ten bases, by {min(decoding):.1f} to {max(decoding):.1f} points"
    broken = {
        study.cell(f"dev-{study.bases[0]}-VCSD-lr_{rate}-beta_0.01")["scores"]["count"]["right"]
        for study in (FIRST, SECOND)
        for rate in ("5e-6", "1e-5", "2e-5")
    }
    runs = [f"dev-{study.bases[0]}-VCSD-lr_5e-6-beta_" for study in (FIRST, SECOND)]
    pairs = zip((FIRST, SECOND), runs, strict=True)
    first, second = (study.changed_while_right(f"{run}0.01", f"{run}0.1") for study, run in pairs)
    changed = f"{first[0]} of {first[2]} prompts in the first study and on {second[0]} of {second[2]} in the second"
    assert first[1] == second[1]
    yield "real_language.md", f"{changed}; with beta 0.1, on {first[1]} of the same prompts each"
    lowest, low, _, high = sorted(broken)
    yield "real_language.md", f"{lowest:.1f}% right in the first study and {low:.1f} to {high:.1f}% in the second"


@pytest.mark.parametrize(("page", "words"), [*first_said(), *second_said(), *second_in_detail(), *both_said()])
def test_pages_say_what_the_files_give(page, words):
    assert words in re.sub(r"\s+", " ", (DOCS / page).read_text(encoding="utf-8"))


def test_no_guard_of_the_first_study_warned_and_those_of_counting_warned_late():
    assert len(FIRST.alarms()) == 32
    assert (FIRST.warned("run"), FIRST.warned("presence")) == ([], [])
    assert FIRST.warned("count") == [f"dev-emoji-1-VCSD-lr_{rate}-beta_0.01" for rate in ("1e-5", "2e-5", "5e-6")]


def test_no_run_with_vcsd_made_its_guard_warn_in_the_second_study():
    assert len(SECOND.alarms()) == 32
    warned = SECOND.warned("run")
    assert len(warned) == 5
    assert all("-alpha_0" in name or "-sharpened_2" in name for name in warned)
    assert min(SECOND.alarms()[name]["run"]["warn"] for name in warned) > 50, "at their end"
    assert SECOND.warned("presence") == ["dev-emoji-6-VCSD-lr_2e-5-beta_0.01"]
    assert SECOND.warned("count") == [
        *(f"dev-emoji-6-VCSD-lr_{rate}-beta_0.01" for rate in ("1e-5", "2e-5", "5e-6")),
        "test-emoji-8-sharpened_2",
    ]


def test_after_vcsd_every_base_of_the_first_study_says_yes_where_it_should():
    assert [FIRST.right_by_key(base, "VCSD")["yes"] for base in FIRST.bases] == [100.0] * 5


def test_vcsd_and_contrast_decoding_lose_answers_no_and_gain_answers_yes_on_all_bases():
    for study in (FIRST, SECOND):
        for variant in ("VCSD", "contrast_decoding"):
            assert min(study.losses_by_key(variant, "no")) > 0
            assert max(study.losses_by_key(variant, "yes")) < 0
        assert min(study.losses_by_key("OPSD", "no")) > 0
    assert max(map(abs, SECOND.losses_by_key("alpha_0", "no"))) < 1.5


def test_the_target_is_worse_at_presence_than_two_of_the_first_bases_and_black_pictures_always_say_no():
    assert sum(own["original"] - own["target"] > 3 for own in FIRST.contrasts("presence")) == 2
    for study in (FIRST, SECOND):
        assert all(own["control_says"] == {"no": own["num"]} for own in study.contrasts("presence"))


def test_no_answer_to_three_suites_changed_in_the_second_study():
    for suite in ("usual_prompted", "usual_unprompted", "row_usual"):
        assert [SECOND.changed(base, "VCSD", suite) for base in SECOND.bases] == [(set(), set())] * 5


def test_opsd_loses_answers_no_that_vcsd_loses_as_well():
    assert len(SECOND.lost_answers_no("OPSD")) == 27
    assert SECOND.lost_answers_no("OPSD") <= SECOND.lost_answers_no("VCSD")
