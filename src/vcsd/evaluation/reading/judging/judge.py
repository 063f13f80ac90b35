"""`judge`: a language model reads the answers that VLMEvalKit's rules cannot read.

The procedure is VLMEvalKit's, with three changes. A judge that cannot be reached is an error; VLMEvalKit silently falls
back to its rules. A reply that is empty, cut off or unreadable is requested again, as often as the preset says, and
then counts as a failure of the judge; VLMEvalKit picks an option at random. And a reply is stored under a hash of the
whole request, so that it cannot be taken for the reply to another answer. Interrupted scoring resumes from the stored
replies.

Failures are stored too, but never reused: scoring again asks again. A judge that refuses one answer, for example
because of a content filter, still reads the others.

A stored reply names its server, but is looked up by its request alone: a local server often restarts on another port,
and asking everything again would cost hours. Scorecards name the servers if there are several.

The judge sees the question, the options and the answer, but not the gold answer. Control tokens in them, such as
<|im_end|>, get a space after their first character: the judge's server would interpret them.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vcsd.errors import ConfigError, RunError, few
from vcsd.evaluation.asking.chat import NoAnswerError, RefusedError
from vcsd.evaluation.asking.side_by_side import SideBySide
from vcsd.evaluation.reading.judging.judge_presets import PRESETS
from vcsd.evaluation.reading.judging.judge_replies import NOTHING, read_reply
from vcsd.evaluation.reading.texts.statements import spoken
from vcsd.monitor.lines import Lines, read_lines
from vcsd.monitor.work_bar import WorkBar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from vcsd.evaluation.asking.chat import ChatClient, Completion
    from vcsd.evaluation.benchmarks.benchmark import Benchmark
    from vcsd.evaluation.reading.judging.judge_presets import JudgePreset
    from vcsd.types import JsonObject, Question

Failure = Literal["empty", "truncated", "unreadable", "refused"]
"""Why a judge's reply cannot be used: it has no text, was cut off by the token limit, is unreadable, or was refused."""

NUM_WORKERS = 16
MAX_FAILED = 16
"""This many failures before the first readable reply stop the scoring: the cause cannot be a single answer."""

_CUT_OFF = ("length", "model_length", "max_tokens")
"""The finish reasons of OpenAI's, Mistral's and Anthropic's servers at the token limit."""

_FEW = 3
"""The most reasons of failures that are printed, and the most answers of each; the file of replies has all."""

_LONGEST_KEPT = 300
"""The most characters of a useless reply that are stored."""


@dataclass(frozen=True)
class Judgement:
    """What a judge read from an answer, None if it settles on nothing; or why its last reply cannot be used."""

    found: str | None
    failure: Failure | None = None
    said: str = ""
    """The message of a server that refused."""


