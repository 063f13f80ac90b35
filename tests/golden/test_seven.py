"""All seven benchmarks at full size: gold scores 100, constant answers what can be counted; none of it takes long."""

import logging
import random
import time
from collections import Counter

import pytest

from tiny_answers import number, option, say_all, yes_no
from vcsd.evaluation.asking.chat import Completion
from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.reading.judging.judge import Judge
from vcsd.evaluation.scoring.score_predictions import score

SECONDS = 30.0
"""Several times what a slow machine needs: a quadratic reading of the answers would take minutes."""


def lettered(name, num, *, num_options=4, **groups):
    """Questions whose gold goes round the letters."""
    letters = "ABCD"[:num_options]
    options = {letter: f"a thing of the kind {letter.lower()}{letter.lower()}" for letter in letters}
    return [
        option(f"{name}-{n}", letters[n % num_options], options, name, **{key: of(n) for key, of in groups.items()})
        for n in range(num)
    ]


def hrbench(name):
    """200 questions, four rotations each: the gold letter moves with the cycle."""
    return [
        option(
            f"{name}-{n}-{cycle}",
            "ABCD"[(n + cycle) % 4],
            {"ABCD"[(place + cycle) % 4]: f"answer {n} {place}" for place in range(4)},
            name,
            cycle=str(cycle),
            category="single" if n < 100 else "cross",
            fields={"question": f"What is at {n}?"},
        )
        for n in range(200)
        for cycle in range(4)
    ]


def mathvista():
    choices = {"A": "18", "B": "12", "C": "18", "D": "9"}  # two equal choices, as three questions have
    name = "MathVista_MINI"
    about = {"task": "word problems", "skills": "['algebra']"}
    questions = [option(f"m-{n}", "ABCD"[n % 4], choices, name, answer_type="text", **about) for n in range(540)]
    golds = [("integer", str(n % 40)) for n in range(418)] + [("float", f"{n / 8:.1f}") for n in range(20)]
    golds += [("float", f"{n / 8:.2f}") for n in range(20)] + [("list", "[1, 2]"), ("list", "[0.5, 3]")]
    return questions + [
        number(f"n-{n}", gold, kind=kind, answer_type=kind, **about) for n, (kind, gold) in enumerate(golds)
    ]


HALLUSION_FIGURES = {1: 20, 2: 148, 3: 97, 4: 73, 6: 6, 8: 2}
"""How many figures of the real benchmark have how many questions: 346 figures, 951 questions."""


def hallusion():
    sizes = [size for size, times in HALLUSION_FIGURES.items() for _ in range(times)]
    golds = ["Yes"] * 401 + ["No"] * 550
    random.Random(0).shuffle(golds)
    gold = iter(golds)
    return [
        yes_no(f"VD_math_1_{figure // 2}_{figure % 2}_{q}", next(gold))
        for figure, size in enumerate(sizes)
        for q in range(size)
    ]


def all_seven():
    return [
        *lettered("BLINK", 1901, category=lambda n: f"task {n % 14}"),
        *lettered("MMStar", 1500, category=lambda n: f"c{n % 6}", **{"l2-category": lambda n: f"l{n % 18}"}),
        *lettered("VStarBench", 115, category=lambda n: "direct_attributes"),
        *[
            option(
                f"position-{n}", "AB"[n % 2], {"A": "left", "B": "right"}, "VStarBench", category="relative_position"
            )
            for n in range(76)
        ],
        *mathvista(),
        *hrbench("HRBench4K"),
        *hrbench("HRBench8K"),
        *hallusion(),
    ]


QUESTIONS = all_seven()


def test_the_seven_are_whole():
    assert Counter(question.benchmark for question in QUESTIONS) == {
        name: benchmark.num_questions for name, benchmark in BENCHMARKS.items()
    }
    assert len(QUESTIONS) == 7143


@pytest.mark.parametrize(
    "say_it",
    [
        lambda question: question.gold,
        lambda question: f"Let me think. It is not what it seems.\n\n**Answer: {question.gold}**",
        lambda question: f"We look at the picture closely, and so we find \\boxed{{{question.gold}}}",
        lambda question: f"<think>A, or yes, or 17?</think>The answer is {question.gold}.",
    ],
)
def test_gold_answers_score_100_on_all_seven_in_final(say_it):
    card = score(QUESTIONS, say_all(QUESTIONS, say_it), mode="final")
    assert {name: found.entry for name, found in card.benchmarks.items()} == dict.fromkeys(BENCHMARKS, 100.0)
    assert card.acc == 100.0
    assert sum(found.counts.unresolved for found in card.benchmarks.values()) == 0
    assert 99.0 < card.interval.low < card.interval.high == 100.0


