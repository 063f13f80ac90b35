"""Which questions an evaluation keeps for reports: the same for every model, few, and with small pictures."""

import json
from dataclasses import replace

from PIL import Image

from tiny_answers import option
from vcsd.evaluation.asked_questions import MOST_PER_BENCHMARK, kept_questions, write_questions
from vcsd.types import user_message


def questions(num, benchmark="BLINK"):
    return [replace(option(f"q{place}", "A", category="c"), benchmark=benchmark) for place in range(num)]


def test_the_same_questions_are_kept_whatever_else_was_asked():
    many = questions(500)
    kept = {one.id for one in kept_questions(many)}
    assert len(kept) == MOST_PER_BENCHMARK
    assert {
        one.id for one in kept_questions([*questions(30, "VStar"), *many[::-1]]) if one.benchmark == "BLINK"
    } == kept
    part = {one.id for one in kept_questions(many[:300])}
    assert kept & {one.id for one in many[:300]} <= part


def test_a_file_holds_text_answer_and_picture_and_is_written_anew(tmp_path):
    shown = {"images": [Image.new("RGB", (900, 900), "red")], "prompt": [user_message("What?", num_images=1)]}
    pictured = [replace(one, example=replace(one.example, **shown)) for one in questions(2)]
    for _ in range(2):
        path = write_questions(tmp_path, pictured)
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["question"], first["text"], first["gold"]) == ("q0", "What?", "A")
    assert first["thumbnails"] == second["thumbnails"]
    with Image.open(tmp_path / first["thumbnails"][0]) as small:
        assert small.size == (192, 192)
