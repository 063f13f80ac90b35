"""Tables of an experiment as Markdown: mean and deviation over runs, and each variant's gain over base and OPSD."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, OPSD, references_of
from vcsd.reproduce.paired_runs import by_base, over_bases, shown
from vcsd.reproduce.results import acc_change, suite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.results import Results

LEGEND = (
    "Scores on the seven suites are percentages, mean ± standard deviation over bases, and Acc is their mean. The runs "
    "of a base are averaged first, so that bases count equally. `usual` is accuracy on questions drawn from the prior; "
    'it is not part of Acc. "Above base" and "above OPSD" are differences in Acc, paired by run, ± standard error over '
    "bases, with the two-sided p of Student's t, in bold where p < 0.05. Bold is no verdict: fewer than "
    "five bases decide nothing. Where bases were added after a first look, p is doubled. `unread` is the change in the "
    "share of responses from which no answer could be extracted, in points."
)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], *, is_text: bool = False) -> str:
    """A table of numbers, with the first column left-aligned; or of text, with all columns left-aligned.

    >>> print(markdown(["method", "Acc"], [["base", "48.2"]]))
    | method | Acc |
    |---|---:|
    | base | 48.2 |
    """
    rule = "|" + "|".join(["---", *["---" if is_text else "---:"] * (len(head) - 1)]) + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


def variants_of(experiment: Experiment, results: Results, group: str) -> list[Variant]:
    """The references and the experiment's variants that have scores, one of each name."""
    by_name = {variant.name: variant for variant in (*references_of(experiment), *experiment.variants)}
    return [variant for variant in by_name.values() if results.acc(variant, group)]


def score_tables(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    """The scores of every variant, and Acc run by run."""
    variants = variants_of(experiment, results, group)
    if not variants:
        return
    head = ["", *SEVEN, "Acc", "above base", "above OPSD", "usual", "runs (bases)"]
    yield from (markdown(head, [_row(variant, results, group) for variant in variants]), "")
    runs = sorted({run for variant in variants for run in results.acc(variant, group)}, key=lambda run: (run[1], run))
    rows = []
    for variant in variants:
        acc = results.acc(variant, group)
        rows.append([variant.name, *(f"{acc[run]:.2f}" if run in acc else "" for run in runs)])
    yield from ("Acc run by run:", "", markdown(["", *(f"{base}, seed {seed}" for base, seed in runs)], rows), "")


def _row(variant: Variant, results: Results, group: str) -> list[str]:
    acc = results.acc(variant, group)
    entries = [results.values(variant, group, suite(name)) for name in SEVEN]
    usual = results.values(variant, group, lambda result: result.get("usual"))
    return [
        variant.name,
        *(shown(over_bases(values), digits=1) for values in entries),
        f"**{shown(over_bases(acc))}**",
        "" if variant.name == BASE.name else _above(BASE, variant, results, group),
        "" if variant.name in (BASE.name, OPSD.name) else _above(OPSD, variant, results, group),
        shown(over_bases(usual), digits=1) if usual else "",
        f"{len(acc)} ({len(by_base(acc))})",
    ]


def _above(before: Variant, after: Variant, results: Results, group: str) -> str:
    change = acc_change(results, before, after, group)
    if change is None:
        return ""
    return f"**{change}**" if change.is_clear else str(change)
