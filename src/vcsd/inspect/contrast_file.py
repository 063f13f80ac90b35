"""Write a token contrast to a file in the format that the ending names: .html, .png, .svg or .json."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from vcsd.errors import ConfigError
from vcsd.inspect.contrast_figure import require_matplotlib, write_figure
from vcsd.inspect.contrast_page import colour_scale, contrast_page
from vcsd.report.page import write_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from vcsd.inspect.image_tiles import TileMap
    from vcsd.inspect.token_scores import ResponseContrast

FIGURES = (".png", ".svg")
"""Drawn by matplotlib."""

MAPPED = (".html", ".json")
"""These also show tile maps."""

ENDINGS = (".html", *FIGURES, ".json")


def refuse_ending(path: str | PathLike[str]) -> None:
    """Raise a ConfigError unless the ending of a path names a format that can be written here.

    Call this before loading a model.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise ConfigError([f"output = {str(path)!r} ends in {ending!r}. Choose one of {', '.join(ENDINGS)}."])
    if ending in FIGURES:
        require_matplotlib(Path(path))


def write_contrast(
    seen: Sequence[ResponseContrast],
    path: str | PathLike[str],
    maps: Mapping[str, Sequence[TileMap]] | None = None,
) -> Path:
    """Write responses under one or more models, and the tile maps of some of them by name; return the path."""
    refuse_ending(path)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".html":
            write_page(contrast_page(seen, maps), path)
        elif path.suffix.lower() == ".json":
            path.write_text(json.dumps(contrast_json(seen, maps), indent=1) + "\n", encoding="utf-8")
        else:
            write_figure(seen, path)
    except OSError as error:
        raise ConfigError([f"{path} cannot be written: {error}. Choose another file (--output)."]) from error
    return path


def contrast_json(
    seen: Sequence[ResponseContrast], maps: Mapping[str, Sequence[TileMap]] | None = None
) -> dict[str, object]:
    """Return everything but the images as JSON values."""
    models = [
        {
            "name": one.name,
            "tokens": [asdict(token) for token in one.tokens],
            "tile_maps": [asdict(own) for own in (maps or {}).get(one.name, ())],
        }
        for one in seen
    ]
    first = seen[0]
    source = "model" if first.is_sampled else "given"
    head = {"question": first.question, "method": asdict(first.method), "response_from": source}
    return {**head, "colour_scale": colour_scale(seen), "models": models}
