"""The text around a question, by style. Images come first in every style, and there is no system prompt.

vlmevalkit   VLMEvalKit's default text, to the letter; published tables were made with it
direct       asks for the bare answer: VLMEvalKit's text for Qwen3-VL, which its default settings switch off
cot          asks for reasoning, then the answer in a box

A question has one of three forms: `option` (letters), `yes_no`, and `open` (everything else).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vcsd.data.formats.vlmevalkit_tsv import listed
from vcsd.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Form = Literal["option", "yes_no", "open"]

_BOXED = "\n\nPlease reason step by step, and put {what} within \\boxed{{}}."


def _vlmevalkit(form: Form, question: str, options: Mapping[str, str], hint: str | None) -> str:
    if form != "option":
        return question
    suffix = "Please select the correct answer from the options above. \n" if options else ""
    return listed(question, options, hint) + suffix


def _direct(form: Form, question: str, options: Mapping[str, str], hint: str | None) -> str:
    if form == "yes_no":
        return f"{question} Please answer yes or no."
    if form == "open":
        return f"{question}\nPlease answer concisely with short words or phrases when possible."
    suffix = "Answer with the option letter only." if options else ""
    return (listed(question, options, hint) + suffix).rstrip()


def _cot(form: Form, question: str, options: Mapping[str, str], hint: str | None) -> str:
    what = {"option": "the letter of the correct option", "yes_no": "Yes or No", "open": "your final answer"}[form]
    text = listed(question, options, hint).rstrip("\n") if form == "option" else question
    return text + _BOXED.format(what=what)


STYLES: Mapping[str, Callable[[Form, str, Mapping[str, str], str | None], str]] = {
    "vlmevalkit": _vlmevalkit,
    "direct": _direct,
    "cot": _cot,
}


def prompt_text(
    style: str, form: Form, question: str, *, options: Mapping[str, str] | None = None, hint: str | None = None
) -> str:
    """Return the text of a question in a style.

    >>> prompt_text("vlmevalkit", "option", "What is it?", options={"A": "red", "B": "blue"})
    'Question: What is it?\\nOptions:\\nA. red\\nB. blue\\nPlease select the correct answer from the options above. \\n'
    >>> prompt_text("vlmevalkit", "yes_no", "Is it red?")
    'Is it red?'
    """
    if style not in STYLES:
        raise ConfigError([f"style = {style!r} is not a prompt style. {did_you_mean(style, STYLES)}"])
    return STYLES[style](form, question, options or {}, hint)
