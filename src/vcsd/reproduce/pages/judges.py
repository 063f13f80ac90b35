"""Rules that judge the paper's claims: each describes our result and compares it with the paper's.

agrees, disagrees   the runs decide
undecided           they do not: the p of a difference is too large, or means differ, but not clearly
no claim            a comparison that the paper does not make
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from vcsd.evaluation.scoring.compare import spread
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD, Variant
from vcsd.reproduce.pages.details import contrast_of, drift_of
from vcsd.reproduce.paired_runs import CLEAR, Paired, paired, shown
from vcsd.reproduce.results import curves_of, suite

if TYPE_CHECKING:
    from vcsd.reproduce.cell_result import ProfileName
    from vcsd.reproduce.paired_runs import Run
    from vcsd.reproduce.results import Results

ClaimVerdict = Literal["agrees", "disagrees", "undecided", "no claim", "not run"]

ClaimRule = Callable[["Results"], tuple[str, ClaimVerdict]]
"""Takes results; returns a description of what was found, and the verdict."""

NEAR = 1.0
"""Two mean accuracies count as alike if they differ by at most this many points."""

STANDS_FOR, DOES_NOT = 0.7, 0.3
"""A measure approximates another if they correlate at least this much, and does not below the second value."""


def variant(experiment: str, name: str) -> Variant:
    """Look up a variant of an experiment."""
    return next(each for each in EXPERIMENTS[experiment].variants if each.name == name)


def _change(results: Results, group: str, before: Variant, after: Variant) -> Paired | None:
    return paired(results.acc(before, group), results.acc(after, group))


def above(change: Paired | None) -> ClaimVerdict:
    """Whether a difference is clearly above zero.

    >>> before = {("a", 1): 50.0, ("b", 2): 51.0, ("c", 3): 49.0}
    >>> above(paired(before, {("a", 1): 54.0, ("b", 2): 54.5, ("c", 3): 53.5})), above(None)
    ('agrees', 'not run')
    """
    if change is None:
        return "not run"
    if not change.is_clear:
        return "undecided"
    return "agrees" if change.difference.mean > 0 else "disagrees"


def _worst(verdicts: list[ClaimVerdict]) -> ClaimVerdict:
    """The verdict over several comparisons: all must agree, and a single one can disagree."""
    if not verdicts or all(verdict == "not run" for verdict in verdicts):
        return "not run"
    order: tuple[ClaimVerdict, ...] = ("disagrees", "undecided", "not run", "agrees")
    return next(verdict for verdict in order if verdict in verdicts)


def above_everywhere(before: Variant, after: Variant) -> ClaimRule:
    """`after` must be clearly above `before` on every architecture and size."""

    def judge(results: Results) -> tuple[str, ClaimVerdict]:
        changes = {group: _change(results, group, before, after) for group in results.ordinary}
        text = "; ".join(f"{group} {change}" for group, change in changes.items() if change is not None)
        return text, _worst([above(change) for change in changes.values()])

    return judge


def above_on_first(before: Variant, after: Variant) -> ClaimRule:
    """`after` must be clearly above `before` on the smallest Qwen3-VL."""

    def judge(results: Results) -> tuple[str, ClaimVerdict]:
        change = _change(results, results.smallest, before, after)
        return str(change or ""), above(change)

    return judge


def alike(*variants: Variant) -> ClaimRule:
    """Means within NEAR of each other agree; otherwise they disagree if the largest difference is clear.

    The largest of several differences is more easily due to chance, so its p is multiplied by the number of pairs
    (Bonferroni). A single base cannot decide.
    """

    def judge(results: Results) -> tuple[str, ClaimVerdict]:
        group = results.smallest
        means = {each.name: spread(list(acc.values())).mean for each in variants if (acc := results.acc(each, group))}
        if len(means) < len(variants):
            return "", "not run"
        text = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        low, high = (pick(variants, key=lambda each: means[each.name]) for pick in (min, max))
        change, num_pairs = _change(results, group, low, high), math.comb(len(variants), 2)
        among = f", the largest of {num_pairs} differences" if num_pairs > 1 else ""
        return f"{text}; {high.name} {change} over {low.name}{among}", _near(change, num_pairs)

    return judge


def _near(change: Paired | None, num_pairs: int = 1) -> ClaimVerdict:
    """Whether the largest of `num_pairs` differences is within NEAR; a larger one must be clear to disagree."""
    if change is None or change.p is None:
        return "not run" if change is None else "undecided"
    if abs(change.difference.mean) <= NEAR:
        return "agrees"
    return "disagrees" if change.p * num_pairs < CLEAR else "undecided"


def peak(low: Variant, top: Variant, high: Variant, *others: Variant) -> ClaimRule:
    """`top` must be the best and clearly above both ends; a clearly better variant disagrees."""

    def judge(results: Results) -> tuple[str, ClaimVerdict]:
        group = results.smallest
        accs = {each: results.acc(each, group) for each in (low, top, high, *others)}
        if not all(accs.values()):
            return "", "not run"
        best = max(accs, key=lambda each: spread(list(accs[each].values())).mean)
        if best == top:
            ends = {end.name: _change(results, group, end, top) for end in (low, high)}
            text = ", ".join(f"{change} over {name}" for name, change in ends.items())
            return f"{top.name} is the best: {text}", _worst([above(change) for change in ends.values()])
        change = _change(results, group, top, best)
        is_clear = change is not None and change.is_clear
        return f"{best.name} is the best, {change} over {top.name}", "disagrees" if is_clear else "undecided"

    return judge


def finding(before: Variant, after: Variant) -> ClaimRule:
    """A comparison that the paper does not make."""

    def judge(results: Results) -> tuple[str, ClaimVerdict]:
        change = _change(results, results.smallest, before, after)
        text = "" if change is None else f"{after.name} {change} over {before.name}"
        return text, "not run" if change is None else "no claim"

    return judge


def never_black(results: Results) -> tuple[str, ClaimVerdict]:
    """VCSD's gain under each control, on bases that never saw a black picture."""
    black, *others = EXPERIMENTS["black"].variants[2:]
    parts = []
    for group in results.never_black:
        change = _change(results, group, BASE, black)
        if change is None:
            continue
        changes = [(each.name, _change(results, group, BASE, each)) for each in others]
        rest = ", ".join(f"{name} {other}" for name, other in changes if other is not None)
        parts.append(f"{group}: {black.name} {change} over base" + (f"; {rest}" if rest else ""))
    return "; ".join(parts), "no claim" if parts else "not run"


