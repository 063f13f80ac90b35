"""The exam: all questions of the world's seven suites, encoded once for any number of models.

Questions go through the same `ask` and `score` as any benchmark's. Answers are greedy and short. Besides the seven
suites there is `usual`: questions drawn from the prior. It shows what unlearning the prior costs in the world as it was
in pre-training, and is not part of the mean over suites.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from PIL.Image import Image

from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.model_answerer import ModelAnswerer, encode_question
from vcsd.evaluation.benchmarks.benchmark import Benchmark
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.rollout.contrast_engine import ContrastEngine
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.views.image_hash import image_hash
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.kinds import KINDS
from vcsd.world.questions.kinds import ask as ask_kind
from vcsd.world.questions.suites import ROTATED, SUITES, as_question, build_suites

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from torch import nn

    from vcsd.evaluation.asking.asking_bar import AskingBar
    from vcsd.evaluation.scoring.scorecard import Scorecard
    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.models.processor import Processor
    from vcsd.types import Prediction, Question
    from vcsd.world.scenes import Split

GREEDY = Sampling(max_new_tokens=40, temperature=0.0)
"""The longest true answer has fewer than thirty tokens, unless it first describes the picture."""

BATCH = 1024
"""Questions per batch; their prompts have about forty tokens."""

USUAL = "usual"
_USUAL_SEED = 0x7573


def _benchmark(name: str) -> Benchmark:
    title = SUITES[name].stands_for
    if name == "hallucination":
        return Benchmark(name, title, aggregation="paired", cluster="set")
    return Benchmark(name, title, aggregation="cycles" if name in ROTATED else "micro")


SEVEN: Mapping[str, Benchmark] = {name: _benchmark(name) for name in SUITES}
"""The seven suites as benchmarks; the title is the benchmark that a suite is modelled on."""


def world_questions(num: int, split: Split = "test") -> list[Question]:
    """Build `num` questions of each suite and of `usual`. The same arguments give the same questions."""
    suites = [*build_suites(split=split, num=num).values(), _usual_questions(num, split)]
    return [_grouped(question) for questions in suites for question in questions]


def _usual_questions(num: int, split: Split) -> list[Question]:
    rng = np.random.default_rng(_USUAL_SEED)
    questions: list[Question] = []
    kinds = [kind for kind in KINDS.values() if kind.answer_kind != "text"]  # no rule reads free text reliably
    for number, kind in enumerate(kinds):
        share = num // len(kinds) + (number < num % len(kinds))
        if not share:
            continue
        asked = ask_kind(rng, kind, share, PARAMETERS.sides[0], PARAMETERS, split=split, is_skewed=True)
        noise_seed = int(rng.integers(2**31))
        for index in range(share):
            name = f"{kind.name}-{index:04}"
            groups = {"category": kind.name}
            questions.append(as_question(kind, asked, index, PARAMETERS, noise_seed, name, USUAL, groups))
    return questions


def _grouped(question: Question) -> Question:
    """Add the picture's hash to the groups, so that questions on one picture count as one cluster."""
    (image,) = question.example.images
    assert isinstance(image, Image)
    groups = {**question.groups, "image": image_hash(image, num_digits=16, pixels_only=True)}
    if "cycle_category" in groups:
        groups["cycle"] = groups["cycle_category"]
    return replace(question, groups=groups)


class Exam:
    """Questions for several models, encoded once. With `method`, the prompts are pairs for contrast decoding."""

    def __init__(self, questions: Sequence[Question], processor: Processor, *, method: Method | None = None) -> None:
        self.questions, self.processor, self.method = list(questions), processor, method
        self._prompts: dict[tuple[str, str], Prompt] = {}

    def prompt(self, question: Question) -> Prompt:
        """Encode a question, or return the prompt from the first time."""
        key = (question.benchmark, question.id)
        if key not in self._prompts:
            self._prompts[key] = encode_question(question, self.processor, self.method)
        return self._prompts[key]

    def take(
        self,
        model: nn.Module,
        *,
        name: str,
        path: str | PathLike[str] | None = None,
        bar: AskingBar | None = None,
        sampling: Sampling = GREEDY,
        seed: int = 0,
    ) -> list[Prediction]:
        """Return the model's answers in the order of the questions. `name` identifies its weights in stored answers."""
        engine_class: Callable[..., TransformersEngine] = TransformersEngine
        if self.method is not None:
            engine_class = partial(ContrastEngine, method=self.method)
        engine = engine_class(model, tokenizer=self.processor.tokenizer)
        # Answers on disk are filed under these two values, so that a run of an earlier version can be resumed.
        identity = {"model": name, "contrast": None if self.method is None else repr(self.method)}
        answerer = ModelAnswerer(
            engine, self.processor, name=name, batch_size=BATCH, prompt_of=self.prompt, identity=identity
        )
        return ask(self.questions, answerer, sampling=sampling, path=path, seed=seed, bar=bar)

    def score(self, predictions: Sequence[Prediction]) -> tuple[Scorecard, Scorecard]:
        """The scorecards of the seven suites and of the usual questions."""
        usual = {USUAL: Benchmark(USUAL, "as in pre-training")}
        return self._score(predictions, SEVEN), self._score(predictions, usual)

    def _score(self, predictions: Sequence[Prediction], suites: Mapping[str, Benchmark]) -> Scorecard:
        pairs = [pair for pair in zip(self.questions, predictions, strict=True) if pair[0].benchmark in suites]
        answers: dict[str, list[Prediction]] = {}
        for question, prediction in pairs:
            answers.setdefault(question.benchmark, []).append(prediction)
        made_with = {"sampling": "greedy", "world": PARAMETERS.digest()}
        return score([question for question, _ in pairs], answers, mode="final", suites=suites, made_with=made_with)