def test_gold_loses_only_mathvistas_zeros_and_lists_in_exact():
    card = score(QUESTIONS, say_all(QUESTIONS, lambda question: question.gold), mode="exact")
    zeros = sum(question.kind in ("integer", "float") and float(question.gold) == 0 for question in QUESTIONS)
    entries = {name: found.entry for name, found in card.benchmarks.items()}
    assert entries.pop("MathVista_MINI") == pytest.approx(100 * (1000 - zeros - 2) / 1000)
    assert set(entries.values()) == {100.0}


@pytest.mark.parametrize("mode", ["exact", "final"])
def test_always_a_and_always_yes_score_what_can_be_counted(mode):
    said = say_all(QUESTIONS, lambda question: "Yes" if question.kind == "yes_no" else "A")
    card = score(QUESTIONS, said, mode=mode)
    entries = {name: found.entry for name, found in card.benchmarks.items()}
    assert entries["BLINK"] == pytest.approx(100 * 476 / 1901)  # every fourth of 1901, the first included
    assert entries["MMStar"] == entries["HRBench4K"] == entries["HRBench8K"] == 25.0
    assert entries["VStarBench"] == pytest.approx(100 * (29 + 38) / 191)
    # 135 of the 540 have gold A; officially the 135 with gold C, which reads the same, are right too
    assert entries["MathVista_MINI"] == pytest.approx(13.5 if mode == "exact" else 27.0)
    hallusion_score = card.benchmarks["HallusionBench"]
    assert hallusion_score.metrics["aAcc"] == pytest.approx(100 * 401 / 951)
    assert len(set(hallusion_score.tally.parts["fAcc"])) == 346


WORDS = [
    "the",
    "picture",
    "shows",
    "a",
    "red",
    "cup",
    "on",
    "a",
    "table",
    "and",
    "we",
    "see",
    "that",
    "it",
    "is",
    "not",
    "far",
    "from",
    "the",
    "window",
    "of",
    "the",
    "room",
]


def reasoned(question):
    """An answer of about 1,300 characters, as trained models give."""
    rng = random.Random(question.id)
    sentences = [" ".join(rng.choices(WORDS, k=12)).capitalize() + "." for _ in range(20)]
    return " ".join(sentences) + f"\n\nSo option A is wrong.\n\nThe answer is **{question.gold}**."


def seconds_of(mode, predictions, judge=None):
    """Processor time of this process alone: what others do on the machine does not count."""
    start = time.process_time()
    card = score(QUESTIONS, predictions, mode=mode, judge=judge)
    used = time.process_time() - start
    logging.getLogger(__name__).info("%s: %d answers in %.2f s", mode, len(QUESTIONS), used)
    return used, card


@pytest.mark.parametrize("mode", ["exact", "final"])
def test_seven_thousand_reasoned_answers_are_scored_in_seconds(mode):
    used, _ = seconds_of(mode, say_all(QUESTIONS, reasoned))
    assert used < SECONDS


class InstantChat:
    """A judge's server without a server: it replies at once, with what settles each kind of question."""

    url = "http://judge"

    def __init__(self):
        self.num_requests = 0

    def complete(self, request):
        self.num_requests += 1
        asked = request["messages"][0]["content"]
        word = "Yes" if "comes down to yes" in asked else "A" if "which option" in asked else "7"
        return Completion(word, "stop", 1)


def test_seven_thousand_answers_are_judged_in_seconds(tmp_path):
    """None of the answers can be read by rules; the judge replies at once, then from its file."""
    predictions = say_all(QUESTIONS, lambda question: reasoned(question).rpartition("\n\nSo option")[0])
    chat, cache = InstantChat(), tmp_path / "judge.jsonl"
    used, card = seconds_of("judge", predictions, Judge(chat, "instant", cache=cache))
    num_judged = sum(found.counts.judged for found in card.benchmarks.values())
    assert num_judged > 0.99 * len(QUESTIONS)
    assert used < SECONDS
    num_requests = chat.num_requests
    used, again = seconds_of("judge", predictions, Judge(chat, "instant", cache=cache))
    assert (again, chat.num_requests - num_requests) == (card, num_requests - num_judged)  # failures are asked again
    assert used < SECONDS
