"""The hint view: the reference answer in the prompt, as answer-hint self-distillation (OPSD) shows its teacher.

The recipe: the question, a marked block with the reference, a sentence that the reader has seen it and must now solve
the question itself, the answer in the form the question asks for. `HINT` is our wording of it, the only place it is
written, and ends the last user message; the question before it is untouched, its format instruction included. The
teacher only scores what the student wrote, hence "without mentioning it": a student that never saw the reference does
not speak of one.

Left out: a rationale written by the teacher first, and a thinking template for the teacher alone. With final answers
instead of worked solutions there is little to rationalise, and one template keeps the views comparable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vcsd.views.original import original
from vcsd.views.prompt import append_to_question, need

if TYPE_CHECKING:
    from vcsd.types import Example

HINT = (
    "\n\n[Reference answer]\n{answer}\n[End of the reference answer]\n\n"
    "You have read the reference answer and can rely on it. Now solve the question yourself, step by step from what "
    "is shown, without mentioning it, and give the final answer in the form the question asks for."
)


def hint(example: Example) -> Example:
    """Show the reference answer below the question."""
    text = HINT.format(answer=need(example, "hint", "answer"))
    return replace(original(example), prompt=append_to_question(example, text))
