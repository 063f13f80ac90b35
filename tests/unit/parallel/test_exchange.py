"""Rollouts of all ranks, put together by the ids of their examples."""

import json

import pytest

from vcsd.errors import RunError
from vcsd.parallel import exchange
from vcsd.parallel.exchange import all_rollouts
from vcsd.types import Rollout


@pytest.fixture
def gather_with(monkeypatch):
    """Two ranks, of which the second one sends what the test says."""

    def other(*rollouts):
        records = [[r.example_id, r.index, list(r.token_ids), r.stop, []] for r in rollouts]
        monkeypatch.setattr(exchange, "num_ranks", lambda: 2)
        monkeypatch.setattr(exchange, "gathered", lambda own: [json.loads(json.dumps(own)), [own[0], records]])

    return other


def test_rollouts_of_all_ranks_are_in_the_order_of_prompts_then_of_their_index(gather_with):
    first, second, third, fourth = (Rollout(name, i, (i,), "end") for name in ("b", "a") for i in range(2))
    gather_with(third, fourth)
    assert all_rollouts([first, second], None, ["a", "b"]) == ([third, fourth, first, second], None)


def test_two_examples_of_one_id_are_refused_since_their_rollouts_could_not_be_told_apart(gather_with):
    gather_with(Rollout("a", 0, (2,), "end"))
    with pytest.raises(RunError, match="two examples of this step have the id 'a'"):
        all_rollouts([Rollout("a", 0, (1,), "end")], None, ["a", "a"])
