"""Presets of a judge and changes to them: `strict`, or `vlmevalkit,max_completion_tokens=8192,thinking=off`.

strict       this package's prompts, 3 tries at temperature 0, 0.5 and 1
vlmevalkit   VLMEvalKit's prompts and number of tries: 3 for options, each at temperature 0; 5 for yes and no and for
             MathVista, at 0, 0.5 and so on up to 2

Two things differ from VLMEvalKit on purpose. If all tries fail, VLMEvalKit draws an option at random; here the answer
is unresolved and counted. And replies such as `b`, `3 people` or `3.0`, which VLMEvalKit cannot read, are read here; so
is "A dog" if an option has these words, while VLMEvalKit reads it as A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, did_you_mean
from vcsd.evaluation.reading.judging.judge_prompts import strict_prompt, vlmevalkit_prompt
from vcsd.evaluation.reading.judging.judge_replies import NOTHING
from vcsd.evaluation.reading.texts.statements import spoken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vcsd.evaluation.benchmarks.benchmark import Benchmark, JudgeForm
    from vcsd.types import JsonObject, Question

_WARMER_BY = 0.5
"""Temperature added with each try: at zero the reply would be the same."""


@dataclass(frozen=True)
class JudgePreset:
    """How a judge is asked. `thinking` None leaves the judge's template as it is."""

    name: str
    max_tokens: int
    """Enough for a judge that thinks before it replies: a reply that is cut off is a failure."""
    max_completion_tokens: int | None = None
    """Sent instead of `max_tokens`, for servers that expect this name."""
    sends_temperature: bool = True
    """Some judges refuse a temperature; every try is then the same request."""
    thinking: bool | None = None

    def prompt(self, question: Question, answer: str, form: JudgeForm) -> str:
        """Build the prompt about an answer."""
        return (strict_prompt if self.name == "strict" else vlmevalkit_prompt)(question, answer, form)

    def asks(self, text: str, benchmark: Benchmark) -> bool:
        """Whether a judge is asked about a text that the rules cannot read.

        VLMEvalKit also asks about thinking that never ends, but never about answers to MME-RealWorld.
        """
        if self.name == "strict":
            return bool(spoken(text))
        return bool(text.strip()) and not benchmark.is_first_letter

    def temperatures(self, form: JudgeForm) -> list[float]:
        """Return the temperature of each try, in order.

        >>> PRESETS["vlmevalkit"].temperatures("options"), PRESETS["vlmevalkit"].temperatures("yes_no")
        ([0.0, 0.0, 0.0], [0.0, 0.5, 1.0, 1.5, 2.0])
        """
        if self.name == "vlmevalkit" and form in ("options", "blink"):
            return [0.0] * 3
        return [_WARMER_BY * number for number in range(3 if self.name == "strict" else 5)]

    def is_final(self, found: str | None, form: JudgeForm) -> bool:
        """Whether to stop asking. VLMEvalKit asks again when a judge says that an answer is neither yes nor no."""
        return found is not None and not (self.name == "vlmevalkit" and form == "yes_no" and found == NOTHING)

    def request(self, prompt: str, temperature: float) -> dict[str, object]:
        """Build the request of one try, without the model."""
        request: dict[str, object] = {"messages": [{"role": "user", "content": prompt}]}
        if self.sends_temperature:
            request["temperature"] = temperature
        if self.max_completion_tokens is None:
            request["max_tokens"] = self.max_tokens
        else:
            request["max_completion_tokens"] = self.max_completion_tokens
        if self.thinking is not None:
            request["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        return request

    def about(self) -> JsonObject:
        """Return what a scorecard records: the preset's name and everything that was sent."""
        limit = {"max_tokens": self.max_tokens}
        if self.max_completion_tokens is not None:
            limit = {"max_completion_tokens": self.max_completion_tokens}
        return {"preset": self.name, **limit, "sends_temperature": self.sends_temperature, "thinking": self.thinking}


PRESETS: Mapping[str, JudgePreset] = {
    "strict": JudgePreset("strict", max_tokens=1024),
    "vlmevalkit": JudgePreset("vlmevalkit", max_tokens=2048),
}
_ON_OFF = {"on": True, "true": True, "off": False, "false": False}
_SWITCHES = {"temperature": "sends_temperature", "thinking": "thinking"}
_KEYS = ("max_tokens", "max_completion_tokens", *_SWITCHES)


def parse_judge_preset(text: str) -> JudgePreset:
    """Parse a preset's name and changes to it.

    >>> parse_judge_preset("strict,max_tokens=8192,thinking=on")
    JudgePreset(name='strict', max_tokens=8192, max_completion_tokens=None, sends_temperature=True, thinking=True)
    """
    name, *words = [word.strip() for word in text.split(",")]
    if name not in PRESETS:
        raise ConfigError([f"judge preset {name!r} is not known. {did_you_mean(name, PRESETS)}"])
    changes: dict[str, Any] = {}
    problems = []
    for word in words:
        key, _, value = (part.strip() for part in word.partition("="))
        if key not in _KEYS:
            problems.append(f"judge preset: {key!r} cannot be set. {did_you_mean(key, _KEYS)}")
        elif key in _SWITCHES:
            if value.lower() not in _ON_OFF:
                problems.append(f"judge preset: {key} = {value!r} is neither on nor off.")
            changes[_SWITCHES[key]] = _ON_OFF.get(value.lower())
        elif not (value.isascii() and value.isdecimal() and int(value)):
            problems.append(f"judge preset: {key} = {value!r} is not a number of tokens such as 4096.")
        else:
            changes[key] = int(value)
    if problems:
        raise ConfigError(problems)
    return replace(PRESETS[name], **changes)
