"""What the averages of the last two lists hide: single bases, unread answers, and verdicts that were close.

These lines were added after the results had been read. They describe; no verdict rests on them.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import correlation
from typing import TYPE_CHECKING

from vcsd.inspect.precheck.calibration import root_mean_square
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, OPSD, VCSD
from vcsd.reproduce.judged.claim_tables import short
from vcsd.reproduce.pages.details import LOSS_ALLOWED, guard_of
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import NEAR, interval, paired, shown_ends
from vcsd.reproduce.planned.beyond_rules import trained
from vcsd.reproduce.planned.verdict_page import GUARD_HEAD, guard_rows, what_the_guard_says

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.paired_runs import Paired, Run
    from vcsd.reproduce.planned.planned_results import PlannedResults

CEILING = 99.0
"""A base on which VCSD answers as much correctly leaves a control no room to be ahead."""


def if_unread_were_right(runs: PlannedResults, bases: Sequence[str]) -> Paired | None:
    """VCSD minus OPSD if every unread answer of OPSD had been right."""
    scores, unread = runs.scores(OPSD.name, bases), runs.unread(OPSD.name, bases)
    best = {run: acc + unread[run] for run, acc in scores.items() if run in unread}
    return paired(best, runs.scores(VCSD.name, bases))


def shown_bound(change: Paired) -> str:
    """A difference with its 95% interval, without a change in unread answers.

    >>> print(shown_bound(paired({("a", 1): 50.0, ("b", 2): 51.0}, {("a", 1): 54.0, ("b", 2): 54.5})))
    +3.75 (95% +0.57 to +6.93)
    """
    ends = interval(change)
    return f"{change.mean:+.2f}" + ("" if ends is None else f" (95% {shown_ends(ends)})")


def broken_opsd(runs: PlannedResults, bases: Sequence[str]) -> Iterator[str]:
    """What matched OPSD does to its answers, and what is left of the lead over it."""
    results, before = runs.finished(OPSD.name, bases), runs.scores(BASE.name, bases)
    cut = {run: result["truncated"] for run, result in results.items() if result.get("truncated")}
    worst = max(cut, key=lambda run: cut[run], default=None)
    losses = [before[run] - result["acc"] for run, result in results.items() if run in before]
    bound = if_unread_were_right(runs, bases)
    if bound is None:
        return
    text = "- **Matched OPSD breaks down.**"
    lower = [loss for loss in losses if loss > LOSS_ALLOWED]
    if lower:
        text += f" It ends {min(lower):.1f} to {max(lower):.1f} points below its base on {len(lower)} of {len(losses)}."
    if worst is not None:
        of = results[worst]["num_questions"]
        text += f" On {short(worst[0])}, {cut[worst]:,} of its {of:,} answers reach the limit of tokens."
    yield (f"{text} If every unread answer of OPSD had been right, VCSD minus OPSD would be {shown_bound(bound)}.")


def guard_on(runs: PlannedResults, added: str = "Added after the results had been read. ") -> Iterator[str]:
    """What the guard does with these runs: the bad ones that it misses, and the good ones that it stops.

    `added` says when the section was written, if that was after the results had been read.
    """
    rows = list(guard_rows(runs))
    if not rows:
        return
    base = runs.scores(BASE.name, runs.listed.bases)
    lost, missed, needless = 0, [], []
    for name, results in trained(runs).items():
        for run, result in results.items():
            if run not in base:
                continue
            said, loss = guard_of(result), base[run] - result["acc"]
            course = f"{name} on {run[0]} ({base[run]:.1f} to {result['acc']:.1f}"
            lost += loss > LOSS_ALLOWED
            if loss > LOSS_ALLOWED and said["stop"] is None:
                missed.append(f"{course}, {'no warning' if said['warn'] is None else 'with a warning'})")
            if loss <= 0 and said["stop"] is not None:
                needless.append(f"{course}, at step {said['stop']})")
    yield from ("## The guard on these runs", "")
    yield (
        f"{added}The guard's threshold was lowered after the runs up to seed 105. These runs were made later, so they "
        "test it. A run that ends below its base counts as *bad*; only final scores were measured."
    )
    yield from ("", markdown(GUARD_HEAD, rows), "")
    yield f"{what_the_guard_says(runs)} {_missed(missed, lost)} {_needless(needless)}"
    yield ""


def _missed(missed: Sequence[str], lost: int) -> str:
    if not lost:
        return f"No run ends more than {LOSS_ALLOWED:g} points below its base, so none tests whether it stops one."
    which = f": {', '.join(missed)}" if missed else ""
    return f"**It misses {len(missed)} of the {lost} that end more than {LOSS_ALLOWED:g} points below**{which}."


def _needless(needless: Sequence[str]) -> str:
    if not needless:
        return "It stops none that ends above its base."
    end = "ends above its base" if len(needless) == 1 else "end above their base"
    return f"**It stops {len(needless)} that {end}**: {', '.join(needless)}."


def close_calls(changes: Mapping[str, Paired]) -> Iterator[str]:
    """The 90% intervals of the differences that are undecided, which decide whether two are alike."""
    parts = []
    for name, change in changes.items():
        ends = interval(change, 0.90)
        if ends is not None:
            beyond = max(abs(end) for end in ends) - NEAR
            parts.append(f"{name} {shown_ends(ends)} ({beyond:.2f} beyond)")
    if parts:
        yield (
            "- **How far the undecided claims are from *alike***. That verdict counts against a claim, and needs a 90% "
            f"interval within {NEAR:g} point of zero: {'; '.join(parts)}."
        )


def behind(runs: PlannedResults, controls: Iterable[str], bases: Sequence[str]) -> Iterator[str]:
    """The bases on which a control is ahead of VCSD."""
    own = runs.scores(VCSD.name, bases)
    parts = []
    for name in controls:
        losses = {run: acc - own[run] for run, acc in runs.scores(name, bases).items() if run in own and acc > own[run]}
        if losses:
            parts.append(f"`{name}` on {', '.join(f'{short(run[0])} ({-gap:+.2f})' for run, gap in losses.items())}")
    if parts:
        yield f"- **VCSD is behind** {'; behind '.join(parts)}."


def harm(runs: PlannedResults, bases: Sequence[str]) -> Iterator[str]:
    """Suites on which VCSD lowers a base by more than the guard's tests allow, and the questions about usual things."""
    parts = []
    for suite in SEVEN:
        before, after = (runs.scores(name, bases, suite) for name in (BASE.name, VCSD.name))
        parts += [
            f"`{suite}` on {short(run[0])} ({before[run]:.1f} to {after[run]:.1f})"
            for run in before
            if run in after and before[run] - after[run] > LOSS_ALLOWED
        ]
    usual = (runs.values(name, bases, lambda result: result.get("usual")) for name in (BASE.name, VCSD.name))
    change = paired(*usual)
    text = f"- **VCSD lowers** by more than {LOSS_ALLOWED:g} points: {', '.join(parts) or 'no suite of any base'}."
    if change is not None:
        text += f" On questions about usual things, which the prior helps, VCSD minus base is {shown_bound(change)}."
    yield text


