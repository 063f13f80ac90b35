"""The demonstration's page and its table in the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PIL.Image import Image
from rich.table import Table

from vcsd.monitor.lines import read_lines
from vcsd.monitor.machine import hardware, versions
from vcsd.report import chart, parts
from vcsd.report.chart import Chart, Line
from vcsd.report.page import Page, PageSection, write_page
from vcsd.report.parts import Answer, Case, Score, ScoreRow, ScoreTable, signed, unread_note
from vcsd.reproduce.exam import SEVEN
from vcsd.world.parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vcsd.demo.demonstration import Outcome
    from vcsd.evaluation.scoring.uncertainty import Interval

TITLES = {"base": "base", "opsd": "OPSD", "vcsd": "VCSD"}
TONES = {"base": "base", "opsd": "opsd", "vcsd": "vcsd", ("base", "opsd"): "opsd", ("base", "vcsd"): "vcsd"}
ALL = "all seven"
MOST_CASES, MOST_LOSSES = 8, 2

CHARTS: Sequence[tuple[str, str, str]] = (
    ("loss", "Loss", "Divergence from the target, times T²."),
    ("support_size", "Support", "Plausible candidates per token. OPSD's target keeps the whole vocabulary."),
    ("realised_contrast", "Contrast", "Nats by which the image raises the token that the student sampled."),
    ("kl_target_original", "Pull", "Nats between the target and the teacher's prediction with the image."),
    ("student_entropy", "Entropy", "Entropy of the student in nats per token, at the distillation temperature."),
    ("length", "Length", "Tokens per response."),
    ("language_drift", "Language drift", "Share of responses with letters of a script that the question lacks."),
    ("teacher_distance", "Teacher", "Distance between the teacher's and the student's weights."),
)


ONLY_VCSD = ("support_size", "kl_target_original")
"""Metrics that are constant for OPSD, whose target has no support and no contrast: the vocabulary's size and zero."""


def terminal_table(outcome: Outcome) -> Table:
    """Show one line per suite: the three models, and the paired differences with their 95% intervals."""
    page = score_table(outcome)
    differences = page.differences[1:]  # OPSD - base is on the page; three would not fit into 80 columns
    table = Table(header_style="bold", box=None, padding=(0, 1))
    for title in ("suite", *(row.name for row in page.rows), *(row.name for row in differences)):
        table.add_column(title, justify="left" if title == "suite" else "right", no_wrap=True)
    for name in (*SEVEN, ALL):
        numbers = [f"{row.scores[name].value:.1f}" for row in page.rows]
        changes = [_coloured(row.scores[name]) for row in differences]
        table.add_row(name, *numbers, *changes, style="bold" if name == ALL else "", end_section=name == [*SEVEN][-1])
    return table


def unread_line(outcome: Outcome) -> str:
    """Return how the share of unread answers changed for each difference in the terminal's table."""
    rows = score_table(outcome).differences[1:]
    return "; ".join(f"{row.name}: {unread_note(row.scores[ALL].unread)}" for row in rows)


def _coloured(score: Score) -> str:
    colour = "" if not score.is_clear else "[green]" if score.value > 0 else "[red]"
    interval = "" if score.low is None or score.high is None else f"{signed(score.low)} {signed(score.high)}"
    return f"{colour}{signed(score.value)}{'[/]' if colour else ''} [dim]({interval})[/]"


def score_table(outcome: Outcome) -> ScoreTable:
    """Build the table of the page and the terminal."""
    rows, differences = [], []
    for name, card in outcome.cards.items():
        scores = {suite: _score(score.entry, score.interval) for suite, score in card.benchmarks.items()}
        rows.append(ScoreRow(TITLES[name], TONES[name], {**scores, ALL: _score(card.acc, card.interval)}))
    for (before, after), comparison in outcome.differences.items():
        changes = {**comparison.benchmarks, ALL: comparison.acc}
        scores = {
            suite: replace(_score(change.difference, change.interval), unread=change.unread)
            for suite, change in changes.items()
        }
        title = f"{TITLES[after]} - {TITLES[before]}"
        differences.append(ScoreRow(title, TONES.get((before, after), "other"), scores))
    usual = ", ".join(f"{TITLES[name]} {card.acc:.1f}" for name, card in outcome.usual.items())
    note = (
        f"{outcome.setting.size.num_questions} balanced questions in each suite; the hallucination suite averages "
        "aAcc, fAcc and qAcc. The suites are modelled on "
        + ", ".join(f"{suite.title} ({name})" for name, suite in SEVEN.items())
        + f". On questions drawn as in pre-training, where the prior is usually right: {usual}."
    )
    return ScoreTable(list(SEVEN), rows, differences, ALL, note)