def opsd_on_qwen3_5(results: Results) -> tuple[str, ClaimVerdict]:
    """A clear gain on every Qwen3.5 disagrees; a clear loss, or a change within NEAR, on any of them agrees."""
    groups = [group for group in results.ordinary if group.startswith("Qwen3.5")]
    changes = {group: change for group in groups if (change := _change(results, group, BASE, OPSD)) is not None}
    if not groups or len(changes) < len(groups):
        return "", "not run"
    text = "; ".join(f"{group} {change}" for group, change in changes.items())
    verdicts = [above(change) for change in changes.values()]
    if all(verdict == "agrees" for verdict in verdicts):
        return text, "disagrees"
    is_none = "disagrees" in verdicts or "agrees" in [_near(change) for change in changes.values()]
    return text, "agrees" if is_none else "undecided"


def _by_suite(results: Results, before: Variant, after: Variant) -> dict[str, Paired]:
    group = results.smallest
    changes = {
        name: paired(results.values(before, group, suite(name)), results.values(after, group, suite(name)))
        for name in SEVEN
    }
    return {name: change for name, change in changes.items() if change is not None}


def every_suite(results: Results) -> tuple[str, ClaimVerdict]:
    """VCSD must be clearly above OPSD in each of the seven suites."""
    known = _by_suite(results, OPSD, VCSD)
    text = ", ".join(f"{name} {change.difference.mean:+.1f}" for name, change in known.items())
    clear = sum(above(change) == "agrees" for change in known.values())
    return f"{text}; clear in {clear}" if known else "", _worst([above(change) for change in known.values()])


def first_in_most_suites(results: Results) -> tuple[str, ClaimVerdict]:
    """Forward KL must be first in six suites; it disagrees if it is clearly behind in two or more."""
    forward, *others = EXPERIMENTS["divergence"].variants
    changes = [_by_suite(results, other, forward) for other in others]
    if not all(changes):
        return "", "not run"
    first = [name for name in SEVEN if all(change[name].difference.mean > 0 for change in changes)]
    behind = [name for name in SEVEN if any(above(change[name]) == "disagrees" for change in changes)]
    text = f"first in {len(first)} of {len(SEVEN)}; clearly behind in {len(behind)}"
    return text, "disagrees" if len(behind) > 1 else "agrees" if len(first) >= len(SEVEN) - 1 else "undecided"


def _final_fall(results: Results, which: Variant) -> dict[Run, float]:
    """How far each run ends below the best point of its curve."""
    curves = {run: list(curve.values()) for run, curve in curves_of(results, which, results.smallest).items()}
    return {run: max(accs) - accs[-1] for run, accs in curves.items() if accs}


def support(results: Results) -> tuple[str, ClaimVerdict]:
    """From the best step to the last, runs without the support must lose more than runs with it."""
    kept, lost = (_final_fall(results, variant("support", name)) for name in ("beta 0.1", "beta 0"))
    return _larger(kept, lost, "points lost from the best step to the last: {0} with the support, {1} without")


def _larger(before: dict[Run, float], after: dict[Run, float], text: str) -> tuple[str, ClaimVerdict]:
    """`after` must be clearly larger. Both means and the difference are over the runs that both have."""
    change = paired(before, after)
    if change is None:
        return "", "not run"
    means = [shown(spread([values[run] for run in before if run in after])) for values in (before, after)]
    return f"{text.format(*means)}; difference {change}", above(change)


