"""Rules that judge the paper's claims: each describes our result and compares it with the paper's.

agrees, disagrees   the runs decide
undecided           they do not: fewer than five bases, or a difference that is neither clear nor clearly small
no claim            a comparison that the paper does not make

Bases count equally. Where bases were added after a first look at the results, p-values are doubled and intervals wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple

from vcsd.evaluation.scoring.compare import spread
from vcsd.report.parts import unread_change, unread_note
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, LONG_STEPS, OPSD, VCSD, Variant
from vcsd.reproduce.pages.details import contrast_of, contrast_of_all, drift_of
from vcsd.reproduce.paired_runs import (
    CLEAR,
    NEAR,
    Paired,
    equivalence,
    equivalence_interval,
    interval,
    over_bases,
    paired,
    shown,
)
from vcsd.reproduce.results import acc_change, at_step, curves_of, suite, unread_curves_of, unread_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.paired_runs import Run
    from vcsd.reproduce.results import Results

ClaimVerdict = Literal["agrees", "disagrees", "undecided", "no claim", "not run"]


class JudgedClaim(NamedTuple):
    """What was found, the verdict, and the differences that it rests on. `is_alike` if they should be small."""

    text: str
    verdict: ClaimVerdict
    changes: Sequence[Paired] = ()
    is_alike: bool = False


ClaimRule = Callable[["Results"], JudgedClaim]

FEWEST_BASES = 5
"""With fewer bases, a comparison is undecided."""

SHORT_STEPS = 90
"""The steps of an ordinary run. A long run is stable if it ends where it was then."""

STANDS_FOR, DOES_NOT = 0.7, 0.3
"""A measure approximates another if they correlate at least this much, and does not below the second value."""


def variant(experiment: str, name: str) -> Variant:
    """Look up a variant of an experiment."""
    return next(each for each in EXPERIMENTS[experiment].variants if each.name == name)


def _difference(
    results: Results,
    group: str,
    before: Mapping[Run, float],
    after: Mapping[Run, float],
    *,
    unread: tuple[Mapping[Run, float], Mapping[Run, float]] | None = None,
) -> Paired | None:
    return paired(before, after, looks=results.looks(group), unread=unread)


def _known(*changes: Paired | None) -> list[Paired]:
    return [change for change in changes if change is not None]


def above(change: Paired | None, paper: float | None = None) -> ClaimVerdict:
    """Whether a difference is clearly above zero. One that is not, and excludes the paper's number, disagrees.

    >>> before = dict.fromkeys([("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)], 50.0)
    >>> after = dict(zip(before, (54.0, 53.5, 54.5, 54.0, 54.0)))
    >>> above(paired(before, after)), above(None)
    ('agrees', 'not run')
    """
    if change is None:
        return "not run"
    if change.num_bases < FEWEST_BASES:
        return "undecided"
    if change.is_clear:
        return "agrees" if change.mean > 0 else "disagrees"
    limits = interval(change, 1 - CLEAR / change.looks)
    is_below = paper is not None and limits is not None and limits[1] < paper
    return "disagrees" if is_below else "undecided"


def _worst(verdicts: list[ClaimVerdict]) -> ClaimVerdict:
    """The verdict over several comparisons: all must agree, and a single one can disagree."""
    if not verdicts or all(verdict == "not run" for verdict in verdicts):
        return "not run"
    order: tuple[ClaimVerdict, ...] = ("disagrees", "undecided", "not run", "agrees")
    return next(verdict for verdict in order if verdict in verdicts)


def above_everywhere(before: Variant, after: Variant) -> ClaimRule:
    """`after` must be clearly above `before` on every architecture and size."""

    def judge(results: Results) -> JudgedClaim:
        changes = {group: acc_change(results, before, after, group) for group in results.ordinary}
        parts = [f"{group} {change}, {change.num_bases} bases" for group, change in changes.items() if change]
        return JudgedClaim(
            "; ".join(parts), _worst([above(each) for each in changes.values()]), _known(*changes.values())
        )

    return judge


def above_together(before: Variant, after: Variant) -> ClaimRule:
    """`after` must be clearly above `before` over the bases of all architectures and sizes, each counted once."""

    def judge(results: Results) -> JudgedClaim:
        accs = [
            {run: acc for group in results.ordinary for run, acc in results.acc(each, group).items()}
            for each in (before, after)
        ]
        change = acc_change(results, before, after, *results.ordinary)
        if change is None:
            return JudgedClaim("", "not run")
        gains = [acc - accs[0][run] for run, acc in accs[1].items() if run in accs[0]]
        text = f"{change}, {change.num_bases} bases; above in {sum(gain > 0 for gain in gains)} of {len(gains)} runs"
        return JudgedClaim(text, above(change), [change])

    return judge


def above_on_first(before: Variant, after: Variant, paper: float | None = None) -> ClaimRule:
    """`after` must be clearly above `before` on the smallest Qwen3-VL."""

    def judge(results: Results) -> JudgedClaim:
        change = acc_change(results, before, after, results.smallest)
        verdict = above(change, paper)
        text = "" if change is None else f"{after.name} minus {before.name}: {change}"
        if change is not None and verdict == "disagrees" and change.mean > -NEAR and paper is not None:
            level = 1 - CLEAR / change.looks
            low, high = interval(change, level) or (0.0, 0.0)
            text += f"; the {100 * level:g}% interval, {low:+.2f} to {high:+.2f}, excludes the paper's {paper:+.2f}"
        return JudgedClaim(text, verdict, _known(change))

    return judge


def alike(*variants: Variant) -> ClaimRule:
    """Agrees if every pair is alike by an equivalence test; disagrees if the largest difference is clear.

    The largest of several differences is more easily due to chance, so its p is multiplied by the number of pairs
    (Bonferroni).
    """

    def judge(results: Results) -> JudgedClaim:
        group = results.smallest
        means = {each.name: over_bases(acc).mean for each in variants if (acc := results.acc(each, group))}
        if len(means) < len(variants):
            return JudgedClaim("", "not run")
        text = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        low, high = (pick(variants, key=lambda each: means[each.name]) for pick in (min, max))
        change, num_pairs = acc_change(results, low, high, group), math.comb(len(variants), 2)
        among = f", the largest of {num_pairs} differences" if num_pairs > 1 else ""
        pairs = _known(*(acc_change(results, *pair, group) for pair in combinations(variants, 2)))
        verdict = _near(change, num_pairs)
        if verdict == "agrees" and any(equivalence(pair) != "alike" for pair in pairs):
            verdict = "undecided"
        largest = change.followed_by(f"{_limits(change)} over {low.name}{among}") if change else None
        text = f"{text}; {high.name} {largest}"
        return JudgedClaim(text, verdict, pairs, is_alike=True)

    return judge


def _limits(change: Paired | None) -> str:
    """The interval of the equivalence test, in words."""
    limits = equivalence_interval(change)
    if change is None or limits is None:
        return ""
    return f", {100 * (1 - 2 * CLEAR / change.looks):g}% interval {limits[0]:+.2f} to {limits[1]:+.2f}"


def _near(change: Paired | None, num_pairs: int = 1) -> ClaimVerdict:
    """Whether the largest of `num_pairs` differences is small by an equivalence test; a clear one disagrees."""
    if change is None or change.p is None or change.num_bases < FEWEST_BASES:
        return "not run" if change is None else "undecided"
    if equivalence(change) == "alike":
        return "agrees"
    is_clear = abs(change.mean) > NEAR and change.p * num_pairs < CLEAR
    return "disagrees" if is_clear else "undecided"


def peak(low: Variant, top: Variant, high: Variant, *others: Variant) -> ClaimRule:
    """`top` must be the best and clearly above both ends; a clearly better variant disagrees."""

    def judge(results: Results) -> JudgedClaim:
        group = results.smallest
        accs = {each: results.acc(each, group) for each in (low, top, high, *others)}
        if not all(accs.values()):
            return JudgedClaim("", "not run")
        best = max(accs, key=lambda each: over_bases(accs[each]).mean)
        if best == top:
            ends = {end.name: acc_change(results, end, top, group) for end in (low, high)}
            text = "; ".join(change.followed_by(f" over {name}") for name, change in ends.items() if change)
            verdict = _worst([above(change) for change in ends.values()])
            return JudgedClaim(f"{top.name} is the best: {text}", verdict, _known(*ends.values()))
        change = acc_change(results, top, best, group)
        verdict = "disagrees" if above(change) == "agrees" else "undecided"
        lead = change.followed_by(f" over {top.name}") if change else None
        return JudgedClaim(f"{best.name} is the best, {lead}", verdict, _known(change))

    return judge


def finding(before: Variant, after: Variant) -> ClaimRule:
    """A comparison that the paper does not make."""

    def judge(results: Results) -> JudgedClaim:
        change = acc_change(results, before, after, results.smallest)
        word = equivalence(change)
        words = f"{_limits(change)} over {before.name}{f': {word}' if word else ''}"
        text = "" if change is None else f"{after.name} {change.followed_by(words)}"
        return JudgedClaim(text, "not run" if change is None else "no claim", _known(change), is_alike=True)

    return judge


def never_black(results: Results) -> JudgedClaim:
    """VCSD's gain under each control, on bases that never saw a black picture."""
    black, *others = EXPERIMENTS["black"].variants[2:]
    parts, changes = [], []
    for group in results.never_black:
        change = acc_change(results, BASE, black, group)
        if change is None:
            continue
        gains = [(each.name, acc_change(results, BASE, each, group)) for each in others]
        rest = ", ".join(f"{name} {other}" for name, other in gains if other is not None)
        changes += _known(change, *(other for _, other in gains))
        parts.append(f"{group}: {black.name} {change.followed_by(' over base')}" + (f"; {rest}" if rest else ""))
    return JudgedClaim("; ".join(parts), "no claim" if parts else "not run", changes)


def opsd_on_qwen3_5(results: Results) -> JudgedClaim:
    """A clear gain over the Qwen3.5 bases of all sizes disagrees; a clear loss, or an equal score, agrees."""
    groups = [group for group in results.ordinary if group.startswith("Qwen3.5")]
    changes = {group: change for group in groups if (change := acc_change(results, BASE, OPSD, group)) is not None}
    if not groups or len(changes) < len(groups):
        return JudgedClaim("", "not run")
    change = acc_change(results, BASE, OPSD, *groups)
    text = "; ".join(f"{group} {own}" for group, own in changes.items())
    if change is not None:
        text += f"; together {change}, {change.num_bases} bases"
    opposite: dict[ClaimVerdict, ClaimVerdict] = {"agrees": "disagrees", "disagrees": "agrees"}
    verdict = opposite.get(above(change), "agrees" if _near(change) == "agrees" else "undecided")
    return JudgedClaim(text, verdict, _known(change))


def _by_suite(results: Results, before: Variant, after: Variant) -> dict[str, Paired]:
    group = results.smallest
    changes = {}
    for name in SEVEN:
        scores = [results.values(each, group, suite(name)) for each in (before, after)]
        unread = [results.values(each, group, partial(unread_share, suite=name)) for each in (before, after)]
        changes[name] = _difference(results, group, *scores, unread=(unread[0], unread[1]))
    return {name: change for name, change in changes.items() if change is not None}


def every_suite(results: Results) -> JudgedClaim:
    """VCSD must be clearly above OPSD in each of the seven suites."""
    known = _by_suite(results, OPSD, VCSD)
    text = ", ".join(f"{name} {change.mean:+.1f}" for name, change in known.items())
    clear = sum(above(change) == "agrees" for change in known.values())
    verdict = _worst([above(change) for change in known.values()])
    text = f"{text}; clear in {clear}{_unread(results, known)}" if known else ""
    return JudgedClaim(text, verdict, list(known.values()))


def _unread(results: Results, suites: Mapping[str, Paired]) -> str:
    """The change in unread answers from OPSD to VCSD: over all suites, and of each if known."""
    change = acc_change(results, OPSD, VCSD, results.smallest)
    note = "" if change is None else unread_note(change.unread, digits=2)
    single = {name: each.unread for name, each in suites.items() if each.unread is not None}
    if change is not None and change.unread is not None and math.isnan(change.unread):
        return f"; {note}"
    if any(math.isnan(value) for value in single.values()):
        return f"; {note} over all suites, not recorded suite by suite"
    listed = ", ".join(f"{name} {unread_change(value)}" for name, value in single.items())
    return f"; {note} over all suites ({listed})"


def first_in_most_suites(results: Results) -> JudgedClaim:
    """Forward KL must be first in six suites; it disagrees if it is clearly behind in two or more."""
    forward, *others = EXPERIMENTS["divergence"].variants
    changes = [_by_suite(results, other, forward) for other in others]
    if not all(changes):
        return JudgedClaim("", "not run")
    first = [name for name in SEVEN if all(change[name].mean > 0 for change in changes)]
    behind = [name for name in SEVEN if any(above(change[name]) == "disagrees" for change in changes)]
    text = f"first in {len(first)} of {len(SEVEN)}; clearly behind in {len(behind)}"
    verdict: ClaimVerdict = (
        "disagrees" if len(behind) > 1 else "agrees" if len(first) >= len(SEVEN) - 1 else "undecided"
    )
    return JudgedClaim(text, verdict, [change for several in changes for change in several.values()])


def _final_fall(results: Results, which: Variant) -> dict[Run, float]:
    """How far each run ends below the best point of its curve."""
    curves = {run: list(curve.values()) for run, curve in curves_of(results, which, results.smallest).items()}
    return {run: max(accs) - accs[-1] for run, accs in curves.items() if accs}


def support(results: Results) -> JudgedClaim:
    """From the best step to the last, runs without the support must lose more than runs with it."""
    kept, lost = (_final_fall(results, variant("support", name)) for name in ("beta 0.1", "beta 0"))
    text = "points lost from the best step to the last: {0} with the support, {1} without"
    return _larger(results, kept, lost, text)


def _larger(results: Results, before: dict[Run, float], after: dict[Run, float], text: str) -> JudgedClaim:
    """`after` must be clearly larger. Both means and the difference are over the runs that both have."""
    change = _difference(results, results.smallest, before, after)
    if change is None:
        return JudgedClaim("", "not run")
    both = [run for run in before if run in after]
    means = [shown(over_bases({run: values[run] for run in both})) for values in (before, after)]
    return JudgedClaim(f"{text.format(*means)}; difference {change}", above(change), [change])


def holds(results: Results) -> JudgedClaim:
    """With the support, a long run must end where it was after as many steps as an ordinary run has."""
    curves = curves_of(results, variant("support", "beta 0.1"), results.smallest)
    unread = unread_curves_of(results, variant("support", "beta 0.1"), results.smallest)
    ends, shares = ([at_step(each, step) for step in (SHORT_STEPS, LONG_STEPS)] for each in (curves, unread))
    change = _difference(results, results.smallest, *ends, unread=(shares[0], shares[1]))
    text = f"step {LONG_STEPS} minus step {SHORT_STEPS}: {change.followed_by(_limits(change))}" if change else ""
    return JudgedClaim(text, _near(change), _known(change), is_alike=True)


def alike_early(results: Results) -> JudgedClaim:
    """With and without the support, the first point of the curve must be alike."""
    variants = [variant("support", name) for name in ("beta 0.1", "beta 0")]
    both = [curves_of(results, each, results.smallest) for each in variants]
    firsts = [{run: next(iter(curve.values())) for run, curve in curves.items() if curve} for curves in both]
    steps = {step for curves in both for curve in curves.values() for step in list(curve)[:1]}
    unread = [at_step(unread_curves_of(results, each, results.smallest), min(steps, default=0)) for each in variants]
    change = _difference(results, results.smallest, *firsts, unread=(unread[0], unread[1]))
    where = f"{_limits(change)} without the support at the first evaluation"
    text = change.followed_by(where) if change else ""
    return JudgedClaim(text, _near(change), _known(change), is_alike=True)


def drift(results: Results) -> JudgedClaim:
    """Without the anchor, more rollouts must be in another script, averaged over training."""
    with_anchor, without = (
        results.values(variant("anchor", name), results.smallest, drift_of) for name in ("anchor 1", "no anchor")
    )
    text = "{0}% of rollouts are in another script with the anchor, {1}% without"
    return _larger(results, with_anchor, without, text)


def ahead_at_every_step(name: str = "acc", *, skip_first: bool = False) -> ClaimRule:
    """VCSD must be clearly above OPSD at every evaluated step, in Acc or on the suite `name`."""

    def judge(results: Results) -> JudgedClaim:
        group = results.smallest
        variants = [variant("dynamics", each) for each in ("OPSD", "VCSD")]
        both = [curves_of(results, each, group, name) for each in variants]
        unread = [unread_curves_of(results, each, group, name) for each in variants]
        known = {}
        for step in sorted({step for curve in both[0].values() for step in curve})[int(skip_first) :]:
            shares = [at_step(each, step) for each in unread]
            change = _difference(results, group, *(at_step(each, step) for each in both), unread=(shares[0], shares[1]))
            if change is not None:
                known[step] = change
        text = ", ".join(f"step {step} {change.mean:+.1f}" for step, change in known.items())
        clear = sum(above(change) == "agrees" for change in known.values())
        verdict = _worst([above(change) for change in known.values()])
        text += f"; clear at {clear} of {len(known)}; {_unread_along(known)}"
        return JudgedClaim(text if known else "", verdict, list(known.values()))

    return judge


def _unread_along(changes: Mapping[int, Paired]) -> str:
    """The change in unread answers at the steps of a curve."""
    shares = {step: change.unread for step, change in changes.items() if change.unread is not None}
    if any(math.isnan(value) for value in shares.values()):
        return "unread not recorded at these steps"
    return "unread " + ", ".join(f"step {step} {unread_change(value)}" for step, value in shares.items())


def falls_less(results: Results) -> JudgedClaim:
    """From its best step to the last, OPSD must lose more than VCSD."""
    opsd, vcsd = (_final_fall(results, variant("dynamics", name)) for name in ("OPSD", "VCSD"))
    return _larger(results, vcsd, opsd, "points lost from the best step to the last: OPSD {1}, VCSD {0}")


def decoding(results: Results) -> JudgedClaim:
    """Contrast decoding must be clearly above the base; its cost and VCSD's gain over it are reported too."""
    group = results.smallest
    decode = variant("decoding", "contrast decoding")
    gain, rest = acc_change(results, BASE, decode, group), acc_change(results, decode, VCSD, group)
    ratios = results.values(decode, group, lambda result: result["cost"]["ratio"] if "cost" in result else None)
    if gain is None or rest is None:
        return JudgedClaim("", "not run")
    cost = f"at {over_bases(ratios).mean:.2f} times the cost of plain decoding"
    text = f"contrast decoding {gain} over base, {cost}; VCSD {rest} over contrast decoding at no cost"
    return JudgedClaim(text, above(gain), [gain])


def pmi(results: Results) -> JudgedClaim:
    """The contrast under black must correlate with the mutual information, token by token."""
    finished = results.finished(EXPERIMENTS["pmi"].variants[0], results.smallest).values()
    black = [result["pmi"]["black"] for result in finished if "black" in result.get("pmi", {})]
    if not black:
        return JudgedClaim("", "not run")
    means = {name: spread([each[name] for each in black]).mean for name in ("correlation", "same_sign", "same_choice")}
    text = (
        f"r = {means['correlation']:.2f}{_over_bases(results, _black_correlation)} on plausible tokens; same sign "
        f"{means['same_sign']:.0%}; the same best token {means['same_choice']:.0%}; the rule: r of {STANDS_FOR:g} or "
        f"more agrees, below {DOES_NOT:g} disagrees"
    )
    change = _beyond(results, _black_correlation, STANDS_FOR)
    if change is None or change.num_bases < FEWEST_BASES:
        return JudgedClaim(text, "undecided", _known(change))
    if means["correlation"] >= STANDS_FOR:
        return JudgedClaim(text, "agrees", [change])
    return JudgedClaim(text, "disagrees" if means["correlation"] < DOES_NOT else "undecided", [change])


def _beyond(results: Results, read: Callable[[CellResult], float | None], threshold: float) -> Paired | None:
    """How far the mean over bases of a measure is above a threshold."""
    values = results.values(EXPERIMENTS["pmi"].variants[0], results.smallest, read)
    return _difference(results, results.smallest, dict.fromkeys(values, threshold), values)


def _black_correlation(result: CellResult) -> float | None:
    return result["pmi"]["black"]["correlation"] if "black" in result.get("pmi", {}) else None


def _over_bases(results: Results, read: Callable[[CellResult], float | None]) -> str:
    """The 95% interval of a mean over bases, in words; empty for a single base."""
    change = _beyond(results, read, 0.0)
    limits = interval(change, 1 - CLEAR)
    return (
        ""
        if change is None or limits is None
        else (f" ({100 * (1 - CLEAR):g}% {limits[0]:.2f} to {limits[1]:.2f} over {change.num_bases} bases)")
    )


def _gain_of_words(results: Results, read: Callable[[CellResult], float | None]) -> dict[Run, float]:
    """How much more contrast some words have under VCSD than under OPSD, in nats."""
    opsd, vcsd = (results.values(each, results.smallest, read) for each in (OPSD, VCSD))
    return {run: vcsd[run] - opsd[run] for run in opsd if run in vcsd}


def _grows(results: Results, seen: dict[Run, float], other: dict[Run, float], words: str) -> JudgedClaim:
    """Visual words must gain contrast over OPSD, and more than other words do."""
    grew = _difference(results, results.smallest, dict.fromkeys(seen, 0.0), seen)
    more = _difference(results, results.smallest, other, seen)
    if grew is None or more is None:
        return JudgedClaim("", "not run")
    text = f"nats over OPSD, {words}: {grew} on visual words, {more} more than on other words"
    return JudgedClaim(text, _worst([above(grew), above(more)]), [grew, more])


def profile_of_all(results: Results) -> JudgedClaim:
    """Figure 6 by the first rule, for all answers together."""
    seen, other = (_gain_of_words(results, contrast_of_all(words)) for words in ("seen", "other"))
    return _grows(results, seen, other, "in all answers")


def profile(results: Results) -> JudgedClaim:
    """Figure 6 by the second rule, for right answers only."""
    seen, other = (_gain_of_words(results, contrast_of("profile", words)) for words in ("seen", "other"))
    judged = _grows(results, seen, other, "in right answers")
    wrong = _gain_of_words(results, contrast_of("profile_of_wrong", "seen"))
    if judged.verdict == "not run" or not wrong:
        return judged
    fall = _difference(results, results.smallest, dict.fromkeys(wrong, 0.0), wrong)
    return judged._replace(text=f"{judged.text}; in wrong answers: {fall} on visual words")
