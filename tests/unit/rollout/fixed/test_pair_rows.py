"""Rows of a pair draw from the shaped target only in step; a row without its partner draws a placeholder."""

import pytest
import torch

from vcsd.core import log_probs, shape_target
from vcsd.method import METHODS
from vcsd.rollout.fixed.pair_rows import PAIR, PairRow, pair_sides, read_side, shape_pairs

BANNED = (7, 3)
OBJECTIVE = METHODS["vcsd"].objective([1])


def sides(name):
    return [read_side(values[PAIR]) for values in pair_sides(name, OBJECTIVE, BANNED)]


def rows(drawn_original=(), drawn_control=(), name="a"):
    original, control = sides(name)
    return PairRow(original, drawn_original), PairRow(control, drawn_control)


def logits(num_rows=4):
    torch.manual_seed(0)
    return torch.randn(num_rows, 9)


def test_both_rows_of_a_pair_become_its_target_and_others_stay():
    given = logits()
    original, control = rows([5], [5])
    shaped = shape_pairs(given.clone(), {2: original, 0: control})
    views = [log_probs(given[[row]].index_fill(1, torch.tensor(BANNED), -torch.inf)) for row in (2, 0)]
    expected = shape_target(*views, alpha=1.0, beta=0.1, anchor=1.0, end_token_ids=[1])[0]
    assert torch.equal(shaped[2], expected)
    assert torch.equal(shaped[0], expected)
    assert torch.equal(shaped[[1, 3]], given[[1, 3]])
    assert shaped[2].argmax() not in BANNED


@pytest.mark.parametrize("batch", [("original",), ("control",)])
def test_a_row_without_its_partner_draws_the_first_placeholder(batch):
    original, control = rows()
    present = {0: original} if batch == ("original",) else {0: control}
    shaped = shape_pairs(logits(), present)
    assert shaped[0].softmax(-1)[BANNED[0]] == 1


def test_rows_with_different_numbers_of_tokens_draw_a_placeholder():
    original, control = rows([5, 6], [5])
    shaped = shape_pairs(logits(), {0: original, 1: control})
    assert shaped.argmax(-1)[:2].tolist() == [BANNED[0]] * 2


def test_pairs_do_not_mix():
    first, second = rows(name="a"), rows(name="b")
    alone = shape_pairs(logits(), {0: first[0], 1: first[1]})
    both = shape_pairs(logits(), {0: first[0], 1: first[1], 2: second[0], 3: second[1]})
    assert torch.equal(both[:2], alone[:2])
    assert not torch.equal(both[0], both[2])


@pytest.mark.parametrize("values", [{}, 5, {**pair_sides("a", OBJECTIVE, BANNED)[0][PAIR], "side": "left"}])
def test_what_is_not_a_side_is_refused(values):
    with pytest.raises(ValueError, match=PAIR):
        read_side(values)


def test_a_side_needs_a_placeholder_to_draw():
    with pytest.raises(ValueError, match="at least one banned token"):
        read_side(pair_sides("a", OBJECTIVE, ())[0][PAIR])
