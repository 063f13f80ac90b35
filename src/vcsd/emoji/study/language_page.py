"""Write the page about the emoji study from its result files, with the verdicts of `settle.py`.

    python -m vcsd.emoji.study.language_page docs/results/language_runs.json --out docs/results/language \\
        --page docs/results/language.md

Until all runs are finished the page says how many are, and nothing else. Files that are not of the list are named as
left out. The page is not edited by hand. Its picture is drawn beside it, if matplotlib is installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from vcsd.emoji.questions import SUITES
from vcsd.emoji.study.language_picture import draw_language
from vcsd.emoji.study.presence_by_answer import presence_by_answer, with_presence_of
from vcsd.emoji.study.seen_by_training import MEASURED, seen_by_training
from vcsd.emoji.study.set_aside import num_set_aside
from vcsd.emoji.study.settle import (
    GATES,
    LEAST_GAIN,
    MARGIN,
    broken_gates,
    gain,
    is_broken,
    is_wanted,
    study_verdict,
    unusual,
    verdict,
    worst_gate,
)
from vcsd.emoji.study.study_list import EmojiRun, OtherListError, StudyList, read_study, tried_on_dev
from vcsd.emoji.study.target_before_training import target_before_training
from vcsd.emoji.study.watched_by_monitors import watched_by_monitors
from vcsd.errors import ConfigError, VcsdError
from vcsd.reproduce.paired_runs import equivalence_interval, paired, shown_ends
from vcsd.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from vcsd.emoji.study.settle import RunSetting, Scores
    from vcsd.reproduce.paired_runs import Paired

    Results = Mapping[EmojiRun, dict[str, Any]]

TITLES = {
    "language": "A real language model with true but skewed captions",
    "language_exported": "The same language model, measured as it is exported",
}
CONTROLS = ("alpha 0", "sharpened 2")
FIRST_PLANNED = ("emoji-1", "emoji-2", "emoji-3")
"""The bases that were planned first. Two more were planned before any result was read."""


def read_results(
    listed: StudyList, out: Path, name: str = "language"
) -> tuple[dict[EmojiRun, dict[str, Any]], list[str]]:
    """Return the results that exist in the order of the list, and the names of the files that are not of this list.

    Raise a ConfigError if the results of a base come from different weights, or if a study other than the first has
    results of exams that did not round.
    """
    paths = {run: out / "cells" / f"{run.name}.json" for run in listed.runs}
    left_out = {path.name for path in (out / "cells").glob("*.json")} - {path.name for path in paths.values()}
    results = {}
    for run, path in paths.items():
        try:
            if (result := listed.read_result(path)) is not None:
                results[run] = result
        except OtherListError:
            left_out.add(path.name)
    if name != "language" and not _is_rounded(results):
        raise ConfigError([f"{out} has results of exams without rounding. They belong to no list but the first."])
    for base in listed.bases:
        if len({result["base_weights"] for run, result in results.items() if run.base == base}) > 1:
            raise ConfigError([f"{out}: the results of {base} come from different weights. Keep those of one base."])
    return results, sorted(left_out)


def page(listed: StudyList, out: Path, name: str = "language") -> str:
    """Return the page. Rules and picture are named after the study."""
    results, left_out = read_results(listed, out, name)
    rules = f"preregistration_{name}.md"
    lines = [f"# {TITLES.get(name, name)}: results", ""]
    lines += [f"{len(results)} of {len(listed.runs)} planned runs are finished."]
    if len(results) == len(listed.runs):
        lines += [
            f"The rules were written before them, in [{rules}](../{rules}).",
            "The prior comes from true but skewed captions; it is not the language model's own. Accuracies are percent",
            f"of right deciding words. There are {len(listed.bases)} bases, with one run of each method: they say "
            "little about others.",
            "",
            *_study_verdict(listed, results),
            *_which_weights(listed, results),
            *_verdicts(listed, results),
            f"![VCSD minus the others on unusual colours, and its change on every other suite]({name}.png)",
            "",
            *_gains(listed, results),
            *_kept(listed, results),
            *_settling(listed, results),
            *_tables(results),
            *seen_by_training(results, out),
            *target_before_training(results),
            *presence_by_answer(results),
            *watched_by_monitors(results, out),
            *_how_made(listed, results, name),
        ]
    else:
        lines += ["Nothing else is shown before all of them are.", ""]
    lines += [*_left_out(left_out), *_lost(num_set_aside(out))]
    return "\n".join(lines).rstrip() + "\n"


def _study_verdict(listed: StudyList, results: Results) -> Iterator[str]:
    said = _judged(results, listed.bases)
    yield f"**The study {said}.**"
    if said == "fails":
        yield "VCSD, at the best setting of the grid, does not help this kind of model."
    if first := [base for base in listed.bases if base in FIRST_PLANNED]:
        yield f"Judged by the {len(first)} bases that were planned first alone, it {_judged(results, first)}."
    yield ""
    yield from _beside_the_verdict(listed, results)


def _beside_the_verdict(listed: StudyList, results: Results) -> Iterator[str]:
    """What a verdict may hide. It changes none, and it is printed whatever the verdict is."""
    scores = [_scores_on_test(results, base) for base in listed.bases]
    num_broken = sum(bool(broken_gates(own["base"], own["VCSD"])) for own in scores)
    gates = [kept(change) for change in changes_of_gates(listed, results).values()]
    over_decoding = gains_over_bases(listed, results)["contrast decoding"]
    _, tried = tried_on_dev(results)
    text = (
        f"Beside the verdict: VCSD breaks at least one gate on {num_broken} of {len(scores)} bases. Of {len(gates)} "
        f"gates, {gates.count('kept')} are shown to be kept (their 90% interval over bases lies above -{MARGIN:g} "
        f"points), {gates.count('lost')} to be lost (below), and {gates.count('undecided')} undecided: a base may "
        "lose a little on many gates and break none. "
        f"VCSD minus contrast decoding, which needs no training, is {over_decoding} on unusual colours"
        f"{'' if over_decoding.mean >= LEAST_GAIN else ', so training adds less than a gain that counts'}. "
        "Settings tried on `dev`: "
        + ", ".join(f"{len(runs)} of {name}" for name, runs in tried.items())
        + ". This paragraph was written after the first study was looked at. It was committed after the second's "
        "results, which nobody had read then; only their authors can know that."
    )
    yield from _paragraph(text)


def kept(change: Paired) -> str:
    """Whether a gate is shown to be `kept` or `lost`, by the 90% interval over bases, or `undecided`."""
    ends = equivalence_interval(change)
    assert ends is not None, "there are several bases"
    low, high = ends
    if low > -MARGIN:
        return "kept"
    return "lost" if high < -MARGIN else "undecided"


def _is_rounded(results: Results) -> bool:
    """Whether the exams of all trained runs measured weights as `vcsd export` writes them by default."""
    return all(result.get("measured") == MEASURED for run, result in results.items() if run.trains)


def _which_weights(listed: StudyList, results: Results) -> Iterator[str]:
    """Which weights the exams measured; for the first study, what was wrong with that and was added to its page."""
    if _is_rounded(results):
        yield from _paragraph(
            "All scores are of weights rounded to bfloat16, as `vcsd export` writes them by default, computed in "
            "float32 with TF32 matrix products. [The first study](language.md), which failed, measured unrounded "
            "ones; this one does not replace it."
        )
        yield from _found_later(listed, results)
    else:
        yield from _paragraph(
            "**Found after the look: the exam measured other weights than training used.** Training computes in "
            "bfloat16: it rounds the weights of matrix products in every pass, and samples from a rounded copy. "
            "The exam took them unrounded, and found other answers than training had sampled ([What training "
            "saw](#what-training-saw)). The likely reason is that [bfloat16 hides small "
            "updates](../training.md#what-bfloat16-hides-at-small-learning-rates). Other prompts and the lag of "
            "rollouts cannot explain it, nor can the temperature for presence and counting; arithmetic in "
            "bfloat16 is not excluded. The verdict stands by its rules, but it is not about the model that `vcsd "
            "export` writes by default. [A second study](../preregistration_language_exported.md) measures that "
            "one. The sections about what training saw and about presence were added after the look."
        )


def _found_later(listed: StudyList, results: Results) -> Iterator[str]:
    """What the look at rounded weights showed that no rule had asked for, the worst first."""
    strict = [
        {variant: with_presence_of("no", scores) for variant, scores in _scores_on_test(results, base).items()}
        for base in listed.bases
    ]
    num_broken = sum(is_broken(own["base"]["presence"], own["VCSD"]["presence"]) for own in strict)
    said = study_verdict([(is_wanted(own["base"]), _verdict(own)) for own in strict])
    yield from _paragraph(
        f'**Found after the look: on questions about presence whose true answer is "no", VCSD breaks the gate on '
        f"{num_broken} of {len(strict)} bases; judged by these alone, the study {said}.** The gate that was planned "
        "takes the mean over all of presence, where more right answers to the others make up for them ([by the true "
        f"answer](#presence-by-the-true-answer)). {_nearest_to_breaking(listed, results)}"
    )


def _nearest_to_breaking(listed: StudyList, results: Results) -> str:
    """Name the largest loss of VCSD that breaks no gate."""
    own = {base: _scores_on_test(results, base) for base in listed.bases}
    losses = [
        (scores["base"][suite]["right"] - scores["VCSD"][suite]["right"], suite, base)
        for base, scores in own.items()
        for suite in GATES
        if not is_broken(scores["base"][suite], scores["VCSD"][suite])
    ]
    loss, suite, base = max(losses, default=(0.0, "", ""))
    if loss <= 0:
        return "No other gate loses anything."
    return f"The largest loss that breaks no gate is {loss:.1f} points of {suite} on {base}; {MARGIN:g} are allowed."


def _paragraph(text: str) -> Iterator[str]:
    yield from wrap(text, 120, break_long_words=False, break_on_hyphens=False)
    yield ""


def _judged(results: Results, bases: Iterable[str]) -> str:
    scores = [_scores_on_test(results, base) for base in bases]
    return study_verdict([(is_wanted(own["base"]), _verdict(own)) for own in scores])


def _scores_on_test(results: Results, base: str) -> dict[str, Any]:
    return {variant: result["scores"] for variant, result in _on_test(results, base).items()}


def _verdict(own: Mapping[str, Any]) -> str:
    return verdict(own["base"], own["VCSD"], [own[name] for name in CONTROLS])


def _verdicts(listed: StudyList, results: Results) -> Iterator[str]:
    yield "## Verdicts"
    yield ""
    for base in listed.bases:
        own = _scores_on_test(results, base)
        kind = "" if is_wanted(own["base"]) else " The base itself does not show the phenomenon."
        yield f"- {base}: **{_verdict(own)}**.{kind}"
    yield ""
    yield "Gates that the other methods break:"
    yield ""
    for base in listed.bases:
        own = _scores_on_test(results, base)
        for variant, scores in own.items():
            if variant not in ("base", "VCSD"):
                broken = broken_gates(own["base"], scores)
                yield f"- {base}, {variant}: {', '.join(broken) or 'none'}."
    yield ""


def _gains(listed: StudyList, results: Results) -> Iterator[str]:
    """What VCSD gains on unusual colours over the base and over every other method."""
    scores = {base: _scores_on_test(results, base) for base in listed.bases}
    yield "## VCSD minus the others, on unusual colours"
    yield ""
    yield "Points, on the same questions. After +-: half of the 95% interval over questions, for this base and run."
    yield "The last column is the mean over bases, each of which counts once, with its standard error and p. All bases"
    yield "have one language model and answer the same questions: p is about other teachings, not other questions."
    yield ""
    yield "| VCSD minus | " + " | ".join(scores) + " | over bases |"
    yield "|---|" + "--:|" * (len(scores) + 1)
    for other, change in gains_over_bases(listed, results).items():
        apart = [gain(own[other], own["VCSD"]) for own in scores.values()]
        cells = " | ".join(f"{mean:+.1f} +- {width:.1f}" for mean, width in apart)
        yield f"| {other} | {cells} | {change} |"
    yield ""


def gains_over_bases(listed: StudyList, results: Results) -> dict[str, Paired]:
    """VCSD minus every other method on unusual colours, over bases."""
    others = [variant for variant in _on_test(results, next(iter(listed.bases))) if variant != "VCSD"]
    return {other: _vcsd_minus(other, listed, results, unusual) for other in others}


def changes_of_gates(listed: StudyList, results: Results) -> dict[str, Paired]:
    """VCSD minus the base on every gate, over bases, the largest loss first."""

    def right(suite: str) -> Callable[[Scores], float]:
        return lambda scores: scores[suite]["right"]

    changes = {suite: _vcsd_minus("base", listed, results, right(suite)) for suite in GATES}
    return dict(sorted(changes.items(), key=lambda item: item[1].mean))


def _vcsd_minus(other: str, listed: StudyList, results: Results, value: Callable[[Scores], float]) -> Paired:
    """The difference of a value of the scores on `test`, base by base."""
    own = {(base, 0): _scores_on_test(results, base) for base in listed.bases}
    change = paired(*({run: value(scores[name]) for run, scores in own.items()} for name in (other, "VCSD")))
    assert change is not None, "all runs are finished"
    return change


def _kept(listed: StudyList, results: Results) -> Iterator[str]:
    """What VCSD changes on the suites that should not lose."""
    yield "## VCSD minus the base, on every other suite"
    yield ""
    yield "Points over bases, with standard error and p, the largest loss first, and the bases on which VCSD breaks it."
    yield f"Shown: whether the 90% interval over bases lies above -{MARGIN:g} points (kept) or below (lost)."
    yield ""
    yield "| suite | over bases | 90% interval | shown | broken on |"
    yield "|---|--:|--:|---|---|"
    scores = {base: _scores_on_test(results, base) for base in listed.bases}
    for suite, change in changes_of_gates(listed, results).items():
        broken = [base for base, own in scores.items() if is_broken(own["base"][suite], own["VCSD"][suite])]
        ends = equivalence_interval(change)
        assert ends is not None, "there are several bases"
        yield f"| {suite} | {change} | {shown_ends(ends)} | {kept(change)} | {', '.join(broken) or 'none'} |"
    yield ""


def _on_test(results: Results, base: str) -> dict[str, dict[str, Any]]:
    """The results of a base on `test`, by variant."""
    return {run.variant: result for run, result in results.items() if (run.base, run.stage) == (base, "test")}


def _settling(listed: StudyList, results: Results) -> Iterator[str]:
    yield "## Settling rate, beta and steps, on `dev`"
    yield ""
    base, tried = tried_on_dev(results)
    settled = listed.settled(results)
    assert base is not None
    assert settled is not None
    yield "| method | rate | beta | steps | unusual colours | worst loss of a gate | broken gates |"
    yield "|---|---|---|--:|--:|--:|---|"
    yield f"| base | | | | {unusual(base):.1f} | | |"
    for variant, runs in tried.items():
        for setting, scores in runs.items():
            broken = ", ".join(broken_gates(base, scores)) or "none"
            numbers = f"{unusual(scores):.1f} | {worst_gate(base, scores):.1f} | {broken}"
            yield f"| {variant} | {setting.rate} | {setting.beta} | {setting.steps} | {numbers} |"
    yield ""
    for variant, chosen in settled.items():
        passed = "passes all gates" if chosen.has_passed else "is the least harmful one, because none passes all gates"
        edge = _at_the_edge(listed, tried[variant], chosen.setting)
        yield from wrap(f"- {variant}: {chosen.setting}, which {passed}.{edge}", 120, subsequent_indent="  ")
    yield ""


def _at_the_edge(listed: StudyList, tried: Mapping[RunSetting, Scores], setting: RunSetting) -> str:
    """Say if no higher rate and no more steps were tried, or no lower and fewer: a better setting may lie beyond."""
    rates = [float(other.rate) for other in tried]
    if (float(setting.rate), setting.steps) == (max(rates), listed.steps[-1]):
        return " This is the edge of the grid: what lies beyond was not tried."
    if (float(setting.rate), setting.steps) == (min(rates), listed.steps[0]):
        return " This is the mildest rate and number of steps of the grid: less was not tried."
    return ""


def _tables(results: Results) -> Iterator[str]:
    bases = list(dict.fromkeys(run.base for run in results if run.stage == "test"))
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


def _how_made(listed: StudyList, results: Results, name: str) -> Iterator[str]:
    """The commands, the machine, and all that chance could depend on."""
    seeds = ", ".join(f"{run.base} {run.seed}" for run in results if (run.stage, run.variant) == ("test", "VCSD"))
    settling = next(run for run in results if run.stage == "dev" and run.trains)
    yield "## How this was made"
    yield ""
    yield "```bash"
    yield f"python -m vcsd.emoji.study.whole_study docs/results/{name}_runs.json --language smollm2 \\"
    yield f"  --sprites sprites.safetensors --bases bases --out runs/{name}"
    yield "make pages"
    yield "```"
    yield ""
    yield from _paragraph(
        f"[The guide](../real_language.md#commands) says where the two inputs come from. List {listed.digest}, on "
        f"{_listed_once(result.get('hardware') for result in results.values())}, with "
        f"{_listed_once(_versions(result) for result in results.values())}. "
        f"Seeds of training: {seeds}; settling on {settling.base} with {settling.seed}. All studies ask the same "
        "questions on `dev` and on `test`, which depend on the suite and a number only; prompts ask about the same "
        "suites in the same order. The order of commits shows that the rules are older than the results in this "
        "repository; when runs were made, nobody else can check. Training on a GPU does not repeat bit for bit."
    )


def _versions(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{package} {version}" for package, version in result.get("versions", {}).items())


def _listed_once(values: Iterable[str | None]) -> str:
    return "; ".join(sorted({value for value in values if value})) or "a machine that no result names"


def _left_out(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield "## Left out"
        yield ""
        yield f"{len(names)} result files are of another list of runs and count nowhere on this page:"
        yield ""
        yield from (f"- {name}" for name in names)
        yield ""


def _lost(num: int) -> Iterator[str]:
    if num:
        yield "## Set aside"
        yield ""
        yield f"{num} results in `lost` are of bases whose weights were lost before all their runs were made. By the"
        yield "rules they were set aside unread and count nowhere; these bases started over."
        yield ""


def draw_picture(listed: StudyList, out: Path) -> Figure | None:
    """Draw the picture of the page; None before all runs are finished."""
    results, _ = read_results(listed, out)
    if len(results) < len(listed.runs):
        return None
    return draw_language(gains_over_bases(listed, results), changes_of_gates(listed, results))


def _write(listed: StudyList, out: Path, path: Path) -> None:
    """Write the page, and its picture beside it. Without matplotlib the picture stays as it is."""
    path.write_text(page(listed, out, path.stem), encoding="utf-8")
    try:
        figure = draw_picture(listed, out)
    except ImportError:
        sys.stdout.write("No picture: matplotlib is not installed. Install the extra: pip install 'vcsd[eval]'.\n")
        return
    if figure is not None:
        figure.savefig(path.with_suffix(".png"), dpi=130)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m vcsd.emoji.study.language_page", description="Write the page.")
    parser.add_argument("list", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="The folder of the results.")
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    try:
        _write(read_study(options.list), options.out, options.page)
    except VcsdError as error:
        sys.stderr.write(visible(f"error: {type(error).__name__}: {error}\n"))
        sys.exit(2)


if __name__ == "__main__":
    main()
