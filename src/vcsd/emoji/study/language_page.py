"""Write the page about the emoji study from its result files, with the verdicts of `settle.py`.

    python -m vcsd.emoji.study.language_page docs/results/language_runs.json --out runs/language --page language.md

What is missing is listed as missing. The page is not edited by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import SUITES
from vcsd.emoji.study.emoji_runs import EmojiRun, StudyList, read_study
from vcsd.emoji.study.key_monitor import KEYS
from vcsd.emoji.study.settle import GATES, RateAndBeta, is_wanted, settle, unusual, verdict, worst_gate
from vcsd.errors import VcsdError
from vcsd.monitor.lines import read_lines
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Results = Mapping[EmojiRun, dict[str, Any]]

CONTROLS = ("alpha 0", "sharpened 2")
_FIRST, _LAST = 10, 10
"""Steps at the start and at the end of a run whose deciding words are compared."""


def read_results(listed: StudyList, out: Path) -> dict[EmojiRun, dict[str, Any]]:
    """Return the results that exist. Those of another list are an error of the caller: they are left out."""
    paths = {run: out / "cells" / f"{run.name}.json" for run in listed.runs}
    read = {run: json.loads(path.read_text(encoding="utf-8")) for run, path in paths.items() if path.is_file()}
    return {run: result for run, result in read.items() if result["list"] == listed.digest}


def page(listed: StudyList, out: Path) -> str:
    """Return the page."""
    results = read_results(listed, out)
    lines = ["# A real language model with true but skewed captions: results", ""]
    lines += [
        f"{len(results)} of {len(listed.runs)} planned runs are finished. The rules were written before them, in",
        "[preregistration_language.md](../preregistration_language.md). The prior comes from true but skewed captions;",
        "it is not the language model's own. Accuracies are percent of right deciding words.",
        "",
        *_verdicts(listed, results),
        *_settling(results),
        *_tables(results),
        *_counting(results, out),
        *_missing(listed, results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _verdicts(listed: StudyList, results: Results) -> Iterator[str]:
    yield "## Verdicts"
    yield ""
    for base in sorted({run.base for run in listed.runs}):
        own = {
            run.variant: result["scores"] for run, result in results.items() if (run.base, run.stage) == (base, "test")
        }
        absent = [name for name in ("base", "VCSD", *CONTROLS) if name not in own]
        if absent:
            yield f"- {base}: undecided, without {', '.join(absent)}."
            continue
        said = verdict(own["base"], own["VCSD"], [own[name] for name in CONTROLS])
        kind = "" if is_wanted(own["base"]) else " (the base itself does not show the phenomenon)"
        gain = unusual(own["VCSD"]) - unusual(own["base"])
        yield f"- {base}: **{said}**; unusual colours {gain:+.1f} points{kind}."
    yield ""


def _on_test(results: Results, base: str) -> dict[str, dict[str, Any]]:
    """The results of a base on `test`, by variant."""
    return {run.variant: result for run, result in results.items() if (run.base, run.stage) == (base, "test")}


def _settling(results: Results) -> Iterator[str]:
    yield "## Settling the learning rate, on `dev`"
    yield ""
    dev = {run: result["scores"] for run, result in results.items() if run.stage == "dev"}
    bases = [scores for run, scores in dev.items() if run.variant == "base"]
    if not bases:
        yield "Not run yet."
        yield ""
        return
    yield "| run | rate | beta | unusual colours | worst loss of a gate | " + " | ".join(GATES) + " |"
    yield "|---|---|---|--:|--:|" + "--:|" * len(GATES)
    chosen: dict[RateAndBeta, Any] = {}
    for run, scores in dev.items():
        rate, beta = ("", "") if run.setting is None else (run.setting.rate, run.setting.beta)
        gates = " | ".join(f"{scores[gate]['right']:.1f}" for gate in GATES)
        numbers = f"{unusual(scores):.1f} | {worst_gate(bases[0], scores):.1f} | {gates}"
        yield f"| {run.variant} | {rate} | {beta} | {numbers} |"
        if run.variant == "VCSD" and run.setting is not None:
            chosen[run.setting] = scores
    yield ""
    if chosen:
        settled = settle(bases[0], chosen)
        passed = "passes the gates" if settled.has_passed else "is the least harmful: none passes the gates"
        yield f"Of these, rate {settled.setting.rate} with beta {settled.setting.beta} {passed}."
        yield ""


def _tables(results: Results) -> Iterator[str]:
    bases = sorted({run.base for run in results if run.stage == "test"})
    for base in bases:
        own = _on_test(results, base)
        yield f"## {base}, on `test`"
        yield ""
        yield "| accuracy | " + " | ".join(own) + " |"
        yield "|---|" + "--:|" * len(own)
        for suite in SUITES:
            cells = " | ".join(f"{result['scores'][suite]['right']:.1f}" for result in own.values())
            yield f"| {suite} | {cells} |"
        cells = " | ".join(str(result.get("english_perplexity", "")) for result in own.values())
        yield f"| perplexity of English | {cells} |"
        yield ""


def _counting(results: Results, out: Path) -> Iterator[str]:
    yield "## Counting, and what the monitors saw"
    yield ""
    trained = [(run, result) for run, result in results.items() if run.trains]
    if not trained:
        yield "No run has been trained yet."
        yield ""
        return
    yield "`flips`: share of number words at which the contrast changed the most likely token, in the first and last"
    yield "ten steps. `alarm`: first warning of the run's guard, and of a guard for counting alone, without labels."
    yield ""
    yield "| run | count | flips, first | flips, last | KL there, first | KL there, last | alarm, run | alarm, count |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for run, result in trained:
        lines = [line for line in read_lines(out / "runs" / run.name / KEYS) if line["suite"] == "count"]
        steps = [int(line["step"]) for line in lines]
        last = max(steps, default=0)
        first_part = [line for line, step in zip(lines, steps, strict=True) if step <= _FIRST]
        last_part = [line for line, step in zip(lines, steps, strict=True) if step > last - _LAST]
        means = [
            _mean(part, name) for name in ("argmax_changed", "kl_target_original") for part in (first_part, last_part)
        ]
        alarms = [result["alarms"].get(who, {}).get("warn") for who in ("run", "count")]
        shown = [*(f"{mean:.3f}" if mean is not None else "-" for mean in means), *(str(a or "-") for a in alarms)]
        yield f"| {run.name} | {result['scores']['count']['right']:.1f} | " + " | ".join(shown) + " |"
    yield ""


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Average a statistic over the deciding words of several lines."""
    pairs = [(line["key"][name], line["keys"]) for line in lines if name in line["key"]]
    weight = sum(keys for _, keys in pairs)
    return sum(value * keys for value, keys in pairs) / weight if weight else None


def _missing(listed: StudyList, results: Results) -> Iterator[str]:
    missing = [run.name for run in listed.runs if run not in results]
    if missing:
        yield "## Missing"
        yield ""
        yield from (f"- {name}" for name in missing)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.language_page", description="Write the page.")
    parser.add_argument("list", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="The folder of the results.")
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    try:
        options.page.write_text(page(read_study(options.list), options.out), encoding="utf-8")
    except VcsdError as error:
        sys.stderr.write(visible(f"error: {type(error).__name__}: {error}\n"))
        sys.exit(2)


if __name__ == "__main__":
    main()
