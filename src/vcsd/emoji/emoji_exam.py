"""The exam: greedy answers to every suite, by the code that answers any benchmark, and the perplexity of English.

An answer is right if it gives the key word (`read_key`). Also recorded are the share of whole sentences that are equal
to the true one, the share that gives the suggested word, and the share without any word that could be an answer.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, TypedDict

import torch
from torch.nn import functional

from vcsd.emoji.english import PROSE
from vcsd.emoji.questions import SUITES, draw_question, read_key
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.model_answerer import ModelAnswerer, encode_question
from vcsd.evaluation.scoring.score_predictions import check_failed
from vcsd.rollout.contrast_engine import ContrastEngine
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.types import Example, Question, user_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn
    from transformers import PreTrainedTokenizerBase

    from vcsd.emoji.emoji_scenes import ScenePainter
    from vcsd.emoji.questions import SceneQuestion, SceneSplit
    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.models.processor import Processor

NUM_DEV = 256
"""Questions of each suite when a base or a run is measured on the split `dev`."""

LONGEST = 24
"""Tokens of an answer. The longest true one has fewer than twenty."""

_BATCH = 512
_SPLITS = {"train": 0, "dev": 1, "test": 2}
_MOST_QUESTIONS = 10**5


class SuiteScore(TypedDict):
    """Percentages of the answers to one suite."""

    right: float
    sentence: float
    suggested: float
    unread: float
    num: int
    marks: str
    """For each question in order, 1 if its answer is right, else 0."""


def picture_seed(split: SceneSplit, suite: str, number: int) -> int:
    """Return the seed of a question's picture: no two questions share one."""
    assert 0 <= number < _MOST_QUESTIONS, "the seeds of the next suite begin there"
    return 10**7 * _SPLITS[split] + _MOST_QUESTIONS * list(SUITES).index(suite) + number


def scene_example(painter: ScenePainter, split: SceneSplit, suite: str, number: int) -> tuple[Example, SceneQuestion]:
    """Return a question as an Example with its picture, and as it was drawn. The category is the suite."""
    asked = draw_question(split, suite, number)
    picture = painter.picture(asked.scene, picture_seed(split, suite, number))
    prompt = [user_message(asked.text, num_images=1)]
    name = f"{split}-{suite}-{number:05}"
    return Example(name, [picture], prompt, answer=asked.sentence, category=suite), asked


class SceneExam:
    """The questions of a split, drawn and encoded once for any number of models."""

    def __init__(self, painter: ScenePainter, processor: Processor, split: SceneSplit, num: int) -> None:
        self.processor = processor
        self._prompts: dict[tuple[str, str], Prompt] = {}
        self.asked: list[SceneQuestion] = []
        self.questions: list[Question] = []
        for suite in SUITES:
            for number in range(num):
                example, asked = scene_example(painter, split, suite, number)
                self.asked.append(asked)
                self.questions.append(Question(example, benchmark=suite, kind="text", gold=asked.sentence))

    def take(self, model: nn.Module, method: Method | None = None) -> dict[str, SuiteScore]:
        """Score the model's answers; with a method, those of contrast decoding."""
        texts = self.answers(model, method)
        return {suite: self._score(suite, texts) for suite in SUITES}

    def answers(self, model: nn.Module, method: Method | None = None) -> list[str]:
        """Return the model's greedy answers in the order of the questions."""
        engine_class: Callable[..., TransformersEngine] = TransformersEngine
        if method is not None:
            engine_class = partial(ContrastEngine, method=method)
        engine = engine_class(model, tokenizer=self.processor.tokenizer)
        prompt_of = partial(self._prompt, method)
        answerer = ModelAnswerer(engine, self.processor, name="exam", batch_size=_BATCH, prompt_of=prompt_of)
        sampling = Sampling(max_new_tokens=LONGEST, temperature=0.0)
        predictions = ask(self.questions, answerer, sampling=sampling)
        check_failed(self.questions, predictions, allow_failed=False)
        return [prediction.text for prediction in predictions]

    def encode(self) -> None:
        """Encode all questions now. Otherwise each is encoded when it is first asked."""
        for question in self.questions:
            self._prompt(None, question)

    def _prompt(self, method: Method | None, question: Question) -> Prompt:
        key = (repr(method), question.id)
        if key not in self._prompts:
            self._prompts[key] = encode_question(question, self.processor, method)
        return self._prompts[key]

    def _score(self, suite: str, texts: Sequence[str]) -> SuiteScore:
        pairs = [
            (asked, text.strip())
            for asked, question, text in zip(self.asked, self.questions, texts, strict=True)
            if question.benchmark == suite
        ]
        said = [(asked, read_key(asked.asks, text)) for asked, text in pairs]
        is_right = [key == asked.key for asked, key in said]
        return {
            "right": _percent(is_right),
            "sentence": _percent([text == asked.sentence for asked, text in pairs]),
            "suggested": _percent([key is not None and key == asked.suggested for asked, key in said]),
            "unread": _percent([key is None for _, key in said]),
            "num": len(pairs),
            "marks": "".join(str(int(flag)) for flag in is_right),
        }


def _percent(flags: Sequence[bool]) -> float:
    return round(100.0 * sum(flags) / len(flags), 2)


@torch.no_grad()
def english_perplexity(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> float:
    """Return the perplexity of `PROSE` without any picture: how much English is left."""
    device = next(model.parameters()).device
    total, num = 0.0, 0
    for text in PROSE:
        ids = tokenizer(f"<|endoftext|>{text}", add_special_tokens=False, return_tensors="pt")["input_ids"].to(device)
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, :-1].float()
        total += functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        num += ids.shape[1] - 1
    return round(math.exp(total / num), 2)
