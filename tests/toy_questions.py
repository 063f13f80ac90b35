"""Questions for tests of evaluation, and an answerer that needs no model."""

import re

from tiny_examples import picture
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.model_answerer import encode_question
from vcsd.rollout.sampling import Sampling
from vcsd.types import Example, Prediction, Question


def question(name="0", *, text="how many?", images=None, benchmark="toy", **fields):
    """A question about one picture, unless told otherwise."""
    images = (picture(),) if images is None else images
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
    example = Example(id=name, images=images, prompt=({"role": "user", "content": content},))
    return Question(example, benchmark=benchmark, **{"kind": "text", "gold": "2", **fields})


class Parrot:
    """Says the last words of a question, counts what it is asked, and dies after `dies_after` answers."""

    def __init__(self, model="parrot", dies_after=None, fails=()):
        self.identity = {"model": model}
        self.asked, self.dies_after, self.fails = [], dies_after, fails

    def answer(self, questions, sampling, *, seed):
        for place, each in reversed(list(enumerate(questions))):
            if self.dies_after is not None and len(self.asked) >= self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(each.id)
            if each.id in self.fails:
                yield place, Prediction(each.id, "", stop=None, error="DataError: broken")
            else:
                yield place, Prediction(each.id, each.example.prompt[-1]["content"][-1]["text"], "end", 3)


def check_room(answerer, own, room, processor):
    """Ask a short question, one whose response does not fit into `room` tokens, and one whose prompt does not.

    `own` answers with transformers, which has room for all.
    """

    def length(text):
        return len(encode_question(question(text=text), processor).input_ids)

    short, more = "What is shown?", " and what else"
    fits = (room - 2 - length(short)) // (length(short + 2 * more) - length(short + more))
    asked = [question("short", text=short), question("tight", text=short + more * fits)]
    asked.append(question("long", text=short + more * (fits + 20)))
    sampling = Sampling(max_new_tokens=32, temperature=0.0)
    answered, cut, refused = ask(asked, answerer, sampling=sampling)
    assert answered == ask(asked[:1], own, sampling=sampling)[0]
    assert answered.error is None
    assert re.match(rf"RunError: its response was cut off after \d+ tokens: .* room for {room} tokens", cut.error)
    assert re.match(rf"DataError: .* its prompt has \d+ tokens, {room - 1} are allowed", refused.error)
