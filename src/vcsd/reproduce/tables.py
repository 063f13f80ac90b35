"""Tables of an experiment as Markdown: mean and deviation over runs, and what each variant has above base and OPSD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.evaluation.compare import spread
from vcsd.reproduce.exam import SEVEN
from vcsd.reproduce.experiments import BASE, OPSD, REFERENCES
from vcsd.reproduce.results import suite
from vcsd.reproduce.statistics import paired, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vcsd.reproduce.experiments import Experiment, Variant
    from vcsd.reproduce.results import Results


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is left-aligned.

    >>> print(markdown(["method", "Acc"], [["base", "48.2"]]))
    | method | Acc |
    |---|---:|
    | base | 48.2 |
    """
    rule = "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


def experiment_page(experiment: Experiment, results: Results) -> str:
    """The page of one experiment."""
    lines = [f"# {experiment.title}", "", f"What the paper shows in {experiment.shows}, in the synthetic world.", ""]
    for group in results.groups_of(experiment):
        lines += [f"## {group}", "", *_group(experiment, results, group)]
    return "\n".join([*lines, *_made_with(experiment, results), ""])


def _group(experiment: Experiment, results: Results, group: str) -> Iterator[str]:
    variants = [*dict.fromkeys((*REFERENCES, *experiment.variants))]
    rows = [row for variant in variants if (row := _row(variant, results, group))]
    if rows:
        head = ["", *SEVEN, "Acc", "above base", "above OPSD", "usual", "runs"]
        yield from (markdown(head, rows), "")
    for variant in experiment.variants:
        for _, result in sorted(results.found(variant, group).items())[:1]:
            if "pmi" in result:
                yield from (_pmi_table(variant, results, group), "")
            if "cost" in result:
                ratios = spread([found["cost"]["ratio"] for found in results.found(variant, group).values()])
                yield from (f"Contrast decoding took {shown(ratios)} times as long as plain decoding.", "")


def _row(variant: Variant, results: Results, group: str) -> list[str]:
    acc = results.acc(variant, group)
    if not acc:
        return []
    entries = [results.values(variant, group, suite(name)) for name in SEVEN]
    above = ["" if variant == BASE else str(paired(results.acc(BASE, group), acc) or "")]
    above.append("" if variant in REFERENCES else str(paired(results.acc(OPSD, group), acc) or ""))
    usual = results.values(variant, group, lambda result: result.get("usual"))
    return [
        variant.name,
        *(shown(spread(list(values.values()))) for values in entries),
        f"**{shown(spread(list(acc.values())))}**",
        *above,
        shown(spread(list(usual.values()))) if usual else "",
        str(len(acc)),
    ]


def _pmi_table(variant: Variant, results: Results, group: str) -> str:
    found = list(results.found(variant, group).values())
    names = {"correlation": "r", "rank_correlation": "rank r", "same_sign": "same sign", "same_choice": "same choice"}
    rows = []
    for control in ("black", "noise", "blur", "no_image"):
        each = [result["pmi"][control] for result in found if control in result["pmi"]]
        if each:
            rows.append([control, *(shown(spread([one[name] for one in each])) for name in (*names, "mean_gap"))])
    return markdown(["control", *names.values(), "mean gap (nats)"], rows)


def _made_with(experiment: Experiment, results: Results) -> Iterator[str]:
    found = [result for cell in results.cells(experiment) if (result := cell.result()) is not None]
    if not found:
        return
    once = {result["key"]: result for result in found}.values()

    def all_of(read: Any) -> str:
        return ", ".join(sorted({str(read(result)) for result in once}))

    yield "## How this was made"
    yield ""
    yield f"- Command: `{all_of(lambda result: result['command'])}`"
    yield f"- Hardware: {all_of(lambda result: result['hardware'])}; {sum(r['seconds'] for r in once):,.0f} s of runs"
    versions = lambda result: " ".join(f"{name} {number}" for name, number in result["versions"].items())  # noqa: E731
    yield f"- Versions: {all_of(versions)}"
    yield f"- World parameters: {all_of(lambda result: result['identity']['world'])}; every run is in `cells/`"
    yield "- Mean ± standard deviation over runs; differences are taken run by run, ± is their standard error"
