"""Prompts to the letter: a changed space is a changed benchmark."""

import json
from pathlib import Path

import pytest

from toy_benchmarks import ROWS, write_tsvs
from vcsd.errors import ConfigError
from vcsd.evaluation.benchmarks import BENCHMARKS
from vcsd.evaluation.benchmarks.loading import load_benchmark
from vcsd.evaluation.benchmarks.prompt_styles import STYLES, prompt_text

SNAPSHOTS = json.loads((Path(__file__).parent / "prompt_snapshots.json").read_text())
OPTIONS = {"A": "red", "B": "green", "D": "blue"}


@pytest.mark.parametrize("style", list(STYLES))
@pytest.mark.parametrize("name", list(ROWS))
def test_the_prompt_of_every_benchmark_is_the_recorded_one(style, name, tmp_path):
    questions = load_benchmark(BENCHMARKS[name], write_tsvs(tmp_path), style=style, allow_unknown_data=True).questions
    texts = []
    for question in questions[:2]:
        (message,) = question.example.prompt
        *images, text = message["content"]
        assert message["role"] == "user"
        assert images == [{"type": "image"}] * len(question.example.images)
        texts.append(text["text"])
    assert texts == SNAPSHOTS[style][name]


def test_vlmevalkits_multiple_choice_text_keeps_its_trailing_space_and_line_break():
    expected = (
        "Hint: look\nQuestion: Which?\nOptions:\nA. red\nB. green\nD. blue\n"
        "Please select the correct answer from the options above. \n"
    )
    assert prompt_text("vlmevalkit", "option", "Which?", options=OPTIONS, hint="look") == expected
    assert prompt_text("vlmevalkit", "option", "Which?") == "Question: Which?\n"


def test_the_direct_style_is_vlmevalkits_text_for_qwen3_vl():
    assert prompt_text("direct", "option", "Which?", options={"A": "red"}) == (
        "Question: Which?\nOptions:\nA. red\nAnswer with the option letter only."
    )
    assert prompt_text("direct", "yes_no", "Is it?") == "Is it? Please answer yes or no."
    assert prompt_text("direct", "open", "How many?") == (
        "How many?\nPlease answer concisely with short words or phrases when possible."
    )


def test_an_unknown_style_gets_advice():
    with pytest.raises(ConfigError, match=r"style = 'cott' is not a prompt style. Did you mean 'cot'"):
        prompt_text("cott", "open", "x")
