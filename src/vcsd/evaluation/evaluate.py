"""One evaluation from beginning to end: load, ask, score, write.

    out/predictions.jsonl       every answer, as it came; what a later run does not ask again
    out/scorecard.json          the numbers, their uncertainty, and how they were made
    out/report.html             the same to look at, with answers and images
    out/vlmevalkit/<name>.tsv   the predictions in VLMEvalKit's columns

With several seeds these but the predictions are in out/seed-<n>, and out/seeds.json has mean and deviation.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from vcsd import __version__
from vcsd.checkpoint.lock import only_process
from vcsd.errors import ConfigError, RunError, did_you_mean
from vcsd.evaluation.bar import AskingBar
from vcsd.evaluation.compare import over_seeds
from vcsd.evaluation.export import export_predictions
from vcsd.evaluation.load import choose_benchmarks, data_folder, data_reports, load_benchmarks
from vcsd.evaluation.marking import Marking, mark
from vcsd.evaluation.page import page
from vcsd.evaluation.presets import PAPER_SAMPLING
from vcsd.evaluation.prompts import STYLES
from vcsd.evaluation.runner import ask
from vcsd.evaluation.score import check_failed, scorecard_of
from vcsd.evaluation.scorecard import load_scorecard
from vcsd.evaluation.world import ALL, ALL_BENCHMARKS, WORLD, load_world

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vcsd.evaluation.benchmark import Benchmark
    from vcsd.evaluation.load import LoadedBenchmark
    from vcsd.evaluation.question import Prediction, Question
    from vcsd.evaluation.runner import Answerer
    from vcsd.evaluation.scorecard import Scorecard
    from vcsd.rollout.sampling import Sampling

log = logging.getLogger(__name__)

WEIGHTS = ("model", "weights", "root")
"""What an answerer's identity says of the weights, in this process or on a server."""


@dataclass(frozen=True)
class Asking:
    """How questions are asked: in which words, with which sampling, how often."""

    style: str = "vlmevalkit"
    sampling: Sampling = PAPER_SAMPLING
    seeds: tuple[int, ...] = (0,)
    limit: int | None = None
    jpeg75: bool = False
    allow_unknown_data: bool = False

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ConfigError([f"style = {self.style!r} is not a prompt style. {did_you_mean(self.style, STYLES)}"])
        if self.limit is not None and self.limit < 1:
            raise ConfigError([f"limit = {self.limit} leaves no question. Give at least 1."])
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError([f"seeds = {list(self.seeds)} must be one or several different numbers."])
        if len(self.seeds) > 1 and not self.sampling.temperature:
            raise ConfigError(["several seeds at temperature 0 give the same answers. Set a temperature, or one seed."])


@dataclass(frozen=True)
class Scoring:
    """How answers are read, and whether failed questions may count as wrong."""

    marking: Marking
    allow_failed: bool = False
    suites: Mapping[str, Benchmark] = field(default_factory=lambda: ALL_BENCHMARKS)


def load_questions(benchmarks: str | Sequence[str], data: str | Path | None, asking: Asking) -> list[LoadedBenchmark]:
    """The questions of the named benchmarks, with a line in the log on each file."""
    names = [name.strip() for name in (benchmarks.split(",") if isinstance(benchmarks, str) else benchmarks)]
    made = dict.fromkeys(each for name in names for each in (WORLD if name == ALL else [name]) if each in WORLD)
    others = [name for name in names if name not in made and name != ALL]
    loaded = load_world(list(made), limit=asking.limit) if made else []
    if others or not made:
        layouts = choose_benchmarks(others)
        loaded += load_benchmarks(
            layouts,
            data_folder(data),
            style=asking.style,
            limit=asking.limit,
            jpeg75=asking.jpeg75,
            allow_unknown_data=asking.allow_unknown_data,
        )
    for each in loaded:
        log.info("%s", each.report.line())
    return loaded


def evaluate(
    loaded: Sequence[LoadedBenchmark], answerer: Answerer, out: Path, asking: Asking, scoring: Scoring, *, title: str
) -> list[Scorecard]:
    """Ask and score once per seed; a scorecard for each."""
    try:
        with only_process(out):
            refuse_another_model(out, answerer.identity)
            return _evaluate(loaded, answerer, out, asking, scoring, title=title)
    except OSError as error:
        raise RunError(
            f"the results cannot be written: {error}. See that {out} may be written and has room. Answers so far are "
            "kept, and the same command goes on from them."
        ) from error


def refuse_another_model(out: Path, asker: Mapping[str, Any]) -> None:
    """Raise if a folder holds the results of another model, which would be replaced."""
    for path in (out / "scorecard.json", *sorted(out.glob("seed-*/scorecard.json"))):
        if not path.is_file():
            continue
        made_with = load_scorecard(path).made_with
        before = made_with.get("asker") or {}
        if any(before.get(key) != asker.get(key) for key in WEIGHTS):
            raise ConfigError([
                f"{out} has the results of {made_with.get('model')!r}, or of other weights under the same name. "
                "Choose another folder (--out), or move them away."
            ])  # fmt: skip


def _evaluate(
    loaded: Sequence[LoadedBenchmark], answerer: Answerer, out: Path, asking: Asking, scoring: Scoring, *, title: str
) -> list[Scorecard]:
    questions = [question for each in loaded for question in each.questions]
    cards = []
    for seed in asking.seeds:
        predictions = _ask_all(loaded, answerer, out, asking, seed)
        made_with = {
            "model": title,
            "asker": dict(answerer.identity),
            "style": asking.style,
            "sampling": asdict(asking.sampling),
            "seed": seed,
            "limit": asking.limit,
            "jpeg75": asking.jpeg75,
            "data": data_reports(loaded),
            "vcsd": __version__,
        }
        folder = out if len(asking.seeds) == 1 else out / f"seed-{seed}"
        cards.append(finish(folder, questions, predictions, scoring, made_with, title=title))
    if len(cards) > 1:
        text = json.dumps(over_seeds(cards).to_json(), indent=2)
        (out / "seeds.json").write_text(text + "\n", encoding="utf-8")
    return cards


def _ask_all(
    loaded: Sequence[LoadedBenchmark], answerer: Answerer, out: Path, asking: Asking, seed: int
) -> list[Prediction]:
    found: list[Prediction] = []
    for each in loaded:
        bar = AskingBar(each.report.benchmark + (f", seed {seed}" if len(asking.seeds) > 1 else ""))
        path = out / "predictions.jsonl"
        found += ask(each.questions, answerer, sampling=asking.sampling, path=path, seed=seed, bar=bar)
    return found


def finish(
    folder: Path,
    questions: Sequence[Question],
    predictions: Sequence[Prediction],
    scoring: Scoring,
    made_with: Mapping[str, Any],
    *,
    title: str,
) -> Scorecard:
    """Score predictions and write everything there is to write about them."""
    folder.mkdir(parents=True, exist_ok=True)
    export_predictions(folder / "vlmevalkit", questions, predictions)
    check_failed(questions, predictions, allow_failed=scoring.allow_failed)
    marking, suites = scoring.marking, scoring.suites
    verdicts = mark(questions, predictions, marking, suites)
    card = scorecard_of(questions, predictions, verdicts, marking=marking, suites=suites, made_with=made_with)
    card.save(folder / "scorecard.json")
    answers = list(zip(questions, predictions, verdicts, strict=True))
    (folder / "report.html").write_text(page(card, answers, title=title), encoding="utf-8")
    return card
