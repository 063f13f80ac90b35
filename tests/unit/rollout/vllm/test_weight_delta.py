"""Patches rebuild the sender's weights bit for bit, or are refused."""

import pytest
import torch

from vcsd.rollout.vllm.weight_delta import DeltaReceiver, DeltaSender, words_of
from vcsd.rollout.vllm.weight_sync import DeltaMismatchError


def tensor(size=1000, dtype=torch.bfloat16, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def changed(before, share):
    after = before.clone()
    places = torch.randperm(len(before), generator=torch.Generator().manual_seed(1))[: int(share * len(before))]
    words_of(after)[places] += 1
    return after


def sent_after(before, after):
    sender, receiver = DeltaSender(), DeltaReceiver()
    for patch in sender.patches([("w", before)]):
        receiver.apply(patch)
    (patch,) = sender.patches([("w", after)])
    return patch, receiver


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("share", "form"), [(0.0, "positions"), (0.01, "positions"), (0.2, "mask"), (0.99, "whole")])
def test_every_form_rebuilds_the_tensor_bit_for_bit(dtype, share, form):
    before = tensor(1003, dtype)
    after = changed(before, share)
    patch, receiver = sent_after(before, after)
    assert patch.form == form
    name, rebuilt = receiver.apply(patch)
    assert name == "w"
    assert torch.equal(words_of(rebuilt), words_of(after))


def test_a_patch_costs_no_more_than_the_tensor():
    before = tensor()
    sizes = [sent_after(before, changed(before, share))[0].num_bytes for share in (0, 0.01, 0.03, 0.1, 0.5, 0.9, 1)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[1] == 10 * 6
    assert sizes[-1] == 2000


def test_zeros_of_another_sign_and_the_bits_of_a_nan_arrive():
    before = torch.tensor([0.0, 1.0, 2.0] * 40, dtype=torch.bfloat16)
    after = before.clone()
    after[0] = -0.0
    words_of(after)[1] = 0x7FC1
    patch, receiver = sent_after(before, after)
    assert torch.equal(words_of(receiver.apply(patch)[1]), words_of(after))
    assert patch.form == "positions"
    assert patch.values.numel() == 2


def test_a_receiver_with_other_weights_refuses_the_patch_and_takes_whole_tensors_again():
    before = tensor()
    patch, receiver = sent_after(before, changed(before, 0.01))
    receiver.apply(next(DeltaSender().patches([("w", tensor(seed=2))])))
    with pytest.raises(DeltaMismatchError, match="the weight w, rebuilt from changes"):
        receiver.apply(patch)
    with pytest.raises(DeltaMismatchError, match="has no copy of it"):
        receiver.apply(patch)
    (whole,) = DeltaSender().patches([("w", before)])
    assert torch.equal(receiver.apply(whole)[1], before)


def test_a_sender_that_forgets_sends_everything():
    sender = DeltaSender()
    forms = []
    for forget in (False, False, True):
        if forget:
            sender.forget()
        forms += [patch.form for patch in sender.patches([("w", tensor())])]
    assert forms == ["whole", "positions", "whole"]


def test_the_copy_is_the_senders_own():
    sender, weights = DeltaSender(), tensor()
    list(sender.patches([("w", weights)]))
    weights[0] += 1  # in place, as an optimizer does
    (patch,) = sender.patches([("w", weights)])
    assert patch.places.tolist() == [0]


def test_a_tensor_of_another_shape_is_sent_whole():
    sender = DeltaSender()
    forms = [patch.form for size in (8, 9) for patch in sender.patches([("w", tensor(size))])]
    assert forms == ["whole", "whole"]