def holds(results: Results) -> tuple[str, ClaimVerdict]:
    """With the support, a run must end within NEAR of its best step."""
    fall = _final_fall(results, variant("support", "beta 0.1"))
    change = paired(dict.fromkeys(fall, 0.0), fall)
    return f"runs end {change} points below their best step" if change else "", _near(change)


def alike_early(results: Results) -> tuple[str, ClaimVerdict]:
    """With and without the support, the first point of the curve must be within NEAR."""
    both = [curves_of(results, variant("support", name), results.smallest) for name in ("beta 0.1", "beta 0")]
    change = paired(*({run: next(iter(curve.values())) for run, curve in curves.items() if curve} for curves in both))
    return f"{change} without the support at the first evaluation" if change else "", _near(change)


def drift(results: Results) -> tuple[str, ClaimVerdict]:
    """Without the anchor, more rollouts must be in another script, averaged over training."""
    with_anchor, without = (
        results.values(variant("anchor", name), results.smallest, drift_of) for name in ("anchor 1", "no anchor")
    )
    return _larger(with_anchor, without, "{0}% of rollouts are in another script with the anchor, {1}% without")


def ahead_at_every_step(name: str = "acc", *, skip_first: bool = False) -> ClaimRule:
    """VCSD must be clearly above OPSD at every evaluated step, in Acc or on the suite `name`."""

    def judge(results: Results) -> tuple[str, ClaimVerdict]:
        both = [curves_of(results, variant("dynamics", each), results.smallest, name) for each in ("OPSD", "VCSD")]
        steps = sorted({step for curve in both[0].values() for step in curve})[int(skip_first) :]
        changes = {
            step: paired(*({run: curve[step] for run, curve in curves.items() if step in curve} for curves in both))
            for step in steps
        }
        known = {step: change for step, change in changes.items() if change is not None}
        text = ", ".join(f"step {step} {change.difference.mean:+.1f}" for step, change in known.items())
        clear = sum(above(change) == "agrees" for change in known.values())
        verdict = _worst([above(change) for change in known.values()])
        return f"{text}; clear at {clear} of {len(known)}" if known else "", verdict

    return judge


def falls_less(results: Results) -> tuple[str, ClaimVerdict]:
    """From its best step to the last, OPSD must lose more than VCSD."""
    opsd, vcsd = (_final_fall(results, variant("dynamics", name)) for name in ("OPSD", "VCSD"))
    return _larger(vcsd, opsd, "points lost from the best step to the last: OPSD {1}, VCSD {0}")


def decoding(results: Results) -> tuple[str, ClaimVerdict]:
    """Contrast decoding must be clearly above the base; its cost and VCSD's gain over it are reported too."""
    group = results.smallest
    decode = variant("decoding", "contrast decoding")
    gain, rest = _change(results, group, BASE, decode), _change(results, group, decode, VCSD)
    ratios = results.values(decode, group, lambda result: result["cost"]["ratio"] if "cost" in result else None)
    if gain is None or rest is None:
        return "", "not run"
    cost = f"at {spread(list(ratios.values())).mean:.2f} times the cost of plain decoding"
    return f"contrast decoding {gain} over base, {cost}; VCSD {rest} over contrast decoding at no cost", above(gain)


def pmi(results: Results) -> tuple[str, ClaimVerdict]:
    """The contrast under black must correlate with the mutual information, token by token."""
    finished = results.finished(EXPERIMENTS["pmi"].variants[0], results.smallest).values()
    black = [result["pmi"]["black"] for result in finished if "black" in result.get("pmi", {})]
    if not black:
        return "", "not run"
    means = {name: spread([each[name] for each in black]).mean for name in ("correlation", "same_sign", "same_choice")}
    text = (
        f"r = {means['correlation']:.2f} on plausible tokens; same sign {means['same_sign']:.0%}; "
        f"the same best token {means['same_choice']:.0%}"
    )
    if means["correlation"] >= STANDS_FOR:
        return text, "agrees"
    return text, "disagrees" if means["correlation"] < DOES_NOT else "undecided"


def profile(results: Results) -> tuple[str, ClaimVerdict]:
    """In right answers, visual words must gain contrast over OPSD, and more than other words do."""
    group = results.smallest

    def gain(profile: ProfileName, words: str) -> dict[Run, float]:
        opsd, vcsd = (results.values(each, group, contrast_of(profile, words)) for each in (OPSD, VCSD))
        return {run: vcsd[run] - opsd[run] for run in opsd if run in vcsd}

    seen, other, wrong = gain("profile", "seen"), gain("profile", "other"), gain("profile_of_wrong", "seen")
    grew, more = paired(dict.fromkeys(seen, 0.0), seen), paired(other, seen)
    if grew is None or more is None:
        return "", "not run"
    text = (
        f"nats over OPSD, in right answers: {grew} on visual words, {more} more than on other words (a pilot seed, in "
        "which all answers together pointed the other way, led us to limit the rule to right answers)"
    )
    if wrong:
        text += f"; in wrong answers: {paired(dict.fromkeys(wrong, 0.0), wrong)} on visual words"
    return text, _worst([above(grew), above(more)])
