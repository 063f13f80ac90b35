"""What the target says of unusual colours before any training, beside contrast decoding and VCSD.

Contrast decoding is measured at temperature 1. The target of training is evaluated at the method's temperature, 2,
where the same beta admits more words. So decoding is a stricter rule than the one that training imitates.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

from vcsd.emoji.study.settle import UNUSUAL
from vcsd.reproduce.paired_runs import paired

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vcsd.emoji.study.sections.language_tables import Results


METHODS = ("base", "contrast decoding", "VCSD")


def target_before_training(results: Results) -> Iterator[str]:
    """The section of the page: percent of right unusual colours, base by base; empty without measured targets."""
    on_test = {(run.base, run.variant): result for run, result in results.items() if run.stage == "test"}
    contrasts = {
        base: result["key_contrast"]
        for (base, variant), result in on_test.items()
        if variant == "base" and set(UNUSUAL) <= set(result["key_contrast"])
    }
    if not contrasts:
        return
    num = next(iter(contrasts.values()))[UNUSUAL[0]]["num"]
    shares = {base: [_right(on_test[base, method]["scores"], num) for method in METHODS] for base in contrasts}
    targets = {base: mean(own[suite]["target"] for suite in UNUSUAL) for base, own in contrasts.items()}
    yield "## Unusual colours in the target, before training"
    yield ""
    yield f"Percent of right unusual colours, on the first {num} questions of both suites. The *target* is what VCSD"
    yield "trains towards, with beta 0.1 at temperature 2. It is measured after the true sentence up to its colour."
    yield "Contrast decoding has beta 0.1 at temperature 1, which is a stricter rule, and one setting. This section was"
    yield "added after the looks."
    yield ""
    yield f"| on | {METHODS[0]} | {METHODS[1]} | target of the base | {METHODS[2]} |"
    yield "|---|--:|--:|--:|--:|"
    for base, (before, decoded, after) in shares.items():
        yield f"| {base} | {before:.1f} | {decoded:.1f} | {targets[base]:.1f} | {after:.1f} |"
    yield ""
    change = paired(*({(base, 0): value for base, value in own.items()} for own in (targets, _last(shares))))
    yield f"VCSD minus the target: {change}."
    yield ""


def _last(shares: Mapping[str, list[float]]) -> dict[str, float]:
    return {base: own[-1] for base, own in shares.items()}


def _right(scores: Mapping[str, Any], num: int) -> float:
    """Percent of right answers to the first questions of both suites."""
    marks = "".join(scores[suite]["marks"][:num] for suite in UNUSUAL)
    return 100 * marks.count("1") / len(marks)
