"""A client for the server of a judge, on which one question may fail without stopping the others.

When every try of a question has failed, the server is asked to say OK. If it does, the question is at fault: that is a
NoAnswerError, which a judge counts. If it does not, the server is down: that is the error of the question, which stops.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vcsd.errors import RunError
from vcsd.evaluation.asking.chat import NUM_TRIES, TIMEOUT, ChatClient, GaveUpError, NoAnswerError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vcsd.evaluation.asking.chat import Completion

PROBE = "Reply with the word OK."
NUM_PROBES = 3
"""Tries of the probe. The question has failed many times before it, over half a minute."""


class JudgeClient(ChatClient):
    """Talks to the server of a judge, and finds out whether a failure is the server's or the question's."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        num_tries: int = NUM_TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(url, api_key=api_key, timeout=timeout, num_tries=num_tries, sleep=sleep)
        self._prober = ChatClient(
            url, api_key=api_key, timeout=timeout, num_tries=min(num_tries, NUM_PROBES), sleep=sleep
        )

    def complete(self, request: Mapping[str, object]) -> Completion:
        """Send a chat request and return the answer. Raises NoAnswerError if only this request fails."""
        try:
            return super().complete(request)
        except GaveUpError as error:
            if not self._says_ok(request):
                raise
            raise NoAnswerError(f"{error.reason} Every try failed, but the server answers other questions.") from error

    def _says_ok(self, request: Mapping[str, object]) -> bool:
        """Whether the server completes a short request with the same settings. What it says does not matter."""
        try:
            self._prober.complete({**request, "messages": [{"role": "user", "content": PROBE}]})
        except (RefusedError, RunError):
            return False
        return True
