"""A chat template is a program from the model's folder: it may fail, but it may not run forever."""

from threading import Thread

import jinja2
import pytest
from transformers.utils import chat_template_utils

from tiny_examples import example
from tiny_processor import CHAT_TEMPLATES, build_processor
from vcsd.errors import ConfigError, DataError
from vcsd.models.encode import encode
from vcsd.models.messages import template_limits
from vcsd.models.messages.chat_template import render
from vcsd.views import VIEWS

MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "How many?"}]}]

NESTED = "{% for a in range(99999) %}" * 3 + "." + "{% endfor %}" * 3
SILENT = "{% for a in range(99999) %}{% for b in range(99999) if b > 99999 %}{% endfor %}{% endfor %}"
DOUBLING = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
RECURSIVE = "{% for a in [[1, 2]] recursive %}{{ loop([[1, 2], [3, 4]]) }}{{ loop([[1, 2]]) }}{% endfor %}"
CALLING = (
    "{% macro twice(n) %}{{ caller(n) }}{{ caller(n) }}{% endmacro %}"
    "{% macro down(n) %}{% if n %}{% call(k) twice(n) %}{{ down(k - 1) }}{% endcall %}{% endif %}{% endmacro %}"
    "{{ down(30) }}"
)
SHADOWED = "{% set spend = 1 %}{% set vcsd = 1 %}" + NESTED


