"""The demonstration's report page and its table in the terminal, both from what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from vcsd.monitor.lines import read_lines
from vcsd.monitor.watch import prompt_text
from vcsd.report import Answer, Case, Chart, Line, Page, Score, ScoreRow, ScoreTable, write_page
from vcsd.report.parts import signed
from vcsd.reproduce.exam import SEVEN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vcsd.demo import Shown
    from vcsd.evaluation.compare import Difference
    from vcsd.evaluation.question import Question

TITLES = {"base": "base", "opsd": "OPSD", "vcsd": "VCSD"}
TONES = {"base": "base", "opsd": "opsd", "vcsd": "vcsd", ("base", "opsd"): "opsd", ("base", "vcsd"): "vcsd"}
ALL = "all seven"
MOST_CASES, MOST_LOSSES = 8, 2

CHARTS: Sequence[tuple[str, str, str]] = (
    ("loss", "Loss", "Distance from the target, times T²."),
    ("support_size", "Support", "Plausible candidates per token. OPSD's target keeps the whole vocabulary."),
    ("realised_contrast", "Contrast", "Nats by which the image raises the token that the student sampled."),
    ("kl_target_original", "Pull", "Nats between the target and what the teacher says with the image."),
    ("student_entropy", "Entropy", "How undecided the student is, in nats per token, at the distillation temperature."),
    ("length", "Length", "Tokens of an answer."),
    ("language_drift", "Language drift", "Share of answers with letters of a script that the question lacks."),
    ("teacher_distance", "Teacher", "How far the teacher's weights are from the student's."),
)


ONLY_VCSD = ("support_size", "kl_target_original")
"""Numbers that for OPSD are those of a target without support and contrast: the vocabulary's size, and zero."""


def terminal_table(shown: Shown) -> Table:
    """One line a suite: the three models, and the paired differences with their 95% intervals."""
    page = score_table(shown)
    differences = page.differences[1:]  # OPSD - base is on the page; three would not fit into 80 columns
    table = Table(header_style="bold", box=None, padding=(0, 1))
    for title in ("suite", *(row.name for row in page.rows), *(row.name for row in differences)):
        table.add_column(title, justify="left" if title == "suite" else "right", no_wrap=True)
    for name in (*SEVEN, ALL):
        numbers = [f"{row.scores[name].value:.1f}" for row in page.rows]
        changes = [_coloured(row.scores[name]) for row in differences]
        table.add_row(name, *numbers, *changes, style="bold" if name == ALL else "", end_section=name == [*SEVEN][-1])
    return table


def _coloured(score: Score) -> str:
    colour = "" if not score.is_clear else "[green]" if score.value > 0 else "[red]"
    range_ = "" if score.low is None or score.high is None else f"{signed(score.low)} {signed(score.high)}"
    return f"{colour}{signed(score.value)}{'[/]' if colour else ''} [dim]({range_})[/]"


def score_table(shown: Shown) -> ScoreTable:
    """The table of the page, the terminal and the JSON."""
    rows = []
    for name, card in shown.cards.items():
        suites = {
            suite: Score(each.entry, each.interval.low, each.interval.high) for suite, each in card.benchmarks.items()
        }
        whole = Score(card.acc, card.interval.low, card.interval.high)
        rows.append(ScoreRow(TITLES[name], TONES[name], {**suites, ALL: whole}))
    differences = [
        ScoreRow(
            f"{TITLES[after]} - {TITLES[before]}",
            TONES.get((before, after), "other"),
            {**{suite: _score(each) for suite, each in found.benchmarks.items()}, ALL: _score(found.acc)},
        )
        for (before, after), found in shown.differences.items()
    ]
    usual = ", ".join(f"{TITLES[name]} {card.acc:.1f}" for name, card in shown.usual.items())
    note = (
        f"{shown.setting.size.num_questions} balanced questions in each suite; in the hallucination suite the mean of "
        "aAcc, fAcc and qAcc. The seven stand for "
        + ", ".join(f"{suite.title} ({name})" for name, suite in SEVEN.items())
        + f". On questions drawn as in pre-training, where the prior is right more often than not: {usual}."
    )
    return ScoreTable(list(SEVEN), rows, differences, ALL, note)


