"""Where a token's contrast comes from: erase the image tile by tile and see how much the token loses.

The support of a tile for a token is log p(token | image) - log p(token | image without the tile), in nats: positive
where the tile makes the token more likely. A tile is erased by showing the control there. Each tile needs its own
pass over the image and the response; as many of them as fit share one packed row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from vcsd.core import contrast, log_probs
from vcsd.errors import ConfigError
from vcsd.loss.reference import full_logits
from vcsd.models.encode import encode
from vcsd.models.family import family_of
from vcsd.models.packed.packing import Group, longest_view, plan_rows
from vcsd.models.score import score
from vcsd.monitor.work_bar import WorkBar
from vcsd.types import Example, user_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image
    from torch import Tensor, nn

    from vcsd.inspect.opened import OpenedModel
    from vcsd.inspect.token_scores import CandidateScore, ResponseContrast
    from vcsd.models.encode import Encoded

MOST_TILES = 32
"""The most tiles along one side."""

MOST_MAPS = 6
"""The most maps drawn if no token is chosen, by largest contrast."""

LEAST_SHARE = 0.1
"""Tokens with less than this share of the largest contrast are not mapped unless chosen."""

ROW_TOKENS = 8192
"""Tokens per packed row; a longer prompt gets its own row."""


@dataclass(frozen=True)
class TileMap:
    """How much each tile supports one candidate at one position. `support[row][column]` is in nats.

    The candidate is the response's own token, or the one that the target prefers there.
    """

    position: int
    candidate: CandidateScore
    is_realised: bool
    support: tuple[tuple[float, ...], ...]


@torch.no_grad()
def tile_map(
    opened: OpenedModel, seen: ResponseContrast, *, side: int, positions: Sequence[int] | None = None
) -> list[TileMap]:
    """Map tokens of a response over `side` x `side` tiles. Positions count from 0; default: the most visual tokens."""
    if not 1 <= side <= MOST_TILES:
        raise ConfigError([f"tiles = {side} is outside [1, {MOST_TILES}]. 6 maps the image in 6 x 6 tiles."])
    for position in positions or ():
        if not 0 <= position < len(seen.tokens):
            raise ConfigError([f"token = {position + 1}, but the response has tokens 1 to {len(seen.tokens)}."])
    chosen = _chosen(seen, positions)
    if not chosen:
        return []
    whole = seen.images[0]
    pictures = [whole, *(erased(whole, seen.control_images[0], side, tile) for tile in range(side * side))]
    prompts = [_prompt(opened, seen, picture) for picture in pictures]
    log_p_TM = _log_p(opened.model, prompts, seen, [(position, candidate.token_id) for position, candidate in chosen])
    support_TM = contrast(log_p_TM[:1].expand(side * side, -1), log_p_TM[1:])
    return [
        TileMap(position, candidate, candidate == seen.tokens[position].realised, _grid(support_TM[:, m], side))
        for m, (position, candidate) in enumerate(chosen)
    ]


def _chosen(seen: ResponseContrast, positions: Sequence[int] | None) -> list[tuple[int, CandidateScore]]:
    """Return the candidates to map: the response's token, and the target's most probable one if it differs."""
    candidates = [
        (position, candidate)
        for position in (range(len(seen.tokens)) if positions is None else positions)
        for candidate in dict.fromkeys((seen.tokens[position].realised, seen.tokens[position].candidates[0]))
    ]
    if positions is not None:
        return candidates
    ranked = sorted(candidates, key=lambda pair: -pair[1].contrast)
    least = max(LEAST_SHARE * ranked[0][1].contrast, 0.01)
    return [(position, candidate) for position, candidate in ranked[:MOST_MAPS] if candidate.contrast >= least]


def erased(image: Image, control: Image, side: int, tile: int) -> Image:
    """Show the control in one tile of the image."""
    row, column = divmod(tile, side)
    left, right = (image.width * edge // side for edge in (column, column + 1))
    top, bottom = (image.height * edge // side for edge in (row, row + 1))
    picture = image.copy()
    picture.paste(control.resize(image.size).crop((left, top, right, bottom)), (left, top))
    return picture


def _prompt(opened: OpenedModel, seen: ResponseContrast, picture: Image) -> Encoded:
    example = Example(id="tiles", images=[picture], prompt=[user_message(seen.question, num_images=1)])
    return encode(opened.processor, example, chat_template_kwargs=opened.chat_template_kwargs)


def _log_p(
    model: nn.Module, prompts: Sequence[Encoded], seen: ResponseContrast, wanted: Sequence[tuple[int, int]]
) -> Tensor:
    """Log-probability of each wanted (position, token) after each prompt (prompts, wanted)."""
    family = family_of(model)
    family.prepare(model)
    response = seen.response[: max(position for position, _ in wanted) + 1]
    groups = [Group(prompt, [response]) for prompt in prompts]
    longest = max(len(prompt) for prompt in prompts) + len(response)
    budget = max(ROW_TOKENS, longest) if family.shares_prefix else longest
    plan = plan_rows(longest_view([groups]), budget, family.cost)
    log_p = torch.empty(len(prompts), len(wanted))
    with WorkBar("tiles") as bar:
        bar.begin(0, len(prompts))
        for row, pieces in enumerate(plan.rows):
            scores = score(model, plan.select(groups, row))
            for g, piece in enumerate(pieces):
                rows = [g * len(response) + position for position, _ in wanted]
                logits_MV = full_logits(replace(scores, hidden_ND=scores.hidden_ND[rows]))
                index_M1 = torch.tensor([token for _, token in wanted], device=logits_MV.device)[:, None]
                log_p[piece.group] = log_probs(logits_MV, seen.method.temperature).gather(-1, index_M1)[:, 0].cpu()
                bar.step()
    return log_p


def _grid(support_T: Tensor, side: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in support_T.view(side, side).tolist())