def _score(value: float, interval: Interval) -> Score:
    return Score(value, interval.low, interval.high)


def write_report(outcome: Outcome, path: Path) -> Path:
    """Write report.html."""
    table = score_table(outcome)
    base, vcsd = (outcome.cards[name].acc for name in ("base", "vcsd"))
    lead = (
        "A tiny model learned to see, and was then biased by captions that ignore their image. Given questions without "
        "answers, it contrasts its predictions with and without the image and learns from the difference: "
        f"{base:.1f} before, {vcsd:.1f} after."
    )
    sections = [
        PageSection("Accuracy", parts.score_table(table), "In percent, with 95% intervals over the questions."),
        PageSection(
            "Paired differences",
            parts.difference_table(table),
            "In points, on the same questions. Coloured where the 95% interval excludes zero. Next to it is the change "
            "in unread answers, from which nothing could be extracted.",
        ),
        PageSection("Training, step by step", chart.line_charts(_charts(outcome))),
        PageSection("Answers before and after", parts.cases(cases(outcome))),
        PageSection("How this was made", parts.facts(_facts(outcome))),
    ]
    page = Page("VCSD in the offline world", sections, lead, parts.headline(table))
    return write_page(page, path)


def _charts(outcome: Outcome) -> list[Chart]:
    series = {name: list(read_lines(outcome.setting.out / name / "metrics.jsonl")) for name in ("opsd", "vcsd")}

    def line(name: str, metric: str) -> Line:
        points = [(step["step"], step[metric]) for step in series[name] if step.get(metric) is not None]
        return Line(TITLES[name], TONES[name], points)

    methods = {metric: ("vcsd",) if metric in ONLY_VCSD else ("opsd", "vcsd") for metric, _, _ in CHARTS}
    return [Chart(title, [line(name, metric) for name in methods[metric]], says) for metric, title, says in CHARTS]


def cases(outcome: Outcome) -> list[Case]:
    """Choose answers that changed: some that became right, from all suites, and a few that became wrong."""
    is_right = {name: card.marks() for name, card in outcome.cards.items()}
    indices = {(question.benchmark, question.id): index for index, question in enumerate(outcome.exam.questions)}
    keys = [key for key in indices if key[0] in SEVEN]
    gained = [key for key in keys if is_right["vcsd"][key] and not is_right["base"][key]]
    lost = [key for key in keys if is_right["base"][key] and not is_right["vcsd"][key]]
    chosen = _spread(gained, MOST_CASES - min(MOST_LOSSES, len(lost))) + _spread(lost, MOST_LOSSES)
    return [_case(outcome, indices[key], key, is_right) for key in chosen]


def _spread(keys: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Take the first of every suite, then the second of every suite, and so on."""
    by_suite: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        by_suite.setdefault(key[0], []).append(key)
    ranked = [(rank, key) for several in by_suite.values() for rank, key in enumerate(several)]
    return [key for _, key in sorted(ranked, key=lambda pair: pair[0])][:most]


def _case(outcome: Outcome, index: int, key: tuple[str, str], is_right: dict[str, dict[tuple[str, str], bool]]) -> Case:
    question = outcome.exam.questions[index]
    answers = [
        Answer(TITLES[name], TONES[name], predictions[index].text, is_right[name][key])
        for name, predictions in outcome.answers.items()
    ]
    images = [image for image in question.example.images if isinstance(image, Image)]
    kind = "became right" if is_right["vcsd"][key] else "became wrong"
    title = f"{question.benchmark}: {kind}"
    return Case(title, question.example.text, question.gold, images, answers)


def _facts(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    setting = outcome.setting
    minutes, seconds = divmod(round(outcome.seconds), 60)
    return (
        ("command", setting.command),
        ("seed", str(setting.seed)),
        ("duration", f"{minutes} min {seconds} s, including all questions"),
        ("hardware", hardware()),
        ("versions", ", ".join(f"{name} {number}" for name, number in versions().items())),
        ("base model", str(setting.base)),
        ("world parameters", PARAMETERS.digest()),
        ("run folder", str(setting.out)),
    )
