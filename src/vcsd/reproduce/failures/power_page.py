"""The page of more bases: VCSD against OPSD and base on six new bases of each family, by rules written before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.report.parts import unread_change
from vcsd.reproduce.base_folders import FAMILY_TITLES
from vcsd.reproduce.cell_result import read_results
from vcsd.reproduce.experiments import BASE, OPSD, VCSD
from vcsd.reproduce.failures import after_reading
from vcsd.reproduce.failures.failure_runs import FAILURE_LIST, read_once
from vcsd.reproduce.failures.failure_settings import FEWEST_BASES
from vcsd.reproduce.pages.first_screen import first_screen, how_to_repeat
from vcsd.reproduce.pages.plots import new_figure
from vcsd.reproduce.pages.tables import markdown
from vcsd.reproduce.paired_runs import by_base, holm, interval, paired, shown_p, with_interval
from vcsd.reproduce.planned.planned_plots import draw_differences
from vcsd.reproduce.planned.planned_results import planned_results
from vcsd.reproduce.results import unread_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

    from vcsd.reproduce.cell_result import CellResult
    from vcsd.reproduce.experiments import Variant
    from vcsd.reproduce.failures.failure_runs import ReadOnce
    from vcsd.reproduce.paired_runs import Paired, Run
    from vcsd.reproduce.results import Results

PAGE, PICTURE = "more_bases.md", "more_bases.png"
REFERENCES = (OPSD, BASE)
LOST = "lost"
"""In a results folder, the results of bases whose weights were lost, and that were made again."""


def power_page(runs: ReadOnce, results: Results) -> str:
    """Build the page. `results` are the earlier ones, on other bases."""
    lines = first_screen(
        "VCSD against OPSD on more bases",
        question="Is VCSD above matched OPSD, and above its base? Earlier runs left the first question open, so six "
        "new bases of the smallest size were made for each family.",
        result=[f"{in_words(runs)} ([table](#the-differences))."] if runs.may_be_read else [],
        sure=f"{runs.status()} The [rules](../preregistration_failures.md) were committed before any result. The test "
        "is Student's t over bases, with Holm's correction for the two families.",
        repeat=how_to_repeat(runs.command),
    )
    lines += _lost(runs)
    if runs.may_be_read:
        lines += ["## The differences", ""]
        lines += [*_without_lost(runs), *_table(runs), "", f"![The differences with 95% intervals]({PICTURE})", ""]
        lines += [*_pooled(runs, results), "", *_after_reading(runs)]
        lines += after_reading.guard_on(runs.runs)
    return "\n".join([*lines, *(runs.made() if runs.may_be_read else [""])])


def in_words(runs: ReadOnce) -> str:
    """VCSD minus OPSD for each family, the smallest first."""
    parts = []
    for family, change in sorted(changes(runs, OPSD).items(), key=lambda pair: pair[1].mean):
        rest = without_lost(runs, family, OPSD)
        text = f"VCSD minus OPSD on {FAMILY_TITLES[family]} {with_interval(change)}"
        if rest is not None:
            text += f", {says(rest)}: only {rest.num_bases} of these bases were not made again"
        parts.append(text)
    return "; ".join(parts)


def draw_more_bases(runs: ReadOnce) -> Figure | None:
    """Draw every judged difference with its interval and its bases; None until they may be read."""
    if not runs.may_be_read:
        return None
    figure = new_figure(8.0, 3.4)
    axis = figure.subplots()
    judged = {
        f"{FAMILY_TITLES[family]}: VCSD minus {reference.name}": change
        for reference in REFERENCES
        for family, change in changes(runs, reference).items()
    }
    draw_differences(axis, judged)
    axis.set_title("Acc; Qwen3.5 with the bases that were made again: undecided without them", fontsize=10)
    figure.tight_layout()
    return figure


def _lost(runs: ReadOnce) -> Iterator[str]:
    """Which bases were made again because their weights were lost. What the first ones scored is kept, and not used."""
    own = lost_cells(runs)
    if own:
        names = ", ".join(sorted({cell["base"] for cell in own}))
        variants = ", ".join(f"`{name}`" for name in sorted({cell["variant"] for cell in own}))
        unused = "1 result of the first ones is" if len(own) == 1 else f"{len(own)} results of the first ones are"
        yield (
            f"The weights of {names} were lost when only {variants} had been run on them. These bases were made again "
            "with the same command, which gives other weights on a GPU, and all their runs were repeated. "
            f"{unused} in `{LOST}/cells` and not used."
        )
        yield ""


def _after_reading(runs: ReadOnce) -> Iterator[str]:
    """What the averages hide."""
    yield from ("## What the averages hide", "", "Added after the results had been read; no verdict rests on it.", "")
    yield from (after_reading.base_by_base(runs.runs, list(runs.runs.listed.bases)), "")
    for family, title in FAMILY_TITLES.items():
        bound = after_reading.if_unread_were_right(runs.runs, _bases_of(runs, family))
        if bound is not None:
            yield (
                f"- **{title}**: if every unread answer of OPSD had been right, VCSD minus OPSD would be "
                f"{after_reading.shown_bound(bound)}."
            )
    named = {f"{FAMILY_TITLES[family]}: VCSD minus OPSD": change for family, change in changes(runs, OPSD).items()}
    yield from after_reading.power_of_first_step(named, len(FAMILY_TITLES))
    yield from _seen_before(runs)
    yield from _readers(runs)
    yield ""


def _without_lost(runs: ReadOnce) -> Iterator[str]:
    """What is left without the bases that were made again, and what speaks against making them."""
    lost = {cell["base"]: cell["acc"] for cell in lost_cells(runs) if cell["variant"] == BASE.name}
    for family, title in FAMILY_TITLES.items():
        change = without_lost(runs, family, OPSD)
        if change is None:
            continue
        new = {base: acc for (base, _), acc in runs.runs.scores(BASE.name, _bases_of(runs, family)).items()}
        pairs = ", ".join(f"{base} {acc:.2f} and {new[base]:.2f}" for base, acc in sorted(lost.items()) if base in new)
        yield (
            f"**Without the bases that were made again, {title} has {change.num_bases}, and VCSD minus OPSD is "
            f"{says(change)}**: {with_interval(change)}. The rules say that what is missing is missing, and do not "
            "mention lost weights. The code that was committed before the first run refused to make a base again if "
            f"it had results. That was changed after the first results of {title} existed, but before any was on this "
            "page. So the strict reading counts: the verdict is the one without the bases that were made again. Acc of "
            f"each of these bases, lost and made again: {pairs}."
        )
        yield ""


def without_lost(runs: ReadOnce, family: str, reference: Variant) -> Paired | None:
    """VCSD minus a reference without the bases of a family that were made again; None if there are none."""
    lost, bases = {cell["base"] for cell in lost_cells(runs)}, _bases_of(runs, family)
    rest = [base for base in bases if base not in lost]
    return runs.runs.change(reference.name, VCSD.name, rest) if len(rest) < len(bases) else None


def _seen_before(runs: ReadOnce) -> Iterator[str]:
    """Which results another list had shown before."""
    shown = {run.base for run in read_once(runs.runs.out, FAILURE_LIST).runs.runs} & set(runs.runs.listed.bases)
    if shown:
        yield (
            f"- **Not all of it was new**: VCSD minus base on {len(shown)} bases of Qwen3-VL had been on "
            "[where it fails](where_it_fails.md), whose list shares these runs, before this page was read."
        )


def _readers(runs: ReadOnce) -> Iterator[str]:
    """Whether versions of the reader are mixed within a base, where they would enter a difference."""
    versions: dict[str, set[object]] = {}
    for run in runs.runs.runs:
        result = runs.runs.result(run)
        if result is not None:
            versions.setdefault(run.base, set()).add(result.get("reader"))
    if len(set().union(*versions.values())) > 1:
        mixed = [base for base, own in versions.items() if len(own) > 1]
        within = f"; runs of {', '.join(mixed)} differ, too" if mixed else ", but not between the runs of a base"
        yield f"- **The version of the reader differs between bases**{within} (last column of the table)."


def _bases_of(runs: ReadOnce, family: str) -> list[str]:
    return [name for name, base in runs.runs.listed.bases.items() if base.family == family]


def lost_cells(runs: ReadOnce) -> list[CellResult]:
    """The results of bases of this list whose weights were lost."""
    return [cell for cell in read_results(runs.runs.out / LOST) if cell["base"] in runs.runs.listed.bases]


def changes(runs: ReadOnce, reference: Variant) -> dict[str, Paired]:
    """VCSD minus a reference in Acc for each family that has runs, with Holm's correction for the planned families."""
    num_planned = len({base.family for base in runs.runs.listed.bases.values()})
    every = {family: runs.runs.change(reference.name, VCSD.name, _bases_of(runs, family)) for family in FAMILY_TITLES}
    known = {family: change for family, change in every.items() if change is not None}
    return dict(zip(known, holm(list(known.values()), num_planned), strict=True))


