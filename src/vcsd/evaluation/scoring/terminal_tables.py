"""Tables of scorecards for the terminal: one row per benchmark, with the counts of problematic answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vcsd.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vcsd.evaluation.scoring.compare import Comparison, Seeds
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.evaluation.scoring.uncertainty import Interval

_LONGEST_COMPARED_NAME = 16
_LONGEST_NAME = 20
"""The longest names of benchmarks in characters: the tables must fit 80 columns."""

COUNTS = ("failed", "unresolved", "truncated", "empty", "repeated")
_MOST_KS = 4
"""Values of k in a table that fits 80 columns."""

_SHORT = {"unresolved": "unread", "truncated": "cut", "repeated": "loops"}
"""Shorter names, so that the table fits a terminal of 80 columns."""


def score_table(card: Scorecard) -> Table:
    """Show entries with intervals, N, and the counts of answers that have a problem."""
    table = _table("benchmark", "score", "95%", "N", *(_SHORT.get(name, name) for name in COUNTS))
    for score in card.benchmarks.values():
        num = str(score.num_questions) if score.is_whole else f"{score.num_questions}/{score.num_expected}"
        counts = [getattr(score.counts, name) for name in COUNTS]
        cells = [Text(str(count), style="yellow" if count else "dim") for count in counts]
        table.add_row(plain(score.title), f"{score.entry:.2f}", _range(score.interval), num, *cells)
    table.add_section()
    name = "Acc" if len(card.benchmarks) > 1 else "mean"
    total = str(sum(score.num_questions for score in card.benchmarks.values()))
    table.add_row(name, f"{card.acc:.2f}", _range(card.interval), total, style="bold")
    return table


def remarks(card: Scorecard) -> Iterator[str]:
    """Yield how the numbers were made, and every reason to read them with care."""
    made = card.made_with
    parts = [f"mode {card.mode}"] + ([] if card.mode == "final" else [f"rules {card.rules}"])
    if judge := made.get("judge"):
        parts.append(f"judge {judge['model']}, asked as {judge.get('preset', 'in an earlier version')}")
    parts += [f"{key} {made[key]}" for key in ("style", "seed") if key in made]
    if sampling := made.get("sampling"):
        parts.append("sampling " + ", ".join(f"{key} {value}" for key, value in sampling.items()))
    yield "; ".join(parts)
    if isinstance(asker := made.get("asker"), dict) and "contrast" in asker:
        yield "Decoded by contrast: every answer took two views, and about twice the time."
    reports = made.get("data") or {}
    asked = {name: (report.get("num_asked"), report.get("num_questions")) for name, report in reports.items()}
    partial = [
        score.title
        for name, score in card.benchmarks.items()
        if not score.is_whole or len(set(asked.get(name, ()))) > 1
    ]
    if partial:
        yield f"Incomplete, so not comparable with published or complete results: {', '.join(partial)}."
    unknown = [name for name, report in reports.items() if report.get("doubts")]
    if unknown:
        yield f"Not the published data (see scorecard.json): {', '.join(unknown)}."
    if servers := (made.get("judge") or {}).get("servers"):
        yield (
            f"judge.jsonl holds replies of {len(servers)} servers, treated as one judge: {', '.join(servers)}. If they "
            "serve different models under one name, remove the file and score again."
        )
    yield from _unjudged(card)
    yield from _cut_off(card)
    if card.mode == "exact":
        yield "exact is VLMEvalKit's rule without a judge: a lower bound for answers that reason. Use final or judge."


def remarks_on_seeds(cards: Sequence[Scorecard]) -> Iterator[str]:
    """Yield remarks that hold for every seed once, and the others with their seeds. Counts are per seed."""
    counts = {line for card in cards for line in (*_unjudged(card), *_cut_off(card))}
    seeds: dict[str, list[str]] = {}
    for card in cards:
        for line in list(remarks(card))[1:]:
            seeds.setdefault(line, []).append(str(card.made_with.get("seed")))
    shared = dict(cards[0].made_with)
    if len(cards) > 1:
        shared["seed"] = ", ".join(str(card.made_with.get("seed")) for card in cards)
    yield next(remarks(replace(cards[0], made_with=shared)))
    for line, names in seeds.items():
        if len(names) == len(cards) > 1 and line in counts:
            yield f"Each seed: {line}"
        else:
            yield line if len(names) == len(cards) else f"Seed {', '.join(names)}: {line}"


def _unjudged(card: Scorecard) -> Iterator[str]:
    """Count the answers that the judge failed to read."""
    unjudged = {score.title: score.counts.judge_failed for score in card.benchmarks.values()}
    if total := sum(unjudged.values()):
        listed = ", ".join(f"{title} {num}" for title, num in unjudged.items() if num)
        answers = "1 answer" if total == 1 else f"{total} answers"
        yield (
            f"The judge failed on {answers} ({listed}), counted as wrong; judge.jsonl has the reasons. The same "
            "command asks only these again."
        )


def _cut_off(card: Scorecard) -> Iterator[str]:
    """Advise longer answers if most were cut off."""
    num_cut = sum(score.counts.truncated for score in card.benchmarks.values())
    total = sum(score.num_questions for score in card.benchmarks.values())
    longest = (card.made_with.get("sampling") or {}).get("max_new_tokens")
    if longest is not None and num_cut > total / 2:
        yield f"{num_cut} of {total} answers were cut off after {longest} tokens. Raise max_new_tokens (--sampling)."


def comparison_table(comparison: Comparison, first: str, second: str) -> Table:
    """Show the paired differences, second minus first; clear ones in colour. `unread` is in points, too."""
    table = _table("benchmark", first, second, "change", "95% interval", "gained", "lost", "unread")
    table.padding = (0, 1, 0, 0)  # to fit 80 columns
    table.columns[0].max_width = _LONGEST_COMPARED_NAME
    rows = [*comparison.benchmarks.items(), ("Acc", comparison.acc)]
    for name, change in rows:
        if name == "Acc":
            table.add_section()
        style = ("green" if change.difference > 0 else "red") if change.is_clear else ""
        table.add_row(
            plain(name),
            f"{change.a:.2f}",
            f"{change.b:.2f}",
            Text(f"{change.difference:+.2f}", style=style),
            f"{change.interval.low:+.1f} to {change.interval.high:+.1f}",
            str(change.num_gained),
            str(change.num_lost),
            Text(f"{change.unread:+.1f}", style="yellow" if change.is_doubtful else ""),
        )
    return table


def comparison_remarks(comparison: Comparison) -> Iterator[str]:
    """Yield sentences on the settings in which two results differ; ideally only the model."""
    settings = comparison.settings()
    others = [f"{name} {a} and {b}" for name, (a, b) in settings.items() if name not in ("model", "weights")]
    if len(others) == len(settings):
        yield "Both results are of the same model."
    if others:
        yield f"Their settings differ too: {', '.join(others)}. The change may come from that."
    elif settings:
        yield "All settings are the same; only the model differs."
    if any(comparison.judge_failed):
        first, second = comparison.judge_failed
        yield (
            f"The judge failed on some answers, which count as wrong: {first} of the first result, {second} of the "
            "second. Score both again, until it fails on none, before you claim a change."
        )
    yield from unread_warning(comparison)


def unread_warning(comparison: Comparison) -> Iterator[str]:
    """Warn of scores that changed by less than the share of unread answers did."""
    rows = {**comparison.benchmarks, **({"Acc": comparison.acc} if len(comparison.benchmarks) > 1 else {})}
    doubtful = {name: change for name, change in rows.items() if change.is_doubtful}
    if doubtful:
        listed = ", ".join(
            f"{name} {change.difference:+.1f} with {change.unread:+.1f} unread" for name, change in doubtful.items()
        )
        advice = "Read some of them" if comparison.mode == "judge" else "Score both with a judge"
        yield (
            f"The unread answers changed by more points than the score: {listed}. Answers that are merely stated more "
            f"plainly, or less, can do this. {advice} before you claim a change."
        )


def several_table(measures: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> Table:
    """Show pass@k, diversity and length, as seeds.json has them."""
    ks = list(next(iter(measures.values()))["pass_at"])
    shown = ks if len(ks) <= _MOST_KS else [*ks[: _MOST_KS - 1], ks[-1]]
    table = _table("benchmark", *(f"pass@{k}" for k in shown), "distinct", "bits", "unread", "tokens")
    table.padding = (0, 1, 0, 0)  # to fit 80 columns
    for name, measured in measures.items():
        tokens = measured["mean_tokens"]
        cells = [f"{measured['pass_at'][k]:.1f}" for k in shown]
        cells += [
            f"{measured['distinct']:.2f}",
            f"{measured['entropy']:.2f}",
            f"{measured['unread']:.1%}",
            "-" if tokens is None else f"{tokens:.0f}",
        ]
        table.add_row(plain(titles.get(name, name)), *cells)
    return table


def seeds_table(seeds: Seeds, titles: Mapping[str, str]) -> Table:
    """Show mean and standard deviation over seeds, and how many of all answers have a problem.

    `titles` maps names of benchmarks to their titles.
    """
    counted = ("failed", "unresolved", "truncated")
    table = _table("benchmark", "mean", "sd", *(_SHORT.get(name, name) for name in counted), "seeds")
    table.padding, table.columns[-1].no_wrap = (0, 1, 0, 0), False  # to fit 80 columns
    for name, spread in [*seeds.benchmarks.items(), ("Acc", seeds.acc)]:
        sd = "-" if spread.sd is None else f"{spread.sd:.2f}"
        values = ", ".join(f"{value:.2f}" for value in spread.values)
        counts = [getattr(seeds.counts[name], field) for field in counted] if name in seeds.counts else []
        cells = [Text(str(count), style="yellow" if count else "dim") for count in counts] or [Text()] * len(counted)
        table.add_row(plain(titles.get(name, name)), f"{spread.mean:.2f}", sd, *cells, values)
    return table


def _range(interval: Interval) -> str:
    return f"{interval.low:.1f}-{interval.high:.1f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for index, column in enumerate(columns):
        width = _LONGEST_NAME if index == 0 else None
        table.add_column(plain(column), justify="left" if index == 0 else "right", no_wrap=True, max_width=width)
    return table
