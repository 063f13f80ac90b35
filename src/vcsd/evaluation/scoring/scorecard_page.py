"""The page of an evaluation: scores, bars by category, and answers to read with their images.

A page shows a few answers of each kind, spread over the benchmark's questions; they are to be read, not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.errors import DataError
from vcsd.evaluation.benchmarks.loading import chosen_along
from vcsd.evaluation.scoring.terminal_tables import COUNTS, remarks
from vcsd.report.chart import ShareBar, bar_chart
from vcsd.report.markup import Html, text
from vcsd.report.page import Page, PageSection
from vcsd.report.parts import KIND_LABELS, Sample, SampleKind, Tile, plain_table, samples
from vcsd.views.original import load_image

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from PIL.Image import Image

    from vcsd.evaluation.scoring.scorecard import BenchmarkScore, Scorecard
    from vcsd.types import Prediction, Question, Verdict

    MarkedAnswer = tuple[Question, Prediction, Verdict]

PER_KIND = 8
"""The most answers shown of each kind in a benchmark."""

_LONGEST_TEXT = 6000


def scorecard_page(card: Scorecard, answers: Sequence[MarkedAnswer], *, title: str) -> Page:
    """Build the page of a scorecard. `answers` are questions with their predictions and verdicts."""
    acc = Tile("Acc", f"{card.acc:.2f}", f"{card.interval.low:.2f} to {card.interval.high:.2f}", "vcsd")
    sections = [
        _section(score, [answer for answer in answers if answer[0].benchmark == name])
        for name, score in card.benchmarks.items()
    ]
    return Page(title, [PageSection("Scores", _numbers(card)), *sections], tiles=[acc])


def _numbers(card: Scorecard) -> Html:
    rows = []
    for score in card.benchmarks.values():
        num = str(score.num_questions) if score.is_whole else f"{score.num_questions} of {score.num_expected}"
        interval = f"{score.interval.low:.2f} to {score.interval.high:.2f}"
        counts = [str(getattr(score.counts, name)) for name in COUNTS]
        tokens = "-" if score.mean_tokens is None else f"{score.mean_tokens:.0f}"
        rows.append([score.title, f"{score.entry:.2f}", interval, num, *counts, tokens])
    notes = "".join(f'<p class="note">{text(line)}</p>' for line in remarks(card))
    return Html(plain_table(("benchmark", "score", "95% interval", "N", *COUNTS, "mean tokens"), rows) + notes)


def _section(score: BenchmarkScore, answers: Sequence[MarkedAnswer]) -> PageSection:
    charts = []
    if len(score.metrics) > 1:
        charts.append(bar_chart("parts", [ShareBar(name, value) for name, value in score.metrics.items()]))
    for key, groups in score.groups.items():
        bars = [ShareBar(name, group.entry, f"N {group.num_questions}") for name, group in groups.items()]
        charts.append(bar_chart(key, bars))
    body = Html("".join(charts) + _samples(answers, score.name))
    return PageSection(f"{score.title} {score.entry:.2f}", body)


def kind_of(prediction: Prediction, verdict: Verdict) -> SampleKind:
    """Return how an answer ended: right, wrong, unread (no rule could read it) or failed (there is no answer)."""
    if prediction.error is not None:
        return "failed"
    if verdict.found is None and not verdict.is_right:
        return "unread"
    return "right" if verdict.is_right else "wrong"


def _samples(answers: Sequence[MarkedAnswer], name: str) -> Html:
    by_kind: dict[SampleKind, list[MarkedAnswer]] = {kind: [] for kind in KIND_LABELS}
    for answer in answers:
        by_kind[kind_of(answer[1], answer[2])].append(answer)
    chosen = [_sample(kind, *answer) for kind, several in by_kind.items() for answer in chosen_along(several, PER_KIND)]
    return samples(chosen, {kind: len(several) for kind, several in by_kind.items()}, name=name)


def _sample(kind: SampleKind, question: Question, prediction: Prediction, verdict: Verdict) -> Sample:
    answer = "nothing" if verdict.found is None else verdict.found
    about = f"gold {question.gold}, read {answer}" + (", cut off" if prediction.stop == "length" else "")
    response = prediction.text if prediction.error is None else prediction.error
    images = [_loaded(question.id, image) for image in question.example.images]
    return Sample(kind, question.id, about, images, (question.text, _shortened(response)))


def _shortened(response: str) -> str:
    if len(response) <= _LONGEST_TEXT:
        return response
    half = _LONGEST_TEXT // 2
    return f"{response[:half]}\n[... {len(response) - 2 * half} characters ...]\n{response[-half:]}"


def _loaded(question_id: str, source: Image | str | PathLike[str]) -> Image | str:
    """Load an image, or return why it cannot be read."""
    try:
        return load_image(question_id, source)
    except DataError as error:
        return error.message
