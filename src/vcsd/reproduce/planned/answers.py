"""The questions of the committed rules, answered from the planned runs: for the contrast, against it, undecided, or
described without a verdict.

The numbers are those of docs/preregistration.md: 1 to 6 and 9. Questions 7 and 8 are answered on the page of doses.
The rules promise one look at the results. There were two, so p-values are doubled here.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Literal

from vcsd.report.parts import unread_note
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, DECODING, OPSD, SHARPENED, VCSD
from vcsd.reproduce.pages.details import guard_of
from vcsd.reproduce.paired_runs import (
    CLEAR,
    NEAR,
    equivalence,
    equivalence_interval,
    holm,
    interval,
    paired,
    shown_p,
    with_interval,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.paired_runs import Paired
    from vcsd.reproduce.planned.planned_results import PlannedResults

Side = Literal["against", "undecided", "described", "for"]
"""What an answer says about the contrast; the rules want some questions described, without a verdict."""

FEWEST_BASES = 5
"""The rules: a comparison with fewer bases is undecided."""

LOOKS = 2
"""The one-look rule was broken: p-values are multiplied by this number, and the equivalence test is stricter."""

MAIN_CONTROL = "sharpened 2"
CONTROLS = (
    *(each.name for each in SHARPENED),
    "another picture",
    DECODING.name,
    "majority of 8",
    OPSD.name,
    "OPSD beta 0.1",
    "OPSD, best dev step",
)
"""What VCSD is compared with."""
OTHER_ANCHORS = ("sharpened 1.5", "sharpened 3")
INSTEAD = ("majority of 8", "contrast decoding")
OPSD_SETTINGS = ("OPSD beta 0.1", "OPSD, best dev step")
LAST_STEPS = 10
"""Final entropy is the mean of the student's entropy over this many last steps."""


@dataclass(frozen=True)
class RuleAnswer:
    """What the runs say to one question of the rules."""

    side: Side
    text: str


def side_of(change: Paired | None) -> Side:
    """Judge VCSD minus a control: for if clearly above zero, against if clearly below, else undecided."""
    if change is None or change.num_bases < FEWEST_BASES or not change.is_clear:
        return "undecided"
    return "for" if change.mean > 0 else "against"


def in_points(change: Paired | None, *, corrected: bool = False) -> str:
    """A difference with its 95% interval, p, number of bases, and what these bases could have shown."""
    if change is None:
        return "no runs"
    limits = interval(change)
    if limits is None or change.p is None or change.detectable is None:
        return f"{change.mean:+.2f} (one base, {unread_note(change.unread, digits=2)})"
    name = "Holm's p" if corrected else "p"
    return (
        f"{change.mean:+.2f} (95% {limits[0]:+.2f} to {limits[1]:+.2f}, {unread_note(change.unread, digits=2)}, {name} "
        f"{shown_p(change.p)}, {change.num_bases} bases; 80% power from {change.detectable:.1f} points)"
    )


def answers(runs: PlannedResults) -> list[RuleAnswer]:
    """Answer questions 1 to 6, in this order; 9 is `guard_answer`."""
    return [
        *_adds(runs),
        *_where(runs),
        _share(runs),
        _empty(runs),
        *_pair(runs, "5. Can voting or decoding replace training?", INSTEAD),
        *_pair(runs, "6. Is OPSD held back by its settings?", OPSD_SETTINGS),
    ]


def over(runs: PlannedResults, control: str, suite: str | None = None, *, looks: int = LOOKS) -> Paired | None:
    """VCSD minus a control on the bases of the verdicts, with p corrected for the looks at the results."""
    return runs.change(control, VCSD.name, runs.verdict_bases, suite, looks=looks)


def judged(runs: PlannedResults, looks: int = LOOKS) -> dict[str, Paired | None]:
    """VCSD minus each control that questions 1, 5 and 6 judge by its p, corrected for tests and looks."""
    changes = {MAIN_CONTROL: over(runs, MAIN_CONTROL, looks=looks)}
    for controls in (OTHER_ANCHORS, INSTEAD, OPSD_SETTINGS):
        changes |= dict(zip(controls, _against(runs, controls, looks), strict=True))
    return changes


def _decidable(runs: PlannedResults, looks: int) -> dict[str, Paired]:
    """Every difference that questions 1, 2, 5 and 6 judge by its p, corrected for tests and looks."""
    changes = {f"VCSD minus `{name}`": change for name, change in judged(runs, looks).items()}
    changes |= {f"VCSD minus `{MAIN_CONTROL}` on `{name}`": each for name, each in suite_changes(runs, looks).items()}
    return {name: change for name, change in changes.items() if change is not None}


