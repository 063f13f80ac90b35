"""The parameters: one hash over all values, and changes that are checked."""

import dataclasses

import pytest

from vcsd.errors import ConfigError
from vcsd.world.parameters import PARAMETERS, Parameters


def test_the_digest_changes_with_every_value():
    digests = {PARAMETERS.digest()}
    for field in dataclasses.fields(Parameters):
        value = getattr(PARAMETERS, field.name)
        other = tuple(each + 1 for each in value) if isinstance(value, tuple) else value + 1
        digests.add(dataclasses.replace(PARAMETERS, **{field.name: other}).digest())
    assert len(digests) == 1 + len(dataclasses.fields(Parameters))


def test_changes_keep_their_type():
    changed = PARAMETERS.changed(["black_share=0", "batch=8", "side_shares=1,0,0"])
    assert (changed.black_share, changed.batch, changed.side_shares) == (0.0, 8, (1.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("blak_share=0", "Did you mean 'black_share'"),
        ("batch=many", "batch=many"),
        ("sides=3", "3 values are needed"),
    ],
)
def test_a_change_that_makes_no_sense_is_named(override, words):
    with pytest.raises(ConfigError, match=words):
        PARAMETERS.changed([override])
