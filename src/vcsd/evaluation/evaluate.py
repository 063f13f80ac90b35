"""One evaluation from beginning to end: load, ask, score, write.

    out/predictions.jsonl       every answer; a later run reuses them
    out/asked.jsonl             every question without its images, so that `vcsd score` needs neither model nor data
    out/scorecard.json          the numbers, their uncertainty, and how they were made
    out/questions.jsonl         some of the questions with thumbnails, for reports
    out/report.html             the same as a page, with answers and images
    out/vlmevalkit/<name>.tsv   the predictions in VLMEvalKit's columns

With several seeds, all files but the first two are in out/seed-<n>, and out/seeds.json has mean and standard deviation,
pass@k and diversity.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from vcsd import __version__
from vcsd.checkpoint.lock import only_process
from vcsd.checkpoint.whole_file import write_whole
from vcsd.errors import ConfigError, RunError, did_you_mean
from vcsd.evaluation.asked_questions import ASKED, write_questions
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.predictions import answer_key, image_identity
from vcsd.evaluation.asking.presets import PAPER_SAMPLING
from vcsd.evaluation.benchmarks.loading import choose_benchmarks, data_folder, load_benchmark, require_files
from vcsd.evaluation.benchmarks.prompt_styles import STYLES
from vcsd.evaluation.benchmarks.world_suites import ALL, ALL_BENCHMARKS, WORLD, load_world
from vcsd.evaluation.reading.marking import Marking, mark
from vcsd.evaluation.scoring.compare import over_seeds
from vcsd.evaluation.scoring.score_predictions import check_failed, scorecard_of
from vcsd.evaluation.scoring.scorecard import CARD, cards_in, folder_of_seed, load_scorecard
from vcsd.evaluation.scoring.scorecard_page import scorecard_page
from vcsd.evaluation.scoring.several_answers import several_answers
from vcsd.evaluation.scoring.vlmevalkit_files import export_predictions
from vcsd.monitor.work_bar import WorkBar
from vcsd.report.page import write_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vcsd.evaluation.asking.ask import Answerer
    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.benchmarks.loading import LoadedBenchmark
    from vcsd.evaluation.scoring.scorecard import MadeWith, Scorecard
    from vcsd.rollout.sampling import Sampling
    from vcsd.types import Prediction, Question, Verdict

log = logging.getLogger(__name__)

SEEDS = "seeds.json"


@dataclass(frozen=True)
class Asking:
    """How questions are asked: prompt style, sampling, seeds, and which data."""

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
            raise ConfigError([f"seeds = {list(self.seeds)} must be one number or several different ones."])
        if len(self.seeds) > 1 and not self.sampling.temperature:
            raise ConfigError(["several seeds at temperature 0 give the same answers. Set a temperature, or one seed."])


@dataclass(frozen=True)
class Scoring:
    """How answers are read, and whether failed questions may count as wrong."""

    marking: Marking
    allow_failed: bool = False
    suites: Mapping[str, Benchmark] = field(default_factory=lambda: ALL_BENCHMARKS)


def load_questions(
    benchmarks: str | Sequence[str],
    data: str | Path | None,
    asking: Asking,
    *,
    allowed_by: str = "--allow-unknown-data",
) -> list[LoadedBenchmark]:
    """Load the questions of benchmarks and log a line on each file. `allowed_by` is as in `load_benchmark`."""
    names = [name.strip() for name in (benchmarks.split(",") if isinstance(benchmarks, str) else benchmarks)]
    suites = dict.fromkeys(suite for name in names for suite in (WORLD if name == ALL else [name]) if suite in WORLD)
    others = [name for name in names if name not in suites and name != ALL]
    chosen = choose_benchmarks(others, also=(ALL, *WORLD)) if others or not suites else []
    loaded = load_world(list(suites), limit=asking.limit) if suites else []
    if chosen:
        folder = data_folder(data, [benchmark.name for benchmark in chosen])
        require_files(chosen, folder)
        with WorkBar("reading benchmarks") as bar:
            bar.begin(0, len(chosen))
            for benchmark in chosen:
                loaded.append(
                    load_benchmark(
                        benchmark,
                        folder,
                        style=asking.style,
                        limit=asking.limit,
                        jpeg75=asking.jpeg75,
                        allow_unknown_data=asking.allow_unknown_data,
                        allowed_by=allowed_by,
                    )
                )
                bar.step()
    for questions in loaded:
        log.info("%s", questions.report.line())
    return loaded


def evaluate(
    loaded: Sequence[LoadedBenchmark], answerer: Answerer, out: Path, asking: Asking, scoring: Scoring, *, title: str
) -> list[Scorecard]:
    """Ask and score once per seed; return a scorecard for each."""
    try:
        with only_process(out):
            refuse_another_model(out, answerer.identity)
            return _evaluate(loaded, answerer, out, asking, scoring, title=title)
    except OSError as error:
        raise RunError(
            f"the results cannot be written: {error}. Check that {out} is writable and has free space. Answers so far "
            "are kept, and the same command resumes."
        ) from error


def refuse_another_model(out: Path, asker: Mapping[str, object]) -> None:
    """Raise if a folder holds the results of another model: they would be overwritten."""
    for path in cards_in(out):
        made_with = load_scorecard(path).made_with
        before = made_with.get("asker") or {}
        # These keys identify the weights, in this process or on a server.
        if any(before.get(key) != asker.get(key) for key in ("model", "weights", "root")):
            raise ConfigError([
                f"{out} holds the results of {made_with.get('model')!r}, or of other weights with the same name. "
                "Choose another folder (--out), or move them."
            ])  # fmt: skip


def _evaluate(
    loaded: Sequence[LoadedBenchmark], answerer: Answerer, out: Path, asking: Asking, scoring: Scoring, *, title: str
) -> list[Scorecard]:
    questions = [question for benchmark in loaded for question in benchmark.questions]
    asker = dict(answerer.identity)
    made_with = {
        "model": title,
        "asker": asker,
        "style": asking.style,
        "sampling": asdict(asking.sampling),
        "limit": asking.limit,
        "jpeg75": asking.jpeg75,
        "data": {benchmark.report.benchmark: asdict(benchmark.report) for benchmark in loaded},
        "vcsd": __version__,
    }
    images = [[image_identity(image) for image in question.example.images] for question in questions]
    keys = [
        [answer_key(question, asking.sampling, asker=asker, seed=seed, images=shown) for seed in asking.seeds]
        for question, shown in zip(questions, images, strict=True)
    ]
    write_asked(out, made_with, asking.seeds, scoring.suites, questions, keys)
    results = []
    for number, seed in enumerate(asking.seeds):
        predictions: list[Prediction] = []
        for benchmark in loaded:
            bar = AskingBar(benchmark.report.benchmark + (f", seed {seed}" if len(asking.seeds) > 1 else ""))
            start = len(predictions)
            known = [several[number] for several in keys[start : start + len(benchmark.questions)]]
            predictions += ask(
                benchmark.questions,
                answerer,
                sampling=asking.sampling,
                path=out / "predictions.jsonl",
                seed=seed,
                keys=known,
                bar=bar,
            )
        folder = folder_of_seed(out, asking.seeds, seed)
        results.append(finish(folder, questions, predictions, scoring, {**made_with, "seed": seed}))
    write_seeds(out, questions, results)
    return [result.card for result in results]


def write_asked(
    out: Path,
    made_with: MadeWith,
    seeds: Sequence[int],
    suites: Mapping[str, Benchmark],
    questions: Sequence[Question],
    keys: Sequence[Sequence[str]],
) -> None:
    """Write asked.jsonl: a line on how questions are asked, then each question without images, with a key per seed."""
    own = {question.benchmark for question in questions} - set(ALL_BENCHMARKS)
    head = {"made_with": made_with, "seeds": list(seeds), "own": {name: suites[name].breakdown for name in sorted(own)}}
    out.mkdir(parents=True, exist_ok=True)
    partial = out / f"{ASKED}.partial"
    with partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head) + "\n")
        for question, several in zip(questions, keys, strict=True):
            row = {
                "benchmark": question.benchmark,
                "question": question.id,
                "text": question.text,
                "kind": question.kind,
                "gold": question.gold,
                "options": dict(question.options),
                "groups": dict(question.groups),
                "fields": dict(question.fields),
                "keys": list(several),
            }
            file.write(json.dumps(row) + "\n")
    partial.replace(out / ASKED)


def write_seeds(out: Path, questions: Sequence[Question], results: Sequence[Result]) -> None:
    """Write mean and standard deviation over several seeds, pass@k and diversity; nothing for one seed."""
    if len(results) > 1:
        measures = several_answers(
            questions, [result.answers for result in results], [result.verdicts for result in results]
        )
        seeds = asdict(over_seeds([result.card for result in results]))
        content = {**seeds, "several_answers": {name: asdict(measured) for name, measured in measures.items()}}
        write_whole(out / SEEDS, json.dumps(content, indent=2, allow_nan=False) + "\n")


@dataclass(frozen=True)
class Result:
    """The scored answers of one seed, in the order of the questions."""

    card: Scorecard
    answers: Sequence[Prediction]
    verdicts: Sequence[Verdict]


def finish(
    folder: Path, questions: Sequence[Question], answers: Sequence[Prediction], scoring: Scoring, made_with: MadeWith
) -> Result:
    """Score answers and write the scorecard, the page and VLMEvalKit's files."""
    folder.mkdir(parents=True, exist_ok=True)
    export_predictions(folder / "vlmevalkit", questions, answers)
    check_failed(questions, answers, allow_failed=scoring.allow_failed, allowed_by="--allow-failed")
    marking, suites = scoring.marking, scoring.suites
    verdicts = mark(questions, answers, marking, suites)
    card = scorecard_of(questions, answers, verdicts, marking=marking, suites=suites, made_with=made_with)
    card.save(folder / CARD)
    if any(question.example.images for question in questions):
        write_questions(folder, questions)
    marked = list(zip(questions, answers, verdicts, strict=True))
    write_page(scorecard_page(card, marked, title=made_with["model"]), folder / "report.html")
    return Result(card, answers, verdicts)
