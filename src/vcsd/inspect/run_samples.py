"""Samples in a run report: pictures, questions, and responses whose tokens are coloured by their contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcsd.errors import DataError
from vcsd.inspect.run_folder import evenly_chosen, prompt_of
from vcsd.monitor.thumbnails import FOLDER as THUMBNAILS
from vcsd.report.markup import Html, text
from vcsd.report.parts import picture
from vcsd.report.tokens import ColouredToken, colour_legend, full_colour, signed_nats, tokens_only
from vcsd.views.original import load_image

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from PIL import Image

    from vcsd.inspect.run_folder import RunRecord
    from vcsd.monitor.lines import JsonLine

MOST_SAMPLES = 24
"""The most samples shown of each run, spread over training."""

MOST_TEXT = 4000
"""The most characters shown of a response."""

MOST_COLOURED = 160
"""The most tokens of a response shown in colour; for a longer one, the whole text follows below."""


def sampled(runs: Sequence[RunRecord]) -> Html:
    """Show collapsible samples of each run, spread over its training; all are coloured on one scale."""
    chosen = {run.name: evenly_chosen(run.samples, MOST_SAMPLES) for run in runs}
    values = [value for records in chosen.values() for record in records for _, value in coloured_tokens(record)]
    scale = full_colour(values)
    parts = [
        f"<h3>{text(run.name)}</h3>"
        + "".join(
            _sample(run, record, scale, group=f"sample-{number}-{index}")
            for index, record in enumerate(chosen[run.name])
        )
        for number, run in enumerate(runs)
        if chosen[run.name]
    ]
    legend = colour_legend(scale, low="the image makes it less likely", high="more likely")
    return Html((legend if values else "") + "".join(parts))


def coloured_tokens(record: JsonLine) -> list[tuple[str, float]]:
    """Return the first tokens of a response with their contrast; nothing if the sample has none."""
    tokens, contrast = record.get("tokens"), record.get("contrast")
    if not isinstance(tokens, list) or not isinstance(contrast, list):
        return []
    pairs = zip(tokens[:MOST_COLOURED], contrast, strict=False)
    return [(str(token), float(value)) for token, value in pairs if isinstance(value, int | float)]


def _sample(run: RunRecord, record: JsonLine, scale: float, *, group: str) -> str:
    answer, response = record.get("answer"), str(record.get("response", ""))
    about = f"{record.get('num_tokens')} tokens, stopped by {record.get('stop')}"
    if len(response) > MOST_TEXT:
        response = f"{response[:MOST_TEXT]} [... {len(response) - MOST_TEXT} more characters]"
    given = f'<p class="soft">answer in the data: {text(answer)}</p>' if answer else ""
    said = _coloured(record, scale, group) or f"<pre>{text(response)}</pre>"
    if said and len(record.get("tokens") or ()) > MOST_COLOURED:
        said += f"<p>The whole response:</p><pre>{text(response)}</pre>"
    is_open = " open" if len(response) <= 400 else ""
    return (
        f"<details{is_open}><summary>step {text(record.get('step'))} "
        f'<span class="soft">{text(record.get("example_id"))}; {text(about)}</span></summary><div class="sample">'
        f'<div class="images">{_images(run.folder, record)}</div><div><p class="question">{text(prompt_of(record))}</p>'
        f"{said}{given}</div></div></details>"
    )


def _coloured(record: JsonLine, scale: float, group: str) -> str:
    tokens = [ColouredToken(token, value, f"contrast {signed_nats(value)}") for token, value in coloured_tokens(record)]
    name = f"response at step {record.get('step')} to {record.get('example_id')}"
    return tokens_only(name, tokens, group=group, scale=scale) if tokens else ""


def _images(folder: Path, record: JsonLine) -> str:
    """Show the thumbnails of a sample; for an older run, which has none, the names of the files.

    The files themselves are not opened: a run from someone else could name any picture on this machine.
    """
    small = stored_pictures(folder, record)
    if small or "thumbnails" in record:
        return "".join(picture(image, is_photo=True) for image in small)
    return "".join(_file_name(one) for one in record.get("images", ()))


def stored_pictures(folder: Path, record: JsonLine) -> list[Image.Image]:
    """Load the thumbnails that a record names, from the run's own folder and nowhere else."""
    names = [str(path).rpartition("/")[2] for path in record.get("thumbnails") or ()]
    images = []
    for name in names:
        path = folder / THUMBNAILS / name
        if not path.resolve().is_relative_to(folder.resolve()):  # a link
            continue
        try:
            images.append(load_image("sample", path))
        except DataError:  # deleted, or partly copied
            continue
    return images


def _file_name(reference: object) -> str:
    file = reference.get("file") if isinstance(reference, dict) else None
    return f'<p class="soft">{text(file)}</p>' if isinstance(file, str) else ""
