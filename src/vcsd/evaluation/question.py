"""The nouns of evaluation: a question with its gold answer, what a model said, and whether that was right.

A Question carries the Example that a model is shown; gold, options and groups never reach the model through it. Images
are paths, or are opened when the question is asked: a benchmark of many gigabytes is a list of small records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.types import Example

AnswerKind = Literal["option", "yes_no", "integer", "float", "list", "text"]
"""What an answer is: a letter of the options, Yes or No, a number, a list of numbers, free text."""


@dataclass(frozen=True)
class Question:
    """One question of a benchmark, its gold answer and the groups that it is averaged in.

    >>> from vcsd.types import Example
    >>> prompt = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Is it red?"}]}]
    >>> question = Question(
    ...     example=Example("VD_figure_1_0_1_0", ["figures/0_1.png"], prompt),
    ...     benchmark="HallusionBench",
    ...     kind="yes_no",
    ...     gold="Yes",
    ...     groups={"category": "VD", "l2-category": "VD_figure", "set": "0", "figure": "1", "question": "0"},
    ... )
    >>> question.id, question.gold
    ('VD_figure_1_0_1_0', 'Yes')
    """

    example: Example
    benchmark: str
    kind: AnswerKind
    gold: str
    options: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    """Other cells of the benchmark's row that its scoring or an export needs, such as precision or the raw question."""

    @property
    def id(self) -> str:
        """The question's name within its benchmark."""
        return self.example.id


@dataclass(frozen=True)
class Prediction:
    """What a model said to a question: the text, why it stopped, or the error that kept it from saying anything.

    >>> Prediction("VD_figure_1_0_1_0", "Yes, it is.", stop="end").error is None
    True
    """

    question_id: str
    text: str
    stop: Literal["end", "length"] | None
    num_tokens: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What was read out of a prediction, and whether it is right. `found` is None where nothing could be read.

    >>> Verdict("VD_figure_1_0_1_0", found="Yes", is_right=True, by="final").found
    'Yes'
    """

    question_id: str
    found: str | None
    is_right: bool
    by: str
    """The rule or judge that read the answer."""
