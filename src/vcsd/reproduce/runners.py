"""What a cell does: measure the base as it is, train it, decode from it by contrast, or compare contrast with PMI."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import torch
from PIL.Image import Image
from transformers import TrainerCallback

from vcsd import run
from vcsd.bases.measure import Speaker
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.model_answerer import ModelAnswerer
from vcsd.evaluation.reading.final_answer import read_answer
from vcsd.models.family import base_model
from vcsd.models.hub import load_to_answer
from vcsd.models.processor import load_processor
from vcsd.monitor.guard import first_step
from vcsd.monitor.lines import read_lines
from vcsd.reproduce.abilities.measure_abilities import measure_abilities
from vcsd.reproduce.cell_result import CONTROLS
from vcsd.reproduce.contrast_measures import SampledResponse, pmi, profile, split_by_truth
from vcsd.reproduce.exam import GREEDY, SEVEN, Exam, world_questions
from vcsd.reproduce.training_prompts import write_prompts
from vcsd.rollout.engine import TransformersEngine
from vcsd.types import Question
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.examples import training_examples
from vcsd.world.render import CELL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import nn
    from transformers import TrainerState

    from vcsd.models.processor import Processor
    from vcsd.reproduce.cell import Cell
    from vcsd.reproduce.cell_result import CurvePoint, Measured
    from vcsd.rollout.sampling import Sampling
    from vcsd.types import Prediction
    from vcsd.world.scenes import Split

SERIES = (
    *("loss", "support_size", "realised_contrast", "kl_target_original", "argmax_changed", "student_entropy"),
    *("language_drift", "length", "truncated", "repetition"),
)
"""Metrics that a result records for every step. Results of earlier versions have no `argmax_changed`."""

UNREAD_KEPT = 5
"""The number of unread answers that a result records."""

NUM_VOTES = 8
"""Sampled answers in a majority vote."""

DEV_EVERY, DEV_QUESTIONS = 10, 128
"""Steps between two exams, and questions per suite of the split `dev`, where a run's best step is chosen."""

PROFILED, MEASURED = 128, 192
"""Prompts whose answers are analysed word by word: for the profile of every model, and for the mutual information."""


def _base_of(cell: Cell) -> nn.Module:
    model: nn.Module = load_to_answer(cell.base.folder, dtype=torch.float32)
    return model


def _exam_of(cell: Cell) -> Exam:
    return exam_of(cell.base.folder, cell.sweep.num_questions, cell.sweep.split)


def _run_base(cell: Cell, work: Path) -> Measured:
    processor = _processor(cell.base.folder)
    model, exam = _base_of(cell), _exam_of(cell)
    responses = _sample_responses(model, processor, cell.num_measured(PROFILED), sampling=cell.greedy)
    return {
        **scores(exam, exam.take(model, name=cell.key, bar=AskingBar("questions"), sampling=cell.greedy)),
        **_profiles(model, responses, processor),
        **_abilities(cell, model, processor),
    }


def _abilities(cell: Cell, model: nn.Module, processor: Processor) -> Measured:
    """What the model can do besides the exam, if the variant asks for it."""
    if not cell.variant.has_abilities:
        return {}
    speaker = Speaker(model, processor, longest=cell.greedy.max_new_tokens)
    return {"abilities": measure_abilities(speaker, cell.num_per_kind, cell.sweep.split, cell.base.world)}


def _run_train(cell: Cell, work: Path) -> Measured:
    write_prompts(cell.prompts(work), cell.sweep.num_prompts, which=cell.variant.prompts, parameters=cell.prompt_world)
    loaded = run.load(cell.recipe(work))
    exam = _exam_of(cell)
    num_profiled, base = cell.num_measured(PROFILED), _base_of(cell)
    responses = _sample_responses(base, loaded.processor, num_profiled, sampling=cell.greedy)
    curve = _curve_of(cell, exam, work / "metrics.jsonl")
    start = time.monotonic()
    trainer = run.train(loaded, callbacks=[curve])
    seconds = time.monotonic() - start - curve.seconds
    assert trainer.model is not None
    student = base_model(trainer.model)
    chosen: Measured = {"curve": curve.points}
    if isinstance(curve, BestStep):
        student.load_state_dict(curve.weights)
        chosen = {"curve": [], "dev_curve": curve.points, "chosen_step": curve.step}
    lines = list(read_lines(work / "metrics.jsonl"))
    return {
        **scores(exam, exam.take(student, name=cell.key, bar=AskingBar("questions"), sampling=cell.greedy)),
        **_profiles(student, responses, loaded.processor),
        **_abilities(cell, student, loaded.processor),
        **chosen,
        "series": {name: [_short(line.get(name)) for line in lines] for name in SERIES},
        "guard": {
            "warn": first_step(lines, "warn"),
            "stop": first_step(lines, "stop"),
            "acc_at_stop": curve.acc_at_stop,
        },
        "steps": trainer.state.global_step,
        "training_seconds": round(seconds, 1),
    }


