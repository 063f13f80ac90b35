"""The page of the lag study: does it matter that rollouts are drawn some steps ahead?

    python -m vcsd.reproduce.planned.run_planned docs/results/lag_runs.json --out docs/results --jobs 14 --minutes 20
    python -m vcsd.reproduce.planned.lag_page docs/results

It reads `lag_runs.json` and `cells/` of a results folder, and writes `lag.md` and, with matplotlib, `lag.png` there.
Runs that are missing are named on the page. The rule that judges was written before the first run was made.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from vcsd.errors import VcsdError, install_command
from vcsd.evaluation.scoring.compare import spread
from vcsd.evaluation.scoring.student_t import quantile
from vcsd.report.parts import unread_change
from vcsd.reproduce.experiments import LAG
from vcsd.reproduce.pages.first_screen import first_screen, how_to_repeat
from vcsd.reproduce.pages.plots import error_bar, state_origin
from vcsd.reproduce.pages.provenance import hardware_line
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import interval, paired, shown, with_interval
from vcsd.reproduce.planned.answers import FEWEST_BASES
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.reproduce.results import unread_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from vcsd.evaluation.scoring.compare import Spread
    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.experiments import Variant
    from vcsd.reproduce.paired_runs import Paired, Run
    from vcsd.reproduce.planned.planned_results import PlannedResults

PAGE, PICTURE, LIST = "lag.md", "lag.png", "lag_runs.json"
COMMAND = "python -m vcsd.reproduce.planned.lag_page docs/results"
RUN_COMMAND = "python -m vcsd.reproduce.planned.run_planned docs/results/lag_runs.json --out docs/results"
NOW, *LATER = LAG.variants
MARGIN = 1.0
"""Points of Acc. A difference whose interval lies within this margin is called too small to matter."""
TOO_SMALL = "too small to matter"
NO_VERDICT = "one base: no verdict"
LEVEL = 0.95
FEWEST_SEEDS = 3
QUESTION = (
    "With `rollout.steps_ahead: k`, the student of step s draws the batch of step s + k ([vLLM](../vllm.md)). Does "
    "this lag change the accuracy after training (Acc)? The loss uses no log-probabilities of the sampler, so a lag "
    "only changes which responses are trained on. The shipped Qwen3-VL of the offline world is trained for 90 steps "
    "with lags of 0, 1, 2 and 4. The engine is that of transformers, which draws the same batches one after the other."
)
RULE = (
    "The rule, written before the first run: Acc with a lag minus Acc without, paired by seed, with a "
    f"{LEVEL:.0%} interval by Student's t. If the interval lies within ±{MARGIN:g} point, the difference is too small "
    "to matter. If it does not, but excludes zero, the lag is better or worse. Any other difference is undecided. The "
    "page adds *clear* where an interval within the margin excludes zero. Runs of one seed share their random numbers, "
    "so they differ much less from each other than runs of two seeds do."
)
SERIES = {"loss": "loss", "student_entropy": "entropy, nats", "length": "tokens"}
LAST_STEPS = 10


@dataclass(frozen=True, eq=False)
class LagRuns:
    """The planned runs, and the results of those that are finished."""

    runs: PlannedResults

    def results(self, variant: Variant) -> dict[int, CellResult]:
        """The results of a variant by seed."""
        own = {run.seed: self.runs.result(run) for run in self.runs.listed.runs if run.variant == variant}
        return {seed: result for seed, result in own.items() if result is not None}

    def accs(self, variant: Variant) -> dict[Run, float]:
        """Acc of each finished run. All runs share a base, so that each seed counts as a sample of its own."""
        return {(f"seed {seed}", seed): result["acc"] for seed, result in self.results(variant).items()}

    def change(self, variant: Variant) -> Paired | None:
        """Acc with a lag minus Acc without, seed by seed."""
        return paired(self.accs(NOW), self.accs(variant), unread=(self._unread(NOW), self._unread(variant)))

    def _unread(self, variant: Variant) -> dict[Run, float]:
        shares = {seed: unread_share(result) for seed, result in self.results(variant).items()}
        return {(f"seed {seed}", seed): share for seed, share in shares.items() if share is not None}

    def missing(self) -> list[str]:
        """The planned runs without a result."""
        return [
            f"{run.variant.name} with seed {run.seed}"
            for run in self.runs.listed.runs
            if run.seed not in self.results(run.variant)
        ]


def lag_runs(out: Path) -> LagRuns:
    """Read the planned runs and the results of a folder."""
    return LagRuns(planned_results(out, LIST))


def on_this_base(change: Paired | None) -> str:
    """What the interval of a difference to lag 0 says about the one base. That is no verdict: it needs five bases.

    >>> base = {("a", 1): 90.0, ("b", 2): 91.0, ("c", 3): 92.0}
    >>> on_this_base(paired(base, {("a", 1): 90.1, ("b", 2): 91.2, ("c", 3): 92.0}))
    'too small to matter'
    >>> on_this_base(paired(base, {("a", 1): 90.1, ("b", 2): 91.2, ("c", 3): 92.15}))
    'clear, but too small to matter'
    >>> on_this_base(paired(base, {("a", 1): 85.0, ("b", 2): 86.2, ("c", 3): 87.0}))
    'worse'
    >>> on_this_base(paired(base, {("a", 1): 85.0, ("b", 2): 96.2, ("c", 3): 92.0}))
    'undecided'
    >>> on_this_base(paired(base, {("a", 1): 90.1}))
    'too few runs'
    """
    if change is None or change.num_bases < FEWEST_SEEDS:
        return "too few runs"
    ends = interval(change, LEVEL)
    assert ends is not None
    low, high = ends
    is_clear = low > 0 or high < 0
    if low > -MARGIN and high < MARGIN:
        return f"clear, but {TOO_SMALL}" if is_clear else TOO_SMALL
    if is_clear:
        return "better" if low > 0 else "worse"
    return "undecided"


def lag_page(runs: LagRuns) -> str:
    """Build the page."""
    missing = runs.missing()
    num_planned = len(runs.runs.listed.runs)
    lines = first_screen(
        "Does it matter that rollouts are drawn ahead?",
        question=QUESTION,
        result=_in_words(runs),
        sure=f"**{num_planned - len(missing)} of {num_planned} planned runs are finished.**"
        + (f" Missing: {', '.join(missing)}." if 0 < len(missing) < num_planned else "")
        + " All runs start from one base, so they say nothing about other bases or models."
        + _unchanged(runs)
        + " The learning rate of 1e-4, against the paper's 2e-6, should make a lag matter more here, because weights "
        "move further in a step. Short, nearly certain answers should make it matter less.",
        repeat=how_to_repeat(RUN_COMMAND, COMMAND),
    )
    lines += ["## Lag by lag", "", RULE, ""]
    if any(runs.results(variant) for variant in LAG.variants):
        lines += [*_acc_table(runs), "", *_series_table(runs), "", *_made(runs)]
    return "\n".join(lines).rstrip() + "\n"


def _in_words(runs: LagRuns) -> list[str]:
    """The difference of each lag, the largest loss first."""
    changes = {variant.name: change for variant in LATER if (change := runs.change(variant)) is not None}
    worst_first = sorted(changes.items(), key=lambda pair: pair[1].mean)
    parts = [f"{name} {with_interval(change)}, {on_this_base(change)}" for name, change in worst_first]
    verdict = f"**{NO_VERDICT.capitalize()}.** A verdict on these pages needs {FEWEST_BASES} bases."
    return [f"{verdict} Acc minus Acc at lag 0, in points: {'; '.join(parts)}."] if parts else []


def same_lengths(runs: LagRuns, variant: Variant) -> float | None:
    """The share of steps, over seeds, whose mean length of responses equals that without a lag; None without pairs."""
    before, after = runs.results(NOW), runs.results(variant)
    pairs = [
        pair
        for seed in before
        if seed in after
        for pair in zip(before[seed]["series"]["length"], after[seed]["series"]["length"], strict=True)
    ]
    return sum(one == other for one, other in pairs) / len(pairs) if pairs else None


def _unchanged(runs: LagRuns) -> str:
    """How often a lag leaves the responses of a step as long as they are without one."""
    shares = {_lag(variant): share for variant in LATER if (share := same_lengths(runs, variant)) is not None}
    if not shares:
        return ""
    parts = _listed([f"{share:.0%}" for share in shares.values()])
    return (
        f" The mean length of a step's responses equals that without a lag in {parts} of the steps, with "
        f"{'a lag' if len(shares) == 1 else 'lags'} of {_listed([str(lag) for lag in shares])}"
        + (": training mostly saw the same responses, so **this test is not sensitive**." if _mostly(shares) else ".")
    )


def _mostly(shares: Mapping[int, float]) -> bool:
    return min(shares.values()) > 0.5


def _listed(parts: list[str]) -> str:
    """Join parts for a sentence.

    >>> _listed(["1", "2", "4"]), _listed(["1"])
    ('1, 2 and 4', '1')
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _acc_table(runs: LagRuns) -> Iterator[str]:
    rows = []
    for variant in LAG.variants:
        accs = list(runs.accs(variant).values())
        change = runs.change(variant) if variant is not NOW else None
        ends = interval(change, LEVEL)
        rows.append(
            [
                variant.name,
                str(len(accs)),
                shown(spread(accs)) if accs else "",
                "" if change is None else f"{change.mean:+.2f}",
                "" if change is None or change.unread is None else unread_change(change.unread, digits=2),
                "" if ends is None else f"{ends[0]:+.2f} to {ends[1]:+.2f}",
                "" if variant is NOW else on_this_base(change),
            ]
        )
    head = ["", "runs", "Acc, mean ± sd", "minus lag 0", "unread", f"{LEVEL:.0%} interval", "on this base"]
    yield markdown(head, rows)
    yield from ("", f"![Acc by lag, with intervals of the differences]({PICTURE})")