def says(change: Paired) -> str:
    """What a difference says about the claim that VCSD is above."""
    if change.num_bases < FEWEST_BASES or not change.is_clear:
        return "undecided"
    return "agrees" if change.mean > 0 else "**disagrees**"


def _table(runs: ReadOnce) -> Iterator[str]:
    rows = []
    for reference in REFERENCES:
        for family, change in changes(runs, reference).items():
            ends, rest = interval(change), without_lost(runs, family, reference)
            rows.append(
                [
                    f"{FAMILY_TITLES[family]}: VCSD minus {reference.name}",
                    str(change.num_bases),
                    f"{change.mean:+.2f}",
                    "" if change.unread is None else unread_change(change.unread, digits=2),
                    "" if ends is None else f"{ends[0]:+.2f} to {ends[1]:+.2f}",
                    "" if change.p is None else shown_p(change.p).removeprefix("= "),
                    "" if change.detectable is None else f"{change.detectable:.1f}",
                    says(change) if rest is None else f"{says(rest)} (with bases made again: {says(change)})",
                ]
            )
    head = [
        "points of Acc",
        "bases",
        "mean",
        "unread",
        "95% interval",
        "p (Holm for two)",
        "could show",
        "claim: VCSD is above",
    ]
    yield markdown(head, rows)
    yield from (
        "",
        "`could show`: the smallest true difference that these bases would show in 80% of cases, by one test at 5%. "
        "`unread`: the change in the share of responses from which no answer could be extracted, in points; they count "
        "as wrong.",
    )


