"""Write the page about the emoji study from its result files, with the verdicts of `settle.py`.

    python -m vcsd.emoji.study.language_page docs/results/language_runs.json --out docs/results/language \\
        --page docs/results/language.md

What is missing is listed as missing, and files that are not of the list as left out. The page is not edited by hand.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import SUITES
from vcsd.emoji.study.emoji_runs import EmojiRun, OtherListError, StudyList, read_study
from vcsd.emoji.study.key_monitor import KEYS
from vcsd.emoji.study.settle import (
    FIRST_STEPS,
    GATES,
    MARGIN,
    Counted,
    RateAndBeta,
    is_wanted,
    seen_in_time,
    settle,
    study_verdict,
    unusual,
    verdict,
    worst_gate,
)
from vcsd.errors import VcsdError
from vcsd.monitor.lines import read_lines
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Results = Mapping[EmojiRun, dict[str, Any]]

CONTROLS = ("alpha 0", "sharpened 2")
_LAST = 10
"""Steps at the end of a run whose deciding words are compared with those of its first steps."""


def read_results(listed: StudyList, out: Path) -> tuple[dict[EmojiRun, dict[str, Any]], list[str]]:
    """Return the results that exist in the order of the list, and the names of the files that are not of this list."""
    paths = {run: out / "cells" / f"{run.name}.json" for run in listed.runs}
    left_out = {path.name for path in (out / "cells").glob("*.json")} - {path.name for path in paths.values()}
    results = {}
    for run, path in paths.items():
        try:
            if (result := listed.read_result(path)) is not None:
                results[run] = result
        except OtherListError:
            left_out.add(path.name)
    return results, sorted(left_out)


def page(listed: StudyList, out: Path) -> str:
    """Return the page."""
    results, left_out = read_results(listed, out)
    lines = ["# A real language model with true but skewed captions: results", ""]
    lines += [
        f"{len(results)} of {len(listed.runs)} planned runs are finished. The rules were written before them, in",
        "[preregistration_language.md](../preregistration_language.md). The prior comes from true but skewed captions;",
        "it is not the language model's own. Accuracies are percent of right deciding words.",
        "",
        *_study_verdict(listed, results),
        *_verdicts(listed, results),
        *_settling(results),
        *_tables(results),
        *_counting(results, out),
        *_missing(listed, results),
        *_left_out(left_out),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _study_verdict(listed: StudyList, results: Results) -> Iterator[str]:
    scores = {base: _scores_on_test(results, base) for base in listed.bases}
    missing = [base for base, own in scores.items() if _absent(own)]
    if missing:
        yield f"**The study has no verdict yet:** runs of {', '.join(missing)} are missing."
    else:
        said = study_verdict([(is_wanted(own["base"]), _verdict(own)) for own in scores.values()])
        yield f"**The study {said}.**"
        if said == "fails":
            yield "VCSD, at the best rate of the grid, does not help this kind of model."
    yield ""


def _scores_on_test(results: Results, base: str) -> dict[str, Any]:
    return {variant: result["scores"] for variant, result in _on_test(results, base).items()}


def _absent(own: Mapping[str, Any]) -> list[str]:
    """What a base's verdict needs and does not have."""
    return [name for name in ("base", "VCSD", *CONTROLS) if name not in own]


def _verdict(own: Mapping[str, Any]) -> str:
    return verdict(own["base"], own["VCSD"], [own[name] for name in CONTROLS])


def _verdicts(listed: StudyList, results: Results) -> Iterator[str]:
    yield "## Verdicts"
    yield ""
    for base in listed.bases:
        own = _scores_on_test(results, base)
        if absent := _absent(own):
            yield f"- {base}: undecided, without {', '.join(absent)}."
            continue
        said = _verdict(own)
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
    yield "ten steps. `alarm`: first alarm of the run's guard, and of a guard for counting alone, without labels."
    yield "`in time`, for runs that break counting: whether one came before 10 points were lost among the rollouts."
    yield ""
    columns = ["flips, first", "flips, last", "KL there, first", "KL there, last", "alarm, run", "alarm, count"]
    yield "| run | count | " + " | ".join([*columns, "in time"]) + " |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for run, result in trained:
        lines = [line for line in read_lines(out / "runs" / run.name / KEYS) if line["suite"] == "count"]
        steps = [int(line["step"]) for line in lines]
        last = max(steps, default=0)
        first_part = [line for line, step in zip(lines, steps, strict=True) if step <= FIRST_STEPS]
        last_part = [line for line, step in zip(lines, steps, strict=True) if step > last - _LAST]
        means = [
            _mean(part, name) for name in ("argmax_changed", "kl_target_original") for part in (first_part, last_part)
        ]
        alarms = [_first_alarm(result["alarms"].get(who, {})) for who in ("run", "count")]
        shown = [*(f"{mean:.3f}" if mean is not None else "-" for mean in means), *(str(a or "-") for a in alarms)]
        is_broken = _breaks_counting(results, run)
        shown.append("no base" if is_broken is None else _in_time(lines, alarms) if is_broken else "-")
        yield f"| {run.name} | {result['scores']['count']['right']:.1f} | " + " | ".join(shown) + " |"
    yield ""


def _first_alarm(steps: Mapping[str, int | None]) -> int | None:
    """The first step at which a guard warned; one that stops at once has warned as well."""
    return min((step for step in steps.values() if step is not None), default=None)


def _breaks_counting(results: Results, run: EmojiRun) -> bool | None:
    """Whether a run loses more of counting than a gate may; None if the result of its base is missing."""
    right = {
        other.variant: result["scores"]["count"]["right"]
        for other, result in results.items()
        if other == run or (other.variant, other.base, other.stage) == ("base", run.base, run.stage)
    }
    return right["base"] - right[run.variant] > MARGIN if "base" in right else None


def _in_time(lines: Sequence[Mapping[str, Any]], alarms: Sequence[int | None]) -> str:
    counted = [Counted(line["step"], line["responses"], line["right"]) for line in lines]
    said = seen_in_time(counted, [alarm for alarm in alarms if alarm is not None])
    return {True: "yes", False: "no", None: "unknown"}[said]


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
        yield ""


def _left_out(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield "## Left out"
        yield ""
        yield f"{len(names)} result files are of another list of runs and count nowhere on this page:"
        yield ""
        yield from (f"- {name}" for name in names)


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
