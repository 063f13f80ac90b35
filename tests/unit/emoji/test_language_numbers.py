"""What docs say about the first emoji study is what its result files give, computed without the code of its page."""

import json
import re
from pathlib import Path
from statistics import mean

import pytest

from vcsd.emoji.questions import draw_question

DOCS = Path(__file__).parents[3] / "docs"
FOLDER = DOCS / "results" / "language"
BASES = [f"emoji-{number}" for number in range(1, 6)]


def result(base, variant):
    return json.loads((FOLDER / "cells" / f"test-{base}-{variant}.json").read_text(encoding="utf-8"))


def right(base, variant, *suites):
    return mean(result(base, variant)["scores"][suite]["right"] for suite in suites)


def over_bases(variant, *suites):
    return mean(right(base, variant, *suites) for base in BASES)


def gains(variant):
    unusual = ("unusual_prompted", "unusual_unprompted")
    return [right(base, variant, *unusual) - right(base, "base", *unusual) for base in BASES]


def sampled_in(run, suite, first, last):
    """Percent of right rollouts of a run from one step to another."""
    text = (FOLDER / "runs" / run / "keys.jsonl").read_text(encoding="utf-8")
    lines = [line for line in map(json.loads, text.splitlines()) if line["suite"] == suite]
    lines = [line for line in lines if first <= line["step"] <= last]
    return sum(line["right"] * line["responses"] for line in lines) / sum(line["responses"] for line in lines)


def sampled(suite, variant, first, last):
    """The mean over bases on `test`."""
    return mean(sampled_in(f"test-{base}-{variant}", suite, first, last) for base in BASES)


def sampled_at_the_end(variant, suite):
    """The last ten of 30 steps."""
    return sampled(suite, variant, 21, 30)


def dev_sampled(rate, first, last):
    """Unusual colours of a run of VCSD that settles, with beta 0.1."""
    return sampled_in(f"dev-emoji-1-VCSD-lr_{rate}-beta_0.1", "unusual_prompted", first, last)


def falls(suite, variant="VCSD"):
    return sorted(right(base, "base", suite) - right(base, variant, suite) for base in BASES)


def right_by_key(base, variant):
    """Percent of right answers to questions about presence, by the true answer."""
    keys = [draw_question("test", "presence", number).key for number in range(256)]
    marks = result(base, variant)["scores"]["presence"]["marks"]
    return {
        key: 100 * mean(mark == "1" for mark, other in zip(marks, keys, strict=True) if other == key)
        for key in ("yes", "no")
    }


def targets(suite):
    return [result(base, "base")["key_contrast"][suite]["target"] for base in BASES]


