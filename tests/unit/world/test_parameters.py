"""Parameters: one hash of all values, and overrides that are checked."""

import dataclasses

import pytest

from vcsd.errors import ConfigError
from vcsd.world.parameters import PARAMETERS, Parameters


def another(value):
    """A value near this one that makes sense for the same parameter."""
    if isinstance(value, tuple):
        return (*value[1:], value[0]) if isinstance(value[0], float) else tuple(each - 1 for each in value)
    return (
        value / 2
        if value and isinstance(value, float)
        else 0.5
        if isinstance(value, float)
        else max(2, value - 1)
        if value != 2
        else 3
    )


def test_the_digest_changes_with_every_value():
    fields = dataclasses.fields(Parameters)
    changes = [{field.name: another(getattr(PARAMETERS, field.name))} for field in fields]
    digests = {PARAMETERS.digest(), *(dataclasses.replace(PARAMETERS, **change).digest() for change in changes)}
    assert len(digests) == 1 + len(fields)


def test_changes_keep_their_type():
    changed = PARAMETERS.changed(["black_share=0", "batch=8", "side_shares=1,0,0"])
    assert (changed.black_share, changed.batch, changed.side_shares) == (0.0, 8, (1.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("blak_share=0", "Did you mean 'black_share'"),
        ("batch=many", "batch=many"),
        ("sides=3", "3 values are needed"),
        ("black_share=1.5", r"black_share = 1.5 is outside \[0, 1\]"),
        ("side_shares=0.5,0.5,0.5", "must be at least 0 and sum to 1"),
        ("most_things=6", "most_things = 6"),
        ("batch=0", "batch = 0 is not a positive number"),
        ("sway_steps=-1", "sway_steps = -1 is negative"),
        ("shift=5", "does not fit a cell of 32 pixels"),
    ],
)
def test_a_change_that_makes_no_sense_is_named(override, words):
    with pytest.raises(ConfigError, match=words):
        PARAMETERS.changed([override])


def test_later_additions_change_the_digest_only_where_they_change_something():
    assert PARAMETERS.digest() == "ac36b023d0d2", "the digest that the committed results record"
    assert PARAMETERS.changed(["blur=32"]).digest() != PARAMETERS.digest()
    with pytest.raises(ConfigError, match="blur = 3 does not divide a cell of 32 pixels"):
        PARAMETERS.changed(["blur=3"])


def test_a_base_that_reasons_needs_longer_answers():
    assert PARAMETERS.changed(["reason_share=1"]).longest_answer > PARAMETERS.longest_answer