def lost_by_looks(runs: PlannedResults) -> list[str]:
    """The verdicts that the correction for several looks took away, each with its p before and after."""
    before, after = _decidable(runs, 1), _decidable(runs, LOOKS)
    lost = [
        f"{name} (p {shown_p(change.p)}, now {shown_p(after[name].p or 0.0).removeprefix('= ')})"
        for name, change in before.items()
        if change.p is not None and side_of(change) != "undecided" and side_of(after[name]) == "undecided"
    ]
    pair = [over(runs, "another picture", looks=looks) for looks in (1, LOOKS)]
    words = [equivalence(change) for change in pair if change is not None and change.num_bases >= FEWEST_BASES]
    return lost + ([f"VCSD and `another picture` {words[0]}"] if len(set(words)) > 1 else [])


def _against(runs: PlannedResults, controls: Sequence[str], looks: int = LOOKS) -> list[Paired | None]:
    """VCSD minus each control, with Holm's correction for all of them, also for those without runs."""
    changes = [over(runs, name, looks=looks) for name in controls]
    corrected = iter(holm([change for change in changes if change is not None], num_planned=len(controls)))
    return [None if change is None else next(corrected) for change in changes]


def _adds(runs: PlannedResults) -> Iterator[RuleAnswer]:
    title = "**1. Does the contrast add to sharpening?**"
    change = over(runs, MAIN_CONTROL)
    yield RuleAnswer(side_of(change), f"{title} VCSD minus `{MAIN_CONTROL}`: {in_points(change)}.")
    for name, other in zip(OTHER_ANCHORS, _against(runs, OTHER_ANCHORS), strict=True):
        yield RuleAnswer(side_of(other), f"{title} VCSD minus `{name}`: {in_points(other, corrected=True)}.")


def suite_changes(runs: PlannedResults, looks: int = LOOKS) -> dict[str, Paired]:
    """VCSD minus `sharpened 2` on each suite, with Holm's correction for all seven; empty without runs."""
    changes = {name: over(runs, MAIN_CONTROL, name, looks=looks) for name in SEVEN}
    known = {name: change for name, change in changes.items() if change is not None}
    return dict(zip(known, holm(list(known.values()), num_planned=len(SEVEN)), strict=True))


def _where(runs: PlannedResults) -> Iterator[RuleAnswer]:
    changes = suite_changes(runs)
    words: dict[Side, str] = {
        "against": "clearly behind",
        "undecided": "not clearly apart from",
        "for": "clearly ahead of",
    }
    for side, word in words.items():
        found = [
            f"`{name}` {change.mean:+.1f}, {unread_note(change.unread)}"
            for name, change in changes.items()
            if side_of(change) == side
        ]
        if found:
            yield RuleAnswer(side, f"**2. Where?** VCSD is {word} `{MAIN_CONTROL}` on {'; '.join(found)} (table).")


def shares(runs: PlannedResults) -> dict[tuple[str, int], float]:
    """The share of VCSD's gain that `sharpened 2` reaches, base by base, in percent; without those of `no_change`."""
    base, sharp, vcsd = (runs.scores(name, runs.verdict_bases) for name in (BASE.name, MAIN_CONTROL, VCSD.name))
    both = [run for run in base if run in sharp and run in vcsd and vcsd[run] != base[run]]
    return {run: 100 * (sharp[run] - base[run]) / (vcsd[run] - base[run]) for run in both}


def no_change(runs: PlannedResults) -> list[str]:
    """The bases on which VCSD equals the base: there is no gain to take a share of."""
    base, vcsd = (runs.scores(name, runs.verdict_bases) for name in (BASE.name, VCSD.name))
    return [run[0] for run in base if vcsd.get(run) == base[run]]


def _share(runs: PlannedResults) -> RuleAnswer:
    title = "**3. How much of the gain is sharpening?**"
    found, equal = shares(runs), no_change(runs)
    left_out = f" Left out, because VCSD equals the base there: {', '.join(equal)}." if equal else ""
    change = paired(dict.fromkeys(found, 0.0), found)
    limits = interval(change)
    if change is None or limits is None:
        return RuleAnswer("described", f"{title} Too few runs.{left_out}")
    each = ", ".join(f"{share:.0f}%" for share in found.values())
    return RuleAnswer(
        "described",
        f"{title} `{MAIN_CONTROL}` reaches {change.mean:.0f}% of VCSD's gain (95% {limits[0]:.0f} to {limits[1]:.0f}%, "
        f"{change.num_bases} bases: {each}).{left_out}",
    )


