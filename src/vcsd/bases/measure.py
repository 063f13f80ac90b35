"""Measure a base model: can it see, can it answer, does its prior sway it, does contrast recover what it saw?

Answers are greedy. The answer is the word after the last "answer is". Contrast decoding picks the most likely token of
the target that VCSD distils, with the same alpha and beta, and a second pass over a black picture.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from vcsd.bases.card import read_card
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.model_answerer import ModelAnswerer
from vcsd.evaluation.scoring.score_predictions import check_failed
from vcsd.models.hub import load_to_answer
from vcsd.models.processor import load_processor
from vcsd.monitor.work_bar import WorkBar
from vcsd.rollout.contrast_engine import ContrastEngine
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.types import Example, Question, user_message
from vcsd.views import VIEWS
from vcsd.world.checks import checked_split
from vcsd.world.parameters import LONGEST_ANSWER, PARAMETERS, Parameters
from vcsd.world.questions.examples import training_examples
from vcsd.world.questions.kind import DESCRIBE, describe, description
from vcsd.world.questions.kinds import KINDS
from vcsd.world.questions.kinds import ask as ask_kind
from vcsd.world.questions.suites import as_example, build_suites
from vcsd.world.render import draw_picture
from vcsd.world.scenes import draw_scenes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import nn
    from transformers import PreTrainedModel

    from vcsd.bases.card import BaseScores
    from vcsd.models.processor import Processor
    from vcsd.world.scenes import Split

_ROWS_AT_ONCE = 512
_ANSWER = re.compile(r"answer is (\w+)")

T = TypeVar("T")


def last_answer(text: str) -> str | None:
    """The last answer in a text.

    >>> last_answer("The circle is red. The answer is B.")
    'B'
    """
    answers = _ANSWER.findall(text)
    return answers[-1] if answers else None


@dataclass(frozen=True)
class Speaker:
    """A model with its processor, and how it answers: greedily, or by contrast with a black picture."""

    model: nn.Module
    processor: Processor
    uses_contrast: bool = False
    longest: int = LONGEST_ANSWER

    def answers(
        self,
        examples: Sequence[Example],
        *,
        view: str = "original",
        longest: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> list[str]:
        """The model's answer to each example under a view, as text. `longest` replaces the speaker's own."""
        order = sorted(range(len(examples)), key=lambda i: examples[i].images[0].size)  # type: ignore[union-attr]
        questions = [
            Question(VIEWS[view](examples[i]), benchmark="measure", kind="text", gold=examples[i].answer or "")
            for i in order
        ]
        engine_class = ContrastEngine if self.uses_contrast else TransformersEngine
        engine = engine_class(self.model, tokenizer=self.processor.tokenizer)
        answerer = ModelAnswerer(engine, self.processor, name="base", batch_size=_ROWS_AT_ONCE)
        sampling = Sampling(temperature=temperature, max_new_tokens=longest or self.longest)
        predictions = ask(questions, answerer, sampling=sampling, seed=seed)
        check_failed(questions, predictions, allow_failed=False)
        texts = {i: prediction.text for i, prediction in zip(order, predictions, strict=True)}
        return [texts[i] for i in range(len(examples))]


def share_right(speaker: Speaker, examples: Sequence[Example], *, view: str = "original") -> float:
    """The share of right answers, in percent."""
    texts = speaker.answers(examples, view=view)
    right = [last_answer(text) == example.answer for text, example in zip(texts, examples, strict=True)]
    return 100.0 * sum(right) / len(right)


def suite_scores(speaker: Speaker, suites: Mapping[str, Sequence[Question]]) -> dict[str, float]:
    """The share of right answers in each suite, and their mean."""
    scores = {
        name: share_right(speaker, [question.example for question in questions]) for name, questions in suites.items()
    }
    return {name: round(score, 2) for name, score in {**scores, "mean": sum(scores.values()) / len(scores)}.items()}


def sight(speaker: Speaker, num: int, split: Split, parameters: Parameters = PARAMETERS) -> dict[str, float]:
    """The share of things in balanced scenes that the model names correctly in their cell, in percent, by side."""
    shares = {}
    for side in parameters.sides:
        scenes = draw_scenes(np.random.default_rng([side, 0x7365]), num, side, parameters, split=split)
        slots, template = describe(scenes), description(side)
        prompt = [user_message(DESCRIBE.text, num_images=1)]
        examples = [Example(str(i), [draw_picture(scenes, i, parameters, 7)], prompt) for i in range(num)]
        texts = speaker.answers(examples, longest=3 * side**2)
        right = total = 0
        for i, text in enumerate(texts):
            true, described = _cells(template.fill(slots, i)), _cells(text)
            things = [index for index, cell in enumerate(true) if cell != ("no", "thing")]
            right += sum(index < len(described) and described[index] == true[index] for index in things)
            total += len(things)
        shares[str(side)] = round(100.0 * right / total, 2)
    return shares


def _cells(text: str) -> list[tuple[str, str]]:
    words = text.split()
    return list(zip(words[::2], words[1::2], strict=False))


def kind_scores(
    speaker: Speaker, num: int, parameters: Parameters = PARAMETERS, *, is_skewed: bool = False
) -> dict[str, float]:
    """The share of right answers for each kind of question, and over all kinds.

    Scenes are balanced, or as skewed as the prior, where trusting it pays.
    """
    share = -(-4 * num // len(KINDS))
    examples = []
    for k, kind in enumerate(KINDS.values()):
        rng = np.random.default_rng([k, is_skewed, 0x736B])
        asked = ask_kind(rng, kind, share, 3, parameters, split="dev", is_skewed=is_skewed)
        names = [f"{kind.name}-{is_skewed}-{i}" for i in range(share)]
        examples += [as_example(kind, asked, i, parameters, 5, name) for i, name in enumerate(names)]
    texts = speaker.answers(examples)
    right = np.array([last_answer(text) == example.answer for text, example in zip(texts, examples, strict=True)])
    shares = {name: 100.0 * float(own.mean()) for name, own in zip(KINDS, right.reshape(-1, share), strict=True)}
    return {name: round(share, 1) for name, share in {**shares, "mean": 100.0 * float(right.mean())}.items()}


def gates(
    model: PreTrainedModel,
    processor: Processor,
    *,
    num: int,
    split: Split = "dev",
    parameters: Parameters = PARAMETERS,
    bar: WorkBar | None = None,
) -> BaseScores:
    """Take all measurements of a base, on `num` questions per suite. A bar counts them."""
    greedy = Speaker(model, processor, longest=parameters.longest_answer)
    contrast = replace(greedy, uses_contrast=True)
    suites = build_suites(split=split, num=num, parameters=parameters)
    prompts = training_examples(2 * num, seed=99, parameters=parameters)
    if bar is not None:
        bar.begin(0, 9)

    def counted(measured: T) -> T:
        if bar is not None:
            bar.step()
        return measured

    return {
        "split": split,
        "questions": num,
        "sight": counted(sight(greedy, num, split, parameters)),
        "greedy": counted(suite_scores(greedy, suites)),
        "contrast": counted(suite_scores(contrast, suites)),
        "hint": counted(round(share_right(greedy, prompts, view="hint"), 2)),
        "training_prompts": counted(round(share_right(greedy, prompts), 2)),
        "kinds": counted(kind_scores(greedy, num, parameters)),
        "kinds_contrast": counted(kind_scores(contrast, num, parameters)),
        "skewed": counted(kind_scores(greedy, num, parameters, is_skewed=True)["mean"]),
        "skewed_contrast": counted(kind_scores(contrast, num, parameters, is_skewed=True)["mean"]),
    }


def measure_folder(folder: Path, *, num: int, split: str) -> BaseScores:
    """Measure a base in a folder, in the world of its card, on a GPU if there is one."""
    parameters, checked = Parameters.from_json(read_card(folder)["world"]), checked_split(split)
    processor, model = load_processor(folder), load_to_answer(folder, dtype=torch.float32)
    with WorkBar("measuring") as bar:
        return gates(model, processor, num=num, split=checked, parameters=parameters, bar=bar)
