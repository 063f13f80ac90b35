"""The paper's claims, its numbers and ours, side by side, with agreement or disagreement said plainly.

A claim is a sentence of the paper, the number behind it, and a rule that reads our results. The rule decides, not the
reader: agrees, disagrees, or undecided, where the seeds cannot tell the two apart. Directions are compared, not sizes:
a tiny model in a synthetic world has no reason to gain as many points as the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from vcsd.evaluation.compare import spread
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, EXPERIMENTS, OPSD, VCSD, Experiment, Variant
from vcsd.reproduce.results import suite
from vcsd.reproduce.statistics import Paired, paired, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcsd.reproduce.results import Results, Run

Verdict = Literal["agrees", "disagrees", "undecided", "not run"]

NEAR = 1.0
"""Points within which two aggregates count as alike where the paper says so."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper. `judge` gives what we found, in words, and the verdict."""

    experiment: str
    says: str
    number: str
    judge: Callable[[Results], tuple[str, Verdict]]


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


def _first_group(results: Results) -> str:
    return next(iter(results.groups))


def _on_every_group(before: Variant, after: Variant) -> Callable[[Results], tuple[str, Verdict]]:
    def judge(results: Results) -> tuple[str, Verdict]:
        changes = {group: _change(results, group, before, after) for group in results.groups}
        said = "; ".join(f"{group} {change}" for group, change in changes.items() if change is not None)
        return said, _worst([above(change) for change in changes.values()])

    return judge


def _on_first(before: Variant, after: Variant) -> Callable[[Results], tuple[str, Verdict]]:
    def judge(results: Results) -> tuple[str, Verdict]:
        change = _change(results, _first_group(results), before, after)
        return str(change or ""), above(change)

    return judge


def _alike(*variants: Variant) -> Callable[[Results], tuple[str, Verdict]]:
    """Means within NEAR of each other agree; further apart they disagree if a pair is clearly different."""

    def judge(results: Results) -> tuple[str, Verdict]:
        group = _first_group(results)
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


def _opsd_on_qwen3_5(results: Results) -> tuple[str, Verdict]:
    groups = [group for group in results.groups if group.startswith("Qwen3.5")]
    changes = {group: _change(results, group, BASE, OPSD) for group in groups}
    if not groups or any(change is None for change in changes.values()):
        return "", "not run"
    gains = [change is not None and change.is_clear and change.difference.mean > 0 for change in changes.values()]
    said = "; ".join(f"{group} {change}" for group, change in changes.items())
    return said, "disagrees" if all(gains) else "agrees"


def _every_suite(results: Results) -> tuple[str, Verdict]:
    group = _first_group(results)
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
    found = results.found(which, _first_group(results))
    return {
        run: max(point["acc"] for point in result["curve"]) - result["curve"][-1]["acc"]
        for run, result in found.items()
        if result.get("curve")
    }


def _support(results: Results) -> tuple[str, Verdict]:
    kept, lost = (_final_fall(results, variant("support", name)) for name in ("beta 0.1", "beta 0"))
    change = paired(kept, lost)
    if change is None:
        return "", "not run"
    said = f"points lost from the best step to the last: {shown(spread(list(kept.values())))} with the support, "
    return f"{said}{shown(spread(list(lost.values())))} without; difference {change}", above(change)


def _drift(results: Results) -> tuple[str, Verdict]:
    group = _first_group(results)

    def mean_drift(result: dict[str, Any]) -> float | None:
        values = [value for value in result.get("series", {}).get("language_drift", []) if value is not None]
        return 100.0 * sum(values) / len(values) if values else None

    with_anchor, without = (
        results.values(variant("anchor", name), group, mean_drift) for name in ("anchor 1", "no anchor")
    )
    change = paired(with_anchor, without)
    if change is None:
        return "", "not run"
    said = f"{shown(spread(list(with_anchor.values())))}% of rollouts drift with the anchor, "
    return f"{said}{shown(spread(list(without.values())))}% without; difference {change}", above(change)


def _dynamics(results: Results) -> tuple[str, Verdict]:
    """The paper: above OPSD at every evaluated step, and a smaller fall at the end."""
    group = _first_group(results)
    curves = [results.found(variant("dynamics", name), group) for name in ("OPSD", "VCSD")]
    steps = [point["step"] for result in list(curves[0].values())[:1] for point in result["curve"]]
    changes = []
    for place in range(len(steps)):
        opsd, vcsd = ({run: result["curve"][place]["acc"] for run, result in curve.items()} for curve in curves)
        changes.append(paired(opsd, vcsd))
    known = [(step, change) for step, change in zip(steps, changes, strict=True) if change is not None]
    if not known:
        return "", "not run"
    said = ", ".join(f"step {step} {change.difference.mean:+.1f}" for step, change in known)
    if all(change.difference.mean > 0 for _, change in known):
        return said, "agrees" if known[-1][1].is_clear else "undecided"
    is_below = any(change.is_clear and change.difference.mean < 0 for _, change in known)
    return said, "disagrees" if is_below else "undecided"


