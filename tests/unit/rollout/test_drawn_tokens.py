"""Every token of a rollout, drawn again from documented parts: its key, and the logits of an unchanged model.

The parts are tested elsewhere. Here they meet: a row that gets the numbers of another one, a filter at the wrong place,
or a token scored after the wrong prompt is noticed, whichever batch the row was in.
"""

import pytest
import torch

from tiny_groups import TinyPrompt, make_prompt, repeated_batch
from tiny_models import build_model, exact_arithmetic
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group
from vcsd.rollout.engine import TransformersEngine
from vcsd.rollout.sampling import Sampling, rollout_key, uniforms

SEED, STEP, NUM = 5, 3, 3
SAMPLINGS = [
    Sampling(max_new_tokens=70),
    Sampling(max_new_tokens=9, temperature=0.5, min_p=0.02, top_k=50, top_p=0.8, presence_penalty=0.7),
]


def prompts_of(family: str) -> list[TinyPrompt]:
    """One image, none and two: the order of the rows in a batch is another one."""
    sizes: list[list[tuple[int, int]]] = [[(4, 4)], [], [(4, 6), (2, 2)]]
    return [make_prompt(family, grids, 3, 2, seed=i, example_id=f"p{i}") for i, grids in enumerate(sizes)]


def chances(logits_V: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The probability of every token, filter by filter, as the documentation of `Sampling` says."""
    p_V = (logits_V / sampling.temperature).softmax(-1)
    p_V = p_V.where(p_V >= sampling.min_p * p_V.max(), 0.0)
    if sampling.top_k is not None:
        p_V = p_V.where(p_V >= p_V.sort(descending=True).values[sampling.top_k - 1], 0.0)
    p_V = p_V / p_V.sum()
    order = p_V.sort(descending=True).indices
    before_V = torch.zeros_like(p_V).index_put((order,), p_V[order].cumsum(0) - p_V[order])
    p_V = p_V.where(before_V < sampling.top_p, 0.0)
    return p_V / p_V.sum()


@pytest.mark.filterwarnings("ignore:.* once per response")
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["plain", "filtered"])
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "llava"])
def test_every_token_is_the_one_that_its_random_number_picks(family: str, sampling: Sampling) -> None:
    model, stock = (build_model(family, dtype=torch.float64) for _ in range(2))
    prompts = prompts_of(family)
    with exact_arithmetic(model, stock), torch.no_grad():
        drawn = TransformersEngine(model, max_rows=4).sample(
            prompts, sampling, num_rollouts=NUM, seed=SEED, step=STEP, with_log_probs=True
        )
        groups = [Group(prompts[n // NUM], [r.token_ids]) for n, r in enumerate(drawn.rollouts)]
        logits = [stock.get_output_embeddings()(repeated_batch(stock, [group], family)[0]) for group in groups]
    banned = sorted(family_of(model).vision_token_ids(model))
    assert drawn.log_probs is not None
    for rollout, logits_NV, log_probs_N in zip(drawn.rollouts, logits, drawn.log_probs, strict=True):
        tokens = torch.tensor(rollout.token_ids)
        expected_N = logits_NV.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        torch.testing.assert_close(log_probs_N.double(), expected_N, rtol=0, atol=1e-5)
        numbers = uniforms([rollout_key(SEED, STEP, rollout.example_id, rollout.index)], 0, len(tokens))[0]
        for place, (token, number) in enumerate(zip(rollout.token_ids, numbers, strict=True)):
            allowed_V = logits_NV[place].index_fill(0, torch.tensor(banned), -torch.inf)
            allowed_V[list(set(rollout.token_ids[:place]))] -= sampling.presence_penalty
            total_V = chances(allowed_V, sampling).cumsum(0)
            low = total_V[token - 1] if token else total_V.new_zeros(())
            assert low - 1e-9 <= number <= total_V[token] + 1e-9
            assert total_V[token] > low
