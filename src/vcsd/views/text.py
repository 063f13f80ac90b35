"""Text views: add a demonstration of a good response (SDFT) or feedback on an earlier one (SDPO) to the prompt.

Both append a marked block to the last user message, with an instruction to use it without mentioning it. The response
is then scored as if it had been written after reading the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.views.prompt import show_below

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
    return show_below(example, "demonstration", "demonstration", DEMONSTRATION)


def feedback(example: Example) -> Example:
    """Show feedback on an earlier attempt below the question."""
    return show_below(example, "feedback", "feedback", FEEDBACK)
