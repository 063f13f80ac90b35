"""Rules that read results: what was found, in words, and whether it is what the paper says.

agrees, disagrees   the runs can tell
undecided           they cannot: a difference whose p is too large, or means that are apart but not clearly
no claim            a comparison that the paper does not make
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from vcsd.evaluation.compare import spread
from vcsd.reproduce.details import drift_of
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD, Variant
from vcsd.reproduce.results import suite
from vcsd.reproduce.statistics import CLEAR, Paired, paired, shown

if TYPE_CHECKING:
    from vcsd.reproduce.results import Results
    from vcsd.reproduce.statistics import Run

Verdict = Literal["agrees", "disagrees", "undecided", "no claim", "not run"]

Judge = Callable[["Results"], tuple[str, Verdict]]
"""Results in; what was found, in words, and the verdict out."""

NEAR = 1.0
"""Points within which two aggregates count as alike where the paper says so."""

STANDS_FOR, DOES_NOT = 0.7, 0.3
"""Correlations from which on one measure stands for another, and below which it does not."""


def variant(experiment: str, name: str) -> Variant:
    """A variant of an experiment by its name."""
    return next(each for each in EXPERIMENTS[experiment].variants if each.name == name)


def _change(results: Results, group: str, before: Variant, after: Variant) -> Paired | None:
    return paired(results.acc(before, group), results.acc(after, group))


def above(change: Paired | None) -> Verdict:
    """Whether a difference is above zero, as far as the runs can tell.

    >>> before = {("a", 1): 50.0, ("b", 2): 51.0, ("c", 3): 49.0}
    >>> above(paired(before, {("a", 1): 54.0, ("b", 2): 54.5, ("c", 3): 53.5})), above(None)
    ('agrees', 'not run')
    """
    if change is None:
        return "not run"
    if not change.is_clear:
        return "undecided"
    return "agrees" if change.difference.mean > 0 else "disagrees"


def _worst(verdicts: list[Verdict]) -> Verdict:
    """All must agree; one that disagrees decides."""
    if not verdicts or all(verdict == "not run" for verdict in verdicts):
        return "not run"
    order: tuple[Verdict, ...] = ("disagrees", "undecided", "not run", "agrees")
    return next(verdict for verdict in order if verdict in verdicts)


def above_everywhere(before: Variant, after: Variant) -> Judge:
    """After must be clearly above before on every architecture and size."""

    def judge(results: Results) -> tuple[str, Verdict]:
        changes = {group: _change(results, group, before, after) for group in results.ordinary}
        said = "; ".join(f"{group} {change}" for group, change in changes.items() if change is not None)
        return said, _worst([above(change) for change in changes.values()])

    return judge


def above_on_first(before: Variant, after: Variant) -> Judge:
    """After must be clearly above before on the smallest Qwen3-VL."""

    def judge(results: Results) -> tuple[str, Verdict]:
        change = _change(results, results.smallest, before, after)
        return str(change or ""), above(change)

    return judge


def alike(*variants: Variant) -> Judge:
    """Means within NEAR of each other agree; further apart they disagree if the pair furthest apart clearly is.

    Of several pairs the furthest is apart by luck more easily, so its p counts as often as there are pairs. One base
    alone cannot tell either way.
    """

    def judge(results: Results) -> tuple[str, Verdict]:
        group = results.smallest
        means = {each.name: spread(list(acc.values())).mean for each in variants if (acc := results.acc(each, group))}
        if len(means) < len(variants):
            return "", "not run"
        said = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        low, high = (pick(variants, key=lambda each: means[each.name]) for pick in (min, max))
        change, num_pairs = _change(results, group, low, high), math.comb(len(variants), 2)
        among = f", the largest of {num_pairs} differences" if num_pairs > 1 else ""
        return f"{said}; {high.name} {change} over {low.name}{among}", _near(change, num_pairs)

    return judge


def _near(change: Paired | None, num_pairs: int = 1) -> Verdict:
    """Whether a difference, the largest of some, is within NEAR; further away it must be clear to disagree."""
    if change is None or change.p is None:
        return "not run" if change is None else "undecided"
    if abs(change.difference.mean) <= NEAR:
        return "agrees"
    return "disagrees" if change.p * num_pairs < CLEAR else "undecided"


def peak(low: Variant, top: Variant, high: Variant, *others: Variant) -> Judge:
    """The top must be the best, and clearly above both ends; one that is clearly better disagrees."""

    def judge(results: Results) -> tuple[str, Verdict]:
        group = results.smallest
        accs = {each: results.acc(each, group) for each in (low, top, high, *others)}
        if not all(accs.values()):
            return "", "not run"
        best = max(accs, key=lambda each: spread(list(accs[each].values())).mean)
        if best == top:
            ends = {end.name: _change(results, group, end, top) for end in (low, high)}
            said = ", ".join(f"{change} over {name}" for name, change in ends.items())
            return f"{top.name} is the best: {said}", _worst([above(change) for change in ends.values()])
        change = _change(results, group, top, best)
        is_clear = change is not None and change.is_clear
        return f"{best.name} is the best, {change} over {top.name}", "disagrees" if is_clear else "undecided"

    return judge


def finding(before: Variant, after: Variant) -> Judge:
    """A comparison that the paper does not make."""

    def judge(results: Results) -> tuple[str, Verdict]:
        change = _change(results, results.smallest, before, after)
        said = "" if change is None else f"{after.name} {change} over {before.name}"
        return said, "not run" if change is None else "no claim"

    return judge


def never_black(results: Results) -> tuple[str, Verdict]:
    """What VCSD has above the base where black is a picture that the base never saw, by each control."""
    black, *others = EXPERIMENTS["black"].variants[2:]
    parts = []
    for group in results.never_black:
        change = _change(results, group, BASE, black)
        if change is None:
            continue
        rest = [(each.name, _change(results, group, BASE, each)) for each in others]
        beside = ", ".join(f"{name} {found}" for name, found in rest if found is not None)
        parts.append(f"{group}: {black.name} {change} over base" + (f"; {beside}" if beside else ""))
    return "; ".join(parts), "no claim" if parts else "not run"


def opsd_on_qwen3_5(results: Results) -> tuple[str, Verdict]:
    """A clear gain on every Qwen3.5 disagrees; a clear loss, or none within NEAR, on one of them agrees."""
    groups = [group for group in results.ordinary if group.startswith("Qwen3.5")]
    changes = {group: change for group in groups if (change := _change(results, group, BASE, OPSD)) is not None}
    if not groups or len(changes) < len(groups):
        return "", "not run"
    said = "; ".join(f"{group} {change}" for group, change in changes.items())
    verdicts = [above(change) for change in changes.values()]
    if all(verdict == "agrees" for verdict in verdicts):
        return said, "disagrees"
    is_none = "disagrees" in verdicts or "agrees" in [_near(change) for change in changes.values()]
    return said, "agrees" if is_none else "undecided"


def _by_suite(results: Results, before: Variant, after: Variant) -> dict[str, Paired]:
    group = results.smallest
    changes = {
        name: paired(results.values(before, group, suite(name)), results.values(after, group, suite(name)))
        for name in SEVEN
    }
    return {name: change for name, change in changes.items() if change is not None}


def every_suite(results: Results) -> tuple[str, Verdict]:
    """VCSD must be clearly above OPSD in each of the seven suites."""
    known = _by_suite(results, OPSD, VCSD)
    said = ", ".join(f"{name} {change.difference.mean:+.1f}" for name, change in known.items())
    clear = sum(above(change) == "agrees" for change in known.values())
    return f"{said}; clear in {clear}" if known else "", _worst([above(change) for change in known.values()])


def first_in_most_suites(results: Results) -> tuple[str, Verdict]:
    """Forward KL must be first in six suites; clearly behind another divergence in two or more it disagrees."""
    forward, *others = EXPERIMENTS["divergence"].variants
    changes = [_by_suite(results, other, forward) for other in others]
    if not all(changes):
        return "", "not run"
    first = [name for name in SEVEN if all(change[name].difference.mean > 0 for change in changes)]
    behind = [name for name in SEVEN if any(above(change[name]) == "disagrees" for change in changes)]
    said = f"first in {len(first)} of {len(SEVEN)}; clearly behind in {len(behind)}"
    return said, "disagrees" if len(behind) > 1 else "agrees" if len(first) >= len(SEVEN) - 1 else "undecided"


def _final_fall(results: Results, which: Variant) -> dict[Run, float]:
    """How far each run ends below the best point of its curve."""
    found = results.found(which, results.smallest)
    return {
        run: max(point["acc"] for point in result["curve"]) - result["curve"][-1]["acc"]
        for run, result in found.items()
        if result.get("curve")
    }


def support(results: Results) -> tuple[str, Verdict]:
    """Without the support, more must be lost from the best step to the last than with it."""
    kept, lost = _in_both(*(_final_fall(results, variant("support", name)) for name in ("beta 0.1", "beta 0")))
    change = paired(kept, lost)
    if change is None:
        return "", "not run"
    said = f"points lost from the best step to the last: {shown(spread(list(kept.values())))} with the support, "
    return f"{said}{shown(spread(list(lost.values())))} without; difference {change}", above(change)


def _in_both(one: dict[Run, float], other: dict[Run, float]) -> tuple[dict[Run, float], dict[Run, float]]:
    """The runs that both have: what is said of each is then said of the same runs as their difference."""
    return {run: one[run] for run in one if run in other}, {run: other[run] for run in one if run in other}


def holds(results: Results) -> tuple[str, Verdict]:
    """With the support, a run must end within NEAR of its best step."""
    fall = _final_fall(results, variant("support", "beta 0.1"))
    change = paired(dict.fromkeys(fall, 0.0), fall)
    return f"{change} points below the best step at the end" if change else "", _near(change)


def alike_early(results: Results) -> tuple[str, Verdict]:
    """With and without the support, the first point of the curve must be within NEAR."""
    found = [results.found(variant("support", name), results.smallest) for name in ("beta 0.1", "beta 0")]
    first = [{run: each["curve"][0]["acc"] for run, each in one.items() if each.get("curve")} for one in found]
    change = paired(*first)
    return f"{change} without the support at the first point" if change else "", _near(change)


def drift(results: Results) -> tuple[str, Verdict]:
    """Without the anchor, more rollouts must be in another script, on average over training."""
    group = results.smallest

    with_anchor, without = _in_both(
        *(results.values(variant("anchor", name), group, drift_of) for name in ("anchor 1", "no anchor"))
    )
    change = paired(with_anchor, without)
    if change is None:
        return "", "not run"
    said = f"{shown(spread(list(with_anchor.values())))}% of rollouts drift with the anchor, "
    return f"{said}{shown(spread(list(without.values())))}% without; difference {change}", above(change)


def ahead_at_every_step(read: Callable[[dict[str, Any]], float], *, skip_first: bool = False) -> Judge:
    """VCSD must be clearly above OPSD at every evaluated step; `read` takes a number off a point of the curve."""

    def judge(results: Results) -> tuple[str, Verdict]:
        opsd, vcsd = (
            {
                run: {point["step"]: read(point) for point in result.get("curve", ())}
                for run, result in results.found(variant("dynamics", name), results.smallest).items()
            }
            for name in ("OPSD", "VCSD")
        )
        steps = sorted({step for curve in opsd.values() for step in curve})[int(skip_first) :]
        changes = {
            step: paired(*({run: curve[step] for run, curve in one.items() if step in curve} for one in (opsd, vcsd)))
            for step in steps
        }
        known = {step: change for step, change in changes.items() if change is not None}
        said = ", ".join(f"step {step} {change.difference.mean:+.1f}" for step, change in known.items())
        clear = sum(above(change) == "agrees" for change in known.values())
        verdict = _worst([above(change) for change in known.values()])
        return f"{said}; clear at {clear} of {len(known)}" if known else "", verdict

    return judge


def falls_less(results: Results) -> tuple[str, Verdict]:
    """From its best step to the last, OPSD must lose more than VCSD."""
    opsd, vcsd = _in_both(*(_final_fall(results, variant("dynamics", name)) for name in ("OPSD", "VCSD")))
    change = paired(vcsd, opsd)
    if change is None:
        return "", "not run"
    said = f"points lost from the best step to the last: OPSD {shown(spread(list(opsd.values())))}, "
    return f"{said}VCSD {shown(spread(list(vcsd.values())))}; difference {change}", above(change)


def decoding(results: Results) -> tuple[str, Verdict]:
    """Contrast decoding must be above the base; its cost and what VCSD has above it are said."""
    group = results.smallest
    decode = variant("decoding", "contrast decoding")
    gain, rest = _change(results, group, BASE, decode), _change(results, group, decode, VCSD)
    ratios = results.values(decode, group, lambda result: result.get("cost", {}).get("ratio"))
    if gain is None or rest is None:
        return "", "not run"
    cost = f"at {spread(list(ratios.values())).mean:.2f} times the time of plain decoding"
    return f"contrast decoding {gain} over base, {cost}; VCSD {rest} over contrast decoding at none", above(gain)


def pmi(results: Results) -> tuple[str, Verdict]:
    """The contrast under black must go with the mutual information, token by token."""
    found = results.found(EXPERIMENTS["pmi"].variants[0], results.smallest).values()
    black = [result["pmi"]["black"] for result in found if "black" in result.get("pmi", {})]
    if not black:
        return "", "not run"
    means = {name: spread([each[name] for each in black]).mean for name in ("correlation", "same_sign", "same_choice")}
    said = (
        f"r = {means['correlation']:.2f} on plausible tokens; same sign {means['same_sign']:.0%}; "
        f"the same best token {means['same_choice']:.0%}"
    )
    if means["correlation"] >= STANDS_FOR:
        return said, "agrees"
    return said, "disagrees" if means["correlation"] < DOES_NOT else "undecided"


def profile(results: Results) -> tuple[str, Verdict]:
    """In right answers, words that name what is seen must gain contrast over OPSD, and more than other words do."""
    group = results.smallest

    def gained(which: str, kind: str) -> dict[Run, float]:
        opsd, vcsd = (
            results.values(each, group, lambda result: result.get(which, {}).get(kind)) for each in (OPSD, VCSD)
        )
        return {run: vcsd[run] - opsd[run] for run in opsd if run in vcsd}

    seen, other, wrong = (gained(*each) for each in (("profile", "seen"), ("profile", "other"), (_WRONG, "seen")))
    grew, more = paired(dict.fromkeys(seen, 0.0), seen), paired(other, seen)
    if grew is None or more is None:
        return "", "not run"
    said = (
        f"nats over OPSD, in right answers: {grew} on words that name what is seen, {more} more than on others "
        "(the rule was narrowed to right answers after a pilot seed, where all answers together pointed the other way)"
    )
    if wrong:
        said += f"; in wrong answers: {paired(dict.fromkeys(wrong, 0.0), wrong)} on words that name what is not there"
    return said, _worst([above(grew), above(more)])


_WRONG = "profile_of_wrong"
