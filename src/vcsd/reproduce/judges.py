"""Rules that read results: what was found, in words, and whether it is what the paper says.

agrees, disagrees   the runs can tell
undecided           they cannot: a difference whose p is too large, or means that are apart but not clearly
no claim            a comparison that the paper does not make
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from vcsd.evaluation.compare import spread
from vcsd.reproduce.details import drift_of
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD, Variant
from vcsd.reproduce.results import suite
from vcsd.reproduce.statistics import Paired, paired, shown

if TYPE_CHECKING:
    from vcsd.reproduce.results import Results, Run

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

    >>> from vcsd.reproduce.statistics import paired
    >>> above(paired({1: 50.0, 2: 51.0, 3: 49.0}, {1: 54.0, 2: 54.5, 3: 53.5})), above(None)
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
    """Means within NEAR of each other agree; further apart they disagree if a pair is clearly different."""

    def judge(results: Results) -> tuple[str, Verdict]:
        group = results.smallest
        means = {each.name: spread(list(acc.values())).mean for each in variants if (acc := results.acc(each, group))}
        if len(means) < len(variants):
            return "", "not run"
        said = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        apart = max(means.values()) - min(means.values())
        low, high = (pick(variants, key=lambda each: means[each.name]) for pick in (min, max))
        change = _change(results, group, low, high)
        is_clear = change is not None and change.is_clear
        verdict: Verdict = "agrees" if apart <= NEAR else "disagrees" if is_clear else "undecided"
        return f"{said}; {apart:.2f} apart", verdict

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
    """OPSD must not gain clearly on every Qwen3.5."""
    groups = [group for group in results.ordinary if group.startswith("Qwen3.5")]
    changes = {group: _change(results, group, BASE, OPSD) for group in groups}
    if not groups or any(change is None for change in changes.values()):
        return "", "not run"
    gains = [change is not None and change.is_clear and change.difference.mean > 0 for change in changes.values()]
    said = "; ".join(f"{group} {change}" for group, change in changes.items())
    return said, "disagrees" if all(gains) else "agrees"


def every_suite(results: Results) -> tuple[str, Verdict]:
    """VCSD must be above OPSD on average in each of the seven suites."""
    group = results.smallest
    changes = {
        name: paired(results.values(OPSD, group, suite(name)), results.values(VCSD, group, suite(name)))
        for name in SEVEN
    }
    known = {name: change for name, change in changes.items() if change is not None}
    if not known:
        return "", "not run"
    said = ", ".join(f"{name} {change.difference.mean:+.1f}" for name, change in known.items())
    if all(change.difference.mean > 0 for change in known.values()):
        return said, "agrees"
    losses = [change.is_clear and change.difference.mean < 0 for change in known.values()]
    return said, "disagrees" if any(losses) else "undecided"


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
    kept, lost = (_final_fall(results, variant("support", name)) for name in ("beta 0.1", "beta 0"))
    change = paired(kept, lost)
    if change is None:
        return "", "not run"
    said = f"points lost from the best step to the last: {shown(spread(list(kept.values())))} with the support, "
    return f"{said}{shown(spread(list(lost.values())))} without; difference {change}", above(change)


def drift(results: Results) -> tuple[str, Verdict]:
    """Without the anchor, more rollouts must be in another script, on average over training."""
    group = results.smallest

    with_anchor, without = (
        results.values(variant("anchor", name), group, drift_of) for name in ("anchor 1", "no anchor")
    )
    change = paired(with_anchor, without)
    if change is None:
        return "", "not run"
    said = f"{shown(spread(list(with_anchor.values())))}% of rollouts drift with the anchor, "
    return f"{said}{shown(spread(list(without.values())))}% without; difference {change}", above(change)


def dynamics(results: Results) -> tuple[str, Verdict]:
    """The paper: above OPSD at every evaluated step, and a smaller fall at the end."""
    group = results.smallest
    opsd, vcsd = (
        {
            run: {point["step"]: point["acc"] for point in result.get("curve", ())}
            for run, result in results.found(variant("dynamics", name), group).items()
        }
        for name in ("OPSD", "VCSD")
    )
    steps = sorted({step for curve in opsd.values() for step in curve})
    changes = [
        paired(*({run: curve[step] for run, curve in curves.items() if step in curve} for curves in (opsd, vcsd)))
        for step in steps
    ]
    known = [(step, change) for step, change in zip(steps, changes, strict=True) if change is not None]
    if not known:
        return "", "not run"
    said = ", ".join(f"step {step} {change.difference.mean:+.1f}" for step, change in known)
    if all(change.difference.mean > 0 for _, change in known):
        return said, "agrees" if known[-1][1].is_clear else "undecided"
    is_below = any(change.is_clear and change.difference.mean < 0 for _, change in known)
    return said, "disagrees" if is_below else "undecided"


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
    if DOES_NOT <= means["correlation"] < STANDS_FOR:
        return said, "undecided"
    return said, "agrees" if means["correlation"] >= STANDS_FOR else "disagrees"


def profile(results: Results) -> tuple[str, Verdict]:
    """In right answers, words that name what is seen must gain more contrast over OPSD than other words do."""
    group = results.smallest

    def read(kind: str) -> Callable[[dict[str, Any]], Any]:
        return lambda result: result.get("profile", {}).get(kind)

    seen, other = (
        paired(results.values(OPSD, group, read(kind)), results.values(VCSD, group, read(kind)))
        for kind in ("seen", "other")
    )
    if seen is None or other is None:
        return "", "not run"
    wrong = paired(
        *(
            results.values(which, group, lambda result: result.get("profile_of_wrong", {}).get("seen"))
            for which in (OPSD, VCSD)
        )
    )
    said = (
        f"nats over OPSD, in right answers: {seen} on words that name what is seen, {other} on others "
        "(the rule was narrowed to right answers after a pilot seed, where all answers together pointed the other way)"
    )
    said += "" if wrong is None else f"; in wrong answers: {wrong} on words that name what is not there"
    more = seen.difference.mean > other.difference.mean
    return (
        said,
        "agrees" if seen.is_clear and seen.difference.mean > 0 and more else "disagrees" if not more else "undecided",
    )
