"""The layout of a packed row, its gathers with their fixed-order backward, and the attention that reads them."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from vcsd.models.packed.layout import Gather, Layout, Segment
from vcsd.models.qwen import attention, vision
from vcsd.models.qwen.prefix_tree import PrefixTree

CPU = torch.device("cpu")
FOREST = [Segment(3, None), Segment(2, 0), Segment(1, 0), Segment(4, None), Segment(2, 3)]


def ancestors() -> list[list[int]]:
    """For every token of FOREST: the rows it may see, itself last, written out by hand."""
    a, b = [0, 1, 2], [6, 7, 8, 9]
    return [
        *([0], [0, 1], [0, 1, 2]),
        *([*a, 3], [*a, 3, 4]),
        [*a, 5],
        *([6], [6, 7], [6, 7, 8], b),
        *([*b, 10], [*b, 10, 11]),
    ]


def test_a_gather_copies_rows_and_fills_zeros() -> None:
    x = torch.arange(1.0, 7.0).view(3, 2)
    out = Gather(torch.tensor([2, 0, 3, 0]), num_sources=3, device=CPU)(x)
    assert out.tolist() == [[5, 6], [1, 2], [0, 0], [1, 2]]


@pytest.mark.parametrize("index", [[2, 0, 3, 0, 1, 0], [1, 2, 0], [0, 0, 0], [3, 3, 1]])
def test_the_gradient_of_a_gather_is_that_of_indexing(index: list[int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Gather(torch.tensor(index), 3, CPU), (x,))


def test_the_gradients_of_copies_are_summed_in_float32() -> None:
    x = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
    out = Gather(torch.zeros(257, dtype=torch.long), 1, CPU)(x)
    out.backward(torch.ones_like(out))
    assert x.grad is not None
    assert x.grad.item() == 256.0, "256 + 1 rounds to 256 once; a bfloat16 sum of ones would stop growing there"
    out = Gather(torch.zeros(1024, dtype=torch.long), 1, CPU)(x)
    x.grad = None
    out.backward(torch.ones_like(out))
    assert x.grad.item() == 1024.0


def test_each_segment_sees_its_ancestors_and_itself() -> None:
    layout = Layout(FOREST, CPU)
    paths = layout.keys.index_M.split(layout.lengths_k)
    assert [path.tolist() for path in paths] == [ancestors()[last] for last in (2, 4, 5, 9, 11)]
    assert layout.cu_q.tolist() == [0, 3, 5, 6, 10, 12]
    assert layout.cu_k.tolist() == [0, 3, 8, 12, 16, 22]


def test_levels_hold_every_token_once_and_unpad_brings_them_back() -> None:
    layout = Layout(FOREST, CPU)
    x = torch.randn(12, 5)
    batches = [level.batch(x) for level in layout.levels]
    assert [level.shape_NL for level in layout.levels] == [(2, 4), (3, 2)]
    assert torch.equal(layout.unpad(torch.cat(batches)), x)
    fork = layout.levels[1].fork
    assert fork is not None
    assert fork.index_M.tolist() == [0, 0, 1]


@pytest.mark.parametrize("num_taps", [2, 4, 6])
def test_the_convolution_of_a_row_is_that_of_each_path(num_taps: int) -> None:
    torch.manual_seed(0)
    layout = Layout(FOREST, CPU, num_taps)
    x_TC, weight_CK = torch.randn(12, 3, dtype=torch.float64), torch.randn(3, 1, num_taps, dtype=torch.float64)
    there, back = layout.taps
    out_1CM = functional.conv1d(functional.pad(there(x_TC).T[None], (num_taps - 1, 0)), weight_CK, groups=3)
    found_TC = back(out_1CM[0].T)
    for token, path in enumerate(ancestors()):
        alone = functional.conv1d(functional.pad(x_TC[path].T[None], (num_taps - 1, 0)), weight_CK, groups=3)[0, :, -1]
        torch.testing.assert_close(found_TC[token], alone)


@pytest.mark.parametrize("num_kv_heads", [4, 2])
@pytest.mark.parametrize("call_in_pairs", [-1, 10**9], ids=["by_segment", "by_level"])
def test_attention_over_a_row_is_attention_over_each_path(
    num_kv_heads: int, call_in_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "CALL_IN_PAIRS", call_in_pairs)
    torch.manual_seed(0)
    query = torch.randn(1, 4, 12, 8, dtype=torch.float64)
    key, value = torch.randn(2, 1, num_kv_heads, 12, 8, dtype=torch.float64)
    layout = Layout(FOREST, CPU)
    mixed_1THE = PrefixTree(layout).attention(nn.Module(), query, key, value, 0.3)
    for token, path in enumerate(ancestors()):
        alone = functional.scaled_dot_product_attention(
            query[:, :, token : token + 1], key[:, :, path], value[:, :, path], scale=0.3, enable_gqa=num_kv_heads != 4
        )
        torch.testing.assert_close(mixed_1THE[0, token], alone[0, :, 0])
    assert layout.seen == {"attention": 1}


def fused_by_hand(query, key, value, cu_q, cu_k, max_q, max_k, *, scale, window_size=(-1, -1)) -> torch.Tensor:
    """What the fused kernel promises: sequences by their ends, causal from the end with window (-1, 0)."""
    out = []
    for (a, b), (c, d) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        assert b - a <= max_q
        assert d - c <= max_k
        mask = torch.ones(b - a, d - c, dtype=torch.bool)
        mask = mask.tril(d - c - (b - a)) if window_size == (-1, 0) else mask
        parts = (x.transpose(0, 1)[None] for x in (query[a:b], key[c:d], value[c:d]))
        out.append(functional.scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale, enable_gqa=True))
    return torch.cat([x[0].transpose(0, 1) for x in out])


def test_the_fused_kernel_is_given_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(attention, "varlen_attention", lambda: fused_by_hand)
    layout = Layout(FOREST, CPU)
    query, (key, value) = torch.randn(12, 4, 8), torch.randn(2, 12, 2, 8)
    expected = attention.by_segment(query, key, value, layout, 0.3)
    torch.testing.assert_close(attention.varlen(query, key, value, layout, 0.3), expected)


def test_the_fused_kernel_keeps_images_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(vision, "varlen_attention", lambda: fused_by_hand)
    query, key, value = torch.randn(3, 1, 2, 10, 8)
    ends = torch.tensor([0, 4, 10], dtype=torch.int32)
    expected, _ = vision._attention(
        nn.Module(), query, key, value, None, cu_seq_lens_q=ends, max_length_q=6, scaling=0.3
    )
    torch.testing.assert_close(vision._all_at_once(query, key, value, ends, 6, 0.3), expected)


def test_a_tree_of_three_levels_works() -> None:
    layout = Layout([Segment(2, None), Segment(2, 0), Segment(1, 1), Segment(3, 1)], CPU)
    assert [path.tolist() for path in layout.keys.index_M.split(layout.lengths_k)] == [
        [0, 1],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 5, 6, 7],
    ]
    assert [level.shape_NL for level in layout.levels] == [(1, 2), (1, 2), (2, 3)]
    assert layout.levels[2].sees_NLS[0].int().tolist() == [
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1, 1],
    ]


def test_padding_of_ancestors_is_not_seen() -> None:
    sees_NLS = Layout(FOREST, CPU).levels[1].sees_NLS
    assert sees_NLS[0].int().tolist() == [[1, 1, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1]]
    assert sees_NLS[2].int().tolist() == [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]


def test_a_row_takes_the_way_with_fewer_calls_or_less_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = []
    for name in ("by_level", "by_segment"):
        way = getattr(attention, name)
        monkeypatch.setattr(attention, name, lambda *args, way=way, name=name: ways.append(name) or way(*args))
    even = [Segment(20, None), *8 * [Segment(10, 0)]]
    uneven = [Segment(600, None), Segment(5, 0), Segment(5, None), Segment(400, 2)]
    for segments in (even, uneven):
        x = torch.randn(1, 1, sum(segment.length for segment in segments), 8)
        PrefixTree(Layout(segments, CPU)).attention(nn.Module(), x, x, x, None)
    assert ways == ["by_level", "by_segment"]
