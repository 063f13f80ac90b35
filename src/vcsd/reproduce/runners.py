"""What a cell does: leave the base as it is, train it, decode from it by contrast, or measure its contrast."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForImageTextToText, TrainerCallback

from vcsd import run
from vcsd.evaluation.answers import read_answer
from vcsd.models.encode import encode
from vcsd.models.processor import load_processor
from vcsd.monitor.lines import read_lines
from vcsd.reproduce.exam import GREEDY, SEVEN, Exam, world_questions
from vcsd.reproduce.measure import Spoken, pmi, profile, split_by_truth
from vcsd.reproduce.prompts import write_prompts
from vcsd.rollout.transformers import TransformersEngine
from vcsd.step import base_of
from vcsd.views import VIEWS
from vcsd.world.examples import training_examples
from vcsd.world.parameters import PARAMETERS
from vcsd.world.render import CELL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from torch import nn

    from vcsd.evaluation.question import Prediction, Question
    from vcsd.evaluation.scorecard import Scorecard
    from vcsd.models.processor import Processor
    from vcsd.reproduce.cell import Cell

SERIES = (
    *("loss", "support_size", "realised_contrast", "kl_target_original", "student_entropy"),
    *("language_drift", "length", "truncated", "repetition"),
)
"""Metrics whose course over training a result keeps."""

UNREAD_KEPT = 5
"""Answers that no rule reads, as a result keeps them."""

PROFILED, MEASURED = 128, 192
"""Prompts whose answers are looked at word by word: for the profile of every model, and for the mutual information."""


def _run_base(cell: Cell, work: Path) -> dict[str, Any]:
    processor = _processor(cell.base.folder)
    model, exam = load_base(cell.base.folder), exam_of(cell.base.folder, cell.plan.num_questions, cell.plan.split)
    spoken = _spoken(model, processor, cell.num_measured(PROFILED))
    return {**scores(exam, exam.take(model, name=cell.key)), **_profiles(model, spoken, processor)}


def _run_train(cell: Cell, work: Path) -> dict[str, Any]:
    write_prompts(cell.prompts(work), cell.plan.num_prompts)
    loaded = run.load(cell.recipe(work))
    exam = exam_of(cell.base.folder, cell.plan.num_questions, cell.plan.split)
    spoken = _spoken(load_base(cell.base.folder), loaded.processor, cell.num_measured(PROFILED))
    curve = Curve(exam, cell.curve_every, work / "metrics.jsonl")
    start = time.monotonic()
    trainer = run.train(loaded, callbacks=[curve])
    seconds = time.monotonic() - start - curve.seconds
    assert trainer.model is not None
    student = base_of(trainer.model)
    lines = list(read_lines(work / "metrics.jsonl"))
    return {
        **scores(exam, exam.take(student, name=cell.key)),
        **_profiles(student, spoken, loaded.processor),
        "curve": curve.points,
        "series": {name: [_short(line.get(name)) for line in lines] for name in SERIES},
        "guard": {**{word: _first_step(lines, word) for word in ("warn", "stop")}, "acc_at_stop": curve.acc_at_stop},
        "steps": trainer.state.global_step,
        "training_seconds": round(seconds, 1),
    }


def _run_decode(cell: Cell, work: Path) -> dict[str, Any]:
    """Contrast decoding on the base, and how much longer it takes than plain decoding of the same questions."""
    model, method = load_base(cell.base.folder), cell.recipe().method
    plain = exam_of(cell.base.folder, cell.plan.num_questions, cell.plan.split)
    paired = Exam(plain.questions, plain.processor, method=method)
    for exam in (plain, paired):
        for question in exam.questions:
            exam.prompt(question)
    plain.take(model, name="warm-up")
    seconds, predictions = [], []
    for exam in (plain, paired):
        start = time.monotonic()
        predictions = exam.take(model, name=cell.key)
        seconds.append(time.monotonic() - start)
    cost = {"plain_seconds": round(seconds[0], 2), "contrast_seconds": round(seconds[1], 2)}
    return {**scores(paired, predictions), "cost": {**cost, "ratio": round(seconds[1] / seconds[0], 3)}}


def _run_pmi(cell: Cell, work: Path) -> dict[str, Any]:
    processor = _processor(cell.base.folder)
    model = load_base(cell.base.folder)
    spoken = _spoken(model, processor, cell.num_measured(MEASURED), seed=cell.seed, temperature=1.0)
    return {"pmi": _shortened(pmi(model, spoken, processor, cell.recipe().method))}


RUNNERS: Mapping[str, Callable[[Cell, Path], dict[str, Any]]] = {
    "base": _run_base,
    "train": _run_train,
    "decode": _run_decode,
    "pmi": _run_pmi,
}
"""What is done with a base, by the kind of the variant."""


class Curve(TrainerCallback):
    """Asks the live student all questions every few steps of training, and when the guard would first have stopped."""

    def __init__(self, exam: Exam, every: int | None, metrics: Path) -> None:
        self.exam, self.every, self.metrics = exam, every, metrics
        self.points: list[dict[str, Any]] = []
        self.acc_at_stop: float | None = None
        self.seconds = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """After the optimizer's step."""
        if self.every is not None and state.global_step % self.every == 0:
            found = self._ask(state.global_step, given["model"])
            self.points.append({"step": state.global_step, "acc": found["acc"], "scores": found["scores"]})

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """By now the guard has judged the step before."""
        if self.every is None or self.acc_at_stop is not None:
            return
        if _first_step(read_lines(self.metrics), "stop") is None:
            return
        if self.points and self.points[-1]["step"] == state.global_step:
            self.acc_at_stop = self.points[-1]["acc"]
        else:
            self.acc_at_stop = self._ask(state.global_step, given["model"])["acc"]

    def _ask(self, step: int, model: nn.Module) -> dict[str, Any]:
        start = time.monotonic()
        found = scores(self.exam, self.exam.take(base_of(model), name=f"step {step}"))
        self.seconds += time.monotonic() - start
        return found


