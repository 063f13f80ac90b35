"""Answers and statistics of a model on some examples, without training: what the image changes, and what it is worth.

The model answers each example three times, greedily: with the image, with the control, and by contrast decoding. Its
answer with the image is then scored token by token. vLLM may give the answers; the scores are always the model's own.
Everything is stored as it arrives, so the same command resumes.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from statistics import mean, stdev
from typing import TYPE_CHECKING

from vcsd.errors import DataError
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.asking_bar import AskingBar
from vcsd.evaluation.asking.model_answerer import ModelAnswerer
from vcsd.evaluation.asking.predictions import answer_key
from vcsd.evaluation.benchmarks.read_rows import options_inside
from vcsd.evaluation.reading import READER, numbers, read_answer
from vcsd.evaluation.reading.texts.formulas import formula
from vcsd.evaluation.reading.texts.statements import plain_signs, statements, without_latex
from vcsd.evaluation.scoring.aggregate import Tally
from vcsd.evaluation.scoring.student_t import quantile
from vcsd.evaluation.scoring.uncertainty import estimate, interval_of_difference
from vcsd.inspect.token_scores import prompt_views, scored_tokens
from vcsd.models.encode import encode
from vcsd.monitor.lines import Lines, read_lines
from vcsd.rollout.contrast_engine import ContrastEngine
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling
from vcsd.types import Question
from vcsd.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vcsd.inspect.opened import OpenedModel
    from vcsd.inspect.token_scores import PromptViews, ResponseContrast, TokenScore
    from vcsd.method import Method
    from vcsd.models.packed.packing import Prompt
    from vcsd.rollout.fixed.proven_answers import ProvenAnswers
    from vcsd.types import AnswerKind, Example, Prediction

BENCHMARK = "precheck"
VIEWS_ASKED = ("image", "control", "contrast")
BATCH = 64

FORM = 5
"""Increased when records get other fields or answers are read differently: older records are then scored again."""

NO_CATEGORY = "without a category"

_LABELS = dict.fromkeys("ABCDEFGH", "")
"""The options of a question that does not list them: they may be in its picture."""

_LETTER = re.compile(r"\(?([A-H])\)?[.:]?")
_OPTION = re.compile(r"^\s*\(?([A-H])[.):]\s+(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class ExampleStatistics:
    """One example: the texts of its three answers, whether they are right, and means over the response's tokens.

    `is_right` is None where the data has no answer. `end_lift` is how many nats the target adds to the end token of the
    answer, with the guard that gives it no contrast; `end_lift_unguarded` is the same without the guard.
    """

    id: str
    kind: str
    texts: Mapping[str, str]
    is_right: Mapping[str, bool | None]
    num_tokens: Mapping[str, int]
    contrasts: Sequence[float]
    support_sizes: Sequence[int]
    kl_target_original: float
    argmax_changed: float
    entropy: float
    end_lift: float | None
    end_lift_unguarded: float | None
    category: str | None = None
    is_unread: Mapping[str, bool] = field(default_factory=dict)
    """Which answers could not be read; empty where the data has no answer."""

    @property
    def support_size(self) -> float:
        """The mean number of plausible candidates."""
        return mean(self.support_sizes)

    @property
    def largest_contrast(self) -> float:
        """The contrast of the most visual token."""
        return max(self.contrasts)

    @property
    def same_without_image(self) -> bool:
        """Whether the answer with the control is the same text."""
        return self.texts["image"].strip() == self.texts["control"].strip()


@dataclass(frozen=True)
class Diagnosis:
    """The statistics of every example, and the examples that could not be used with the reason."""

    examples: Sequence[ExampleStatistics]
    skipped: Mapping[str, str]

    def by_category(self) -> dict[str, Diagnosis]:
        """Return the examples of each category, the largest category first; empty if no example has a category."""
        parts: dict[str, list[ExampleStatistics]] = {}
        for one in self.examples:
            parts.setdefault(one.category or NO_CATEGORY, []).append(one)
        if set(parts) <= {NO_CATEGORY}:
            return {}
        ordered = sorted(parts.items(), key=lambda part: (part[0] == NO_CATEGORY, -len(part[1]), part[0]))
        return {name: Diagnosis(own, {}) for name, own in ordered}

    def mean(self, name: str) -> float:
        """Return the mean of a number over the examples; nan without examples."""
        values = [float(value) for one in self.examples if (value := getattr(one, name)) is not None]
        return mean(values) if values else float("nan")

    def accuracy(self, view: str) -> float | None:
        """Return the share of right answers in percent; None if the data has no answers."""
        marks = [mark for one in self.examples if (mark := one.is_right[view]) is not None]
        return 100 * mean(marks) if marks else None

    def length_change(self) -> tuple[float, float, float]:
        """Return by how many tokens contrast decoding changes an answer's length, with the paired 95% interval."""
        return _mean_with_t([one.num_tokens["contrast"] - one.num_tokens["image"] for one in self.examples])

    def contrast(self) -> float:
        """Return the mean contrast over the tokens of all answers."""
        return mean(value for one in self.examples for value in one.contrasts)

    def decoding_gain(self) -> tuple[float, float, float] | None:
        """Return the points that contrast decoding gains, with the paired 95% interval that `--compare` uses."""
        both = [one.is_right for one in self.examples if one.is_right["image"] is not None]
        if not both:
            return None
        places = tuple(range(len(both)))
        plain, shaped = (
            estimate([Tally(tuple(map(str, places)), tuple(bool(one[view]) for one in both), places, {"all": places})])
            for view in ("image", "contrast")
        )
        ends = interval_of_difference(plain, shaped)
        return 100 * (shaped.share - plain.share), ends.low, ends.high

    def decoding_unread(self) -> float | None:
        """Return by how many points contrast decoding changes the unread answers; None if the data has no answers."""
        both = [one.is_unread for one in self.examples if one.is_unread]
        return 100.0 * mean(one["contrast"] - one["image"] for one in both) if both else None


