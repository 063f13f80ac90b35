"""Renders messages with the chat template of a model folder, which is a program with limits (`template_limits`)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jinja2
from transformers.utils import chat_template_utils

from vcsd.errors import ConfigError, DataError, shown
from vcsd.models.messages.template_limits import (
    MAX_TEMPLATE,
    EndlessTemplateError,
    limit_environment,
    limit_template,
    limited,
)
from vcsd.models.patch import replace_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vcsd.models.processor import Processor

_FEW_CHARACTERS = 10_000
"""The length of a short prompt. A template that exceeds its limits even on one of these is broken."""

_NO_SWITCHES = (
    *("messages", "conversation", "conversations", "chat_template", "add_generation_prompt", "tokenize"),
    *("continue_final_message", "return_assistant_tokens_mask", "return_tensors", "return_dict"),
    *("load_audio_from_video", "processor_kwargs", "sanitize_control_tokens"),
)
"""Arguments that the encoder sets, so they cannot be switches of the chat template."""


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
        with limited():
            return str(processor.apply_chat_template(copies, add_generation_prompt=True, tokenize=False, **switches))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(
            [f"the chat template is broken, at its line {error.lineno}: {shown(error.message, 300)}"]
        ) from error
    except EndlessTemplateError as error:
        if len(str(messages)) < _FEW_CHARACTERS:
            raise ConfigError([f"the chat template {error}. Copy the original model's template again."]) from error
        raise DataError(example_id, f"the chat template {error} on this prompt. Shorten it.") from error
    except jinja2.TemplateError as error:
        raise DataError(example_id, f"the chat template refuses it: {error}") from error
    except Exception as error:  # a template is a program, which can fail in any way
        raise DataError(example_id, f"the chat template fails on it: {type(error).__name__}: {error}") from error


def _counting(compile_template: Callable[[str], jinja2.Template]) -> Callable[[str], jinja2.Template]:
    """Wrap transformers' compiler of chat templates, so that templates count their own work."""

    @lru_cache
    def limited_environment() -> Any:
        # From an empty template: compiling computes constants such as 9**(9**9), before they could be intercepted.
        return limit_environment(compile_template("").environment)

    @lru_cache
    def compiled(chat_template: str) -> jinja2.Template:
        if len(chat_template) > MAX_TEMPLATE:
            raise EndlessTemplateError(f"has {len(chat_template):,} characters")
        environment = limited_environment()
        tree = limit_template(environment.parse(chat_template))
        template: jinja2.Template = environment.from_string(tree.set_environment(environment))
        return template

    return compiled
