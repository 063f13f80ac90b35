"""Scores finished predictions again: in another mode, with another judge, or with a newer reader. No model is loaded.

An evaluation writes `asked.jsonl`: how it was made, and every question without its images, with the key of its answer
for each seed. Together with `predictions.jsonl` this is all that scoring needs, also on another machine.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, get_args

from vcsd.checkpoint.lock import InUseError, only_process
from vcsd.errors import ConfigError, RunError, refuse_missing_folder, shown
from vcsd.evaluation.asked_questions import ASKED
from vcsd.evaluation.asking.predictions import PredictionFile
from vcsd.evaluation.benchmarks.own_tsv import own_benchmark
from vcsd.evaluation.benchmarks.world_suites import ALL_BENCHMARKS
from vcsd.evaluation.evaluate import Scoring, finish, write_seeds
from vcsd.evaluation.scoring.scorecard import cards_in, folder_of_seed, load_scorecard
from vcsd.monitor.lines import read_lines
from vcsd.types import AnswerKind, Example, Prediction, Question, user_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.reading.marking import Marking
    from vcsd.evaluation.scoring.scorecard import MadeWith, Scorecard


@dataclass(frozen=True)
class Asked:
    """What an evaluation asked: how it was made, its seeds, and its questions with the keys of their answers."""

    made_with: MadeWith
    seeds: tuple[int, ...]
    suites: Mapping[str, Benchmark]
    questions: tuple[Question, ...]
    keys: tuple[Sequence[str], ...]
    """For each question, one key per seed."""


def read_asked(run: Path) -> Asked:
    """Read what the evaluation in a folder asked."""
    refuse_missing_folder(run)
    path = run / ASKED
    if not path.is_file():
        raise ConfigError([
            f"{run} has no {ASKED}: it is not the folder of an evaluation, or an older release made it. Run the same "
            "vcsd eval once more: it reuses the answers and writes the file."
        ])  # fmt: skip
    try:
        head, *rows = read_lines(path)
        _check_names(head)
        own = {name: own_benchmark(name, tuple(keys)) for name, keys in head["own"].items()}
        questions = tuple(_question(row) for row in rows)
        asked = Asked(
            head["made_with"],
            tuple(head["seeds"]),
            {**ALL_BENCHMARKS, **own},
            questions,
            tuple(tuple(row["keys"]) for row in rows),
        )
        _check_whole(asked)
        return asked
    except ConfigError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            [f"{path} is damaged ({type(error).__name__}: {error}). Run the same vcsd eval again."]
        ) from error


def _check_names(head: Mapping[str, Any]) -> None:
    """Raise ValueError for names and seeds that no evaluation writes. Files are named after them.

    The folder may come from someone else, who must not choose where scores are written on this machine.
    """
    for name in head["own"]:
        if name in ALL_BENCHMARKS or name != PurePath(name).name:
            raise ValueError(f"{shown(name)} is not the name of an own file")
    if any(type(seed) is not int for seed in head["seeds"]):
        raise ValueError("a seed is not a number")


def _check_whole(asked: Asked) -> None:
    """Raise ValueError unless the file has every question once, with a key for each seed: a part would score otherwise.

    The data reports have the number of questions asked for each benchmark.
    """
    if not asked.seeds or any(len(keys) != len(asked.seeds) for keys in asked.keys):
        raise ValueError("a question does not have one key for each seed")
    names = [(question.benchmark, question.id) for question in asked.questions]
    if len(set(names)) < len(names):
        raise ValueError("a question occurs twice")
    counts = Counter(name for name, _ in names)
    for name, report in asked.made_with["data"].items():
        if counts[name] != report["num_asked"]:
            raise ValueError(f"it has {counts[name]} questions of {name}, {report['num_asked']} were asked")
    if unknown := [name for name in counts if name not in asked.suites]:
        raise ValueError(f"it does not say what {unknown[0]} is")


def _question(row: Mapping[str, Any]) -> Question:
    example = Example(row["question"], [], [user_message(row["text"], 0)])
    if row["kind"] not in get_args(AnswerKind):
        raise ValueError(f"{row['kind']!r} is not a kind of question")
    cells = [dict(row[name].items()) for name in ("options", "groups", "fields")]
    return Question(example, row["benchmark"], row["kind"], row["gold"], *cells)


def rescore(run: Path, marking: Marking, out: Path, *, allow_failed: bool = False) -> list[Scorecard]:
    """Score the predictions in a folder; write and return a scorecard for each seed."""
    try:
        return _rescore(run, marking, out, allow_failed=allow_failed)
    except InUseError as error:
        raise RunError(
            f"{error.folder} is in use by {error.process}, another vcsd score or vcsd eval. Wait for it or stop it, "
            "then run the same command again: what the judge has replied by then is not asked again."
        ) from error
    except OSError as error:
        raise RunError(
            f"the scores cannot be written: {error}. Check that {out} is a folder, writable, and has free space, or "
            "choose another (--out)."
        ) from error


def _rescore(run: Path, marking: Marking, out: Path, *, allow_failed: bool) -> list[Scorecard]:
    asked = read_asked(run)
    _refuse_another_reading(out, marking, asked.suites)
    # A judge's replies are stored next to the answers: two commands would ask for each of them twice.
    with nullcontext() if marking.judge is None else only_process(run):
        out.mkdir(parents=True, exist_ok=True)
        with only_process(out):
            return _score_seeds(run, asked, Scoring(marking, allow_failed, asked.suites), out)


def _score_seeds(run: Path, asked: Asked, scoring: Scoring, out: Path) -> list[Scorecard]:
    stored = PredictionFile(run / "predictions.jsonl")
    results = []
    for number, seed in enumerate(asked.seeds):
        answers = [
            stored.find(question, keys[number]) or Prediction(question.id, "", None, error="there is no prediction")
            for question, keys in zip(asked.questions, asked.keys, strict=True)
        ]
        folder = folder_of_seed(out, asked.seeds, seed)
        results.append(finish(folder, asked.questions, answers, scoring, {**asked.made_with, "seed": seed}))
    write_seeds(out, asked.questions, results)
    return [result.card for result in results]


def _refuse_another_reading(out: Path, marking: Marking, suites: Mapping[str, Benchmark]) -> None:
    """Raise if a folder holds scores of other rules, comparisons or another judge: they would be overwritten."""
    for path in cards_in(out):
        if by := _made_otherwise(load_scorecard(path), marking, suites):
            raise ConfigError([f"{out} holds scores that were made differently ({by}). Choose another folder (--out)."])


def _made_otherwise(card: Scorecard, marking: Marking, suites: Mapping[str, Benchmark]) -> str | None:
    """Describe how a scorecard was made if it differs from this marking; None if it does not."""
    judge = {} if marking.judge is None else marking.judge.about()
    before = card.made_with.get("judge") or {}
    has_other_rules = card.mode != "final" and card.rules != marking.rules
    has_other_judge = any(before.get(key) != judge.get(key) for key in ("model", "preset"))
    if card.mode != marking.mode or has_other_rules or has_other_judge:
        return f"mode {card.mode}, rules {card.rules}" + (f", judge {before['model']}" if "model" in before else "")
    compared = ", ".join(
        f"{name} compared by {score.numbers}"
        for name, score in card.benchmarks.items()
        if name in suites and score.numbers != marking.numbers(suites[name])
    )
    return compared or None
