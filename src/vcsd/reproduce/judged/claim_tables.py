"""How claims that are judged together are shown: their table, what the controls gain, and suite by suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, OPSD, VCSD
from vcsd.reproduce.pages.plots import new_figure
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import NEAR, interval, shown_ends, shown_p, with_interval
from vcsd.reproduce.planned.dose_page import LARGEST_NULL_GAIN, gains_by_base, share_of_gain
from vcsd.reproduce.planned.paper_dose import CLAIM_HEAD, claim_row, explained_by_unread, worst_first
from vcsd.reproduce.planned.planned_plots import draw_differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from vcsd.reproduce.judged.judged_claims import JudgedClaims
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.paper_dose import DoseClaim
    from vcsd.reproduce.planned.planned_results import PlannedResults

_VERDICTS = {
    "disagrees": ("disagrees", "disagree"),
    "undecided": ("is undecided", "are undecided"),
    "no verdict": ("has no verdict", "have no verdict"),
    "agrees": ("agrees", "agree"),
}
"""The verdicts, the worst first, in words for one claim and for several."""


def short(base: str) -> str:
    """The pre-training seed in a base's name.

    >>> short("qwen3_vl-small-41-dose-0.4")
    '41'
    """
    return base.split("-")[2]


def verdict_counts(judged: JudgedClaims, runs: PlannedResults) -> str:
    """How many claims have which verdict, the worst first; verdicts that no claim has are left out."""
    words = [judged.verdict(change).partition(":")[0].partition(",")[0] for change in judged.changes(runs).values()]
    counts = ((words.count(word), one, several) for word, (one, several) in _VERDICTS.items())
    parts = [f"{num} {one if num == 1 else several}" for num, one, several in counts if num]
    return f"Of {len(words)} claims, {' and '.join(filter(None, [', '.join(parts[:-1]), parts[-1]]))}"


def worst_claims(judged: JudgedClaims, runs: PlannedResults) -> str:
    """The claims that do not agree, the smallest difference first, for the front page."""
    parts = [
        f"{claim.after} minus `{claim.before}` {with_interval(change)}, {judged.verdict(change)}"
        for claim, change in worst_first(judged.changes(runs))
        if change is not None and judged.verdict(change) != "agrees"
    ]
    return "; ".join(parts) or f"all {len(judged.claims)} claims agree"


def claims_section(
    judged: JudgedClaims,
    runs: PlannedResults,
    rules: str,
    before: tuple[str, Callable[[DoseClaim], Paired | None]],
    beside_counts: str = "",
) -> Iterator[str]:
    """The counts, the paper's numbers that are contradicted, and the table of claims with its rules.

    `rules` ends the paragraph of rules; `before` is the head of the last column, and the differences on bases that were
    read before; `beside_counts` says what the counts leave out.
    """
    changes = judged.changes(runs)
    yield from (f"**{verdict_counts(judged, runs)}.** {beside_counts}".rstrip(), "", *_contradicted(changes))
    yield (
        f"The test is Student's t over bases, two-sided, with Holm's correction for "
        f"{len(judged.claims)}. If the 90% interval lies within {NEAR:g} point of zero, the verdict is *disagrees: "
        "alike*, whatever the p. Otherwise, a difference clearly above zero agrees and one clearly below disagrees. "
        f"Fewer than {judged.fewest_bases} bases give no verdict. `80% power from` holds for a claim that is tested "
        "alone. `unread` is the change in the share of responses from which no answer could be extracted, in points; "
        f"they count as wrong. The smallest difference comes first. {rules}"
    )
    rows = []
    for claim, change in worst_first(changes):
        known = before[1](claim)
        p = "" if change is None or change.p is None else shown_p(change.p).removeprefix("= ")
        *row, verdict, excluded = claim_row(claim, change, judged.verdict(change))
        word = f"**{verdict}**" if verdict.startswith("disagrees") else verdict
        rows.append([*row, p, word, excluded, "no runs" if known is None else f"{known.mean:+.2f}"])
    head = [*CLAIM_HEAD, f"p (Holm for {len(judged.claims)})", "verdict", "the interval", before[0]]
    yield from ("", markdown(head, rows), "")
    yield from explained_by_unread(changes)


def _contradicted(changes: Mapping[DoseClaim, Paired | None]) -> Iterator[str]:
    """The paper's numbers that an interval excludes, which the rules call contradicted whatever the verdict."""
    for claim, change in changes.items():
        if change is None or claim.paper is None:
            continue
        _, paper, *_, excluded = claim_row(claim, change, "")
        if excluded.startswith("excludes"):
            yield (
                f"**The paper's numbers for {claim.after} minus `{claim.before}` are contradicted here**, whatever "
                f"the verdict: {paper} in the paper, {with_interval(change)} here."
            )
            yield ""