def said():
    """What each page says of the study, with its numbers computed here."""
    presence = f"{over_bases('base', 'presence'):.1f}", f"{over_bases('VCSD', 'presence'):.1f}"
    colours = f"{over_bases('VCSD', 'unusual_prompted'):.1f}"
    seen = f"{sampled_at_the_end('VCSD', 'unusual_prompted'):.1f}", f"{sampled_at_the_end('VCSD', 'presence'):.1f}"
    gain, opsd, decoding = (f"{mean(gains(name)):.1f}" for name in ("VCSD", "OPSD", "contrast_decoding"))
    unprompted = [f"{over_bases(name, 'unusual_unprompted'):.1f}" for name in ("base", "VCSD")]
    lost = falls("presence")
    yield "real_language.md", f"breaks presence ({presence[0]} to {presence[1]} on average)"
    yield "real_language.md", f"gains {gain} points on unusual colours"
    yield "real_language.md", f"OPSD, which sees the answers, gains {opsd} "
    yield "real_language.md", f"presence falls on every base, by {lost[0]:.1f} to {lost[-1]:.1f} points"
    yield "real_language.md", f"on two of five bases, by {falls('count')[-1]:.1f} and {falls('count')[-2]:.1f} points"
    yield "real_language.md", f"on all five, down to {min(right(base, 'OPSD', 'count') for base in BASES):.1f}"
    yield "real_language.md", f"rise from {over_bases('base', 'unusual_prompted'):.1f}% to {colours}% for things"
    yield "real_language.md", f"from {unprompted[0]}% to {unprompted[1]}% for things that no prompt"
    yield "real_language.md", f"within {max(map(abs, gains('alpha_0'))):.1f} points of the base"
    sharpened = over_bases("sharpened_2", "unusual_prompted", "unusual_unprompted")
    yield "real_language.md", f"sharpening falls to {sharpened:.1f}%"
    yield "real_language.md", f"without training gains {decoding} points:"
    yield "real_language.md", f"in {min(targets('count')):.1f} to {max(targets('count')):.1f}% of cases"
    no = {name: [right_by_key(base, name)["no"] for base in BASES] for name in ("base", "VCSD")}
    yield "real_language.md", f'{min(no["VCSD"]):.1f} to {max(no["VCSD"]):.1f}% of those whose answer is "no"'
    yield "real_language.md", f"the bases answer {min(no['base']):.1f} to {max(no['base']):.1f}% of these"
    yield "real_language.md", f"sampled {seen[0]}% of unusual colours and {seen[1]}% of presence right"
    yield "real_language.md", f"weights says {colours}% and {presence[1]}%"
    yield "real_language.md", f"rollouts counted right in {sampled_at_the_end('OPSD', 'count'):.1f}% of cases"
    yield "real_language.md", f"of cases; the exam says {over_bases('OPSD', 'count'):.1f}%"
    alpha_0 = sampled("unusual_prompted", "alpha_0", 51, 60)  # it was settled with 60 steps
    sharpened = sampled_at_the_end("sharpened_2", "unusual_prompted")
    yield "real_language.md", f"{seen[0]}% with VCSD, {alpha_0:.1f}% with alpha 0, {sharpened:.1f}% with sharpening"
    yield "real_language.md", f"where it always is, fall by {mean(falls('usual_prompted')):.1f} points"
    settling = [dev_sampled(rate, 51, 60) for rate in ("5e-6", "1e-5", "2e-5")]
    yield "preregistration_language_exported.md", f"sampled {min(settling):.0f} to {max(settling):.0f}% right"
    yield "preregistration_language_exported.md", f"VCSD raised unusual colours by {gain} points"
    yield "preregistration_language_exported.md", f"answers to {seen[1]}% of presence and {seen[0]}% of unusual"
    yield "preregistration_language_exported.md", f"the exam found {presence[1]}% and {colours}%"
    yield "../CHANGELOG.md", f"VCSD gains {gain} points on unusual colours and breaks presence"


@pytest.mark.parametrize(("page", "words"), list(said()))
def test_pages_say_what_the_files_give(page, words):
    assert words in re.sub(r"\s+", " ", (DOCS / page).read_text(encoding="utf-8"))


def test_no_guard_warned_and_those_of_counting_warned_late():
    alarms = {
        path.stem: result["alarms"]
        for path in (FOLDER / "cells").glob("*.json")
        if "alarms" in (result := json.loads(path.read_text(encoding="utf-8")))
    }
    assert len(alarms) == 32
    warned = {
        suite: sorted(name for name, own in alarms.items() if own.get(suite, {}).get("warn"))
        for suite in ("run", "presence", "count")
    }
    assert (warned["run"], warned["presence"]) == ([], [])
    assert warned["count"] == [f"dev-emoji-1-VCSD-lr_{rate}-beta_0.01" for rate in ("1e-5", "2e-5", "5e-6")]


def test_after_vcsd_every_base_says_yes_where_it_should():
    assert [right_by_key(base, "VCSD")["yes"] for base in BASES] == [100.0] * 5


def test_the_target_is_worse_at_presence_than_two_of_the_bases_and_black_pictures_always_say_no():
    contrasts = [result(base, "base")["key_contrast"]["presence"] for base in BASES]
    assert sum(own["original"] - own["target"] > 3 for own in contrasts) == 2
    assert all(own["control_says"] == {"no": own["num"]} for own in contrasts)
