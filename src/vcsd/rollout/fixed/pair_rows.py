"""Contrast decoding inside vLLM: the rows of a batch that belong together, and what is drawn from them.

Each rollout is two requests, one with the image and one with the control. vLLM computes them side by side in a batch.
Before it draws, both rows are replaced by the same log q*, so both requests draw the same token and stay in step.

vLLM alone decides which requests share a batch. A row gets log q* only if its partner is in the batch and has drawn as
many tokens; otherwise it draws a placeholder, which is banned and ends the request. So if both requests return the same
tokens, and no placeholder, each token was drawn from both views after the same tokens. If they had drawn token k in
different batches, the later one would have found its partner one token further, or gone, and drawn a placeholder. This
also covers a row whose prompt is only read in part: vLLM discards what such a row draws, so it draws its token later.

Shape legend: R requests of a batch, P pairs among them, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vcsd.errors import ConfigError
from vcsd.loss.objective import Objective
from vcsd.rollout.contrast_engine import shaped_log_probs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

PAIR = "vcsd_pair"
"""The extra argument of a request that holds its side of a pair."""

SIDES = ("original", "control")
_SHAPE = ("alpha", "beta", "anchor", "end_tokens_keep_anchor")


@dataclass(frozen=True)
class PairSide:
    """One request of a pair: the pair's name, which view it shows, the target's shape, and tokens never drawn."""

    pair: str
    side: str
    objective: Objective
    banned: tuple[int, ...]


def pair_sides(pair: str, objective: Objective, banned: Sequence[int]) -> list[dict[str, Any]]:
    """Return the extra arguments of the two requests of a pair, as plain values."""
    shape = {name: getattr(objective, name) for name in _SHAPE}
    ids = {"end_token_ids": list(objective.end_token_ids), "banned": list(banned)}
    return [{PAIR: {"pair": pair, "side": side, **shape, **ids}} for side in SIDES]


def read_side(values: Any) -> PairSide:
    """Read a request's side of a pair from its extra argument. Raise a ValueError if that is not valid."""
    try:
        banned, ends = (tuple(int(token) for token in values[name]) for name in ("banned", "end_token_ids"))
        objective = Objective(end_token_ids=ends, **{name: values[name] for name in _SHAPE})
        side = PairSide(str(values["pair"]), str(values["side"]), objective, banned)
    except (TypeError, KeyError, ConfigError) as error:
        raise ValueError(f"{PAIR} is not a side of a pair: {error}") from error
    if side.side not in SIDES or not side.banned:
        raise ValueError(f"{PAIR} needs a side ({' or '.join(SIDES)}) and at least one banned token.")
    return side


@dataclass(frozen=True)
class PairRow:
    """A request of a pair in a batch. `drawn` is vLLM's own list of the tokens that it has drawn so far."""

    side: PairSide
    drawn: Sequence[int]


def shape_pairs(logits_RV: Tensor, rows: Mapping[int, PairRow]) -> Tensor:
    """Replace both rows of each pair by its log q*, in place. Let rows without their partner draw a placeholder."""
    places: dict[str, dict[str, int]] = {}
    for place, row in rows.items():
        places.setdefault(row.side.pair, {})[row.side.side] = place
    in_step: dict[tuple[Objective, tuple[int, ...]], list[list[int]]] = {}
    for pair in places.values():
        if len(pair) == len(SIDES) and len({len(rows[place].drawn) for place in pair.values()}) == 1:
            side = rows[pair["original"]].side
            in_step.setdefault((side.objective, side.banned), []).append([pair[name] for name in SIDES])
            continue
        for place in pair.values():
            logits_RV[place] = -torch.inf
            logits_RV[place, rows[place].side.banned[0]] = 0.0
    for (objective, banned), pairs in in_step.items():
        original_P, control_P = torch.tensor(pairs, device=logits_RV.device).T
        log_q_PV = shaped_log_probs(logits_RV[original_P], logits_RV[control_P], objective, banned)
        logits_RV[original_P] = logits_RV[control_P] = log_q_PV
    return logits_RV
