"""Small questions of every kind, and predictions to them."""

from vcsd.types import Example, Prediction, Question

COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "black"}


def example(name, text="What is it?", images=()):
    parts = [{"type": "image"} for _ in images]
    return Example(name, list(images), [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}])


def option(name, gold="A", options=None, benchmark="BLINK", images=(), fields=None, **groups):
    options = COLOURS if options is None else options
    return Question(example(name, images=images), benchmark, "option", gold, options, groups, fields or {})


def yes_no(name, gold="Yes", benchmark="HallusionBench", **groups):
    """The name is VLMEvalKit's index: category, subcategory, input, set, figure, question."""
    category, sub, _, set_, figure, asked = name.split("_")
    placed = {"category": category, "l2-category": f"{category}_{sub}", "set": set_, "figure": figure}
    return Question(example(name), benchmark, "yes_no", gold, groups={**placed, "question": asked, **groups})


def number(name, gold, kind="integer", benchmark="MathVista_MINI", fields=None, **groups):
    return Question(example(name), benchmark, kind, gold, groups=groups, fields=fields or {})


def say(name, text, stop="end", error=None):
    return Prediction(name, text, stop, error=error)


def say_all(questions, text):
    """Predictions of the same text, or of what a function makes of each question."""
    made = {}
    for question in questions:
        words = text(question) if callable(text) else text
        made.setdefault(question.benchmark, []).append(say(question.id, words))
    return made
