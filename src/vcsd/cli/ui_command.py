"""`vcsd ui`: a model in the browser. Heavy imports wait until the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from vcsd.terminal import say


def ui(
    model: Annotated[str, typer.Argument(help="A model folder, a hub id, or world for the shipped base.")] = "world",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; default: the first free one from 7860.")
    ] = None,
    max_pixels: Annotated[
        int | None, typer.Option(metavar="N", help="Shrink images larger than N pixels; default: the model's limit.")
    ] = None,
) -> None:
    """Ask a model about an image in the browser: answer, contrast of each token, sliders for alpha and beta.

    Needs the extra `ui`. Listens on 127.0.0.1 only and sends nothing anywhere. Ctrl-C ends it.

    Example: `vcsd ui world`
    """
    from vcsd.inspect.opened import open_model
    from vcsd.inspect.ui.ui_app import Desk, build, gradio, serve
    from vcsd.monitor.machine import hush_transformers

    gradio()  # a missing extra is reported before the model loads
    hush_transformers()
    blocks = build(Desk(open_model(model, max_pixels=max_pixels)))
    say(f"vcsd ui listens on {serve(blocks, port)}. Ctrl-C ends it.")
    blocks.block_thread()