def _mean_with_t(changes: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of paired changes with its 95% interval by Student's t; a single change has none."""
    middle = mean(changes)
    half = quantile(0.95, len(changes) - 1) * stdev(changes) / sqrt(len(changes)) if len(changes) > 1 else 0.0
    return middle, middle - half, middle + half


def diagnose(
    opened: OpenedModel,
    examples: Sequence[Example],
    folder: Path,
    method: Method,
    *,
    name: str,
    max_new_tokens: int,
    vllm: ProvenAnswers | None = None,
) -> Diagnosis:
    """Ask and score all examples, or resume in the folder. `name` identifies the weights in what is stored.

    `vllm` answers instead of transformers, if given; it must have been started for the method's contrast.
    """
    skipped, usable = {}, []
    for example in examples:
        try:
            method.check(example)
            usable.append(replace(example, images=VIEWS["original"](example).images))
        except DataError as error:
            skipped[example.id] = error.message
    questions = [asked_question(one) for one in usable]
    folder.mkdir(parents=True, exist_ok=True)
    said = {
        view: ask(
            questions,
            _answerer(opened, view, method, name, vllm),
            sampling=Sampling(max_new_tokens=max_new_tokens, temperature=0.0),
            path=folder / f"{view}.jsonl",
            bar=AskingBar({"image": "plain", "control": "with the control", "contrast": "contrast decoding"}[view]),
        )
        for view in VIEWS_ASKED
    }
    key = f"{name} {method!r} {dict(opened.chat_template_kwargs)} {FORM}" + ("" if vllm is None else f" {vllm.label}")
    statistics = _scored(opened, questions, said, folder / "scored.jsonl", method, key)
    errors = {
        question.id: problem
        for index, question in enumerate(questions)
        if (problem := next((said[view][index].error for view in said if said[view][index].error), None)) is not None
    }
    return Diagnosis(statistics, {**skipped, **errors})


def _scored(
    opened: OpenedModel,
    questions: Sequence[Question],
    said: Mapping[str, Sequence[Prediction]],
    path: Path,
    method: Method,
    key: str,
) -> list[ExampleStatistics]:
    """Score the answers that have no error. Answers that the file holds under the same key are not scored again."""
    known = {record.get("key"): record for record in read_lines(path)}
    lines, statistics = Lines(path), []
    answered = [
        (question, {view: said[view][index] for view in VIEWS_ASKED})
        for index, question in enumerate(questions)
        if all(said[view][index].error is None for view in VIEWS_ASKED)
    ]
    keys = [_score_key(question, own, key) for question, own in answered]
    with AskingBar("scoring") as bar:
        bar.begin(sum(one in known for one in keys), len(answered))
        for one, (question, own) in zip(keys, answered, strict=True):
            if one not in known:
                known[one] = {"key": one, **_record(_statistics(opened, question, own, method))}
                lines.append(known[one])
                bar.step(is_failed=False)
            stored = {name: value for name, value in known[one].items() if name != "key"}
            statistics.append(ExampleStatistics(**{**stored, "category": question.example.category}))
    return statistics


def _score_key(question: Question, said: Mapping[str, Prediction], key: str) -> str:
    """Hash everything that an example's statistics depend on. Other data may have the same ids with other answers."""
    lengths = {view: one.num_tokens for view, one in said.items()}
    texts = {view: one.text for view, one in said.items()}
    asker = {"key": key, "id": question.id, "gold": question.gold, "texts": texts, "lengths": lengths, "reader": READER}
    return answer_key(question, Sampling(temperature=0.0), asker=asker, seed=0)


def _record(statistics: ExampleStatistics) -> dict[str, object]:
    """Return what is stored: everything but the category, which belongs to the data and may change."""
    return {name: value for name, value in asdict(statistics).items() if name != "category"}


def _answerer(opened: OpenedModel, view: str, method: Method, name: str, vllm: ProvenAnswers | None) -> ModelAnswerer:
    switches = opened.chat_template_kwargs

    def control(question: Question) -> Prompt:
        assert method.contrast_view is not None
        return encode(opened.processor, VIEWS[method.contrast_view](question.example), chat_template_kwargs=switches)

    return ModelAnswerer(
        _engine(opened, view, method) if vllm is None else vllm.for_pairs() if view == "contrast" else vllm,
        opened.processor,
        name=name,
        chat_template_kwargs=switches,
        batch_size=BATCH,
        prompt_of=control if view == "control" else None,
        identity={"model": name, "view": view, "method": repr(method), "switches": repr(dict(switches))}
        | ({} if vllm is None else {"engine": vllm.label}),
    )


def _engine(opened: OpenedModel, view: str, method: Method) -> TransformersEngine:
    tokenizer = opened.processor.tokenizer
    if view == "contrast":
        return ContrastEngine(opened.model, method=method, tokenizer=tokenizer)
    return TransformersEngine(opened.model, tokenizer=tokenizer, keeps_broken=True)


def _statistics(
    opened: OpenedModel, question: Question, said: Mapping[str, Prediction], method: Method
) -> ExampleStatistics:
    text = said["image"].text
    tokenizer = opened.processor.tokenizer
    views = prompt_views(opened, question.example, response=text or tokenizer.eos_token, method=method)
    tokens = scored_tokens(views.scores, views.token_ids, views.objective, tokenizer)
    seen = views.contrast(opened.name, tokens)
    end_lift, unguarded = _end_lifts(views, tokens[-1], tokenizer)
    return ExampleStatistics(
        id=question.id,
        kind=question.kind if question.gold else "no answer",
        texts={view: one.text for view, one in said.items()},
        is_right={view: is_right(one.text, question) for view, one in said.items()},
        is_unread={view: _read(one.text, question) is None for view, one in said.items()} if question.gold else {},
        num_tokens={view: one.num_tokens or 0 for view, one in said.items()},
        contrasts=[round(token.realised.contrast, 5) for token in tokens],
        support_sizes=[token.support_size for token in tokens],
        kl_target_original=mean(token.kl_target_original for token in tokens),
        argmax_changed=mean(_is_changed(seen, place) for place in range(len(tokens))),
        entropy=mean(token.entropy for token in tokens),
        end_lift=end_lift,
        end_lift_unguarded=unguarded,
    )


def _end_lifts(views: PromptViews, last: TokenScore, tokenizer: object) -> tuple[float | None, float | None]:
    """Return by how many nats the target raises the end of the answer, with and without the guard.

    None if the answer has no end token, or if the end is outside the support.
    """
    if not last.is_end:
        return None, None
    scores = [replace(one, hidden_ND=one.hidden_ND[-1:]) for one in views.scores]
    unguarded = replace(views.objective, end_token_ids=())
    (bare,) = scored_tokens(scores, views.token_ids[-1:], unguarded, tokenizer)
    log_q = (last.realised.log_q, bare.realised.log_q)
    with_guard, without = (None if q is None else q - last.realised.log_p_original for q in log_q)
    return with_guard, without


def _is_changed(seen: ResponseContrast, place: int) -> bool:
    """Whether the target prefers another token than the model with the image."""
    candidates = seen.tokens[place].candidates
    return candidates[0].log_p_original < max(one.log_p_original for one in candidates)


def asked_question(example: Example) -> Question:
    """Return an example as a question, whose gold answer is that of the data, empty if it has none."""
    gold = bare_answer(plain_signs(example.answer or ""))
    return Question(example, BENCHMARK, answer_kind(gold), gold)


def bare_answer(answer: str) -> str:
    r"""Return an answer of the data without the markup that data sets add: a box, brackets, the signs of a number.

    >>> bare_answer(r"$\boxed{\text{Yes}}$"), bare_answer("(B)"), bare_answer(r"\frac{1}{2}"), bare_answer("a (B) cat")
    ('Yes', 'B', '0.5', 'a (B) cat')
    """
    boxes = [one.payload for one in statements(answer) if one.form == "boxed"]
    own = boxes[0] if boxes else answer
    plain = numbers.clean(own).rstrip("%\u00b0")
    values = [one.value for one in numbers.numbers(plain) if (one.start, one.end) == (0, len(plain))]
    if values:
        return values[0]
    letter = _LETTER.fullmatch(plain)
    return letter[1] if letter else without_latex(own).strip() if boxes else answer


def answer_kind(answer: str) -> AnswerKind:
    """Guess the kind of an answer in the data.

    >>> answer_kind("B"), answer_kind("no"), answer_kind("7"), answer_kind("2.5"), answer_kind("a cat")
    ('option', 'yes_no', 'integer', 'float', 'text')
    """
    text = answer.strip().strip(".")
    if re.fullmatch(r"[A-H]", text):
        return "option"
    if text.lower() in ("yes", "no"):
        return "yes_no"
    if re.fullmatch(r"-?\d+", text):
        return "integer"
    return "float" if re.fullmatch(r"-?\d*\.\d+", text) else "text"


def is_right(text: str, question: Question) -> bool | None:
    """Whether an answer equals the data's; None if the data has none. An answer that cannot be read is wrong."""
    if not question.gold:
        return None
    answer = _read(text, question)
    return answer is not None and _plain(answer) == _plain(question.gold)


def _read(text: str, question: Question) -> str | None:
    asked = question.example.text
    possible = (dict(_OPTION.findall(asked)), options_inside(asked)[1], _LABELS)
    options = next((options for options in possible if question.gold in options), {})
    return read_answer(text, question.kind, options, asked).found


def _plain(answer: str) -> str:
    text = answer.strip().strip(".").lower()
    try:
        number = float(text)
    except ValueError:
        return formula(text)
    return f"{number:.0f}" if number.is_integer() else f"{number:g}"  # g alone keeps six digits