def _empty(runs: PlannedResults) -> RuleAnswer:
    title = "**4. Does the control have to be empty?** VCSD minus `another picture`:"
    change = over(runs, "another picture")
    limits = equivalence_interval(change)
    if change is None or limits is None:
        return RuleAnswer("undecided", f"{title} too few runs.")
    word = equivalence(change) if change.num_bases >= FEWEST_BASES else "undecided"
    sides: dict[str, Side] = {"alike": "against", "different": "for" if change.mean > 0 else "against"}
    return RuleAnswer(
        sides.get(word, "undecided"),
        f"{title} {change.mean:+.2f}, {_both_intervals(change)}, {change.num_bases} bases: {word}, with a margin of "
        f"{NEAR:g} point. If there is no difference, as many bases would show alike within "
        f"{change.alike_within or 0.0:.2f} points in 80% of cases. Alike would mean that any other picture serves as "
        "well as a black one.",
    )


def _both_intervals(change: Paired) -> str:
    """The interval of the equivalence test after all looks, and that of the rules, which is for one look."""
    level = 1 - 2 * CLEAR / change.looks
    strict, plain = (interval(change, each) or (0.0, 0.0) for each in (level, 1 - 2 * CLEAR))
    return (
        f"{100 * level:g}% interval for {change.looks} looks {strict[0]:+.2f} to {strict[1]:+.2f} (the rules' "
        f"{100 * (1 - 2 * CLEAR):g}% interval {plain[0]:+.2f} to {plain[1]:+.2f})"
    )


def _pair(runs: PlannedResults, title: str, controls: tuple[str, str]) -> Iterator[RuleAnswer]:
    for name, change in zip(controls, _against(runs, controls), strict=True):
        yield RuleAnswer(side_of(change), f"**{title}** VCSD minus `{name}`: {in_points(change, corrected=True)}.")


def guard_answer(runs: PlannedResults) -> RuleAnswer:
    """Answer question 9. A stop speaks against the guard; no stop says little where the guard stops nothing at all."""
    finished = runs.finished(VCSD.name, runs.verdict_bases)
    stopped = [base for (base, _), result in finished.items() if guard_of(result)["stop"] is not None]
    which = f"it stops {', '.join(stopped)}" if stopped else "it stops none"
    return RuleAnswer(
        "against" if stopped else "described",
        f"**9. The guard** must stop none of the VCSD runs on the five bases: of {len(finished)}, {which}.",
    )


def final_entropy(result: CellResult) -> float | None:
    """The student's entropy at the end of training, in nats."""
    values = [value for value in result.get("series", {}).get("student_entropy", [])[-LAST_STEPS:] if value is not None]
    return mean(values) if values else None


@dataclass(frozen=True)
class EntropyMatch:
    """For one base, the sharpened run whose final entropy is closest to VCSD's."""

    base: str
    entropy: float
    entropies: dict[str, float]
    chosen: str
    acc: float
    control_acc: float

    @property
    def is_inside(self) -> bool:
        """Whether VCSD's entropy lies between those of the sharpened runs, so that the match is a real one."""
        return min(self.entropies.values()) <= self.entropy <= max(self.entropies.values())


def entropy_matches(runs: PlannedResults) -> list[EntropyMatch]:
    """Match every base that has a VCSD run and at least one sharpened run."""
    names = [each.name for each in SHARPENED]
    entropies = {name: runs.values(name, runs.verdict_bases, final_entropy) for name in (*names, VCSD.name)}
    accs = {name: runs.scores(name, runs.verdict_bases) for name in (*names, VCSD.name)}
    matches = []
    for run, entropy in entropies[VCSD.name].items():
        known = {name: entropies[name][run] for name in names if run in entropies[name]}
        if known:
            chosen = min(known, key=lambda name: abs(known[name] - entropy))
            matches.append(EntropyMatch(run[0], entropy, known, chosen, accs[VCSD.name][run], accs[chosen][run]))
    return matches


def weakest_leads(runs: PlannedResults) -> str:
    """Say which controls VCSD is not clearly above, the smallest difference first; then the main control."""
    changes = {name: over(runs, name) for name in CONTROLS} | judged(runs)
    known = sorted(
        ((name, change) for name, change in changes.items() if change is not None), key=lambda pair: pair[1].mean
    )
    weak = [f"`{name}` {_with_p(change)}" for name, change in known if change.mean < 0 or not change.is_clear]
    main = dict(known).get(MAIN_CONTROL)
    parts = [f"VCSD is not clearly above {len(weak)} of {len(known)} controls: {'; '.join(weak)}."] if weak else []
    if main is not None:
        parts.append(f"VCSD minus `{MAIN_CONTROL}` is {_with_p(main)}.")
    return " ".join(parts)


def _with_p(change: Paired) -> str:
    """A difference with its interval; where that excludes zero, p says whether the difference is still clear."""
    ends = interval(change)
    if ends is None or change.p is None or ends[0] <= 0 <= ends[1]:
        return with_interval(change)
    return f"{with_interval(change).removesuffix(')')}, corrected p {shown_p(change.p)})"
