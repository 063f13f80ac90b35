"""Random next-token distributions for property tests: float64 logits from flat to very peaked."""

import torch
from hypothesis import strategies as st


@st.composite
def logits(draw, *, rows: int = 1, num_positions: int = 3, min_vocab: int = 2, max_vocab: int = 12):
    """`rows` tensors of logits over the same vocabulary, shape (rows, N, V)."""
    vocab = draw(st.integers(min_vocab, max_vocab))
    size = rows * num_positions * vocab
    values = draw(st.lists(st.floats(-12, 12, width=32), min_size=size, max_size=size))
    return torch.tensor(values, dtype=torch.float64).view(rows, num_positions, vocab)


alphas = st.floats(0, 3)
betas = st.floats(0, 1)
anchors = st.floats(0, 2)
