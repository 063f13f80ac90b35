"""The page of the claims at the paper's dose: eight new bases, judged by docs/preregistration_paper_dose.md.

`python -m vcsd.reproduce.every_page docs/results` writes it. Until its runs may be read, it says how many are finished,
and nothing else about them.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from vcsd.inspect.precheck.calibration import PAPER_GAINS, beyond_decoding, calibrated, root_mean_square
from vcsd.reproduce.experiments import BASE, DECODING, OPSD, VCSD
from vcsd.reproduce.failures import after_reading
from vcsd.reproduce.judged.claim_tables import (
    claims_section,
    draw_claims,
    named_changes,
    shares_section,
    short,
    suites_section,
    trained_controls,
)
from vcsd.reproduce.judged.judged_claims import ALPHA_0, AT_PAPER_DOSE, OPEN
from vcsd.reproduce.pages.claims import CLAIMS as PAPER_CLAIMS
from vcsd.reproduce.pages.first_screen import question_first
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import with_interval
from vcsd.reproduce.planned.answers import MAIN_CONTROL
from vcsd.reproduce.planned.dose_page import gains_by_base
from vcsd.reproduce.planned.paper_dose import gains_on_dev
from vcsd.reproduce.planned.verdict_page import all_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.pages.claims import Claim
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.paper_dose import DoseClaim
    from vcsd.reproduce.planned.planned_results import PlannedResults

PICTURE = "paper_dose.png"
QUESTION = (
    "Where gains have the paper's size, is VCSD above its base, above OPSD, and above methods without the contrast or "
    "without training?"
)
DOSE = 0.4
"""Chosen in docs/results/doses.md from the cards of other bases, before these runs were planned."""

ALSO_JUDGED = (
    "VCSD improves over the base, all models together.",
    "VCSD is above matched OPSD, all models together.",
    "Without contrast (alpha 0), accuracy is lower than with alpha 1.",
    "Contrast helps at inference; once distilled, it costs nothing at inference.",
)
"""The paper's claims that the rules judge at this dose, in the words of the page of claims."""

COMPARED = (BASE.name, MAIN_CONTROL, DECODING.name, OPSD.name)
"""What VCSD is compared with suite by suite."""


def paper_dose_page(runs: ReadOnce, earlier: PlannedResults) -> str:
    """Build the page. `earlier` has the bases of the same dose that were read before and give no verdict."""
    lines = [
        *question_first("The claims at the paper's dose", QUESTION),
        "The *dose* is the share of captions that ignored their picture when a base was pre-trained. At the default "
        f"dose of 0.6, gains are far above the paper's. Dose {DOSE:g} was chosen by [earlier "
        "rules](doses.md#the-dose-of-the-papers-size) to give gains of the paper's size. The "
        "[rules](../preregistration_paper_dose.md) for these eight new bases (Qwen3-VL, 3.2M) were committed before "
        "the first run.",
        "",
        runs.status(),
        "",
    ]
    if not runs.may_be_read:
        return "\n".join([*lines, *runs.commands(), ""])
    lines += [*_claims(runs.runs, earlier), f"![The eight differences with 95% intervals]({PICTURE})", ""]
    lines += [*_size(runs.runs), *shares_section(AT_PAPER_DOSE, runs.runs, DOSE)]
    lines += [*suites_section(runs.runs, COMPARED), *_precheck(runs.runs)]
    lines += [*_after_reading(runs.runs, earlier), *after_reading.guard_on(runs.runs)]
    lines += [*all_runs(runs.runs, list(runs.runs.listed.bases))]
    return "\n".join([*lines, *runs.made()])


def draw_paper_dose(runs: PlannedResults) -> Figure | None:
    """The differences that are judged: those to matched OPSD, which are far larger, beside the others."""
    return draw_claims(AT_PAPER_DOSE, runs, [OPSD.name], f"Acc at dose {DOSE:g}")


def _claims(runs: PlannedResults, earlier: PlannedResults) -> Iterator[str]:
    def known(claim: DoseClaim) -> Paired | None:
        return earlier.change(claim.before, claim.after, earlier.doses.get(DOSE, ()))

    rules = (
        "The last column is the mean of the three bases that were [read before](doses.md); they give no verdict and "
        "are not in the other columns."
    )
    yield from claims_section(AT_PAPER_DOSE, runs, rules, ("three earlier bases", known), _in_short())
    yield from _not_judged()


def not_judged_here() -> list[Claim]:
    """The paper's claims that have no runs at this dose. A comparison that the paper does not make is no claim."""
    return [claim for claim in PAPER_CLAIMS if claim.says not in ALSO_JUDGED and claim.number != "no number"]


def _in_short() -> str:
    """What the count of claims leaves out: most claims of the paper, and that half of the counted ones are ours."""
    return (
        f"{len(ALSO_JUDGED)} of the judged claims are [claims of the paper](claims.md); the others compare VCSD with "
        f"controls that were added here. **{len(not_judged_here())} claims of the paper are not judged at this dose** "
        "([which](#claims-of-the-paper-that-are-not-judged-here))."
    )