def _score(difference: Difference) -> Score:
    return Score(difference.difference, difference.interval.low, difference.interval.high)


def write_report(shown: Shown, path: Path) -> Path:
    """Write report.html."""
    table = score_table(shown)
    base, vcsd = (shown.cards[name].acc for name in ("base", "vcsd"))
    lead = (
        "A tiny model was taught to see, and then swayed by captions that ignore their picture. It looks at questions "
        "without answers, contrasts what it would say with and without the picture, and learns from the difference: "
        f"{base:.1f} before, {vcsd:.1f} after."
    )
    page = Page("VCSD in a synthetic world", lead, table, _charts(shown), cases(shown), _facts(shown))
    return write_page(page, path)


def _charts(shown: Shown) -> list[Chart]:
    series = {name: list(read_lines(shown.setting.out / name / "metrics.jsonl")) for name in ("opsd", "vcsd")}

    def line(name: str, metric: str) -> Line:
        points = [(step["step"], step[metric]) for step in series[name] if step.get(metric) is not None]
        return Line(TITLES[name], TONES[name], points)

    shown_for = {metric: ("vcsd",) if metric in ONLY_VCSD else ("opsd", "vcsd") for metric, _, _ in CHARTS}
    return [Chart(title, [line(name, metric) for name in shown_for[metric]], says) for metric, title, says in CHARTS]


def cases(shown: Shown) -> list[Case]:
    """Answers that changed: some that became right, from as many suites as there are, and a few that became wrong."""
    is_right = {
        name: {
            (suite, question): right
            for suite, score in card.benchmarks.items()
            for question, right in zip(score.tally.ids, score.tally.is_right, strict=True)
        }
        for name, card in shown.cards.items()
    }
    keys = [(question.benchmark, question.id) for question in shown.exam.questions if question.benchmark in SEVEN]
    gained = [key for key in keys if is_right["vcsd"][key] and not is_right["base"][key]]
    lost = [key for key in keys if is_right["base"][key] and not is_right["vcsd"][key]]
    chosen = _spread(gained, MOST_CASES - min(MOST_LOSSES, len(lost))) + _spread(lost, MOST_LOSSES)
    places = {(question.benchmark, question.id): place for place, question in enumerate(shown.exam.questions)}
    return [_case(shown, places[key], key, is_right) for key in chosen]


def _spread(keys: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """The first of every suite, then the second of every suite, and so on."""
    by_suite: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        by_suite.setdefault(key[0], []).append(key)
    ranked = [(rank, key) for several in by_suite.values() for rank, key in enumerate(several)]
    return [key for _, key in sorted(ranked, key=lambda each: each[0])][:most]


def _case(shown: Shown, place: int, key: tuple[str, str], is_right: dict[str, dict[tuple[str, str], bool]]) -> Case:
    question: Question = shown.exam.questions[place]
    answers = [
        Answer(TITLES[name], TONES[name], predictions[place].text, is_right[name][key])
        for name, predictions in shown.answers.items()
    ]
    images: Any = question.example.images
    kind = "became right" if is_right["vcsd"][key] else "became wrong"
    title = f"{question.benchmark}: {kind}"
    return Case(title, prompt_text(question.example), question.gold, list(images), answers)


def _facts(shown: Shown) -> tuple[tuple[str, str], ...]:
    about = shown.about()
    minutes, seconds = divmod(round(about["seconds"]), 60)
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        ("command", about["command"]),
        ("seed", str(about["seed"])),
        ("duration", f"{minutes} min {seconds} s, all questions included"),
        ("hardware", about["hardware"]),
        ("versions", versions),
        ("base model", about["base"]),
        ("world parameters", about["world"]),
        ("run folder", str(shown.setting.out)),
    )
