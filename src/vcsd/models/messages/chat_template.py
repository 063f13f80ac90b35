"""Renders messages with the chat template of a model folder, which is a program, and limits what it may do.

jinja's sandbox keeps a template from files and from Python's internals, but not from running forever: loops over
ranges of 100,000 may lie in each other, and macros may call themselves. Here each iteration and each macro call is
counted while a prompt is rendered. The count is written into the syntax tree of the template, so that it needs no
clock and no second thread, and what a template writes does not change.

Not limited: the memory of a template that doubles a text again and again.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import lru_cache
from threading import local
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import nodes
from transformers.utils import chat_template_utils

from vcsd.errors import ConfigError, DataError
from vcsd.models.patch import replace_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vcsd.models.processor import Processor

MAX_ITERATIONS = 1_000_000
"""Of all loops and macros together, for one prompt. A template that compares each of 500 messages with each other one
needs a quarter of it."""

MAX_PRODUCT = 2**24
"""Largest number of characters or items that a multiplication in a template may give."""

_FEW_CHARACTERS = 10_000
"""A template that does not end on such a prompt ends on no other one."""

_NO_SWITCHES = (
    *("messages", "conversation", "conversations", "chat_template", "add_generation_prompt", "tokenize"),
    *("continue_final_message", "return_assistant_tokens_mask", "return_tensors", "return_dict"),
    *("load_audio_from_video", "processor_kwargs", "sanitize_control_tokens"),
)
"""Arguments that the encoder sets, so they cannot be switches of the chat template."""


class _EndlessError(Exception):
    """A template that goes beyond its limits."""


class _Budget(local):
    """The iterations that are left to the template in each thread; None outside `_limited`."""

    left: int | None = None


_budget = _Budget()


def check_switches(processor: Processor, switches: Mapping[str, object]) -> None:
    """Raise a ConfigError for switches that the chat template does not have."""
    template = str(processor.chat_template)
    problems = [
        f"chat_template_kwargs.{name} is not a switch: the encoder sets it."
        for name in switches
        if name in _NO_SWITCHES
    ]
    problems += [
        f"chat_template_kwargs.{name}: the chat template has no such switch."
        for name in switches
        if name not in _NO_SWITCHES and not re.search(rf"\b{re.escape(name)}\b", template)
    ]
    if problems:
        raise ConfigError(problems)


def render(
    processor: Processor,
    example_id: str,
    messages: Sequence[Mapping[str, object]],
    switches: Mapping[str, object],
) -> str:
    """Return the prompt as text, with one placeholder for each image and the opening of the model's turn."""
    replace_function(chat_template_utils, "_compile_jinja_template", _counting)
    copies = [dict(message) for message in messages]
    try:
        with _limited():
            return str(processor.apply_chat_template(copies, add_generation_prompt=True, tokenize=False, **switches))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError([f"the chat template is broken, at its line {error.lineno}: {error.message}"]) from error
    except _EndlessError as error:
        if len(str(messages)) < _FEW_CHARACTERS:
            raise ConfigError([f"the chat template {error}. Copy the original model's template again."]) from error
        raise DataError(example_id, f"the chat template {error} on it. Shorten the prompt.") from error
    except jinja2.TemplateError as error:
        raise DataError(example_id, f"the chat template refuses it: {error}") from error
    except Exception as error:  # a template is a program, which fails in any way
        raise DataError(example_id, f"the chat template fails on it: {type(error).__name__}: {error}") from error


@contextmanager
def _limited() -> Iterator[None]:
    _budget.left = MAX_ITERATIONS
    try:
        yield
    finally:
        _budget.left = None


def spend() -> bool:
    """Count an iteration. Called by compiled templates."""
    if _budget.left is not None:
        _budget.left -= 1
        if _budget.left < 0:
            raise _EndlessError(f"makes more than {MAX_ITERATIONS:,} iterations")
    return True


def _counting(compile_template: Callable[[str], jinja2.Template]) -> Callable[[str], jinja2.Template]:
    """Wrap transformers' compiler of chat templates: the same template, which counts its iterations."""

    @lru_cache
    def limited_environment() -> Any:
        # From an empty template: compiling computes constants such as 9**(9**9), before they could be intercepted.
        environment: Any = compile_template("").environment
        environment.intercepted_binops = frozenset(["*", "**"])
        environment.call_binop = _limited_operator(environment.call_binop)
        return environment

    @lru_cache
    def compiled(chat_template: str) -> jinja2.Template:
        environment = limited_environment()
        tree = environment.parse(chat_template)
        _count(tree)
        template: jinja2.Template = environment.from_string(tree.set_environment(environment))
        return template

    return compiled


def _count(tree: nodes.Template) -> None:
    """Add `spend` to the body of each loop and macro, and to the condition of each loop that has one."""
    for loop in tree.find_all(nodes.For):
        if loop.test is None:
            loop.body.insert(0, nodes.ExprStmt(_call()).set_lineno(loop.lineno))
        else:
            loop.test = nodes.And(_call(), loop.test).set_lineno(loop.lineno)
    bodies = [(macro.lineno, macro.body) for macro in tree.find_all(nodes.Macro)]
    bodies += [(block.lineno, block.body) for block in tree.find_all(nodes.CallBlock)]
    for line, body in bodies:
        body.insert(0, nodes.ExprStmt(_call()).set_lineno(line))


def _call() -> nodes.Call:
    function = nodes.ImportedName(f"{__name__}.{spend.__name__}")  # not a variable, which a template could set
    return nodes.Call(function, [], [], None, None)


def _limited_operator(operate: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the sandbox's operators * and **: 9**(9**9) does not end, and 'x' * 10**12 fills the memory."""

    def call_binop(context: object, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            is_large = isinstance(right, int) and isinstance(left, int) and left.bit_length() * right > MAX_PRODUCT
        else:
            texts = [side for side in (left, right) if isinstance(side, str | list | tuple)]
            counts = [side for side in (left, right) if isinstance(side, int)]
            is_large = bool(texts and counts) and len(texts[0]) * counts[0] > MAX_PRODUCT
        if is_large:
            raise _EndlessError(f"computes something that is too large with {operator}")
        return operate(context, operator, left, right)

    return call_binop