def _not_judged() -> Iterator[str]:
    """Name the paper's claims without runs at this dose, experiment by experiment."""
    yield from ("## Claims of the paper that are not judged here", "")
    yield "They have no runs at this dose, so they are judged at dose 0.6 alone, where gains are far above the paper's:"
    yield ""
    by_experiment: dict[str, list[str]] = {}
    for claim in not_judged_here():
        by_experiment.setdefault(claim.experiment, []).append(f'"{claim.says.removesuffix(".")}"')
    for name, says in by_experiment.items():
        yield f"- [{name}]({name}.md): {'; '.join(says)}."
    yield ""


def _size(runs: PlannedResults) -> Iterator[str]:
    """Whether these bases gain as much as the paper's models; the dose stays what it is."""
    yield from ("## Are the gains of the paper's size?", "")
    change = runs.change(BASE.name, VCSD.name, runs.listed.bases)
    low, high = PAPER_GAINS
    if change is not None:
        word = "within" if low <= change.mean <= high else "**outside**"
        inside = sum(low <= value <= high for value in change.difference.values)
        yield (
            f"VCSD gains {with_interval(change)}, {word} the paper's {low:+.2f} to {high:+.2f}; {inside} of "
            f"{change.num_bases} bases are within. By the rules, the dose stays the same, whatever this shows."
        )
    for dev in gains_on_dev(runs):
        gains = ", ".join(f"{gain:+.2f}" for gain in dev.gains)
        yield f"Contrast decoding on `dev`, from the cards: {sum(dev.gains) / len(dev.gains):+.2f} ({gains})."
    yield ""


def precheck_misses(runs: PlannedResults) -> dict[str, tuple[float, float]]:
    """For each base, the gain that the published pre-check predicts, and the measured one."""
    decoding, training = (gains_by_base(runs, name, DOSE) for name in (DECODING.name, VCSD.name))
    beyond = median(beyond_decoding(calibrated()))
    return {run[0]: (decoding[run] + beyond, training[run]) for run in decoding if run in training}


def precheck_compared(runs: PlannedResults, earlier: PlannedResults) -> str:
    """The pre-check next to the gain of the earlier bases, which was known before; empty without runs."""
    gains, before = precheck_misses(runs), earlier.change(BASE.name, VCSD.name, earlier.doses.get(DOSE, ()))
    return after_reading.precheck_beside_a_constant(gains, before.mean) if gains and before is not None else ""


def _precheck(runs: PlannedResults) -> Iterator[str]:
    gains = precheck_misses(runs)
    if not gains:
        return
    off = {base: measured - predicted for base, (predicted, measured) in gains.items()}
    worst = max(off, key=lambda base: abs(off[base]))
    yield from ("## The pre-check on bases that it has not seen", "")
    yield (
        f"The calibration that the package ships ({len(calibrated())} other bases; [its page](precheck.md)) predicts "
        f"the gain of training from that of contrast decoding. It is off by {root_mean_square(list(off.values())):.2f} "
        f"points typically (root mean square), and by {off[worst]:+.2f} at worst ({worst}). These bases do not enter "
        "the calibration."
    )
    rows = [[base, f"{low:+.2f}", f"{high:+.2f}", f"{off[base]:+.2f}"] for base, (low, high) in gains.items()]
    yield from ("", markdown(["base", "predicted", "measured", "miss"], rows), "")


def _after_reading(runs: PlannedResults, earlier: PlannedResults) -> Iterator[str]:
    """What the averages hide."""
    bases = list(runs.listed.bases)
    controls, named = trained_controls(AT_PAPER_DOSE), named_changes(AT_PAPER_DOSE, runs)
    undecided = [name for name, change in named.items() if AT_PAPER_DOSE.verdict(change) == OPEN]
    yield from ("## What the averages hide", "")
    yield (
        "Added after the results had been read; no verdict rests on it. Bases are named by their pre-training seeds, "
        f"{' to '.join((short(bases[0]), short(bases[-1])))}."
    )
    yield ""
    yield from after_reading.broken_opsd(runs, bases)
    yield from after_reading.behind(runs, controls, bases)
    yield from after_reading.harm(runs, bases)
    yield from after_reading.ceiling(runs, controls, bases)
    yield from after_reading.ratio_of_means(runs, [name for name in controls if name != ALPHA_0], bases)
    yield from after_reading.close_calls({name: named[name] for name in undecided})
    if compared := precheck_compared(runs, earlier):
        yield f"- {compared}"
    yield from after_reading.power_of_first_step(named, len(AT_PAPER_DOSE.claims))
    yield (
        "- **The order of commits**: the rules say that the code that judges is committed with them. The history shows "
        "rules, then code, then results, in several commits that replace lost ones. The commit of the results also "
        "changed this page: it added this section and the picture, and dropped the remark that the pre-check had the "
        "wrong sign on no base. It did not change the code that judges."
    )
    yield ""
