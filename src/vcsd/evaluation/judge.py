"""`judge`: a language model reads the answers that VLMEvalKit's rules leave open.

The flow is VLMEvalKit's, without three habits of it. A judge that cannot be reached is an error and never a quiet
return to the rules; a reply that cannot be read is asked for again, NUM_ASKS times in all, and then the answer is
unresolved, never a random choice; and a reply is kept under the whole request that it answers, so that it can not be
taken for the reply to another answer. Scoring that was interrupted asks only for what is not in that file yet.

The judge sees question, options and answer. It does not see gold.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any, Protocol

from vcsd.errors import ConfigError, RunError
from vcsd.evaluation import exact, mathvista
from vcsd.evaluation.chat import RefusedError
from vcsd.evaluation.side_by_side import SideBySide
from vcsd.evaluation.statements import spoken
from vcsd.monitor.lines import Lines, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.chat import Completion
    from vcsd.evaluation.question import Question

NUM_ASKS = 3
"""Times that a reply is asked for before an answer is unresolved."""

WARMER_BY = 0.5
"""Temperature added with each repetition: at zero the same words would come again."""

MAX_TOKENS = 1024
"""Room for a judge that thinks before it replies."""

NUM_WORKERS = 16


class Chat(Protocol):
    """What a judge needs of a client."""

    url: str

    def complete(self, request: Mapping[str, Any]) -> Completion:
        """The reply to a chat request; RunError when the server is down."""
        ...


class Judge:
    """A model behind an OpenAI-compatible server, and the file in which its replies are kept."""

    def __init__(self, chat: Chat, model: str, *, cache: str | PathLike[str] | None = None) -> None:
        if not model:
            raise ConfigError(["a judge needs the name of its model. Give the name under which the server serves it."])
        self.model = model
        self._chat = chat
        self._lock = threading.Lock()
        self._lines = None if cache is None else Lines(cache)
        self._replies = {} if cache is None else _kept(cache)

    def about(self) -> dict[str, Any]:
        """What a scorecard says of the judge."""
        return {"model": self.model, "server": self._chat.url, "num_asks": NUM_ASKS}

    def read_all(self, asked: Sequence[tuple[Question, str]], rules: exact.Rules) -> list[str | None]:
        """What the judge reads out of each answer, in order; None where no reply of it could be read."""
        found: list[str | None] = [None] * len(asked)
        with SideBySide(lambda one: self.read(*one, rules), asked, NUM_WORKERS) as work:
            for place, reading, error in work:
                if error is not None:
                    raise error
                found[place] = reading
        return found

    def read(self, question: Question, answer: str, rules: exact.Rules) -> str | None:
        """What the judge reads out of one answer."""
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

    def _reply(self, question: Question, request: Mapping[str, Any]) -> str:
        key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        if key in self._replies:
            return self._replies[key]
        try:
            reply = self._chat.complete(request).text
        except RefusedError as error:
            raise RunError(
                f"the judge {self.model!r} does not take the answer to {question.id!r} of {question.benchmark}: "
                f"{error}. Replies so far are kept; choose a judge that takes it, or the mode `final`."
            ) from error
        with self._lock:
            self._replies[key] = reply
            if self._lines is not None:
                about = {"benchmark": question.benchmark, "question": question.id, "model": self.model}
                self._lines.append({"key": key, **about, "reply": reply})
        return reply


def _kept(cache: str | PathLike[str]) -> dict[str, str]:
    """The replies in a file, by request."""
    replies = {}
    for number, record in enumerate(read_lines(cache), 1):
        key, reply = record.get("key"), record.get("reply")
        if not (isinstance(key, str) and isinstance(reply, str)):
            raise ConfigError([f"{cache}, record {number} holds no reply of a judge. Mend or remove the line."])
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
    """What the judge is asked about an answer."""
    asked = question.fields.get("question") or _shown(question)
    options = "".join(f"\n{letter}. {words}" for letter, words in question.options.items())
    options = f"\n\nOptions:{options}" if options else ""
    return (
        f"{_TASKS[question.kind]}\n\nQuestion:\n{asked}{options}\n\nAnswer:\n{spoken(answer) or answer}\n\nYour reply:"
    )


def _shown(question: Question) -> str:
    content = question.example.prompt[-1]["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)


NOTHING = "nothing"
"""What a judge finds in an answer that, as it says, settles on nothing."""


def _understood(question: Question, reply: str, rules: exact.Rules) -> str | None:
    """The judge's finding; NOTHING where it says so; None where its reply cannot be read."""
    if question.kind == "option":
        return exact.read_option(reply.strip(), question.options, rules)
    if _NONE.match(reply):
        return NOTHING
    if question.kind == "yes_no":
        return exact.read_yes_no(reply)
    reply = reply.strip("`*$ \n").rstrip(".").strip("`*$ ")
    if question.kind == "text":
        return reply or None
    return reply if mathvista.normalise(question, reply) is not None else None