def _run_decode(cell: Cell, work: Path) -> Measured:
    """Decode from the base by contrast, and measure how much longer it takes than plain decoding."""
    model, method = _base_of(cell), cell.recipe().method
    plain = _exam_of(cell)
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


def _run_pmi(cell: Cell, work: Path) -> Measured:
    processor = _processor(cell.base.folder)
    model = _base_of(cell)
    warm = replace(GREEDY, temperature=1.0)
    responses = _sample_responses(model, processor, cell.num_measured(MEASURED), seed=cell.seed, sampling=warm)
    measured = pmi(model, responses, processor, cell.recipe().method)
    for control in CONTROLS:
        if control in measured:
            measured[control] = _shortened(measured[control])
    return {"pmi": measured}


def _run_vote(cell: Cell, work: Path) -> Measured:
    """Answer with the majority of several sampled answers of the base."""
    model, exam = _base_of(cell), _exam_of(cell)
    sampling = replace(GREEDY, temperature=1.0)
    samples = [
        exam.take(
            model,
            name=cell.key,
            sampling=sampling,
            seed=cell.seed * NUM_VOTES + vote,
            bar=AskingBar(f"vote {vote + 1} of {NUM_VOTES}"),
        )
        for vote in range(NUM_VOTES)
    ]
    votes = zip(exam.questions, zip(*samples, strict=True), strict=True)
    return scores(exam, [majority(question, predictions) for question, predictions in votes])


RUNNERS: Mapping[str, Callable[[Cell, Path], Measured]] = {
    "base": _run_base,
    "train": _run_train,
    "decode": _run_decode,
    "vote": _run_vote,
    "pmi": _run_pmi,
}
"""The runner of each kind of variant."""


class Curve(TrainerCallback):
    """Asks the live student all questions every few steps, and once when the guard would first have stopped."""

    def __init__(self, exam: Exam, every: int | None, metrics: Path) -> None:
        self.exam, self.every, self.metrics = exam, every, metrics
        self.points: list[CurvePoint] = []
        self.acc_at_stop: float | None = None
        self.seconds = 0.0

    def on_step_end(
        self, args: object, state: TrainerState, control: object, model: nn.Module | None = None, **others: object
    ) -> None:
        """After the optimizer's step."""
        if self.every is not None and state.global_step % self.every == 0:
            result = self._ask(state.global_step, model)
            self.points.append(
                {
                    "step": state.global_step,
                    "acc": result["acc"],
                    "scores": result["scores"],
                    "unresolved": result["unresolved"],
                }
            )

    def on_step_begin(
        self, args: object, state: TrainerState, control: object, model: nn.Module | None = None, **others: object
    ) -> None:
        """Before the next step, when the guard has judged the previous one."""
        is_open = self.every is not None and self.acc_at_stop is None
        if is_open and first_step(read_lines(self.metrics), "stop") is not None:
            is_asked = self.points and self.points[-1]["step"] == state.global_step
            self.acc_at_stop = (self.points[-1] if is_asked else self._ask(state.global_step, model))["acc"]

    def _ask(self, step: int, model: nn.Module | None) -> Measured:
        assert model is not None
        start = time.monotonic()
        result = scores(self.exam, self.exam.take(base_model(model), name=f"step {step}"))
        self.seconds += time.monotonic() - start
        return result


class BestStep(Curve):
    """A curve that keeps the weights of its best point."""

    def __init__(self, exam: Exam, every: int, metrics: Path) -> None:
        super().__init__(exam, every, metrics)
        self.weights: dict[str, torch.Tensor] = {}
        self.step = 0

    def on_step_end(
        self, args: object, state: TrainerState, control: object, model: nn.Module | None = None, **others: object
    ) -> None:
        """After the optimizer's step."""
        num_points = len(self.points)
        super().on_step_end(args, state, control, model, **others)
        if len(self.points) > num_points and self.points[-1]["acc"] > max(
            (point["acc"] for point in self.points[:-1]), default=-1.0
        ):
            assert model is not None
            self.step = state.global_step
            self.weights = {name: value.detach().clone() for name, value in base_model(model).state_dict().items()}


