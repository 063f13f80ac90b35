"""The verdicts of a language study, and what they may hide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcsd.emoji.study.sections.language_tables import (
    bullet,
    changes_of_gates,
    gains_over_bases,
    kept,
    paragraph,
    scores_on_test,
)
from vcsd.emoji.study.sections.presence_by_answer import settings_that_break_no, with_presence_of
from vcsd.emoji.study.sections.seen_by_training import MEASURED
from vcsd.emoji.study.settle import (
    GATES,
    LEAST_GAIN,
    MARGIN,
    broken_gates,
    is_broken,
    is_wanted,
    study_verdict,
    verdict,
)
from vcsd.emoji.study.study_list import tried_on_dev

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vcsd.emoji.study.sections.language_tables import Results
    from vcsd.emoji.study.study_list import StudyList


CONTROLS = ("alpha 0", "sharpened 2")
FIRST_PLANNED = ("emoji-1", "emoji-2", "emoji-3")
"""The bases that were planned first. Two more were planned before any result was read."""


def verdict_of_study(listed: StudyList, results: Results) -> Iterator[str]:
    """The verdict by the rules, and what it may hide: first what speaks against the method."""
    said = _judged(results, listed.bases)
    yield f"**The study {said}.**"
    if said == "fails":
        yield "VCSD, at the best setting of the grid, does not help this kind of model."
    if first := [base for base in listed.bases if base in FIRST_PLANNED]:
        yield f"By the same rule for the {len(first)} bases that were planned first, it {_judged(results, first)}."
        yield "That only describes them: a verdict needs five bases."
    yield ""
    if is_rounded(results):
        yield from _found_later(listed, results)
    yield from _beside_the_verdict(listed, results)


def _judged(results: Results, bases: Iterable[str]) -> str:
    scores = [scores_on_test(results, base) for base in bases]
    return study_verdict([(is_wanted(own["base"]), _verdict(own)) for own in scores])


def _beside_the_verdict(listed: StudyList, results: Results) -> Iterator[str]:
    """What a verdict may hide. It changes none, and it is printed whatever the verdict is."""
    scores = [scores_on_test(results, base) for base in listed.bases]
    num_broken = sum(bool(broken_gates(own["base"], own["VCSD"])) for own in scores)
    gates = [kept(change) for change in changes_of_gates(listed, results).values()]
    over_decoding = gains_over_bases(listed, results)["contrast decoding"]
    _, tried = tried_on_dev(results)
    over_opsd = gains_over_bases(listed, results)["OPSD"]
    too_little = "" if over_decoding.mean >= LEAST_GAIN else ", so training adds less than a gain that counts"
    yield from ("What the verdict may hide:", "")
    yield from bullet(f"VCSD breaks at least one gate on {num_broken} of {len(scores)} bases.")
    yield from bullet(
        f"Of {len(gates)} gates, {gates.count('kept')} are shown to be kept (their 90% interval over bases lies above "
        f"-{MARGIN:g} points), {gates.count('lost')} to be lost (below), and {gates.count('undecided')} undecided. A "
        "base may lose a little on many gates and break none."
    )
    yield from bullet(
        f"VCSD minus contrast decoding, which needs no training, is {over_decoding} on unusual colours{too_little}."
    )
    yield from bullet(
        f"VCSD minus OPSD, which sees the answers, is {over_opsd} on unusual colours. This line was added later."
    )
    yield from bullet(
        f"Settings tried on `dev`: {', '.join(f'{len(runs)} of {name}' for name, runs in tried.items())}."
    )
    yield from bullet("No p and no interval on this page is corrected for the number of comparisons.")
    yield ""
    yield from paragraph(
        "These lines were written after the first study was looked at. They were committed after the second's "
        "results, which nobody had read then; only their authors can know that."
    )


def is_rounded(results: Results) -> bool:
    """Whether the exams of all trained runs measured weights as `vcsd export` writes them by default."""
    return all(result.get("measured") == MEASURED for run, result in results.items() if run.trains)


def which_weights(results: Results) -> Iterator[str]:
    """Which weights the exams measured; for the first study, what was wrong with that and was added to its page."""
    if is_rounded(results):
        yield from paragraph(
            "All scores are of weights rounded to bfloat16, as `vcsd export` writes them by default. They were "
            "computed in float32 with TF32 matrix products. [The first study](language.md), which failed, measured "
            "unrounded weights; this study does not replace it."
        )
    else:
        yield from paragraph(
            "**Found after the look: the exam measured other weights than training used.** Training computes in "
            "bfloat16: it rounds the weights of matrix products in every pass, and samples from a rounded copy. "
            "The exam measured unrounded weights, and their answers differ from those that training had sampled ([What "
            "training saw](#what-training-saw)). The likely reason is that [bfloat16 hides small "
            "updates](../training.md#what-bfloat16-hides-at-small-learning-rates). Other prompts and the lag of "
            "rollouts cannot explain the difference, nor can the temperature for presence and counting. Arithmetic in "
            "bfloat16 is not excluded."
        )
        yield from paragraph(
            "The verdict stands by its rules, but it is not about the model that `vcsd export` writes by default. [A "
            "second study](../preregistration_language_exported.md) measures that one. The sections about what "
            "training saw and about presence were added after the look."
        )


def _found_later(listed: StudyList, results: Results) -> Iterator[str]:
    """What the look at rounded weights showed that no rule had asked for, the worst first."""
    strict = [
        {variant: with_presence_of("no", scores) for variant, scores in scores_on_test(results, base).items()}
        for base in listed.bases
    ]
    num_broken = sum(is_broken(own["base"]["presence"], own["VCSD"]["presence"]) for own in strict)
    said = study_verdict([(is_wanted(own["base"]), _verdict(own)) for own in strict])
    yield from paragraph(
        f'**Found after the look: on questions about presence whose true answer is "no", VCSD breaks the gate on '
        f"{num_broken} of {len(strict)} bases; judged by these alone, the study {said}.** The gate that was planned "
        "takes the mean over all questions about presence. There, more right answers to the other questions make up "
        f"for the loss ([by the true answer](#presence-by-the-true-answer)). {_by_no_on_dev(listed, results)} "
        f"{_nearest_to_breaking(listed, results)}"
    )


def _by_no_on_dev(listed: StudyList, results: Results) -> str:
    """How many settings of VCSD the stricter reading would have passed on `dev`."""
    broken, num_tried = settings_that_break_no(results)
    settled = listed.settled(results)
    assert settled is not None, "all runs are finished"
    which = ", the settled one among them" if settled["VCSD"].setting in broken else ""
    return f"On `dev`, {len(broken)} of {num_tried} settings of VCSD break it{which}."


def _nearest_to_breaking(listed: StudyList, results: Results) -> str:
    """Name the largest loss of VCSD that breaks no gate."""
    own = {base: scores_on_test(results, base) for base in listed.bases}
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


def base_by_base(listed: StudyList, results: Results) -> Iterator[str]:
    """What the rules say of each base, and which gates the other methods break."""
    yield "## Base by base"
    yield ""
    scores = {base: scores_on_test(results, base) for base in listed.bases}
    for base, own in sorted(scores.items(), key=lambda item: _verdict(item[1]) == "success"):
        kind = "" if is_wanted(own["base"]) else " The base itself does not show the phenomenon."
        yield f"- {base}: **{_verdict(own)}**.{kind}"
    yield ""
    yield "The gates that the other methods break:"
    yield ""
    for base, own in scores.items():
        for variant, changed in own.items():
            if variant not in ("base", "VCSD"):
                broken = broken_gates(own["base"], changed)
                yield f"- {base}, {variant}: {', '.join(broken) or 'none'}."
    yield ""


def _verdict(own: Mapping[str, Any]) -> str:
    return verdict(own["base"], own["VCSD"], [own[name] for name in CONTROLS])
