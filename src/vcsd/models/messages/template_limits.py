"""Limits what a chat template may do: how many iterations it runs, and how much text and how many lists it builds.

jinja's sandbox keeps a template from files and from Python's internals, but not from running forever or from exhausting
memory: loops over ranges of 100,000 may be nested, macros may call themselves, a text may be doubled again and again.
Here each iteration, and the size of each value that a template makes, is counted while a prompt is rendered. The counts
are written into the syntax tree of the template and around the operators, functions and filters that it uses, so that
they need no clock and no second thread, and what a template writes does not change.

    iterations   each turn of a loop and each call of a macro
    size         each character, and _ITEM for each item of a list; parts that values share count each time. What a
                 filter, a function or a comparison reads counts too, plus _ITEM for each call, since it takes time
"""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from itertools import permutations
from threading import local
from typing import TYPE_CHECKING, Any

from jinja2 import nodes
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_ITERATIONS = 1_000_000
"""The total of all loops and macros, for one prompt. A template that compares each of 500 messages with each other one
needs a quarter of it."""

MAX_SIZE = 2**28
"""The total size of all values that a template builds for one prompt. One that copies a prompt of a million characters
fifty times needs a fifth of it."""

MAX_TEMPLATE = 2**20
"""Characters of a template; released ones have about 10,000."""

_ITEM = 64
"""The size of an item of a list, about its bytes; the size of its content is added."""

_MAX_OPTION = 10_000
"""The largest number that a filter or method takes as a width, a count or a precision."""

_MAX_BITS = 2**16
"""The most bits of a whole number."""

_PRODUCTS = frozenset(["join", "indent", "wordwrap", "urlize", "expandtabs", "translate"])
"""Filters and methods whose result may be as large as the product of what they are given."""

_PADDING = frozenset(
    [
        *("center", "ljust", "rjust", "zfill", "indent", "wordwrap", "expandtabs", "batch", "slice", "round", "tojson"),
        "to_bytes",
    ]
)
"""Filters and methods that take a width, a count or a precision."""

_MAX_DATE = 1000
"""Characters of the format of a date, which may become 256 times as many."""

_ESCAPED = 10
"""The most characters that one character of a value becomes in Python's repr."""

_WIDE_FORMAT = re.compile(r"\d{5}|%[^a-zA-Z%]*\*|\{[^{}]*\{")
"""A width of five digits or more in a format, or one that is taken from an argument."""


_SCOPES = ("_loop_vars", "_block_vars")
"""Arguments that compiled templates add to every call."""


class EndlessTemplateError(Exception):
    """A template that goes beyond its limits."""


class _Budget(local):
    """What a template may still use, for each thread; None outside `limited`."""

    iterations: int | None = None
    size: int | None = None


_budget = _Budget()


@contextmanager
def limited() -> Iterator[None]:
    """Limit the templates that are rendered inside, together."""
    _budget.iterations, _budget.size = MAX_ITERATIONS, MAX_SIZE
    try:
        yield
    finally:
        _budget.iterations = _budget.size = None


def spend(num_characters: int = 0) -> bool:
    """Count an iteration and the text that it writes. Called by compiled templates."""
    if _budget.iterations is not None:
        _budget.iterations -= 1
        if _budget.iterations < 0:
            raise EndlessTemplateError(f"makes more than {MAX_ITERATIONS:,} iterations")
        _charge(num_characters)
    return True


def made(value: Any) -> Any:
    """Count the size of a value, with all that it holds, and return it. Called by compiled templates."""
    if _budget.size is not None and not isinstance(value, bool | float):
        _charge(_size(value, _budget.size))
    return value


def joined(*parts: Any) -> str:
    """Join texts, as the operator ~ does. Called by compiled templates."""
    for part in parts:
        made(part)
    text: str = made("".join(map(str, parts)))
    return text


def _charge(size: int) -> None:
    if _budget.size is not None:
        _budget.size -= size
        if _budget.size < 0:
            raise EndlessTemplateError(f"makes texts and lists of more than {MAX_SIZE:,} characters")


def _refuse_large(size: int, what: str) -> None:
    """Raise before something is computed that does not fit."""
    if size > (MAX_SIZE if _budget.size is None else _budget.size):
        raise EndlessTemplateError(f"computes something that is too large with {what}")


def _refuse_large_number(num_bits: int, what: str) -> None:
    """Raise before a number is computed that would take long."""
    if num_bits > _MAX_BITS:
        raise EndlessTemplateError(f"computes something that is too large with {what}")


