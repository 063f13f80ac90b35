"""Seven suites of test questions, each modelled on one of the paper's benchmarks.

They are balanced: options are shuffled, yes and no are equally frequent, and colours do not depend on shapes. They are
disjoint from training: their layouts never occur in training pictures (`scenes.py`). The split "dev" is for choosing
parameters; results are on "test".

    correspondence   BLINK            which thing matches, where things lie; options
    mixed            MMStar           all kinds with options
    attributes       V*               colour and shape of one thing; options
    arithmetic       MathVista        counting and sums, and a row's number; a free-form number
    small            HRBench4K        small things in pictures of 4 x 4 cells; options, in four rotations
    smaller          HRBench8K        smaller things in pictures of 5 x 5 cells; the same
    hallucination    HallusionBench   pairs of pictures, pairs of questions; yes or no
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vcsd.errors import ConfigError, did_you_mean
from vcsd.types import Example, Question, user_message
from vcsd.world.parameters import PARAMETERS, Parameters
from vcsd.world.questions.kind import AskedScenes, is_option, option_slots, options_of
from vcsd.world.questions.kinds import KINDS, ask
from vcsd.world.questions.pairs import PAIRS
from vcsd.world.render import draw_picture
from vcsd.world.words import LETTERS, NUM_OPTIONS, WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.world.questions.kind import Kind
    from vcsd.world.scenes import Rng, Split


@dataclass(frozen=True)
class Suite:
    """The kinds of questions of a suite, in equal shares, about pictures of one side."""

    name: str
    stands_for: str
    kinds: tuple[str, ...]
    side: int = 3


_CHOICES = ("color_choice", "shape_choice", "same", "above_choice", "beside_choice")

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("correspondence", "BLINK", ("same", "above_choice", "beside_choice")),
        Suite("mixed", "MMStar", _CHOICES),
        Suite("attributes", "V*", ("color_choice", "shape_choice")),
        Suite("arithmetic", "MathVista", ("count", "sum", "more", "row")),
        Suite("small", "HRBench4K", ("color_choice", "same"), side=4),
        Suite("smaller", "HRBench8K", ("color_choice", "same"), side=5),
        Suite("hallucination", "HallusionBench", tuple(PAIRS)),
    )
}
"""The seven suites in the order of the paper's table."""

ROTATED = ("small", "smaller")
"""Suites that ask each question once per rotation of its options."""

NUM_QUESTIONS = 512
"""Questions per suite, or a few more if they do not divide evenly."""

_SPLITS = ("train", "dev", "test")


def build_suites(
    split: Split = "test", num: int = NUM_QUESTIONS, parameters: Parameters = PARAMETERS
) -> dict[str, list[Question]]:
    """Build all seven suites. The same parameters give the same questions and pixels."""
    return {name: build_suite(name, 0, split, num, parameters) for name in SUITES}