def ceiling(runs: PlannedResults, controls: Iterable[str], bases: Sequence[str]) -> Iterator[str]:
    """Bases on which no control could be ahead, and what is left without them."""
    full = [base for (base, _), acc in runs.scores(VCSD.name, bases).items() if acc >= CEILING]
    rest = [base for base in bases if base not in full]
    if not full:
        return
    changes = {name: runs.change(name, VCSD.name, rest) for name in controls}
    parts = [f"`{name}` {shown_bound(change)}" for name, change in changes.items() if change is not None]
    others = (
        f"On the other {len(rest)}, VCSD minus {', minus '.join(parts)}. These bases were chosen by VCSD's own scores, "
        "which makes it look worse on them."
        if parts
        else "There are no others."
    )
    yield (
        f"- **A ceiling**: VCSD answers at least {CEILING:g}% correctly on {', '.join(map(short, full))}, where no "
        f"control has room to be ahead. {others}"
    )


def ratio_of_means(runs: PlannedResults, names: Iterable[str], bases: Sequence[str]) -> Iterator[str]:
    """What the variants gain as a share of VCSD's gain, where shares base by base cannot be formed."""
    own = runs.change(BASE.name, VCSD.name, bases)
    changes = {name: runs.change(BASE.name, name, bases) for name in names}
    if own is None or own.mean <= 0:
        return
    parts = [f"`{name}` {100 * change.mean / own.mean:.0f}%" for name, change in changes.items() if change is not None]
    yield f"- **Mean gains as a share of VCSD's mean gain**: {', '.join(parts)}."


def precheck_beside_a_constant(gains: Mapping[str, tuple[float, float]], known: float) -> str:
    """Say whether the pre-check does better than always saying the gain that was known before."""
    predicted, measured = zip(*gains.values(), strict=True)
    own = root_mean_square([high - low for low, high in gains.values()])
    constant = root_mean_square([high - known for _, high in gains.values()])
    together = f" (correlation {correlation(predicted, measured):+.2f})" if len(set(predicted)) > 1 else ""
    word = "better" if own < constant else "no better"
    return (
        f"**The pre-check is {word} than a constant here**: it is off by {own:.2f} points{together}; always saying "
        f"{known:+.2f}, what the three earlier bases gained, is off by {constant:.2f}."
    )


def power_of_first_step(changes: Mapping[str, Paired], num_planned: int) -> Iterator[str]:
    """What could be shown if a difference has to pass the first and hardest step of Holm's correction."""
    least_shown = {name: replace(change, looks=num_planned).detectable for name, change in changes.items()}
    parts = [f"{name} {least:.1f}" for name, least in least_shown.items() if least is not None]
    if parts:
        yield (
            "- **The power column is for one test.** At the first and hardest step of Holm's correction, 80% power "
            f"needs these differences, in points: {', '.join(parts)}."
        )


def base_by_base(runs: PlannedResults, bases: Sequence[str]) -> str:
    """Acc of every run, unread answers of OPSD, the guard on OPSD, and the reader."""
    rows = []
    finished = {name: runs.finished(name, bases) for name in (BASE.name, OPSD.name, VCSD.name)}
    for run in finished[VCSD.name]:
        if all(run in results for results in finished.values()):
            rows.append(_row_of(run, {name: results[run] for name, results in finished.items()}, runs))
    head = ["base", "base, Acc", "OPSD", "VCSD", "VCSD - OPSD", "unread, OPSD, %", "guard on OPSD", "reader"]
    return markdown(head, rows)


def _row_of(run: Run, results: Mapping[str, CellResult], runs: PlannedResults) -> list[str]:
    accs = [results[name]["acc"] for name in (BASE.name, OPSD.name, VCSD.name)]
    unread = runs.unread(OPSD.name, [run[0]]).get(run)
    opsd = results[OPSD.name]
    stop = guard_of(opsd)["stop"] if "guard" in opsd else None
    return [
        run[0],
        *(f"{acc:.2f}" for acc in accs),
        f"{accs[2] - accs[1]:+.2f}",
        "" if unread is None else f"{unread:.1f}",
        "" if stop is None else f"stops at step {stop}",
        str(opsd.get("reader", "not recorded")),
    ]
