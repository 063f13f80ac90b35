"""`vcsd contrast`: what the image changes, token by token. Heavy imports wait until the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vcsd.errors import ConfigError
from vcsd.terminal import say, show_log

if TYPE_CHECKING:
    from PIL.Image import Image


_Tiles = Annotated[
    int | None,
    typer.Option(metavar="N", help="Map which parts of the image support a token, by erasing N x N tiles in turn."),
]
_Token = Annotated[int | None, typer.Option(metavar="N", help="With --tiles: the token to map, counted from 1.")]
_MaxPixels = Annotated[
    int | None, typer.Option(metavar="N", help="Shrink images larger than N pixels; default: the model's limit.")
]


def contrast(  # noqa: PLR0913, PLR0917  one argument for each option
    model: Annotated[str, typer.Argument(help="A model folder, a hub id, or world for the shipped base.")],
    image: Annotated[Path | None, typer.Option(help="The image; default for world: one of its pictures.")] = None,
    question: Annotated[str | None, typer.Option(help="The question about the image.")] = None,
    response: Annotated[str | None, typer.Option(help="The response to score; default: MODEL's own answer.")] = None,
    compare: Annotated[
        list[str] | None, typer.Option(help="Another model to score the same way; may be repeated.")
    ] = None,
    student: Annotated[str | None, typer.Option(help="The student shown next to the target; default: MODEL.")] = None,
    output: Annotated[Path | None, typer.Option(help="A file to write: .html, .png, .svg or .json.")] = None,
    tiles: _Tiles = None,
    token: _Token = None,
    control: Annotated[str, typer.Option(help="The control: black, noise, blur or no_image.")] = "black",
    alpha: Annotated[float, typer.Option(help="Strength of the contrast in the target.")] = 1.0,
    beta: Annotated[float, typer.Option(help="Plausibility threshold of the support.")] = 0.1,
    temperature: Annotated[float, typer.Option(help="Temperature of all distributions.")] = 2.0,
    thinking: Annotated[
        bool | None, typer.Option(help="Turn Qwen3.5's thinking on or off; default: as in its template.")
    ] = None,
    max_pixels: _MaxPixels = None,
) -> None:
    """Colour each token of a response by how much more likely the image makes it than the control.

    Example: `vcsd contrast world --tiles 6 --output contrast.html`

    Your image: `vcsd contrast MODEL --image photo.jpg --question "What is on the sign?" --compare runs/first/student`
    """
    from vcsd.inspect.contrast_file import write_contrast
    from vcsd.inspect.contrast_terminal import contrast_lines
    from vcsd.inspect.image_tiles import tile_map
    from vcsd.inspect.opened import OpenedModel, open_model
    from vcsd.inspect.token_scores import same_response, token_contrast
    from vcsd.method import Method
    from vcsd.monitor.work_bar import WorkBar

    _refuse_options(output, token, tiles)
    _show_own_log()
    method = Method(contrast_view=control, alpha=alpha, beta=beta, temperature=temperature)
    shown, asked = _asked(model, image, question)
    switches = {} if thinking is None else {"enable_thinking": thinking}
    names = _short_names([model, *(compare or [])])

    def opened(path: str) -> OpenedModel:
        return open_model(path, name=names.get(path, path), max_pixels=max_pixels, chat_template_kwargs=switches)

    with WorkBar("models") as bar:
        bar.begin(0, 1 + len(compare or []))
        own_student = None if student is None else opened(student).model
        first = opened(model)
        seen = [token_contrast(first, shown, asked, response=response, method=method, student=own_student)]
        bar.step()
        for one in map(opened, compare or []):
            seen.append(token_contrast(one, shown, asked, response=same_response(first, seen[0], one), method=method))
            bar.step()
    positions = None if token is None else [token - 1]
    maps = {} if tiles is None else {first.name: tile_map(first, seen[0], side=tiles, positions=positions)}
    Console().print(contrast_lines(seen))
    if output is not None:
        say(f"Wrote {write_contrast(seen, output, maps)}.{_NO_MAP if maps == {first.name: []} else ''}")


_NO_MAP = " No token was mapped: the image makes none more likely by 0.01 nats. Use --token N to map one anyway."
"""Added to the last message if --tiles leads to no map."""


def _show_own_log() -> None:
    from vcsd.monitor.machine import hush_transformers

    show_log()
    hush_transformers()


def _refuse_options(output: Path | None, token: int | None, tiles: int | None) -> None:
    from vcsd.inspect.contrast_file import MAPPED, refuse_ending

    if output is not None:
        refuse_ending(output)
    if token is not None and tiles is None:
        raise ConfigError(["--token chooses what --tiles maps. Add --tiles 6."])
    if tiles is not None and (output is None or output.suffix.lower() not in MAPPED):
        raise ConfigError([f"--tiles draws maps, which only {' and '.join(MAPPED)} show. Add --output contrast.html."])


def _asked(model: str, image: Path | None, question: str | None) -> tuple[Image | Path, str]:
    """Return the image and the question. The world has a picture and a question of its own."""
    from vcsd.inspect.opened import WORLD, world_question

    if model == WORLD and image is None:
        picture, own_question = world_question()
        return picture, own_question if question is None else question
    if question is None and image is not None:
        raise ConfigError(["--question is missing: what to ask about the image."])
    if image is None or question is None:
        raise ConfigError(["--image is missing. Only the model 'world' has a picture and a question of its own."])
    if not image.is_file():
        raise ConfigError([f"--image {str(image)!r}: there is no such file. Give the path of a picture."])
    return image, question


def _short_names(paths: list[str]) -> dict[str, str]:
    """Name each model by the last part of its path, or by the whole path if two would share a name."""
    short = [Path(path).name or path for path in paths]
    return {path: name if short.count(name) == 1 else path for path, name in zip(paths, short, strict=True)}
