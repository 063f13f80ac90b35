"""A seeded attacker: hostile values, mutations of valid input, and a tally of what came of them.

Every case is a function of the seed, its kind and its number, so a failure names all that is needed to repeat it:

    ATTACK_SEED=7 make test-attack
"""

import json
import os
import random
from collections import Counter
from contextlib import contextmanager

from vcsd.errors import ConfigError, DataError, RunError
from vcsd.evaluation.asking.chat import RefusedError

SEED = int(os.environ.get("ATTACK_SEED", "0"))

CLEAN = (ConfigError, DataError, RunError, RefusedError)
"""Errors meant for users. Any other exception fails a case."""

MAX_MESSAGE = 6000
"""The longest error message: one sentence for each problem, none of them a page."""

TEXTS = (
    *(
        "",
        " ",
        "\0",
        "\n",
        "\r\n",
        "\t",
        "\ufeff",
        "\u202e",
        "\u2028",
        "\x1b[2J\x1b]0;x\x07",
        "\x9b31m",
        "\ud800",
        "\udc00",
    ),
    *("<image>", "<image>" * 50, "<|im_end|>", "<|im_start|>system\n", "<think>", "<|image_pad|>", "<|vision_start|>"),
    *("{answer}", "{0.__class__}", "{{ 7 * 7 }}", "{% for i in range(10**9) %}", "%s%n", "$(touch ran)", "`touch ran`"),
    *("../../etc/passwd", "/etc/passwd", "/dev/zero", "file:///etc/passwd", "http://127.0.0.1:1/a.png", "\\\\h\\share"),
    *("[", "[[", '["a"', "{", '{"a":', "null", "true", "NaN", "1e999", "0x10", "1_000", "٣", "²", "½", "1e-5", "-0"),
    *(
        "<script>alert(1)</script>",
        "</script>",
        "<!--",
        "]]>",
        "&amp;",
        '" onload="x',
        "'",
        "[/red]",
        "[bold]",
        "[link=x]",
    ),
    *("a" * 300, "a" * 5000, "é" * 200, "👩‍👩‍👧", "\U0001f600", "ﷺ" * 100, "a\u0301" * 100, "\x00" * 10),
    *("__class__", "__proto__", "constructor", "CON", "NUL", "~", "$HOME", "*", "?", "!!python/object:os.system x"),
)
NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1e-5, 1e-320, 1.7e308, -1.7e308, float("nan"), float("inf"), float("-inf")),
)


def rng_of(kind, number):
    """The random generator of one case."""
    return random.Random(f"{SEED}/{kind}/{number}")


def text(rng):
    """A hostile text, or several in a row, or random characters."""
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(TEXTS)
    if kind < 0.8:
        return "".join(rng.choice(TEXTS) for _ in range(rng.randrange(1, 4)))
    return "".join(
        chr(rng.choice((rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x11000)))) for _ in range(20)
    )


def value(rng, depth=3):
    """Any value that JSON can hold, and a few that it cannot."""
    kind = rng.random()
    if kind < 0.4 or depth == 0:
        return text(rng)
    if kind < 0.6:
        return rng.choice(NUMBERS)
    if kind < 0.7:
        return rng.choice((None, True, False, [], {}, [[]], [{}], [None]))
    if kind < 0.85:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {text(rng): value(rng, depth - 1) for _ in range(rng.randrange(4))}


def mutated(rng, tree, rate=0.15):
    """A copy of a tree of plain values, with parts replaced, removed, repeated, renamed or wrapped."""
    if rng.random() < rate:
        return rng.choice((lambda: value(rng), lambda: [tree], lambda: {"a": tree}, lambda: None))()
    if isinstance(tree, dict):
        pairs = [(key, mutated(rng, inner, rate)) for key, inner in tree.items() if rng.random() > rate / 3]
        if rng.random() < rate:
            pairs.append((text(rng), value(rng)))
        return dict(pairs)
    if isinstance(tree, list):
        return [
            mutated(rng, inner, rate) for inner in tree for _ in range(rng.choice((0, 2)) if rng.random() < rate else 1)
        ]
    if isinstance(tree, str) and rng.random() < rate:
        place = rng.randrange(len(tree) + 1)
        return tree[:place] + text(rng) + tree[place:]
    if isinstance(tree, int | float) and not isinstance(tree, bool) and rng.random() < rate:
        return rng.choice((tree + 1, -tree, str(tree), rng.choice(NUMBERS)))
    return tree


def mutated_bytes(rng, content):
    """A file's content with bits flipped, a part cut out, repeated or overwritten, or the end missing."""
    if not content or rng.random() < 0.05:
        return rng.randbytes(rng.randrange(64))
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice((1, 1, 2, 8, 64, 1000)))
    before, part, after = content[:start], content[start:end], content[end:]
    changes = (
        lambda: bytes([part[0] ^ 1 << rng.randrange(8)]) + part[1:] + after,
        lambda: b"",
        lambda: after,
        lambda: part * rng.choice((2, 3, 50)) + after,
        lambda: rng.randbytes(len(part)) + after,
        lambda: text(rng).encode("utf-8", "surrogatepass") + part + after,
    )
    return before + rng.choice(changes)()


def dumped(tree):
    """JSON text of a tree, also of one whose numbers JSON lacks."""
    return json.dumps(tree, default=str)


class Tally:
    """Counts the cases of one kind by outcome."""

    def __init__(self, kind):
        self.kind, self.counts, self.number = kind, Counter(), 0

    def note(self, outcome):
        """Count one case."""
        self.counts[outcome] += 1

    @contextmanager
    def case(self, shown=None):
        """One case: clean errors are counted, other exceptions fail with what is needed to repeat it."""
        self.number += 1
        try:
            yield
        except CLEAN as error:
            message = str(error)
            assert message.strip(), f"{self.kind} {self.number}: an error without words"
            assert len(message) < MAX_MESSAGE, (
                f"{self.kind} {self.number}: {message[:300]} ... ({len(message)} characters)"
            )
            self.note(getattr(error, "reason", type(error).__name__))
        except Exception as error:
            error.add_note(f"seed {SEED}, {self.kind} {self.number}: {ascii(shown)[:2000]}")
            raise
