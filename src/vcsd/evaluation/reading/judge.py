"""`judge`: a language model reads the answers that VLMEvalKit's rules cannot read.

The procedure is VLMEvalKit's, with three changes. A judge that cannot be reached is an error; VLMEvalKit silently falls
back to its rules. A reply that cannot be read is requested again, up to NUM_ASKS times, and then the answer is
unresolved; VLMEvalKit picks one at random. And a reply is stored under a hash of the whole request, so that it cannot
be taken for the reply to another answer. Interrupted scoring resumes from the stored replies.

The judge sees the question, the options and the answer, but not the gold answer. Control tokens in them, such as
<|im_end|>, get a space after their first character: the judge's server would obey them.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.asking.chat import RefusedError
from vcsd.evaluation.asking.side_by_side import SideBySide
from vcsd.evaluation.reading import exact, mathvista_answer
from vcsd.evaluation.reading.statements import spoken
from vcsd.models.messages.control_tokens import break_served_control_tokens
from vcsd.monitor.lines import Lines, read_lines
from vcsd.types import message_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.asking.chat import ChatClient
    from vcsd.types import JsonObject, Question

NUM_ASKS = 3
"""Requests for a readable reply before an answer is unresolved."""

WARMER_BY = 0.5
"""Temperature added with each repetition: at zero the reply would be the same."""

MAX_TOKENS = 1024
"""Enough for a judge that thinks before it replies."""

NUM_WORKERS = 16


class Judge:
    """A model on an OpenAI-compatible server, and the file that stores its replies."""

    def __init__(self, chat: ChatClient, model: str, *, cache: str | PathLike[str] | None = None) -> None:
        if not model:
            raise ConfigError(["a judge needs the name of its model. Pass the name that the server lists."])
        self.model = model
        self._chat = chat
        self._lock = threading.Lock()
        self._lines = None if cache is None else Lines(cache)
        self._replies = {} if cache is None else _kept(cache)

    def about(self) -> JsonObject:
        """Return what a scorecard records about the judge."""
        return {"model": self.model, "server": self._chat.url, "num_asks": NUM_ASKS}

    def read_all(self, pairs: Sequence[tuple[Question, str]], rules: str) -> list[str | None]:
        """Read the answer to each question, in order; None if no reply of the judge could be understood."""
        readings: list[str | None] = [None] * len(pairs)
        with SideBySide(lambda pair: self.read(*pair, rules), pairs, NUM_WORKERS) as work:
            for index, reading, error in work:
                if error is not None:
                    raise error
                readings[index] = reading
        return readings

    def read(self, question: Question, answer: str, rules: str) -> str | None:
        """Read one answer."""
        for time in range(NUM_ASKS):
            request = {
                "model": self.model,
                "messages": [{"role": "user", "content": prompt(question, answer)}],
                "temperature": WARMER_BY * time,
                "max_tokens": MAX_TOKENS,
            }
            found = _understood(question, spoken(self._reply(question, request)) or "", rules)
            if found is not None:
                return found
        return None

    def _reply(self, question: Question, request: Mapping[str, object]) -> str:
        key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        if key in self._replies:
            return self._replies[key]
        try:
            reply = self._chat.complete(request).text
        except RefusedError as error:
            raise RunError(
                f"the judge {self.model!r} refuses the answer to {question.id!r} of {question.benchmark}: "
                f"{error}. Replies so far are kept; choose another judge, or the mode `final`."
            ) from error
        with self._lock:
            self._replies[key] = reply
            if self._lines is not None:
                about = {"benchmark": question.benchmark, "question": question.id, "model": self.model}
                self._lines.append({"key": key, **about, "reply": reply})
        return reply


def _kept(cache: str | PathLike[str]) -> dict[str, str]:
    """Read the replies in a file, by request."""
    replies = {}
    for number, record in enumerate(read_lines(cache), 1):
        key, reply = record.get("key"), record.get("reply")
        if not (isinstance(key, str) and isinstance(reply, str)):
            raise ConfigError([f"{cache}, record {number} is not a judge's reply. Correct or remove the line."])
        replies[key] = reply
    return replies


_TASKS = {
    "option": (
        "Below are a question with lettered options and what someone answered to it. Say which option the answer "
        "settles on. Go by the answer alone, even if you think it is mistaken; do not solve the question yourself. "
        "If the answer settles on none of the options, or on several, say Z. Reply with one letter and nothing else."
    ),
    "yes_no": (
        "Below are a question and what someone answered to it. Say whether the answer comes down to yes or to no. Go "
        "by the answer alone, even if you think it is mistaken. Reply with one word: Yes, No, or Unknown if the answer "
        "is neither."
    ),
    "integer": (
        "Below are a question and what someone answered to it. Give the whole number on which the answer settles, in "
        "digits, without units or words; None if there is no such number. Do not solve the question yourself."
    ),
    "float": (
        "Below are a question and what someone answered to it. Give the number on which the answer settles as a "
        "decimal, with as many places as the question asks for, without units or words; None if there is no such "
        "number. Do not solve the question yourself."
    ),
    "list": (
        "Below are a question and what someone answered to it. Give the list on which the answer settles, as Python "
        "writes it: [1, 2, 3]; None if there is no such list. Do not solve the question yourself."
    ),
    "text": (
        "Below are a question and what someone answered to it. Give the final answer in as few of its own words as "
        "possible; None if there is none. Do not solve the question yourself."
    ),
}
_NONE = re.compile(r"^\W*(?:none|unknown|n/?a)\W*$", re.IGNORECASE)


def prompt(question: Question, answer: str) -> str:
    """Build the judge's prompt about an answer."""
    asked = question.fields.get("question") or "\n".join(message_texts(question.example.prompt[-1]))
    options = "".join(f"\n{letter}. {words}" for letter, words in question.options.items())
    options = f"\n\nOptions:{options}" if options else ""
    given = f"Question:\n{asked}{options}\n\nAnswer:\n{spoken(answer) or answer}"
    # An answer that ends the judge's turn could dictate the verdict.
    return f"{_TASKS[question.kind]}\n\n{break_served_control_tokens(given)}\n\nYour reply:"


NOTHING = "nothing"
"""The reading of an answer that, according to the judge, settles on nothing."""


def _understood(question: Question, reply: str, rules: str) -> str | None:
    """Read the judge's reply: its finding, NOTHING if it finds none, None if the reply cannot be read."""
    if question.kind == "option":
        return exact.read_option(reply.strip(), question.options, rules)
    if _NONE.match(reply):
        return NOTHING
    if question.kind == "yes_no":
        return exact.read_yes_no(reply)
    reply = reply.strip("`*$ \n").rstrip(".").strip("`*$ ")
    if question.kind == "text":
        return reply or None
    return reply if mathvista_answer.normalise(question, reply) is not None else None