def _size(value: object, limit: int, unknown: int = 0) -> int:
    """Return the size of a value with all that it holds, each unknown object as `unknown`. Stops beyond the limit."""
    total, waiting = 0, [value]
    while waiting and total <= limit:
        item = waiting.pop()
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, dict):
            total += _ITEM * (1 + len(item))
            waiting += [*item, *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            total += _ITEM * (1 + len(item))
            waiting += item
        elif isinstance(item, int):
            total += item.bit_length() // 8
        elif not isinstance(item, float | None):
            total += unknown
    return total


def _num_indents(value: object) -> int:
    """Return how often an indented text of lists and dicts has an indentation. Stops counting beyond the limit."""
    total, waiting = 0, [(value, 1)]
    while waiting and total <= MAX_SIZE:
        item, depth = waiting.pop()
        if isinstance(item, dict | list | tuple):
            total += depth * (1 + len(item))
            waiting += [(inner, depth + 1) for inner in (item.values() if isinstance(item, dict) else item)]
    return total


def _length(value: object) -> int:
    """Return the size of a value without that of its items' content."""
    if isinstance(value, str | bytes):
        return len(value)
    return _ITEM * len(value) if isinstance(value, list | tuple | set | frozenset | dict | range) else 0


def limit_environment(environment: Any) -> Any:
    """Count what the operators, functions and filters of a jinja environment make."""
    environment.intercepted_binops = frozenset(["+", "*", "**", "%"])
    environment.call_binop = _limited_operator(environment.call_binop)
    environment.call = _limited_call(environment.call)
    environment.finalize = made
    environment.filters = {name: _limited_filter(name, do) for name, do in environment.filters.items()}
    environment.tests = {name: _limited_filter(name, do) for name, do in environment.tests.items()}
    environment.globals = {**environment.globals, "namespace": _QuietNamespace}
    environment.globals.pop("lipsum", None)  # makes up text
    return environment


class _QuietNamespace(Namespace):
    """A namespace whose repr omits its contents: that of two namespaces which hold each other would never end."""

    def __repr__(self) -> str:
        return "<Namespace>"


def limit_template(tree: nodes.Template) -> nodes.Template:
    """Write the counts into the syntax tree of a template, and return it."""
    for loop in list(tree.find_all(nodes.For)):
        call = _call(spend, nodes.Const(_num_characters(loop)))
        if loop.test is None:
            loop.body.insert(0, nodes.ExprStmt(call).set_lineno(loop.lineno))
        else:
            loop.test = nodes.And(call, loop.test).set_lineno(loop.lineno)
    blocks: list[nodes.Macro | nodes.CallBlock] = [*tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock)]
    for block in blocks:
        call = _call(spend, nodes.Const(_num_characters(block)))
        block.body.insert(0, nodes.ExprStmt(call).set_lineno(block.lineno))
    _Counter().visit(tree)
    return tree


def _num_characters(node: nodes.Node) -> int:
    """Return how much text a loop or macro writes at most in one turn, besides what it computes."""
    return sum(len(data.data) for data in node.find_all(nodes.TemplateData))


class _Counter(NodeTransformer):
    """Counts lists, dicts, slices and joined texts where a template makes them, and compared lists."""

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return _call(made, self.generic_visit(node))

    visit_Dict = visit_List

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        inner = self.generic_visit(node)
        return _call(made, inner) if node.ctx == "load" else inner

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        inner = self.generic_visit(node)
        return _call(joined, *inner.nodes)  # type: ignore[attr-defined]

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        inner = self.generic_visit(node)
        return _call(made, inner) if isinstance(node.arg, nodes.Slice) else inner

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        inner: Any = self.generic_visit(node)
        inner.expr = _call(compared, inner.expr)
        for operand in inner.ops:
            if operand.op in {"in", "notin"}:
                operand.expr = _call(searched, operand.expr)
        return inner  # type: ignore[no-any-return]