def rendered(template: str, messages: object = MESSAGES) -> str:
    processor = build_processor()
    processor.chat_template = template
    return render(processor, "a", messages, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("template", [NESTED, SILENT, DOUBLING, CALLING, SHADOWED])
def test_a_template_that_never_ends_is_refused(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_ITERATIONS", 2000)
    with pytest.raises(ConfigError, match=r"the chat template makes more than 2,000 iterations\. Copy the original"):
        rendered(template)


def test_a_template_that_calls_itself_without_end_is_an_error() -> None:
    with pytest.raises(DataError, match="the chat template fails on it: RecursionError"):
        rendered(RECURSIVE)


@pytest.mark.parametrize("expression", ["9**(9**9)", "'x' * 10**12", "10**9 * [1, 2]", "2**(2**40)"])
def test_a_template_may_not_compute_what_does_not_fit(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"the chat template computes something that is too large with \*"):
        rendered("{{ " + expression + " }}")


GROWING = "{% set box = namespace(x=START) %}{% for n in range(40) %}{% set box.x = STEP %}{% endfor %}{{ box.x }}"
BOMBS = {
    "a doubled text": ("'aaaa'", "box.x + box.x"),
    "a text joined to itself": ("'aaaa'", "box.x ~ box.x"),
    "replacements by a method": ("'aaaa'", "box.x.replace('a', 'aaaaaaaaaa')"),
    "replacements by a filter": ("'aaaa'", "box.x | replace('a', 'aaaaaaaaaa')"),
    "a text between others": ("'aaaa'", "box.x.join(['b'] * 100)"),
    "the same by a filter": ("'aaaa'", "(['b'] * 100) | join(box.x)"),
    "a doubled list": ("[1]", "box.x + box.x"),
    "lists in lists": ("[1]", "[box.x, box.x]"),
    "dicts in dicts": ("{}", "{'a': box.x, 'b': box.x}"),
    "dicts by a function": ("{}", "dict(a=box.x, b=box.x)"),
    "squared numbers": ("9", "box.x * box.x"),
    "ranges": ("[]", "box.x + (range(99999) | list)"),
    "a captured text": ("''", "box.x ~ ('a' * 9999999)"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_template_may_not_fill_the_memory(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_SIZE", 2**20)
    start, step = BOMBS[bomb]
    with pytest.raises(ConfigError, match=r"the chat template (makes texts and lists of more|computes something that)"):
        rendered(GROWING.replace("START", start).replace("STEP", step))


@pytest.mark.parametrize(
    "expression",
    [
        *("'%9999999999d' % 1", "'%*d' % (9999999999, 1)", "'%9999999999d' | format(1)", "'{:9999999999}'.format(1)"),
        *("'{:{w}}'.format(1, w=9999999999)", "'a'.center(9999999999)", "'a' | center(9999999999)"),
        *(
            "'a'.ljust(9999999999)",
            "'a'.zfill(9999999999)",
            "'\\t'.expandtabs(99999999)",
            "'a\\nb' | indent(9999999999)",
        ),
        *("range(9) | slice(999999999) | list", "range(9) | batch(999999999, 'x') | list", "1.5 | round(9999999999)"),
        *("[1] | tojson(indent=99999999)", "'aaaa'.translate({97: 'b' * 99999999})"),
    ],
)
def test_no_filter_or_method_makes_more_than_fits(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"the chat template (makes texts and lists of more|computes something that)"):
        rendered("{{ " + expression + " }}")


def test_text_that_a_loop_writes_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_SIZE", 2**20)
    with pytest.raises(ConfigError, match="makes texts and lists of more than 1,048,576 characters"):
        rendered("{% for n in range(2000) %}" + "a" * 1000 + "{% endfor %}")
    with pytest.raises(ConfigError, match=r"the chat template (makes texts and lists of more|computes something that)"):
        rendered("{% set x %}{% for n in range(2000) %}{{ 'a' * 1000 }}{% endfor %}{% endset %}{{ x | length }}")


def test_a_namespace_that_holds_itself_is_written_without_end_nowhere() -> None:
    assert rendered("{% set box = namespace(x=1) %}{% set box.x = box %}{{ box }}") == "<Namespace>"


def test_a_template_of_megabytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="the chat template has 1,048,577 characters"):
        rendered("a" * (2**20 + 1))


def test_a_prompt_of_a_million_characters_fits_a_template_that_copies_it() -> None:
    template = "{% for m in messages %}{% set x = m.content[0].text | trim %}{{ x.strip().split('q')[-1] + x ~ x[1:] }}"
    messages = [{"role": "user", "content": [{"type": "text", "text": "x" * 10**6}]}]
    assert len(rendered(template + "{% endfor %}", messages)) == 3 * 10**6 - 1


def test_ordinary_arithmetic_of_a_template_works() -> None:
    assert rendered("{{ 2 ** 10 }} {{ 3 * 'ab' }} {{ 1.5 * 2 }} {{ 2 ** 0.5 > 1 }} {{ 'a%s' % 1 }}") == (
        "1024 ababab 3.0 True a1"
    )


def test_a_long_prompt_that_exhausts_the_template_is_an_error_of_that_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_ITERATIONS", 20_000)
    template = "{% for part in messages[0].content %}{% for letter in part.text %}{{ letter }}{% endfor %}{% endfor %}"
    assert rendered(template) == "How many?"
    messages = [{"role": "user", "content": [{"type": "text", "text": "x" * 30_000}]}]
    with pytest.raises(DataError, match=r"the chat template makes more than 20,000 iterations on this prompt"):
        rendered(template, messages)


def test_each_prompt_has_its_own_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_ITERATIONS", 60)
    template = "{% for n in range(50) %}{{ n }}{% endfor %}"
    assert rendered(template) == rendered(template) == "".join(map(str, range(50)))


def test_threads_do_not_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_ITERATIONS", 60)
    texts: list[str] = []
    threads = [Thread(target=lambda: texts.append(rendered("{% for n in range(50) %}.{% endfor %}"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["." * 50] * 4


@pytest.mark.parametrize("family", CHAT_TEMPLATES)
def test_counting_changes_nothing_that_a_template_writes(family: str) -> None:
    source = CHAT_TEMPLATES[family] + (
        "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% else %}none"
        "{% endfor %}{% macro say(word, end='!') %}{{ word }}{{ end }}{% endmacro %}{{ say('hi') }}{{ say.arguments }}"
        "{{ [1, ('a', 2), {'b': [3]}] }}{{ 'a' ~ 1 ~ none ~ 2.5 }}{{ 'abc'[::-1] }}{{ messages[1:] | length }}"
        "{{ ['b', 'a'] | sort | join('-') }}{{ {'a': 1} | tojson(indent=2) }}{{ '{:>4}'.format(7) }}{{ '%03d' % 7 }}"
        "{{ dict(a=1).items() | list }}{{ (1, 2) == (1, 2) }}{{ 'a' in ['a'] }}{{ 'x\\ny' | indent(4, true) }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='role') | list }}{{ 'a' | center(5) }}|"
        "{% for n in range(9) %}{% if n == 3 %}{% continue %}{% elif n == 6 %}{% break %}{% endif %}{{ n }}{% endfor %}"
    )
    plain = chat_template_utils._cached_compile_jinja_template(source)  # without the cache, and without the count
    assert rendered(source) == plain.render(messages=MESSAGES, add_generation_prompt=True)


def test_templates_outside_a_prompt_are_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered("{{ messages[0].role }}")  # patches transformers
    monkeypatch.setattr(template_limits, "MAX_ITERATIONS", 10)
    template = "{% for n in range(100) %}.{% endfor %}"
    assert build_processor().apply_chat_template(MESSAGES, chat_template=template) == "." * 100


def test_the_limit_leaves_room_for_a_long_conversation() -> None:
    compares = "{% for a in messages %}{% for b in messages %}.{% endfor %}{% endfor %}"
    assert rendered(compares, MESSAGES * 500) == "." * 500**2


def test_a_broken_template_is_still_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="the chat template is broken, at its line 1"):
        rendered("{% for %}")


def test_the_limit_is_in_the_way_of_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_ITERATIONS", 0)
    shown = VIEWS["original"](example())
    with pytest.raises(ConfigError, match="makes more than 0 iterations"):
        encode(build_processor(), shown)


def test_transformers_compiles_templates_where_the_count_is_added() -> None:
    rendered("{{ 1 }}")
    template = chat_template_utils._compile_jinja_template("{% for n in [1] %}{% endfor %}")
    assert isinstance(template, jinja2.Template)
    assert "*" in template.environment.intercepted_binops  # type: ignore[attr-defined]


EARLY = {
    "a wide field, many times": "'%(a)9999d' * 9999 % {'a': 1}",
    "the same by a method": "('{0:9999}' * 9999).format(1)",
    "a long value, many times": "'%(a)s' * 9999 % {'a': 'x' * 9999}",
    "the same by a filter": "('%(a)s' * 9999) | format(a='x' * 9999)",
    "the same by a method, from a list": "('{0[0]}' * 9999).format(['x' * 9999])",
    "a value in a namespace": "('{0.x}' * 9999).format(namespace(x='x' * 9999))",
    "named words of a replacement": "('x' * 9999) | replace(new='y' * 9999, old='x')",
    "a replacement in a list": "['x' * 9999] | replace('x', 'y' * 9999)",
    "an indented list": "([1] * 9999) | tojson(indent=9999)",
    "indented lists in lists": "([[[[[1] * 9999]]]]) | tojson(indent='x' * 999)",
    "a separator": "([1] * 9999) | tojson(separators=('x' * 9999, ':'))",
    "bytes of a number": "(1).to_bytes(99999999, 'big')",
    "a date": "strftime_now('%Y' * 9999)",
    "a sum of lists": "([[1]] * 9999) | sum(start=[])",
    "a sum of what is not known yet": "([[1]] * 99) | map('list') | sum(start=[])",
    "a word in many lines": "('x' * 99999) | wordwrap(1)",
}


@pytest.mark.parametrize("kind", EARLY)
def test_what_does_not_fit_is_refused_before_it_is_computed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_SIZE", 2**22)
    with pytest.raises(ConfigError, match=r"the chat template computes something that is too large with"):
        rendered("{{ (" + EARLY[kind] + ") | length }}")


@pytest.mark.parametrize(
    "step",
    [
        *("-1 in numbers", "-1 not in numbers", "'b' in text", "text == (text[1:] ~ 'a')", "text is in(numbers)"),
        *("numbers == numbers", "range(99) | map('abs') | map('abs') | map('abs') | map('abs') | sum"),
        "[1, 2] | sum",
    ],
)
def test_what_a_template_reads_counts_because_it_takes_time(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_SIZE", 2**22)
    start = "{% set numbers = range(999) | list %}{% set text = 'a' * 99999 %}"
    template = start + "{% for n in range(COUNT) %}{% if " + step + " %}{% endif %}{% endfor %}"
    assert not rendered(template.replace("COUNT", "2"))
    with pytest.raises(ConfigError, match="makes texts and lists of more than 4,194,304 characters"):
        rendered(template.replace("COUNT", "40000"))


def test_formats_and_replacements_of_ordinary_templates_work() -> None:
    template = (
        "{{ '%s: %05d' % ('a', 7) }} {{ '{} {x}'.format(1, x=[2]) }} {{ 'aba' | replace('a', 'cc') }} "
        "{{ 'aba' | replace(old='a', new='c', count=1) }} {{ {'a': [1]} | tojson(indent=2) | length }} "
        "{{ [[1], [2]] | sum(start=[]) }} {{ strftime_now('%Y') | length }} {{ 'b' in 'abc' }} {{ 3 not in [1] }} "
        "{{ 'a b' | wordwrap(1) | length }} {{ [1, 2] | sum }}"
    )
    assert rendered(template) == "a: 00007 1 [2] ccbcc cba 22 [1, 2] 4 True True 3 3"


def test_a_template_that_refuses_a_prompt_at_length_is_quoted_briefly() -> None:
    with pytest.raises(DataError) as raised:
        rendered("{{ raise_exception('x' * 10**7) }}")
    assert len(str(raised.value)) < 2000
    with pytest.raises(ConfigError) as broken:
        rendered("{% " + "x" * 10**5 + " %}")
    assert len(str(broken.value)) < 500