def build_suite(
    name: str, seed: int = 0, split: Split = "test", num: int = NUM_QUESTIONS, parameters: Parameters = PARAMETERS
) -> list[Question]:
    """Build one suite, with at least `num` questions."""
    if name not in SUITES:
        raise ConfigError([f"{name!r} is not a suite of the world. {did_you_mean(name, SUITES)}"])
    suite = SUITES[name]
    share = -(-num // len(suite.kinds))
    questions: list[Question] = []
    for k, kind in enumerate(suite.kinds):
        rng = np.random.default_rng([seed, list(SUITES).index(name), k, _SPLITS.index(split)])
        draw = _paired if kind in PAIRS else _rotated if name in ROTATED else _plain
        questions += draw(rng, suite, kind, share, split, parameters)
    return questions


def _plain(rng: Rng, suite: Suite, name: str, num: int, split: Split, parameters: Parameters) -> list[Question]:
    asked = _balanced(KINDS[name], ask(rng, KINDS[name], num, suite.side, parameters, split=split))
    noise_seed = int(rng.integers(2**31))
    return [
        as_question(KINDS[name], asked, i, parameters, noise_seed, f"{name}-{i:04}", suite.name, {"category": name})
        for i in range(num)
    ]


def _balanced(kind: Kind, asked: AskedScenes) -> AskedScenes:
    """Rotate the options so that every letter is right equally often. Questions without options are unchanged."""
    if kind.answer_kind != "option":
        return asked
    options_NO = options_of(asked.question)
    num, width = options_NO.shape
    right_N = kind.conclude({**asked.question, **asked.facts})["a"]
    turn_N = right_N - np.arange(num) % width
    turned_NO = np.take_along_axis(options_NO, (np.arange(width) + turn_N[:, None]) % width, axis=1)
    return replace(asked, question={**asked.question, **option_slots(turned_NO)})


def _rotated(rng: Rng, suite: Suite, name: str, num: int, split: Split, parameters: Parameters) -> list[Question]:
    """Ask about each picture once per rotation of the options."""
    num_pictures = -(-num // NUM_OPTIONS)
    asked = ask(rng, KINDS[name], num_pictures, suite.side, parameters, split=split)
    noise_seed = int(rng.integers(2**31))
    questions = []
    for turn in range(NUM_OPTIONS):
        options = option_slots(np.roll(options_of(asked.question), turn, axis=1))
        turned = replace(asked, question={**asked.question, **options})
        groups = {"category": name, "cycle_category": str(turn)}
        questions += [
            as_question(KINDS[name], turned, i, parameters, noise_seed, f"{name}-{i:04}-{turn}", suite.name, groups)
            for i in range(num_pictures)
        ]
    return questions


def _paired(rng: Rng, suite: Suite, name: str, num: int, split: Split, parameters: Parameters) -> list[Question]:
    """Sets of two pictures and two questions."""
    kind_name, draw = PAIRS[name]
    num_sets = -(-num // 4)
    noise_seed = int(rng.integers(2**30))
    questions = []
    for figure, number, asked in draw(rng, num_sets, parameters, split):
        for i in range(num_sets):
            groups = {"category": name.split("_")[0], "l2-category": name, "set": str(i)}
            groups |= {"figure": str(figure), "question": str(number)}
            own_name, noise = f"{name}-{i:04}-{figure}-{number}", noise_seed + figure
            questions.append(as_question(KINDS[kind_name], asked, i, parameters, noise, own_name, suite.name, groups))
    return questions


def as_question(
    kind: Kind,
    asked: AskedScenes,
    index: int,
    parameters: Parameters,
    noise_seed: int,
    name: str,
    suite: str,
    groups: Mapping[str, str],
) -> Question:
    """Build a Question with its picture and gold answer."""
    example = as_example(kind, asked, index, parameters, noise_seed, f"{suite}-{name}")
    assert example.answer is not None
    gold = example.answer.capitalize() if kind.answer_kind == "yes_no" else example.answer
    slots = [slot for name, slot in sorted(kind.question.slots.items()) if is_option(name)]
    words = [WORDS["english"][slot.word_class][int(asked.question[slot.name][index])] for slot in slots]
    options = dict(zip(LETTERS, words, strict=False))
    example = replace(example, category=groups.get("category", kind.name))
    return Question(example, suite, kind.answer_kind, gold, options, dict(groups))


def as_example(
    kind: Kind, asked: AskedScenes, index: int, parameters: Parameters, noise_seed: int, name: str
) -> Example:
    """Build an Example as a model sees it, with the true answer for the views that need it."""
    slots = {slot: values[[index]] for slot, values in {**asked.question, **asked.facts}.items()}
    (answer,) = kind.answers({**slots, **kind.conclude(slots)})
    picture = draw_picture(asked.scenes, index, parameters, noise_seed)
    prompt = user_message(kind.question.fill(slots, 0), num_images=1)
    return Example(id=name, images=[picture], prompt=[prompt], answer=answer, category=kind.name)