def _decoding(results: Results) -> tuple[str, Verdict]:
    group = _first_group(results)
    decode = variant("decoding", "contrast decoding")
    gain, rest = _change(results, group, BASE, decode), _change(results, group, decode, VCSD)
    ratios = results.values(decode, group, lambda result: result.get("cost", {}).get("ratio"))
    if gain is None or rest is None:
        return "", "not run"
    cost = f"at {spread(list(ratios.values())).mean:.2f} times the time of plain decoding"
    return f"contrast decoding {gain} over base, {cost}; VCSD {rest} over contrast decoding at none", above(gain)


def _pmi(results: Results) -> tuple[str, Verdict]:
    found = results.found(EXPERIMENTS["pmi"].variants[0], _first_group(results)).values()
    black = [result["pmi"]["black"] for result in found if "black" in result.get("pmi", {})]
    if not black:
        return "", "not run"
    means = {name: spread([each[name] for each in black]).mean for name in ("correlation", "same_sign", "same_choice")}
    said = (
        f"r = {means['correlation']:.2f} on plausible tokens; same sign {means['same_sign']:.0%}; "
        f"the same best token {means['same_choice']:.0%}"
    )
    verdict: Verdict = (
        "agrees" if means["correlation"] > 0.7 else "disagrees" if means["correlation"] < 0.3 else "undecided"
    )
    return said, verdict


def _profile(results: Results) -> tuple[str, Verdict]:
    """Words that name what is seen must gain more contrast over OPSD than other words do."""
    group = _first_group(results)

    def read(kind: str) -> Callable[[dict[str, Any]], Any]:
        return lambda result: result.get("profile", {}).get(kind)

    seen, other = (
        paired(results.values(OPSD, group, read(kind)), results.values(VCSD, group, read(kind)))
        for kind in ("seen", "other")
    )
    if seen is None or other is None:
        return "", "not run"
    said = f"nats over OPSD: {seen} on words that name what is seen, {other} on others"
    more = seen.difference.mean > other.difference.mean
    return (
        said,
        "agrees" if seen.is_clear and seen.difference.mean > 0 and more else "disagrees" if not more else "undecided",
    )


CLAIMS = (
    Claim("main", "VCSD improves every model over its base.", "+1.86 to +4.77 points", _on_every_group(BASE, VCSD)),
    Claim("main", "VCSD is above matched OPSD on every model.", "+1.76 to +5.33 points", _on_every_group(OPSD, VCSD)),
    Claim("main", "OPSD gives no consistent gain on Qwen3.5.", "-2.43, -0.02, -0.24 points", _opsd_on_qwen3_5),
    Claim("main", "On the smallest Qwen3-VL every benchmark is above OPSD.", "+1.00 to +4.32 points", _every_suite),
    Claim(
        "main",
        "The contrast grows on words that name what is seen rather than everywhere.",
        "Figure 6, no number",
        _profile,
    ),
    Claim(
        "support",
        "Without the plausible support accuracy falls over long training; with it, it holds.",
        "Figure 3a, no number",
        _support,
    ),
    Claim(
        "alpha",
        "Without contrast (alpha 0) accuracy is lower than with alpha 1.",
        "-2.33 points",
        _on_first(variant("alpha", "alpha 0"), variant("alpha", "alpha 1")),
    ),
    Claim(
        "alpha",
        "Accuracy varies by less than a point for alpha from 1 to 1.5.",
        "< 1 point",
        _alike(*(variant("alpha", f"alpha {value}") for value in ("1", "1.25", "1.5"))),
    ),
    Claim(
        "alpha",
        "Too strong a contrast (alpha 2) is worse than alpha 1.",
        "about the level of alpha 0",
        _on_first(variant("alpha", "alpha 2"), variant("alpha", "alpha 1")),
    ),
    Claim(
        "divergence",
        "Forward KL is above reverse KL.",
        "+2.27 points",
        _on_first(variant("divergence", "reverse KL"), variant("divergence", "forward KL")),
    ),
    Claim(
        "divergence",
        "Forward KL is above the Jensen-Shannon divergence.",
        "+0.79 points",
        _on_first(variant("divergence", "JSD"), variant("divergence", "forward KL")),
    ),
    Claim(
        "control",
        "The four controls give similar accuracy.",
        "66.24 to 67.14",
        _alike(*EXPERIMENTS["control"].variants),
    ),
    Claim(
        "anchor",
        "Accuracy is about the same with and without the anchor.",
        "67.04 against 66.78",
        _alike(*EXPERIMENTS["anchor"].variants),
    ),
    Claim("anchor", "The anchor reduces language drift during training.", "Figure 3c, no number", _drift),
    Claim(
        "dynamics",
        "VCSD stays above OPSD at every evaluated step.",
        "Figure 4, no number",
        _dynamics,
    ),
    Claim(
        "decoding",
        "The contrast helps at inference already; distilled, it costs nothing there.",
        "no number; cited from VCD",
        _decoding,
    ),
    Claim("pmi", "The contrast under a black image stands for mutual information.", "Eq. 15, no number", _pmi),
    Claim(
        "temperature",
        "T = 2 (paper) and T = 1 with a factor 4 (authors' code): not compared in the paper.",
        "no number",
        _alike(*EXPERIMENTS["temperature"].variants),
    ),
)
"""Every claim of the paper's experiments, in its order."""


def experiments_of(claim: Claim) -> Experiment:
    """The experiment that a claim is read from."""
    return EXPERIMENTS[claim.experiment]
