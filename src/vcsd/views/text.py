"""Text views: more words in the prompt. A good response as a demonstration (SDFT), or feedback on one (SDPO).

Both end the last user message with a marked block and a sentence on what to do with it. The response is then scored
as if it had been written after reading the block, by a writer who does not speak of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vcsd.views.original import original
from vcsd.views.prompt import append_to_question, need

if TYPE_CHECKING:
    from vcsd.types import Example

DEMONSTRATION = (
    "\n\n[Demonstration]\n{demonstration}\n[End of the demonstration]\n\n"
    "The demonstration is a good response to this question. Now respond yourself, in your own words and without "
    "mentioning it."
)

FEEDBACK = (
    "\n\n[Feedback on an earlier attempt]\n{feedback}\n[End of the feedback]\n\n"
    "Solve the question again from the start, with the feedback in mind and without mentioning it."
)


def demonstration(example: Example) -> Example:
    """Show a demonstration of a good response below the question."""
    text = DEMONSTRATION.format(demonstration=need(example, "demonstration", "demonstration"))
    return replace(original(example), prompt=append_to_question(example, text))


def feedback(example: Example) -> Example:
    """Show feedback on an earlier attempt below the question."""
    text = FEEDBACK.format(feedback=need(example, "feedback", "feedback"))
    return replace(original(example), prompt=append_to_question(example, text))
