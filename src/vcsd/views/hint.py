"""The hint view: the reference answer in the prompt, as answer-hint self-distillation (OPSD) shows its teacher.

OPSD's prompt consists of the question, a marked block with the reference, and an instruction to solve the question
after reading it, with the answer in the form that the question asks for. `HINT` is this package's wording, appended to
the last user message; the question itself is unchanged, including its format instruction. It says "without mentioning
it" because the teacher scores the student's text, and the student never saw the reference.

Left out: a rationale that the teacher writes first, and a thinking template for the teacher alone. Final answers,
unlike worked solutions, leave little to rationalise, and a single template keeps the views comparable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.views.prompt import show_below

if TYPE_CHECKING:
    from vcsd.types import Example

HINT = (
    "\n\n[Reference answer]\n{answer}\n[End of the reference answer]\n\n"
    "You have read the reference answer and can rely on it. Now solve the question yourself, step by step from what "
    "is shown, without mentioning it, and give the final answer in the form the question asks for."
)


def hint(example: Example) -> Example:
    """Show the reference answer below the question."""
    return show_below(example, "hint", "answer", HINT)
