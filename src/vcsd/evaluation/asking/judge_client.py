"""A client for the server of a judge, on which one question may fail without stopping the others.

When every try of a question has failed, the server is asked to say OK. If it does, the question is at fault: that is a
NoAnswerError, which a judge counts. If it does not, the server is down: that is the error of the question, which stops.
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
"""Tries of the probe. The question has failed many times before it, over half a minute."""


class JudgeClient(ChatClient):
    """Talks to the server of a judge, and finds out whether a failure is the server's or the question's."""

    def complete(self, request: Mapping[str, object], *, at_most: int | None = None) -> Completion:
        """Send a chat request and return the answer. Raises NoAnswerError if only this request fails."""
        try:
            return super().complete(request, at_most=at_most)
        except GaveUpError as error:
            if not self._says_ok(request):
                raise
            raise NoAnswerError(f"{error.reason} Every try failed, but the server answers other questions.") from error

    def _says_ok(self, request: Mapping[str, object]) -> bool:
        """Whether the server completes a short request with the same settings. What it says does not matter."""
        try:
            super().complete({**request, "messages": [{"role": "user", "content": PROBE}]}, at_most=NUM_PROBES)
        except (RefusedError, RunError):
            return False
        return True