def draw_claims(judged: JudgedClaims, runs: PlannedResults, apart: Sequence[str], title: str) -> Figure | None:
    """The differences that are judged: those to the variants named in `apart`, which are far larger, beside the others.

    None without runs.
    """
    changes = {f"{claim.after} minus {claim.before}": each for claim, each in worst_first(judged.changes(runs))}
    if all(change is None for change in changes.values()):
        return None
    large = [f"{VCSD.name} minus {name}" for name in apart]
    figure = new_figure(11.0, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1.6))
    draw_differences(left, {name: change for name, change in changes.items() if name not in large})
    left.axvspan(-NEAR, NEAR, color="#e8e8e8", zorder=0)
    left.set_title(f"{title}; grey: less than {NEAR:g} point", fontsize=10)
    draw_differences(right, {name: change for name, change in changes.items() if name in large})
    right.set_title("on another scale", fontsize=10)
    figure.tight_layout()
    return figure


def shares_section(judged: JudgedClaims, runs: PlannedResults, dose: float) -> Iterator[str]:
    """What the controls gain over the base, as points and as a share of VCSD's gain."""
    yield from ("## How much of the gain needs the contrast in training?", "")
    gains = gains_by_base(runs, VCSD.name, dose)
    small = [short(run[0]) for run, gain in gains.items() if gain < LARGEST_NULL_GAIN]
    here = f", as here on {', '.join(small)}" if small else ""
    yield (
        "This is a description, without a verdict. The share is averaged base by base. It is left out if VCSD gains "
        f"less than a point on some base{here}."
    )
    yield ""
    rows = []
    for name in dict.fromkeys(claim.before for claim in judged.claims if claim.before != BASE.name):
        change = runs.change(BASE.name, name, runs.listed.bases)
        if change is not None:
            limits = interval(change)
            share = share_of_gain(runs, name, dose)
            rows.append([f"`{name}` minus base", f"{change.mean:+.2f}", shown_ends(limits) if limits else "", share])
    yield from (markdown(["points of Acc", "mean", "95%", "share of VCSD's gain"], rows), "")


def suites_section(runs: PlannedResults, names: Sequence[str]) -> Iterator[str]:
    """VCSD minus some controls, suite by suite."""
    yield from ("## Suite by suite", "")
    yield (
        "VCSD minus each of the others, with 95% intervals. Nothing is corrected for the number of rows, so there is "
        "no verdict."
    )
    rows = []
    for suite in SEVEN:
        changes = [runs.change(name, VCSD.name, runs.listed.bases, suite) for name in names]
        rows.append([suite, *("missing" if change is None else with_interval(change) for change in changes)])
    yield from ("", markdown(["", *(f"`{name}`" for name in names)], rows), "")


def trained_controls(judged: JudgedClaims) -> list[str]:
    """What VCSD is compared with besides its base and matched OPSD."""
    return [claim.before for claim in judged.claims if claim.after == VCSD.name and claim.before not in _REFERENCES]


_REFERENCES = (BASE.name, OPSD.name)


def named_changes(judged: JudgedClaims, runs: PlannedResults) -> dict[str, Paired]:
    """Every difference that has runs, by its name."""
    changes = judged.changes(runs).items()
    return {f"{claim.after} minus `{claim.before}`": change for claim, change in changes if change is not None}
