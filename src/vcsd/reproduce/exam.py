"""The exam: all questions of the world's seven suites, encoded once, asked of as many models as there are.

Questions go through the same `ask` and `score` as any benchmark's. Answers are greedy and short. Beside the seven there
is `usual`: questions drawn as the prior would have them. It shows what unlearning the prior costs on the world as it
was in pre-training, and is no part of the aggregate.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL.Image import Image

from vcsd.decoding import ContrastEngine, pair
from vcsd.evaluation.benchmark import Benchmark
from vcsd.evaluation.local import same_randomness
from vcsd.evaluation.question import Prediction, Question
from vcsd.evaluation.runner import ask
from vcsd.evaluation.score import score
from vcsd.models.encode import encode
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.transformers import TransformersEngine
from vcsd.views import VIEWS
from vcsd.world.kinds import KINDS
from vcsd.world.kinds import ask as ask_kind
from vcsd.world.parameters import PARAMETERS
from vcsd.world.suites import ROTATED, SUITES, as_question, build_suites

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from torch import nn

    from vcsd.evaluation.bar import AskingBar
    from vcsd.evaluation.scorecard import Scorecard
    from vcsd.method import Method
    from vcsd.models.packing import Prompt
    from vcsd.models.processor import Processor

GREEDY = Sampling(max_new_tokens=40, temperature=0.0)
"""The longest true answer has fewer than thirty tokens."""

BATCH = 1024
"""Questions answered side by side; their prompts are some forty tokens long."""

USUAL = "usual"
_USUAL_SEED = 0x7573


def _benchmark(name: str) -> Benchmark:
    title = SUITES[name].stands_for
    if name == "hallucination":
        return Benchmark(name, title, aggregation="paired", cluster="set")
    return Benchmark(name, title, aggregation="cycles" if name in ROTATED else "micro")


SEVEN: Mapping[str, Benchmark] = {name: _benchmark(name) for name in SUITES}
"""The seven suites as benchmarks; a title names the benchmark that a suite stands for."""

_USUAL_BENCHMARK: Mapping[str, Benchmark] = {USUAL: Benchmark(USUAL, "as in pre-training")}


def world_questions(num: int, split: Any = "test") -> list[Question]:
    """The questions of all suites, `num` of each, and as many of `usual`. The same call gives the same questions."""
    suites = build_suites(split=split, num=num)
    return [
        _grouped(question) for questions in [*suites.values(), _usual_questions(num, split)] for question in questions
    ]


def _usual_questions(num: int, split: Any) -> list[Question]:
    rng = np.random.default_rng(_USUAL_SEED)
    questions: list[Question] = []
    kinds = [kind for kind in KINDS.values() if kind.answer_kind != "text"]  # no rule reads a single word for sure
    for place, kind in enumerate(kinds):
        share = num // len(kinds) + (place < num % len(kinds))
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
    """Say which picture a question is about, so that questions on one picture are drawn together in a bootstrap."""
    (image,) = question.example.images
    assert isinstance(image, Image)
    groups = {**question.groups, "image": hashlib.sha256(image.tobytes()).hexdigest()[:16]}
    if "cycle_category" in groups:
        groups["cycle"] = groups["cycle_category"]
    return replace(question, groups=groups)


class Exam:
    """Questions with their prompts, ready to be asked. With `method`, prompts are pairs for contrast decoding."""

    def __init__(
        self,
        questions: Sequence[Question],
        processor: Processor,
        *,
        method: Method | None = None,
        prompt_settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.questions, self.processor, self.method = list(questions), processor, method
        self._settings = dict(prompt_settings or {})
        self._prompts: dict[tuple[str, str], Prompt] = {}

    def prompt(self, question: Question) -> Prompt:
        """The question as the model sees it; encoded when first asked for."""
        key = (question.benchmark, question.id)
        if key not in self._prompts:
            if self.method is None:
                shown = VIEWS["original"](question.example)
                self._prompts[key] = encode(self.processor, shown, **self._settings)
            else:
                self._prompts[key] = pair(question.example, self.method, self.processor, **self._settings)
        return self._prompts[key]

    def take(
        self, model: nn.Module, *, name: str, path: str | PathLike[str] | None = None, bar: AskingBar | None = None
    ) -> list[Prediction]:
        """The model's answers, in the order of the questions. `name` stands for its weights where answers are kept."""
        return ask(self.questions, _Prepared(self, model, name), sampling=GREEDY, path=path, bar=bar)

    def score(self, predictions: Sequence[Prediction]) -> tuple[Scorecard, Scorecard]:
        """The scorecard of the seven suites, and that of the usual questions."""
        return (
            self._score(predictions, SEVEN),
            self._score(predictions, _USUAL_BENCHMARK),
        )

    def _score(self, predictions: Sequence[Prediction], suites: Mapping[str, Benchmark]) -> Scorecard:
        pairs = [pair for pair in zip(self.questions, predictions, strict=True) if pair[0].benchmark in suites]
        answers: dict[str, list[Prediction]] = {}
        for question, prediction in pairs:
            answers.setdefault(question.benchmark, []).append(prediction)
        made_with = {"sampling": "greedy", "world": PARAMETERS.digest()}
        return score([question for question, _ in pairs], answers, mode="final", suites=suites, made_with=made_with)


class _Prepared:
    """A model in this process as an answerer whose prompts are already there."""

    def __init__(self, exam: Exam, model: nn.Module, name: str) -> None:
        self._exam, self._name = exam, name
        tokenizer = exam.processor.tokenizer
        self._engine = (
            TransformersEngine(model, tokenizer=tokenizer)
            if exam.method is None
            else ContrastEngine(model, method=exam.method, tokenizer=tokenizer)
        )

    @property
    def identity(self) -> dict[str, Any]:
        method = self._exam.method
        return {"model": self._name, "contrast": None if method is None else repr(method)}

    def answer(
        self, questions: Sequence[Question], sampling: Sampling, *, seed: int
    ) -> Iterator[tuple[int, Prediction]]:
        for start in range(0, len(questions), BATCH):
            batch = questions[start : start + BATCH]
            with same_randomness():
                prompts = [self._exam.prompt(question) for question in batch]
                sampled = self._engine.sample(prompts, sampling, num_rollouts=1, seed=seed)
            for place, rollout in enumerate(sampled.rollouts, start):
                assert rollout.stop != "broken", "this engine raises where logits are not finite"
                text = self._exam.processor.tokenizer.decode(list(rollout.token_ids), skip_special_tokens=True)
                yield place, Prediction(questions[place].id, text, rollout.stop, len(rollout.token_ids))