def _series_table(runs: LagRuns) -> Iterator[str]:
    yield f"The last {LAST_STEPS} steps of training, mean ± sd over runs:"
    rows = []
    for variant in LAG.variants:
        results = runs.results(variant).values()
        row = [variant.name]
        for name in SERIES:
            means = [mean(v for v in result["series"][name][-LAST_STEPS:] if v is not None) for result in results]
            row.append(shown(spread(means), digits=3) if means else "")
        rows.append(row)
    yield from ("", markdown(["", *SERIES.values()], rows))


def _made(runs: LagRuns) -> Iterator[str]:
    results = [result for variant in LAG.variants for result in runs.results(variant).values()]
    seconds = sum(each["seconds"] for each in results)
    yield from ("## How this was made", "")
    yield hardware_line(results)
    yield f"- Runs: {len(results)}, {seconds:,.0f} s in total, many in parallel"


def draw(runs: LagRuns) -> Figure | None:
    """Draw Acc by lag: a line for each seed, and the mean difference to lag 0 with its interval."""
    from matplotlib.figure import Figure

    with_results = [variant for variant in LAG.variants if runs.results(variant)]
    if not with_results:
        return None
    figure = Figure(figsize=(8.4, 3.4))
    left, right = figure.subplots(1, 2)
    for seed in dict.fromkeys(run.seed for run in runs.runs.listed.runs):
        points = {_lag(v): runs.results(v)[seed]["acc"] for v in with_results if seed in runs.results(v)}
        left.plot(list(points), list(points.values()), ".-", color="#c9ccd1", linewidth=1)
    for variant in with_results:
        own = spread(list(runs.accs(variant).values()))
        left.errorbar([_lag(variant)], [own.mean], yerr=_half_width(own), fmt="o", color="#1f7a6d", capsize=4)
    left.set_ylabel(f"accuracy, %; dots: mean, with {LEVEL:.0%}\ninterval over seeds; lines: seeds", fontsize=9)
    state_origin(left)
    right.axhline(0, color="#8a8f98", linewidth=1)
    right.axhspan(-MARGIN, MARGIN, color="#1f7a6d", alpha=0.08)
    right.text(_lag(NOW), 0.9 * MARGIN, f"shaded: {TOO_SMALL}", fontsize=8, color="#1f7a6d", va="top")
    for variant in LATER:
        change = runs.change(variant)
        if change is not None and (error := error_bar(change)) is not None:
            right.errorbar([_lag(variant)], [change.mean], yerr=error, fmt="o", color="#1f7a6d", capsize=4)
    right.set_ylabel(f"points minus lag 0, {LEVEL:.0%} interval;\nline at 0: no difference", fontsize=9)
    for axis in (left, right):
        axis.set_xlabel("steps that rollouts are drawn ahead")
        axis.set_xticks([_lag(variant) for variant in LAG.variants])
        axis.grid(axis="y", alpha=0.3)
    figure.tight_layout()
    return figure


def _half_width(own: Spread) -> float:
    """Half of the interval of a mean over seeds; 0 for a single seed."""
    num = len(own.values)
    return quantile(LEVEL, num - 1) * own.sd / num**0.5 if own.sd is not None else 0.0


def _lag(variant: Variant) -> int:
    return int(variant.name.split()[1])


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vcsd.reproduce.planned.lag_page", description=__doc__)
    parser.add_argument("results", type=Path)
    out: Path = parser.parse_args().results
    runs = lag_runs(out)
    (out / PAGE).write_text(lag_page(runs), encoding="utf-8")
    try:
        figure = draw(runs)
    except ImportError:
        figure = None
        sys.stdout.write(f"No picture: matplotlib is not installed. Install it: {install_command('eval')}.\n")
    if figure is not None:
        figure.savefig(out / PICTURE, dpi=130)
    sys.stdout.write(f"Wrote {out / PAGE}.\n")


if __name__ == "__main__":
    try:
        _main()
    except VcsdError as error:
        sys.exit(str(error))