def compared(value: Any) -> Any:
    """Count a value that is compared with another. Called by compiled templates."""
    if isinstance(value, str):
        _charge(len(value) // _ITEM)  # Python compares many characters at once
        return value
    return made(value) if isinstance(value, list | tuple | dict) else value


def searched(value: Any) -> Any:
    """Count a text or list in which something is searched. Called by compiled templates."""
    return made(value) if isinstance(value, str | list | tuple) else value


def _call(function: Callable[..., object], *given: nodes.Node) -> nodes.Call:
    name = nodes.ImportedName(f"{__name__}.{function.__name__}")  # not a variable, which a template could set
    call = nodes.Call(name, list(given), [], None, None)
    call.set_lineno(given[0].lineno or 1)
    return call


def _limited_operator(operate: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the sandbox's operators: 9**(9**9) does not end, and 'x' * 10**12 fills the memory."""

    def call_binop(context: object, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _refuse_large_number(left.bit_length() * right, operator)
        elif operator == "*" and isinstance(left, int) and isinstance(right, int):
            _refuse_large_number(left.bit_length() + right.bit_length(), operator)
        elif operator == "*":
            counts = [side for side in (left, right) if isinstance(side, int)]
            _refuse_large(max(counts, default=0) * max(_length(left), _length(right)), operator)
        elif operator == "%" and isinstance(left, str):
            _refuse_format(left, [right], operator)
        return made(operate(context, operator, left, right))

    return call_binop


def _refuse_format(text: str, values: list[Any], what: str) -> None:
    """Raise before filling in a format that is too wide, or that repeats large values."""
    if _WIDE_FORMAT.search(text):
        raise EndlessTemplateError(f"computes something that is too large with {what}")
    largest = max((_size(value, MAX_SIZE, unknown=MAX_SIZE // 256) for value in values), default=0)
    width = _MAX_OPTION if any(digit in text for digit in "123456789") else 0
    _refuse_large(max(text.count("%"), text.count("{")) * (_ESCAPED * largest + width), what)


def _limited_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the sandbox's calls of functions, methods and macros."""

    def limited_call(context: object, function: Any, *given: Any, **named: Any) -> Any:
        if any(function is count for count in (spend, made, joined, compared, searched)):
            return function(*given)
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
        owner, name = getattr(method, "__self__", None), str(getattr(method, "__name__", ""))
        options = [*given, *(value for key, value in named.items() if key not in _SCOPES)]
        _charge(_ITEM)
        if isinstance(owner, str | bytes | list | tuple | dict | int):
            _check_options(name, owner, options)
        if name == "strftime_now" and any(len(str(option)) > _MAX_DATE for option in options):
            raise EndlessTemplateError(f"computes something that is too large with {name}")
        return made(call(context, function, *given, **named))

    return limited_call


def _limited_filter(name: str, function: Any) -> Any:
    """Wrap a filter or a test."""
    num_passed = 1 if hasattr(function, "jinja_pass_arg") else 0  # the context or the environment

    @functools.wraps(function)
    def limited_filter(*given: Any, **named: Any) -> Any:
        value, *options = given[num_passed:] or (None,)
        _charge(_ITEM)
        _check_options(name, value, [*options, *named.values()])
        return made(function(*given, **named))

    return limited_filter


def _check_options(name: str, value: Any, options: list[Any]) -> None:
    """Count what a filter or method reads, and raise before it makes something that does not fit."""
    for part in (value, *options):
        _charge(_length(part))
    if name in _PADDING and any(isinstance(option, int) and abs(option) > _MAX_OPTION for option in options):
        raise EndlessTemplateError(f"computes something that is too large with {name}")
    if name in {"format", "format_map"} and isinstance(value, str):
        _refuse_format(value, options, name)
    elif name == "replace":
        _refuse_replacement(str(value), [str(option) for option in options])
    elif name == "tojson":
        _refuse_large(_num_indents(value) * max(map(_factor, options), default=0), name)
    elif name == "sum" and any(isinstance(option, list | tuple) for option in options):
        # Lists are added one by one, and each sum is a new list.
        is_list = isinstance(value, list | tuple)
        _refuse_large(len(value) * _size(value, MAX_SIZE) if is_list else MAX_SIZE + 1, name)
    elif name == "wordwrap" and isinstance(value, str):
        _refuse_large(len(value) ** 2 // _ITEM, name)  # a long word is copied for every line
    if name in _PRODUCTS:
        _refuse_large(_num_pieces(value) * max((_factor(option) for option in options), default=0), name)


def _refuse_replacement(text: str, words: list[str]) -> None:
    """Raise before a replacement makes a text that does not fit. Each option may be the old text or the new one."""
    counts = {word: text.count(word) for word in words}
    for old, new in permutations(words, 2):
        _refuse_large(counts[old] * len(new), "replace")


def _num_pieces(value: object) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict | range) else 0


def _factor(option: object) -> int:
    """Return by how much an option may multiply a text."""
    if isinstance(option, dict):
        return max((_factor(item) for item in option.values()), default=0)
    if isinstance(option, list | tuple):
        return max([len(option), *map(_num_pieces, option)])
    return option if isinstance(option, int) else _num_pieces(option)