class Judge:
    """A model on an OpenAI-compatible server, and the file that stores its replies."""

    def __init__(
        self,
        chat: ChatClient,
        model: str,
        *,
        preset: JudgePreset = PRESETS["strict"],
        cache: str | PathLike[str] | None = None,
    ) -> None:
        if not model:
            raise ConfigError(["a judge needs the name of its model. Pass the name that the server lists."])
        self.model, self.preset = model, preset
        self.failures: dict[tuple[str, str], Judgement] = {}
        """The failed judgements, by benchmark and question."""
        self._chat = chat
        self._lock = threading.Lock()
        self._lines = None if cache is None else Lines(cache)
        self._replies = {} if cache is None else _kept(cache)

    def about(self) -> JsonObject:
        """Return what a scorecard records about the judge: also the servers of its stored replies, if several."""
        servers = [] if self._lines is None else servers_in(self._lines.path, self.model)
        about: JsonObject = {"model": self.model, "server": self._chat.url, **self.preset.about()}
        return {**about, **({"servers": servers} if len(servers) > 1 else {})}

    def read_all(self, triples: Sequence[tuple[Question, str, Benchmark]], rules: str) -> list[Judgement]:
        """Read the answer to each question, in order. Raises RunError if the judge fails on all the first answers."""
        judgements = [Judgement(None)] * len(triples)
        num_failed, has_read = 0, False
        work = SideBySide(lambda triple: self.read(*triple, rules), triples, NUM_WORKERS)
        with WorkBar("judging") as bar, work:
            bar.begin(0, len(triples))
            for index, judgement, error in work:
                bar.step()
                if judgement is None:
                    assert error is not None
                    raise error
                judgements[index] = judgement
                if judgement.failure is not None:
                    question = triples[index][0]
                    self.failures[question.benchmark, question.id] = judgement
                has_read = has_read or judgement.failure is None
                num_failed += judgement.failure is not None
                if num_failed >= MAX_FAILED and not has_read:
                    raise RunError(self._useless(judgement, num_failed))
        return judgements

    def read(self, question: Question, answer: str, benchmark: Benchmark, rules: str) -> Judgement:
        """Read one answer."""
        form = benchmark.judge_form(question)
        prompt = self.preset.prompt(question, answer, form)
        judgement, num_before = Judgement(None, "unreadable"), 0
        for temperature in self.preset.temperatures(form):
            request = {"model": self.model, **self.preset.request(prompt, temperature)}
            judgement = self._read(question, request, rules, num_before)
            if not self.preset.sends_temperature:  # the next try sends the same request and needs a new reply
                num_before += judgement.failure is None
            if judgement.failure == "refused" or self.preset.is_final(judgement.found, form):
                break
        return Judgement(None) if judgement.found == NOTHING else judgement

    def _read(self, question: Question, request: Mapping[str, object], rules: str, num_before: int = 0) -> Judgement:
        """Read the stored reply to a request, or ask. `num_before` replies to the same request were read already."""
        key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        key += f"-{num_before}" if num_before else ""
        about = {"key": key, "benchmark": question.benchmark, "question": question.id, "model": self.model}
        if key in self._replies:
            known = _understood(question, self._replies[key], rules)
            if known.failure is None:
                return known
        try:
            completion = self._chat.complete(request)
        except (RefusedError, NoAnswerError) as error:  # a blocked reply may also not be a chat completion
            said = str(error)[:_LONGEST_KEPT]
            self._write({**about, "failure": "refused", "said": said})
            return Judgement(None, "refused", said)
        judgement = _judgement(question, completion, rules)
        if judgement.failure is None:
            self._replies[key] = completion.text
            self._write({**about, "reply": completion.text})
        else:
            self._write({**about, "failure": judgement.failure, "said": completion.text[-_LONGEST_KEPT:]})
        return judgement

    def _write(self, record: JsonObject) -> None:
        if self._lines is not None:
            with self._lock:
                self._lines.append({**record, "server": self._chat.url})

    def failure_lines(self) -> list[str]:
        """Name a few of the answers on which the judge failed, by reason."""
        names: dict[str, list[str]] = {}
        for (benchmark, question), judgement in sorted(self.failures.items()):
            names.setdefault(judgement.said or str(judgement.failure), []).append(f"{benchmark} {question!r}")
        lines = [f"The judge failed on {few(several, _FEW)}: {reason}" for reason, several in names.items()]
        return lines[:_FEW] + ([f"There are {len(lines) - _FEW} more reasons."] if len(lines) > _FEW else [])

    def _useless(self, last: Judgement, num: int) -> str:
        advice = {
            "truncated": "Raise its token limit (--judge-preset strict,max_tokens=8192), or turn its thinking off "
            "(thinking=off).",
            "refused": "Check the request that its server accepts (max_completion_tokens, temperature=off).",
        }.get(str(last.failure), "Choose another judge, or the mode final.")
        failure = f"{last.failure}: {last.said.rstrip('.')}" if last.said else last.failure
        return (
            f"the judge {self.model!r} gave no reply that can be read to the first {num} answers ({failure}). {advice}"
        )


def servers_in(cache: str | PathLike[str], model: str) -> list[str]:
    """Return the addresses that gave the stored replies of a model. Records of older releases have none."""
    records = (record for record in read_lines(cache) if "reply" in record and record.get("model") == model)
    return sorted({str(record["server"]) for record in records if "server" in record})


def _judgement(question: Question, completion: Completion, rules: str) -> Judgement:
    """Read a completion. One that was cut off is not read, whatever it says so far."""
    if completion.reason in _CUT_OFF:
        return Judgement(None, "truncated")
    if completion.reason == "content_filter":
        return Judgement(None, "refused")
    return _understood(question, completion.text, rules)


def _understood(question: Question, text: str, rules: str) -> Judgement:
    reply = spoken(text) or ""
    if not reply.strip():
        return Judgement(None, "empty")
    found = read_reply(question, reply, rules)
    return Judgement(found, "unreadable" if found is None else None)


def _kept(cache: str | PathLike[str]) -> dict[str, str]:
    """Read the replies in a file, by request. Failures in it are skipped."""
    replies = {}
    for number, record in enumerate(read_lines(cache), 1):
        key, reply = record.get("key"), record.get("reply")
        if isinstance(key, str) and isinstance(record.get("failure"), str):
            continue
        if not (isinstance(key, str) and isinstance(reply, str)):
            raise ConfigError([f"{cache}, record {number} is not a judge's reply. Correct or remove the line."])
        replies[key] = reply
    return replies