def _curve_of(cell: Cell, exam: Exam, metrics: Path) -> Curve:
    if not cell.variant.chosen_on_dev:
        return Curve(exam, cell.curve_every, metrics)
    num = min(DEV_QUESTIONS, cell.sweep.num_questions)
    return BestStep(exam_of(cell.base.folder, num, "dev"), cell.sweep.curve_every or DEV_EVERY, metrics)


_processor, _questions = cache(load_processor), cache(world_questions)

_EXAMS: dict[tuple[str, int, str], Exam] = {}
"""The exams of this process. Bases of one family share a processor, and so the encoded questions."""


def exam_of(folder: Path, num_questions: int, split: Split = "test") -> Exam:
    """The exam for a base, shared by all bases with the same processor."""
    processor = _processor(folder)
    name = hashlib.sha256(f"{processor.chat_template}{processor.image_processor.to_dict()}".encode()).hexdigest()
    key = (name, num_questions, split)
    if key not in _EXAMS:
        _EXAMS[key] = Exam(_questions(num_questions, split), processor)
    return _EXAMS[key]


def _sample_responses(
    model: nn.Module, processor: Processor, num: int, *, seed: int = 0, sampling: Sampling = GREEDY
) -> list[SampledResponse]:
    """A base's answers to training prompts with pictures of the smallest size."""
    one_size = (
        example
        for example in training_examples(2 * num, seed)
        if isinstance(image := example.images[0], Image) and image.width == CELL * PARAMETERS.sides[0]
    )
    questions = [Question(example, "training", "text", example.answer or "") for example in islice(one_size, num)]
    engine = TransformersEngine(model, tokenizer=processor.tokenizer)
    answerer = ModelAnswerer(engine, processor, name="base", batch_size=len(questions))
    responses = []
    for index, rollout in answerer.rollouts(questions, sampling, seed=seed):
        if isinstance(rollout, Exception):
            raise rollout
        responses.append(SampledResponse(questions[index].example, rollout.token_ids))
    return responses


def _profiles(model: nn.Module, responses: list[SampledResponse], processor: Processor) -> Measured:
    """The contrast word by word, on the base's right answers and on its wrong ones."""
    right, wrong = split_by_truth(responses, processor)
    return {
        "profile": _shortened(profile(model, right, processor)),
        "profile_of_wrong": _shortened(profile(model, wrong, processor)),
    }


def scores(exam: Exam, predictions: list[Prediction]) -> Measured:
    """What a result records about the answers."""
    seven, usual = exam.score(predictions)
    return {
        "acc": round(seven.acc, 4),
        "scores": _rounded({name: benchmark.entry for name, benchmark in seven.benchmarks.items()}),
        "parts": {
            name: _rounded(benchmark.metrics)
            for name, benchmark in seven.benchmarks.items()
            if len(benchmark.metrics) > 1
        },
        "usual": round(usual.acc, 4),
        "unresolved": sum(benchmark.counts.unresolved for benchmark in seven.benchmarks.values()),
        "unread": _unread(exam, predictions),
        "unread_shares": _rounded({name: benchmark.share_unread for name, benchmark in seven.benchmarks.items()}),
        "truncated": sum(benchmark.counts.truncated for benchmark in seven.benchmarks.values()),
        "num_questions": sum(benchmark.num_questions for benchmark in seven.benchmarks.values()),
    }


def majority(question: Question, predictions: Sequence[Prediction]) -> Prediction:
    """The first prediction with the most frequent answer; the earliest answer wins a tie, unread ones do not count."""
    asked = question.wording
    answers = [read_answer(prediction.text, question.kind, question.options, asked).found for prediction in predictions]
    counts = Counter(answer for answer in answers if answer is not None)
    return predictions[answers.index(counts.most_common(1)[0][0])] if counts else predictions[0]


def _unread(exam: Exam, predictions: list[Prediction]) -> list[str]:
    """The first few unread answers, so that people can check whether they are wrong or a rule is missing."""
    unread = (
        prediction.text
        for question, prediction in zip(exam.questions, predictions, strict=True)
        if question.benchmark in SEVEN
        and read_answer(prediction.text, question.kind, question.options, question.wording).found is None
    )
    return list(islice(unread, UNREAD_KEPT))


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _shortened(values: Mapping[str, float]) -> dict[str, float]:
    """Round numbers to five significant digits."""
    return {name: float(f"{value:.5g}") for name, value in values.items()}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
