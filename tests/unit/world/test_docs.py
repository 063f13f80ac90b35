"""docs/world.md lists every parameter with its default value."""

import dataclasses
import re
from pathlib import Path

from vcsd.bases.tokenizer import build_tokenizer
from vcsd.world.parameters import PARAMETERS
from vcsd.world.questions.kinds import KINDS
from vcsd.world.questions.suites import SUITES

PAGE = (Path(__file__).parents[3] / "docs" / "world.md").read_text()


def test_every_parameter_is_listed_with_its_value():
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\d., ]+) \|", PAGE, flags=re.MULTILINE))
    told = {}
    for field in dataclasses.fields(PARAMETERS):
        value = getattr(PARAMETERS, field.name)
        told[field.name] = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    assert {name: value for name, value in listed.items() if name in told} == told


def test_counts_on_the_page_are_those_of_the_code():
    assert len(KINDS) == 13
    assert "thirteen kinds" in PAGE
    assert f"has {len(build_tokenizer())} tokens" in PAGE
    for name in SUITES:
        assert f"| `{name}` | " in PAGE
