"""Tables of a language study: what VCSD changes against every other method, base by base and over bases."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import SUITES
from vcsd.emoji.study.settle import GATES, MARGIN, broken_gates, gain, is_broken, unusual, worst_gate
from vcsd.emoji.study.study_list import tried_on_dev
from vcsd.evaluation.scoring.student_t import quantile
from vcsd.reproduce.paired_runs import CLEAR, POWER, equivalence_interval, paired, shown_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vcsd.emoji.study.settle import RunSetting, Scores
    from vcsd.emoji.study.study_list import EmojiRun, StudyList
    from vcsd.reproduce.paired_runs import Paired

    Results = Mapping[EmojiRun, dict[str, Any]]
    """What each finished run of a study measured."""


def results_on_test(results: Results, base: str) -> dict[str, dict[str, Any]]:
    """The results of a base on `test`, by variant."""
    return {run.variant: result for run, result in results.items() if (run.base, run.stage) == (base, "test")}


def scores_on_test(results: Results, base: str) -> dict[str, Any]:
    """The scores of a base on `test`, by variant."""
    return {variant: result["scores"] for variant, result in results_on_test(results, base).items()}


def gains_over_bases(listed: StudyList, results: Results) -> dict[str, Paired]:
    """VCSD minus every other method on unusual colours, over bases."""
    others = [variant for variant in results_on_test(results, next(iter(listed.bases))) if variant != "VCSD"]
    return {other: _vcsd_minus(other, listed, results, unusual) for other in others}


def changes_of_gates(listed: StudyList, results: Results) -> dict[str, Paired]:
    """VCSD minus the base on every gate, over bases, the largest loss first."""

    def right(suite: str) -> Callable[[Scores], float]:
        return lambda scores: scores[suite]["right"]

    changes = {suite: _vcsd_minus("base", listed, results, right(suite)) for suite in GATES}
    return dict(sorted(changes.items(), key=lambda item: item[1].mean))


def _vcsd_minus(other: str, listed: StudyList, results: Results, value: Callable[[Scores], float]) -> Paired:
    """The difference of a value of the scores on `test`, base by base."""
    own = {(base, 0): scores_on_test(results, base) for base in listed.bases}
    change = paired(*({run: value(scores[name]) for run, scores in own.items()} for name in (other, "VCSD")))
    assert change is not None, "all runs are finished"
    return change


def kept(change: Paired) -> str:
    """Whether a gate is shown to be `kept` or `lost`, by the 90% interval over bases, or `undecided`."""
    ends = equivalence_interval(change)
    assert ends is not None, "there are several bases"
    low, high = ends
    if low > -MARGIN:
        return "kept"
    return "lost" if high < -MARGIN else "undecided"


def could_be_kept_within(change: Paired) -> float:
    """The loss that as many bases with this spread exclude in 80% of cases, if there is none.

    One end of the 90% interval has to lie above it, so this is less than the margin within which two are alike.
    """
    assert change.error is not None, "there are several bases"
    freedom = change.num_bases - 1
    return change.error * (quantile(1 - 2 * CLEAR, freedom) + quantile(2 * POWER - 1, freedom))


def gains_section(listed: StudyList, results: Results) -> Iterator[str]:
    """What VCSD gains on unusual colours over the base and over every other method."""
    scores = {base: scores_on_test(results, base) for base in listed.bases}
    yield "## VCSD minus the others, on unusual colours"
    yield ""
    yield from paragraph(
        "In points, on the same questions, the smallest difference first. After +- stands half of the 95% interval "
        "over questions, for this base and run. *Over bases* is the mean, in which each base counts once, with its "
        "standard error and p. All bases have one language model and answer the same questions, so p is about other "
        "bases that are taught in this way, not about other questions. *Could show* is the smallest true difference "
        "that as many bases with this spread show in 80% of cases."
    )
    yield "| VCSD minus | " + " | ".join(scores) + " | over bases | could show |"
    yield "|---|" + "--:|" * (len(scores) + 2)
    for other, change in sorted(gains_over_bases(listed, results).items(), key=lambda item: item[1].mean):
        apart = [gain(own[other], own["VCSD"]) for own in scores.values()]
        cells = " | ".join(f"{mean:+.1f} +- {width:.1f}" for mean, width in apart)
        yield f"| {other} | {cells} | {change} | {change.detectable:.1f} |"
    yield ""


def gates_section(listed: StudyList, results: Results) -> Iterator[str]:
    """What VCSD changes on the suites that should not lose."""
    yield "## VCSD minus the base, on every other suite"
    yield ""
    yield from paragraph(
        "These suites are the gates. In points over bases, with standard error and p, the largest loss first. *Shown* "
        f"says whether the 90% interval over bases lies above -{MARGIN:g} points (kept) or below (lost). *Could be "
        "kept within* is the loss that as many bases with this spread exclude in 80% of cases, if there is none. "
        "*Broken on* names the bases on which VCSD breaks the gate."
    )
    yield "| suite | over bases | 90% interval | shown | could be kept within | broken on |"
    yield "|---|--:|--:|---|--:|---|"
    scores = {base: scores_on_test(results, base) for base in listed.bases}
    for suite, change in changes_of_gates(listed, results).items():
        broken = [base for base, own in scores.items() if is_broken(own["base"][suite], own["VCSD"][suite])]
        ends = equivalence_interval(change)
        assert ends is not None, "there are several bases"
        cells = [str(change), shown_ends(ends), kept(change), f"{could_be_kept_within(change):.1f}"]
        yield f"| {suite} | {' | '.join(cells)} | {', '.join(broken) or 'none'} |"
    yield ""


def settling_section(listed: StudyList, results: Results) -> Iterator[str]:
    """All settings that were tried on `dev`, and the one that each method uses."""
    yield "## Choosing rate, beta and steps, on `dev`"
    yield ""
    base, tried = tried_on_dev(results)
    settled = listed.settled(results)
    assert base is not None
    assert settled is not None
    yield "| method | rate | beta | steps | unusual colours | worst loss of a gate | broken gates |"
    yield "|---|---|---|--:|--:|--:|---|"
    yield f"| base | | | | {unusual(base):.1f} | | |"
    for variant, runs in tried.items():
        for setting, scores in runs.items():
            broken = ", ".join(broken_gates(base, scores)) or "none"
            numbers = f"{unusual(scores):.1f} | {worst_gate(base, scores):.1f} | {broken}"
            yield f"| {variant} | {setting.rate} | {setting.beta} | {setting.steps} | {numbers} |"
    yield ""
    for variant, chosen in settled.items():
        passed = "passes all gates" if chosen.has_passed else "is the least harmful one, because none passes all gates"
        edge = _at_the_edge(listed, tried[variant], chosen.setting)
        yield from bullet(f"{variant}: {chosen.setting}, which {passed}.{edge}")
    yield ""


def _at_the_edge(listed: StudyList, tried: Mapping[RunSetting, Scores], setting: RunSetting) -> str:
    """Say if no higher rate and no more steps were tried, or no lower and fewer: a better setting may lie beyond."""
    rates = [float(other.rate) for other in tried]
    if (float(setting.rate), setting.steps) == (max(rates), listed.steps[-1]):
        return " This is the edge of the grid: nothing beyond it was tried."
    if (float(setting.rate), setting.steps) == (min(rates), listed.steps[0]):
        return " This is the lowest rate and the fewest steps of the grid: nothing milder was tried."
    return ""


def score_tables(results: Results) -> Iterator[str]:
    """A table per base: the accuracy of every method on every suite."""
    bases = list(dict.fromkeys(run.base for run in results if run.stage == "test"))
    for base in bases:
        own = results_on_test(results, base)
        yield f"## {base}, on `test`"
        yield ""
        yield "| accuracy | " + " | ".join(own) + " |"
        yield "|---|" + "--:|" * len(own)
        for suite in SUITES:
            cells = " | ".join(f"{result['scores'][suite]['right']:.1f}" for result in own.values())
            yield f"| {suite} | {cells} |"
        cells = " | ".join(str(result.get("english_perplexity", "")) for result in own.values())
        yield f"| perplexity of English | {cells} |"
        yield ""


def bullet(text: str) -> Iterator[str]:
    """Wrap an entry of a list."""
    yield from wrap(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def paragraph(text: str) -> Iterator[str]:
    """Wrap a paragraph and end it with an empty line."""
    yield from wrap(text, 120, break_long_words=False, break_on_hyphens=False)
    yield ""