def _pooled(runs: ReadOnce, results: Results) -> Iterator[str]:
    """Old and new bases together, which give no verdict."""
    yield from (
        "Old and new bases of the same size together. Those of [what the contrast adds](what_the_contrast_adds.md) "
        "were added after the results had been read. The old bases were looked at more than once, so there is no "
        "verdict and no p.",
        "",
    )
    rows, earlier = [], planned_results(runs.runs.out)
    for family, title in FAMILY_TITLES.items():
        bases = _bases_of(runs, family)
        others = [name for name in earlier.verdict_bases if earlier.listed.bases[name].family == family]
        group = next((name for name in results.groups if _is_small(name, title)), None)
        for reference in REFERENCES:
            pairs, unread = [], []
            for variant in (reference, VCSD):
                old = results.acc(variant, group) if group else {}
                shares = results.values(variant, group, unread_share) if group else {}
                scores = {**earlier.scores(variant.name, others), **runs.runs.scores(variant.name, bases)}
                pairs.append(_merged(old, scores))
                new = {**earlier.unread(variant.name, others), **runs.runs.unread(variant.name, bases)}
                unread.append(_merged(shares, new))
            change = paired(*pairs, unread=(unread[0], unread[1]))
            if change is not None:
                above = sum(pairs[1][run] > pairs[0][run] for run in pairs[0] if run in pairs[1])
                above_in = f"{above} of {change.num_bases}"
                rows.append([f"{title}: VCSD minus {reference.name}", with_interval(change), above_in])
    yield markdown(["points of Acc", "mean", "bases above"], rows)


def _merged(old: Mapping[Run, float], new: Mapping[Run, float]) -> dict[Run, float]:
    """The mean of each base, old or new."""
    return {(base, 0): value for base, value in by_base({**old, **new}).items()}


def _is_small(group: str, title: str) -> bool:
    """Whether a group is the small size of a family in the default world.

    >>> [_is_small(name, "Qwen3-VL") for name in ("Qwen3-VL 3.2M", "Qwen3-VL 10.6M", "Qwen3-VL 3.2M, black_share=0")]
    [True, False, False]
    """
    name, _, size = group.rpartition(" ")
    return name == title and size.endswith("M") and float(size[:-1]) < 5
