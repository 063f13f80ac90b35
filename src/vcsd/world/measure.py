"""Measuring a base model: can it see, can it answer, is it swayed, does the contrast find what it saw?

Greedy answers, read by the world's own rule: what follows the last "answer is". Contrast decoding draws the most likely
token of the same target that VCSD distils, at the same alpha and beta, with a second pass over a black picture.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText

from vcsd.decoding import ContrastEngine, Pair
from vcsd.errors import ConfigError
from vcsd.models.encode import encode
from vcsd.models.processor import load_processor
from vcsd.rollout.sampling import Sampling
from vcsd.rollout.transformers import TransformersEngine
from vcsd.types import Example
from vcsd.views import VIEWS
from vcsd.world.card import read_card
from vcsd.world.examples import training_examples
from vcsd.world.kinds import KINDS, ask
from vcsd.world.parameters import PARAMETERS, Parameters
from vcsd.world.questions import DESCRIBE, describe, description
from vcsd.world.render import draw_picture
from vcsd.world.scenes import draw_scenes
from vcsd.world.suites import as_example, build_suites

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from transformers import PreTrainedModel

    from vcsd.evaluation.question import Question
    from vcsd.models.packing import Prompt
    from vcsd.models.processor import Processor
    from vcsd.world.scenes import Split

_ROWS_AT_ONCE = 512
_LONGEST_ANSWER = 32
_ANSWER = re.compile(r"answer is (\w+)")


def read_answer(text: str) -> str | None:
    """The last answer that a text gives.

    >>> read_answer("The circle is red. The answer is B.")
    'B'
    """
    found = _ANSWER.findall(text)
    return found[-1] if found else None


@dataclass(frozen=True)
class Speaker:
    """A model with its processor, and how it answers: greedily, or by contrast with a black picture."""

    model: PreTrainedModel
    processor: Processor
    uses_contrast: bool = False

    def answers(
        self, examples: Sequence[Example], *, view: str = "original", longest: int = _LONGEST_ANSWER
    ) -> list[str]:
        """What the model says to each example under a view."""
        order = sorted(range(len(examples)), key=lambda i: examples[i].images[0].size)  # type: ignore[union-attr]
        said: dict[int, str] = {}
        sampling = Sampling(temperature=0.0, max_new_tokens=longest)
        for start in range(0, len(order), _ROWS_AT_ONCE):
            chosen = order[start : start + _ROWS_AT_ONCE]
            prompts: list[Prompt] = [self._prompt(examples[i], view) for i in chosen]
            rollouts = self._engine().sample(prompts, sampling, num_rollouts=1, seed=0).rollouts
            for i, rollout in zip(chosen, rollouts, strict=True):
                said[i] = self.processor.tokenizer.decode(rollout.token_ids, skip_special_tokens=True)
        return [said[i] for i in range(len(examples))]

    def _engine(self) -> TransformersEngine:
        engine = ContrastEngine if self.uses_contrast else TransformersEngine
        return engine(self.model, tokenizer=self.processor.tokenizer)

    def _prompt(self, example: Example, view: str) -> Prompt:
        prompt = encode(self.processor, VIEWS[view](example))
        return Pair(prompt, encode(self.processor, VIEWS["black"](example))) if self.uses_contrast else prompt


def share_right(speaker: Speaker, examples: Sequence[Example], *, view: str = "original") -> float:
    """The share of answers that are right, in percent."""
    said = speaker.answers(examples, view=view)
    right = [read_answer(text) == example.answer for text, example in zip(said, examples, strict=True)]
    return 100.0 * sum(right) / len(right)


def suite_scores(speaker: Speaker, suites: Mapping[str, Sequence[Question]]) -> dict[str, float]:
    """The share of right answers in each suite, and their mean."""
    scores = {
        name: share_right(speaker, [question.example for question in questions]) for name, questions in suites.items()
    }
    return {name: round(score, 2) for name, score in {**scores, "mean": sum(scores.values()) / len(scores)}.items()}


def sight(speaker: Speaker, num: int, split: Split, parameters: Parameters = PARAMETERS) -> dict[str, float]:
    """How many things of balanced scenes are named with colour and shape in their cell, in percent, by side."""
    shares = {}
    for side in parameters.sides:
        scenes = draw_scenes(np.random.default_rng([side, 0x7365]), num, side, parameters, split=split)
        slots, template = describe(scenes), description(side)
        prompt = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": DESCRIBE.text}]}]
        examples = [Example(str(i), [draw_picture(scenes, i, parameters, 7)], prompt) for i in range(num)]
        said = speaker.answers(examples, longest=3 * side**2)
        right = total = 0
        for i, text in enumerate(said):
            true, told = (_cells(line) for line in (template.fill(slots, i), text))
            things = [place for place, cell in enumerate(true) if cell != ("no", "thing")]
            right += sum(place < len(told) and told[place] == true[place] for place in things)
            total += len(things)
        shares[str(side)] = round(100.0 * right / total, 2)
    return shares


def _cells(text: str) -> list[tuple[str, str]]:
    words = text.split()
    return list(zip(words[::2], words[1::2], strict=False))


def kind_examples(
    num: int, parameters: Parameters = PARAMETERS, *, is_skewed: bool = False
) -> dict[str, list[Example]]:
    """Questions of every kind, balanced, or about scenes as skewed as the prior: where trusting it pays."""
    share = -(-num // len(KINDS))
    examples = {}
    for k, kind in enumerate(KINDS.values()):
        rng = np.random.default_rng([k, is_skewed, 0x736B])
        asked = ask(rng, kind, share, 3, parameters, split="dev", is_skewed=is_skewed)
        examples[kind.name] = [
            as_example(kind, asked, i, parameters, 5, f"{kind.name}-{is_skewed}-{i}") for i in range(share)
        ]
    return examples


def kind_scores(
    speaker: Speaker, num: int, parameters: Parameters = PARAMETERS, *, is_skewed: bool = False
) -> dict[str, float]:
    """The share of right answers for each kind of question, and over all kinds."""
    by_kind = kind_examples(4 * num, parameters, is_skewed=is_skewed)
    examples = [example for some in by_kind.values() for example in some]
    said = speaker.answers(examples)
    right = np.array([read_answer(text) == example.answer for text, example in zip(said, examples, strict=True)])
    shares = {
        name: 100.0 * float(own.mean()) for name, own in zip(by_kind, right.reshape(len(by_kind), -1), strict=True)
    }
    return {name: round(share, 1) for name, share in {**shares, "mean": 100.0 * float(right.mean())}.items()}


def gates(
    model: PreTrainedModel, processor: Processor, *, num: int, split: Split = "dev", parameters: Parameters = PARAMETERS
) -> dict[str, Any]:
    """All that a base must pass, measured on `num` questions a suite."""
    greedy, contrast = Speaker(model, processor), Speaker(model, processor, uses_contrast=True)
    suites = build_suites(split=split, num=num, parameters=parameters)
    prompts = training_examples(2 * num, seed=99, parameters=parameters)
    return {
        "split": split,
        "questions": num,
        "sight": sight(greedy, num, split, parameters),
        "greedy": suite_scores(greedy, suites),
        "contrast": suite_scores(contrast, suites),
        "hint": round(share_right(greedy, prompts, view="hint"), 2),
        "training_prompts": round(share_right(greedy, prompts), 2),
        "kinds": kind_scores(greedy, num, parameters),
        "kinds_contrast": kind_scores(contrast, num, parameters),
        "skewed": kind_scores(greedy, num, parameters, is_skewed=True)["mean"],
        "skewed_contrast": kind_scores(contrast, num, parameters, is_skewed=True)["mean"],
    }


def measure_folder(folder: Path, *, num: int, split: str) -> dict[str, Any]:
    """The gates of a base in a folder, in the world that its card tells of, on this machine's device."""
    card = read_card(folder)
    if split not in ("dev", "test"):
        raise ConfigError([f"split = {split!r} is neither 'dev' nor 'test'."])
    world: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in card["world"].items()
    }
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    chosen: Split = "dev" if split == "dev" else "test"
    return gates(model.to(device).eval(), load_processor(folder), num=num, split=chosen, parameters=Parameters(**world))
