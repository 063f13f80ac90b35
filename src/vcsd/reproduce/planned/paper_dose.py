"""The dose at which gains have the paper's size, chosen by the committed rule, and the claims judged there.

The rule looks at the cards of the bases alone, which pre-training writes, before any run on `test`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING

from vcsd.report.parts import unread_change
from vcsd.reproduce.experiments import BASE, DECODING, OPSD, VCSD
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import CLEAR, interval, shown_ends
from vcsd.reproduce.planned.answers import FEWEST_BASES, MAIN_CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

PAPER_DOSE_LIST, PAPER_DOSE_PAGE = "paper_dose_runs.json", "paper_dose.md"
"""Planned runs on new bases of the chosen dose, and the page that judges them."""

PAPER_GAIN = 3.3
"""The middle of the paper's +1.86 to +4.77 points."""


@dataclass(frozen=True)
class GainOnDev:
    """What contrast decoding gains on the split `dev`, from the cards of the bases of a dose."""

    dose: float
    by_seed: dict[int, float]
    """The gain of each base, by its pre-training seed."""
    num_planned: int

    @property
    def gains(self) -> tuple[float, ...]:
        """The gain of each base."""
        return tuple(self.by_seed.values())

    @property
    def distance(self) -> float:
        """How far the mean is from the paper's gain."""
        return abs(mean(self.gains) - PAPER_GAIN)

    def without(self, seed: int) -> GainOnDev:
        """The same without the base of a pre-training seed."""
        return replace(self, by_seed={each: gain for each, gain in self.by_seed.items() if each != seed})


@dataclass(frozen=True)
class DoseClaim:
    """A claim about `after` minus `before`, and the smallest and largest number of the paper where it has some."""

    text: str
    before: str
    after: str
    paper: tuple[float, float] | None
    rule: str


CLAIMS = (
    DoseClaim("VCSD improves over its base", BASE.name, VCSD.name, (1.86, 4.77), "[claims](claims.md)"),
    DoseClaim("VCSD is above matched OPSD", OPSD.name, VCSD.name, (1.76, 5.33), "[claims](claims.md)"),
    DoseClaim("The contrast adds to sharpening", MAIN_CONTROL, VCSD.name, None, "question 1"),
    DoseClaim("Decoding cannot replace training", DECODING.name, VCSD.name, None, "question 5"),
    DoseClaim("Contrast helps at inference", BASE.name, DECODING.name, None, "[claims](claims.md)"),
)


def gains_on_dev(runs: PlannedResults) -> list[GainOnDev]:
    """Read the cards of the bases of each dose; doses without a card are left out."""
    found = []
    for dose, bases in runs.doses.items():
        gains = {}
        for base in bases:
            card = runs.out / "cards" / f"{base}.json"
            if card.is_file():
                swayed = json.loads(card.read_bytes())["measured"]["sway"]
                gains[runs.listed.bases[base].seed] = swayed["contrast"]["mean"] - swayed["greedy"]["mean"]
        if gains:
            found.append(GainOnDev(dose, gains, len(bases)))
    return found


def paper_dose(runs: PlannedResults) -> GainOnDev | None:
    """The dose whose gain on `dev` is closest to the paper's; None without cards."""
    return min(gains_on_dev(runs), key=lambda each: each.distance, default=None)


def paper_section(runs: PlannedResults) -> Iterator[str]:
    """The choice of the dose, how much it hangs on single bases, and the claims at this dose."""
    found, closest = gains_on_dev(runs), paper_dose(runs)
    if closest is None:
        yield from ("No base has a card.", "")
        return
    lacking = [f"{dose:g}" for dose in runs.doses if dose not in {each.dose for each in found}]
    yield (
        "Rule 8 of the [rules](../preregistration.md) fixed before any run how to choose it: the dose at which "
        f"contrast decoding gains closest to {PAPER_GAIN} points, the middle of the paper's gains. The gains are those "
        "on the split `dev`, from the cards that pre-training writes; results on `test` do not count. "
        f"It is dose **{closest.dose:g}**, with {mean(closest.gains):+.2f} points."
        + (f" Doses without a card, which may have been closer: {', '.join(lacking)}." if lacking else "")
        + _how_firm(found, closest)
        + _on_test(runs, closest)
    )
    rows = [
        [
            f"{each.dose:g}",
            f"{mean(each.gains):+.2f}",
            ", ".join(f"{value:+.2f}" for value in each.gains),
            f"{len(each.gains)} of {each.num_planned}",
        ]
        for each in found
    ]
    yield from ("", markdown(["dose", "gain of contrast decoding on dev", "base by base", "bases"], rows), "")
    yield from _claims(runs, closest.dose)


def _how_firm(found: list[GainOnDev], closest: GainOnDev) -> str:
    """Which pre-training seeds, left out at every dose, would change the choice."""
    moved = {}
    for seed in closest.by_seed:
        rest = [left for each in found if (left := each.without(seed)).by_seed]
        dose = min(rest, key=lambda each: each.distance).dose if rest else closest.dose
        if dose != closest.dose:
            moved[seed] = dose
    if not moved:
        return " Leaving out any one pre-training seed does not change the choice."
    return "".join(f" Without pre-training seed {seed} it would be {dose:g}." for seed, dose in moved.items())


