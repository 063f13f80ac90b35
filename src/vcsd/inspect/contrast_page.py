"""The page of a token contrast: image and control, the coloured response of each model, differences, and tile maps."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from vcsd.report.markup import Html, text
from vcsd.report.page import Page, PageSection
from vcsd.report.parts import signed
from vcsd.report.tokens import (
    ColouredToken,
    HeatMap,
    TokenDetail,
    TokenRow,
    colour_legend,
    full_colour,
    heat_maps,
    side_by_side,
    signed_nats,
    token_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcsd.inspect.image_tiles import TileMap
    from vcsd.inspect.token_scores import CandidateScore, ResponseContrast, TokenScore


def colour_scale(seen: Sequence[ResponseContrast]) -> float:
    """Return the contrast, in nats, that gets the full colour: one number for all models and their differences."""
    values = [token.realised.contrast for one in seen for token in one.tokens]
    values += [token.value for row in difference_rows(seen) for token in row.tokens]
    return full_colour(values)


def contrast_page(seen: Sequence[ResponseContrast], maps: Mapping[str, Sequence[TileMap]] | None = None) -> Page:
    """Build the page. `maps` holds the tile maps of some of the models, by name."""
    first, scale = seen[0], colour_scale(seen)
    views = [("image", first.images[0]), (f"control: {first.method.contrast_view}", first.control_images[0])]
    legend = colour_legend(scale, low="the image makes it less likely", high="more likely")
    rows = [*map(model_row, seen), *difference_rows(seen)]
    question = f'<p class="question">{text(first.question)}</p>'
    body = f'<div class="beside">{side_by_side(views)}<div>{question}{legend}{token_rows(rows, scale)}</div></div>'
    sections = [
        PageSection("Contrast of each token", Html(body), _ROWS_LEAD),
        PageSection("Where it comes from", _maps(first, maps or {}), _MAPS_LEAD),
        PageSection("How to read the details", Html(f'<p class="about">{text(_legend_text(first))}</p>')),
    ]
    return Page("What the image changes", sections, _lead(seen), notes=notes(seen))


_ROWS_LEAD = (
    "log p(token | image) - log p(token | control). Point at a token, click it, or move with Tab and the arrow keys to "
    "see the candidates at its position."
)

_MAPS_LEAD = (
    "One tile of the image is erased at a time. A warm tile makes the token more likely: without it, the token loses "
    "this many nats."
)


def _lead(seen: Sequence[ResponseContrast]) -> str:
    names = ", ".join(one.name for one in seen)
    strongest = max(seen[0].tokens, key=lambda token: abs(token.realised.contrast))
    source = "Its own greedy answer" if seen[0].is_sampled else "A given answer"
    return (
        f"{source}, {len(seen[0].tokens)} tokens, predicted with the image and with the control by {names}. The "
        f"image matters most for \u201c{strongest.realised.text.strip()}\u201d "
        f"({signed_nats(strongest.realised.contrast)})."
    )


def _legend_text(first: ResponseContrast) -> str:
    method = first.method
    return (
        f"Probabilities are at temperature {method.temperature:g}, as in the loss. The target is p(image) times the "
        f"ratio p(image) / p(control) to the power {method.alpha:g}, on the support: candidates at least "
        f"{method.beta:g} times as probable, given the image, as the most probable one. A dash means outside the "
        "support. End tokens have no contrast. The student is the model itself unless another one is given."
    )


def notes(seen: Sequence[ResponseContrast]) -> list[str]:
    """Return what a reader must know about a comparison."""
    return [
        f"{other.name} tokenizes the response differently from {seen[0].name}, so no difference can be shown."
        for other in seen[1:]
        if not _same_tokens(seen[0], other)
    ]


def _same_tokens(one: ResponseContrast, other: ResponseContrast) -> bool:
    return one.response == other.response and [t.realised.text for t in one.tokens] == [
        t.realised.text for t in other.tokens
    ]


def model_row(one: ResponseContrast) -> TokenRow:
    """Colour a response by its contrast under one model."""
    mean = math.fsum(token.realised.contrast for token in one.tokens) / len(one.tokens)
    return TokenRow(one.name, f"mean contrast {signed_nats(mean)}", [_coloured(token) for token in one.tokens])


def difference_rows(seen: Sequence[ResponseContrast]) -> list[TokenRow]:
    """Colour a response by what each further model adds to the contrast of the one before it."""
    rows = []
    for before, after in pairwise(seen):
        if not _same_tokens(before, after):
            continue
        tokens = [
            ColouredToken(
                old.realised.text,
                new.realised.contrast - old.realised.contrast,
                f"contrast {signed_nats(old.realised.contrast)} in {before.name}, "
                f"{signed_nats(new.realised.contrast)} in {after.name}: "
                f"{signed_nats(new.realised.contrast - old.realised.contrast)}",
            )
            for old, new in zip(before.tokens, after.tokens, strict=True)
        ]
        rows.append(TokenRow(f"{after.name} - {before.name}", "contrast added", tokens))
    return rows


def _coloured(token: TokenScore) -> ColouredToken:
    realised = token.realised
    plural = "" if token.support_size == 1 else "s"
    about = (
        f"contrast {signed_nats(realised.contrast)}{', an end token' if token.is_end else ''}; "
        f"{token.support_size} candidate{plural} in the support; "
        f"KL(target || image) {token.kl_target_original:.4f} nats"
    )
    details = [_detail(candidate, candidate == realised) for candidate in token.candidates]
    return ColouredToken(realised.text, realised.contrast, about, details)


def _detail(candidate: CandidateScore, is_said: bool) -> TokenDetail:
    target = "-" if candidate.log_q is None else probability(candidate.log_q)
    cells = (
        probability(candidate.log_p_original),
        probability(candidate.log_p_control),
        signed(candidate.contrast, digits=4),
        target,
        probability(candidate.log_p_student),
    )
    return TokenDetail(candidate.text, cells, "said" if is_said else "off" if candidate.log_q is None else "")


def probability(log_p: float) -> str:
    """Format a probability, given its logarithm, with four digits after the point, or as a power of ten.

    >>> probability(-0.5), probability(-20.0), probability(float("-inf"))
    ('0.6065', '2.1e-09', '0')
    """
    value = math.exp(log_p)
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}" if value > 0 else "0"


def _maps(first: ResponseContrast, maps: Mapping[str, Sequence[TileMap]]) -> Html:
    several = [(name, one) for name, own in maps.items() for one in own]
    if not several:
        return Html("")
    scale = full_colour(value for _, one in several for row in one.support for value in row)
    items = [HeatMap(*_titles(name, one), first.images[0], one.support) for name, one in several]
    legend = colour_legend(scale, low="the tile makes it less likely", high="more likely")
    return Html(legend + heat_maps(items, scale))


def _titles(name: str, one: TileMap) -> tuple[str, str]:
    kind = "in the response" if one.is_realised else "preferred by the target"
    title = f"\u201c{one.candidate.text.strip()}\u201d"
    return title, f"token {one.position + 1}, {kind}; contrast {signed_nats(one.candidate.contrast)} ({name})"
