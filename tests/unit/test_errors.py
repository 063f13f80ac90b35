"""A Python caller reads no key of a recipe."""

import ast
import re
from pathlib import Path

import pytest

import vcsd
from vcsd import errors
from vcsd.errors import ConfigError, RunError, in_python, install_command, said_in_python

ROOT = Path(vcsd.__file__).parent
SHARED = (
    *("checkpoint", "data", "lora", "models", "monitor", "parallel", "rollout", "trainer", "views"),
    *("batch.py", "host_teacher.py", "inputs.py", "step.py", "teacher.py"),
)
"""Code that runs for Python callers as well as for recipes."""

KEY = re.compile(
    r"(?<![\w.`])(trainer|data|model|rollout|lora|evaluation)\.(?!train\(|jsonl|steps_ahead)[a-z_]+\b(?! import)"
    r"|RECIPE|[Ss]ame command"
)
"""Keys of a recipe. `rollout.steps_ahead` is also a field of Python's argument `rollout`."""


def messages():
    """Texts of more than one word in the shared code, without docstrings; what is filled in appears as {}."""
    for path in (
        file for part in SHARED for file in sorted([ROOT / part] if "." in part else (ROOT / part).rglob("*.py"))
    ):
        tree = ast.parse(path.read_text())
        nodes = list(ast.walk(tree))
        skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        skipped |= {
            id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node
        }
        for node in nodes:
            text = _text(node)
            if id(node) not in skipped and " " in text.strip():
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def _text(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in parts)


def test_no_message_that_python_callers_see_names_a_key_of_a_recipe():
    texts = dict(messages())
    assert sum(bool(KEY.search(text)) for text in texts.values()) > 30, "the search finds too little"
    assert {place: in_python(text) for place, text in texts.items() if KEY.search(in_python(text))} == {}


@pytest.mark.parametrize("kind", [RunError, lambda text: ConfigError([text, "other"])])
def test_errors_are_reworded_and_keep_their_kind(kind):
    error = kind("Lower trainer.learning_rate.")
    with pytest.raises(type(error)) as caught, said_in_python():
        raise error
    assert "Lower args.learning_rate." in str(caught.value)


def test_names_of_files_are_left_alone():
    text = "there is no file 'trainer.old/data.path/a.png' in runs/trainer.logs."
    assert in_python(text) == text


def test_the_command_for_an_extra_takes_the_tested_versions_of_a_checkout_alone(tmp_path, monkeypatch):
    assert install_command("peft") == "pip install -c constraints.txt -e '.[peft]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lib" / "vcsd" / "errors.py"))
    assert install_command("peft") == "pip install 'vcsd[peft]'"
