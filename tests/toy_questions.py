"""Questions for tests of evaluation, and an answerer that needs no model."""

from tiny_examples import picture
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