def _on_test(runs: PlannedResults, closest: GainOnDev) -> str:
    """Which dose VCSD's own gain on `test` would choose, which the rules do not ask."""
    changes = {dose: runs.change(BASE.name, VCSD.name, bases) for dose, bases in runs.doses.items()}
    gains = {dose: change.mean for dose, change in changes.items() if change is not None}
    if not gains:
        return ""
    dose = min(gains, key=lambda each: abs(gains[each] - PAPER_GAIN))
    word = "also" if dose == closest.dose else "instead"
    return f" VCSD's own gain on `test`, which the rules do not use, would {word} choose {dose:g} ({gains[dose]:+.2f})."


def _claims(runs: PlannedResults, dose: float) -> Iterator[str]:
    """Every claim that has runs at the dose, the worst first, with its rule and whether the bases give a verdict."""
    changes = {claim: runs.change(claim.before, claim.after, runs.doses[dose]) for claim in CLAIMS}
    rows = [
        claim_row(claim, change, f"{claim.rule}: {verdict_at_dose(change)}") for claim, change in worst_first(changes)
    ]
    yield f"### Claims at dose {dose:g}"
    yield ""
    yield (
        "The test is Student's t over bases, two-sided. A difference clearly above zero agrees with the claim, one "
        f"clearly below disagrees (p < {CLEAR:g}), and any other is undecided; **fewer than {FEWEST_BASES} bases give "
        "no verdict**. An interval that excludes the paper's numbers contradicts them. Nothing is corrected for the "
        "number of rows. The smallest difference comes first."
    )
    yield from ("", markdown([*CLAIM_HEAD, "rule and verdict", "the interval"], rows), "")
    yield from explained_by_unread(changes)
    yield "The paper's other claims have no runs on these bases."
    if (runs.out / PAPER_DOSE_LIST).is_file():
        yield f"More bases of this dose, for verdicts: [the claims at the paper's dose]({PAPER_DOSE_PAGE})."
    yield ""


CLAIM_HEAD = ("claim", "paper", "here, on `test`", "95%", "above in", "unread", "80% power from")
"""The first columns of a table of claims; a verdict and what the interval excludes follow."""


def worst_first(changes: Mapping[DoseClaim, Paired | None]) -> list[tuple[DoseClaim, Paired | None]]:
    """The claims with their differences, the smallest first; those without runs last."""
    return sorted(changes.items(), key=lambda pair: math.inf if pair[1] is None else pair[1].mean)


def explained_by_unread(changes: Mapping[DoseClaim, Paired | None]) -> Iterator[str]:
    """Name the leads that unread answers alone could explain: they count as wrong, but may have been right."""
    for claim, change in changes.items():
        if change is not None and change.unread is not None and 0 < change.mean <= -change.unread:
            yield (
                f"The lead of {claim.after} over `{claim.before}` ({change.mean:+.2f}) is no larger than the change in "
                f"unread answers ({change.unread:+.2f}), which alone could explain it."
            )


def claim_row(claim: DoseClaim, change: Paired | None, verdict: str) -> list[str]:
    """A row of a table of claims."""
    paper = "" if claim.paper is None else " to ".join(dict.fromkeys(f"{number:+.2f}" for number in claim.paper))
    name = f"{claim.text}: {claim.after} minus `{claim.before}`"
    return [name, paper, *_measured(change), verdict, _against(claim, change)]


def _measured(change: Paired | None) -> list[str]:
    """Mean, 95% interval, the number of bases above zero, the change in unread answers, and what could be shown."""
    if change is None:
        return ["no runs", "", "", "", ""]
    limits, values = interval(change), change.difference.values
    return [
        f"{change.mean:+.2f} (bases {min(values):+.2f} to {max(values):+.2f})",
        "" if limits is None else shown_ends(limits),
        f"{sum(value > 0 for value in values)} of {len(values)}",
        "" if change.unread is None else unread_change(change.unread, digits=2),
        "" if change.detectable is None else f"{change.detectable:.1f} points",
    ]


def verdict_at_dose(change: Paired | None, fewest: int = FEWEST_BASES) -> str:
    """What the rules say about a difference: a verdict needs five bases, or as many as other rules say."""
    num = 0 if change is None else change.num_bases
    if change is None or num < fewest:
        return f"no verdict, {num} of {fewest} bases"
    if not change.is_clear:
        return "undecided"
    return "agrees" if change.mean > 0 else "disagrees"


def _against(claim: DoseClaim, change: Paired | None) -> str:
    """Whether the interval excludes the paper's numbers, or zero where it has none."""
    limits = interval(change)
    if limits is None:
        return ""
    low, high = claim.paper or (0.0, 0.0)
    name = "zero" if claim.paper is None else "the paper's numbers"
    if limits[0] > high or limits[1] < low:
        return f"excludes {name}"
    if claim.paper is None or (limits[0] <= low and limits[1] >= high):
        return f"includes {name}"
    return f"includes some of {name}"