def load_base(folder: Path, device: str | None = None) -> nn.Module:
    """The base in float32; by default on the device that training would use."""
    model: nn.Module = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()


@cache
def _processor(folder: Path) -> Processor:
    return load_processor(folder)


@cache
def _questions(num: int, split: str) -> list[Question]:
    return world_questions(num, split)


_EXAMS: dict[tuple[str, int, str], Exam] = {}
"""Exams of this process. Bases of one family share a processor, hence the encoded questions."""


def exam_of(folder: Path, num_questions: int, split: str = "test") -> Exam:
    """The exam for a base, shared by all whose processor is the same."""
    processor = _processor(folder)
    name = hashlib.sha256(f"{processor.chat_template}{processor.image_processor.to_dict()}".encode()).hexdigest()
    key = (name, num_questions, split)
    if key not in _EXAMS:
        _EXAMS[key] = Exam(_questions(num_questions, split), processor)
    return _EXAMS[key]


def _spoken(
    model: nn.Module, processor: Processor, num: int, *, seed: int = 0, temperature: float = 0.0
) -> list[Spoken]:
    """What a base says to some training prompts of one size."""
    drawn = training_examples(2 * num, seed)
    examples = [each for each in drawn if _width(each.images[0]) == CELL * PARAMETERS.sides[0]][:num]
    prompts = [encode(processor, VIEWS["original"](example)) for example in examples]
    engine = TransformersEngine(model, tokenizer=processor.tokenizer)
    sampled = engine.sample(prompts, replace(GREEDY, temperature=temperature), num_rollouts=1, seed=seed)
    return [Spoken(example, each.token_ids) for example, each in zip(examples, sampled.rollouts, strict=True)]


def _profiles(model: nn.Module, spoken: list[Spoken], processor: Processor) -> dict[str, dict[str, float]]:
    """The contrast word by word, where the base's answer is right and where it is wrong."""
    right, wrong = split_by_truth(spoken, processor)
    found = {"profile": profile(model, right, processor), "profile_of_wrong": profile(model, wrong, processor)}
    return {name: _shortened(each) for name, each in found.items()}


def _width(image: Any) -> int:
    return int(image.width)


def scores(exam: Exam, predictions: list[Prediction]) -> dict[str, Any]:
    """What a result keeps of the answers."""
    seven, usual = exam.score(predictions)
    return {
        "acc": round(seven.acc, 4),
        "scores": {name: round(each.entry, 4) for name, each in seven.benchmarks.items()},
        "parts": _parts(seven),
        "usual": round(usual.acc, 4),
        "unresolved": sum(each.counts.unresolved for each in seven.benchmarks.values()),
        "unread": _unread(exam, predictions),
        "truncated": sum(each.counts.truncated for each in seven.benchmarks.values()),
        "num_questions": sum(each.num_questions for each in seven.benchmarks.values()),
    }


def _unread(exam: Exam, predictions: list[Prediction]) -> list[str]:
    """The first few answers that no rule reads: whether they are wrong, or the rules too few, takes eyes to tell."""
    pairs = zip(exam.questions, predictions, strict=True)
    unread = (
        said.text
        for question, said in pairs
        if question.benchmark in SEVEN and read_answer(said.text, question.kind, question.options).found is None
    )
    return list(islice(unread, UNREAD_KEPT))


def _parts(card: Scorecard) -> dict[str, dict[str, float]]:
    """aAcc, fAcc and qAcc, where a suite has more parts than one."""
    many = {name: each.metrics for name, each in card.benchmarks.items() if len(each.metrics) > 1}
    return {name: {part: round(value, 4) for part, value in metrics.items()} for name, metrics in many.items()}


def _shortened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Every number of a tree to the digits that mean something."""
    return {
        name: _shortened(each) if isinstance(each, dict) else _short(each) if isinstance(each, float) else each
        for name, each in values.items()
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _first_step(lines: Iterable[Mapping[str, Any]], word: str) -> int | None:
    """The first step at which the guard said a word."""
    return next((int(line["step"]) for line in lines if line.get("guard") == word), None)
