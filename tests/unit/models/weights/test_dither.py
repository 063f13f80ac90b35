"""Offsets keep every rounded weight, are spread evenly, and depend on seed, name and place alone."""

import copy

import pytest
import torch
from torch import nn

from tiny_models import build_model, rounded
from vcsd.models.freeze import freeze
from vcsd.models.weights import dither
from vcsd.models.weights.dither import add_offsets
from vcsd.teacher import fingerprint, named_tensors

SMALLEST = 2.0**-125
"""Weights below are left as they are."""

LARGEST = float(torch.finfo(torch.bfloat16).max)


def holder(values, dtype=torch.float32):
    """A model with one parameter."""
    model = nn.Module()
    model.weight = nn.Parameter(values.to(dtype))
    return model


def all_finite():
    """Every finite bfloat16 number, zeros of both signs and subnormal numbers included."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    finite = every[every.isfinite()]
    assert len(finite) == 2**16 - 2**8
    return finite


def neighbours(value):
    """The bfloat16 numbers next to one that is positive."""
    number, ends = torch.tensor(value).bfloat16(), torch.tensor([0.0, torch.inf]).bfloat16()
    return torch.nextafter(number, ends).tolist()


def offsets_of(value, count=200_000, seed=0):
    """Many offsets of one number."""
    model = holder(torch.full((count,), value))
    assert add_offsets(model, seed) == count
    return model.weight.detach().double() - value


@pytest.mark.parametrize("seed", range(20))
def test_every_bfloat16_number_stays_the_same_bit_for_bit(seed):
    finite = all_finite()
    model = holder(finite)
    add_offsets(model, seed)
    assert torch.equal(model.weight.bfloat16().view(torch.int16), finite.view(torch.int16))


@pytest.mark.parametrize("draw", [-0x7FFF, -0x7FFE, 0x7FFE, 0x7FFF])
def test_the_outermost_offsets_of_every_number_round_to_it(draw):
    finite = all_finite()
    bits = finite.float().view(torch.int32)
    bits, numbers = bits[dither._gets_offset(bits)], finite[dither._gets_offset(bits)]
    moved = bits + dither._in_interval(bits, torch.full_like(bits, draw))
    assert torch.equal(moved.view(torch.float32).bfloat16(), numbers)


@pytest.mark.parametrize("value", [SMALLEST, -SMALLEST, 1.0, -1.0, 1.0078125, 1.015625, 1.9921875, -LARGEST, LARGEST])
def test_every_offset_of_a_number_rounds_to_it(value):
    """Powers of two, and numbers whose last bit is even or odd: halfway between two, the even one wins."""
    draws = torch.arange(-0x7FFF, 0x8000, dtype=torch.int32)
    bits = torch.full_like(draws, int(torch.tensor(value).view(torch.int32)))
    moved = (bits + dither._in_interval(bits, draws)).view(torch.float32)
    assert torch.equal(moved.bfloat16(), torch.full_like(moved, value).bfloat16())
    assert bool((moved.abs().diff() >= 0).all()), "a larger draw is farther from zero"


def test_zeros_and_tiny_numbers_are_left_as_they_are_and_all_others_move():
    finite = all_finite().float()
    model = holder(finite.repeat(10))
    count = add_offsets(model, 0)
    moved = (model.weight.detach() != finite.repeat(10)).view(10, -1).any(dim=0)
    assert torch.equal(moved, finite.abs() >= SMALLEST)
    assert count == 10 * int(moved.sum())


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_what_is_not_finite_is_left_as_it_is(value):
    model = holder(torch.full((100,), value))
    assert add_offsets(model, 0) == 0
    assert torch.equal(model.weight.detach().nan_to_num(), torch.full((100,), value).nan_to_num())


@pytest.mark.parametrize("value", [0.0203857421875, -1.5, 0.0078125, 1.0, -2.0])
def test_offsets_are_spread_evenly_over_the_interval(value):
    below, above = neighbours(abs(value))
    outward = offsets_of(value) * (1 if value > 0 else -1)
    places = (outward + (abs(value) - below) / 2) / ((above - below) / 2)
    assert 0 < places.min() < 0.001
    assert 0.999 < places.max() < 1
    shares = torch.histc(places.float(), bins=10, min=0, max=1) / len(places)
    assert (shares - 0.1).abs().max() < 0.004, "five standard errors are 0.0034"


@pytest.mark.parametrize("value", [0.0203857421875, 1.0])
@pytest.mark.parametrize("share", [0.1, 0.5, -0.1])
def test_an_update_of_a_tenth_of_the_interval_changes_one_rounded_weight_in_ten(value, share):
    number, (below, above) = torch.tensor(value).bfloat16(), neighbours(value)
    update = share * (above - below) / 2
    updated = (value + offsets_of(value) + update).float()
    assert float((updated.bfloat16() != number).float().mean()) == pytest.approx(abs(share), abs=0.004)
    assert (torch.tensor(value) + 0.5 * update).bfloat16() == number, "half of it changes none without an offset"


def test_weights_that_are_no_bfloat16_numbers_are_left_as_they_are():
    values = torch.randn(100_000)
    is_number = values.bfloat16().float() == values
    model = holder(values.clone())
    assert add_offsets(model, 0) == int(is_number.sum()) < 20
    assert torch.equal(model.weight.detach()[~is_number], values[~is_number])


def test_only_trained_float32_weights_get_offsets():
    model = rounded(build_model())
    freeze(model, "vision")
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    add_offsets(model, 0)
    moved = {name: not torch.equal(weight, before[name]) for name, weight in model.named_parameters()}
    assert moved == {
        name: weight.requires_grad and bool(before[name].any()) for name, weight in model.named_parameters()
    }
    assert {False, True} == set(moved.values())
    half = holder(torch.randn(10), torch.bfloat16)
    assert add_offsets(half, 0) == 0


def test_tied_weights_get_one_offset_and_stay_tied():
    model = rounded(build_model(tie_word_embeddings=True))
    add_offsets(model, 0)
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    assert head is embedding
    (name,) = (name for name, weight in model.named_parameters() if weight is embedding)
    once = rounded(build_model(tie_word_embeddings=True)).get_input_embeddings().weight.detach()
    dither._add_to(once, dither._seed_of(0, name))
    assert torch.equal(embedding, once)


def test_offsets_depend_on_the_seed_and_the_name_and_not_on_the_order():
    def made(*names):
        model = nn.Module()
        for name in names:
            model.register_parameter(name, nn.Parameter(torch.full((1000,), 0.5)))
        return model

    one, other, third = made("a", "b"), made("b", "a"), made("a", "b")
    for model, seed in ((one, 0), (other, 0), (third, 1)):
        add_offsets(model, seed)
    assert torch.equal(one.a, other.a)
    assert torch.equal(one.b, other.b)
    assert not torch.equal(one.a, one.b)
    assert not torch.equal(one.a, third.a)


def test_the_place_in_memory_and_the_size_of_a_piece_do_not_matter(monkeypatch):
    values = torch.randn(37, 53).bfloat16().float()
    plain, turned = holder(values.clone()), holder(values.T.contiguous())
    turned.weight.data = turned.weight.data.T
    assert not turned.weight.is_contiguous()
    add_offsets(plain, 0)
    add_offsets(turned, 0)
    assert torch.equal(plain.weight, turned.weight)
    monkeypatch.setattr(dither, "_AT_ONCE", 100)
    pieces = holder(values.clone())
    add_offsets(pieces, 0)
    assert torch.equal(plain.weight, pieces.weight)


def test_a_second_time_changes_nothing_and_the_global_generator_is_not_used():
    model = rounded(build_model())
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    add_offsets(model, 0)
    assert torch.equal(torch.rand(1), expected)
    again = copy.deepcopy(model)
    add_offsets(again, 0)
    assert fingerprint(named_tensors(again)) == fingerprint(named_tensors(model))


def test_the_offsets_of_a_seed_are_known():
    """A resumed run restores its weights, but a run that starts again must start from the same ones."""
    model = holder(torch.full((4,), 0.5))
    add_offsets(model, 0)
    bits = model.weight.detach().view(torch.int32) - torch.tensor(0.5).view(torch.int32)
    assert bits.tolist() == [6994, 7099, 15235, -964]
