"""A client for a judge's server. A question that fails does not stop the others.

When every try of a question has failed, the server is asked to reply OK. If it does, the question is at fault, and a
NoAnswerError is raised, which the judge counts. If it does not, the server is down, and the question's own error stops
the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.errors import RunError
from vcsd.evaluation.asking.chat import ChatClient, GaveUpError, NoAnswerError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.asking.chat import Completion

PROBE = "Reply with the word OK."
NUM_PROBES = 3
"""Tries of the probe. The question has already failed several times, over half a minute."""


class JudgeClient(ChatClient):
    """Talks to a judge's server, and finds out whether the server or the question causes a failure."""

    def complete(self, request: Mapping[str, object], *, at_most: int | None = None) -> Completion:
        """Send a chat request and return the answer. Raises NoAnswerError if only this request fails."""
        try:
            return super().complete(request, at_most=at_most)
        except GaveUpError as error:
            if not self._says_ok(request):
                raise
            raise NoAnswerError(f"{error.reason} Every try failed, but the server answers other questions.") from error

    def _says_ok(self, request: Mapping[str, object]) -> bool:
        """Whether the server completes a short request with the same settings, whatever text it returns."""
        try:
            super().complete({**request, "messages": [{"role": "user", "content": PROBE}]}, at_most=NUM_PROBES)
        except (RefusedError, RunError):
            return False
        return True
